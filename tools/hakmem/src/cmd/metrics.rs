//! `hakmem metrics`: a running process's memory in Prometheus's text format, once or for whoever asks.
//!
//! Names:  hakmem_<counter>_total for the library's counters, hakmem_<thing>_bytes for what is now; by size class with
//!         the label class_bytes. One process, so no label names it: the scraper's own labels do.
//! Serves: on loopback only, one answer at a time; it has no passwords, and numbers about a process are not for all.

use crate::options::COUNTERS;
use crate::recording::attach::Attached;
use crate::recording::pages::{Census, Residence};
use crate::recording::raw::{self, Tables};
use crate::system;
use crate::text::{self, Failure};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// The process, which runs with the library
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// Answer at http://ADDRESS:PORT/metrics, a loopback address, until the process ends
    #[arg(long, value_name = "ADDRESS:PORT")]
    serve: Option<SocketAddr>,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let attached = Attached::open(arguments.pid)?;
    let Some(address) = arguments.serve else {
        print!("{}", metrics(&attached)?);
        return Ok(0);
    };
    if !address.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{address} is no loopback address; a proxy may carry it further"
        )));
    }
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| {
            Failure::usage(format!("{address} cannot be served: {}", system::error_text(&error)))
        })?;
    let bound = listener.local_addr().unwrap_or(address);
    text::line_to_stderr(&format!(
        "hakmem: http://{bound}/metrics has the metrics of process {}",
        arguments.pid
    ));
    while attached.process.is_alive() {
        match listener.accept() {
            Ok((stream, _)) => {
                let _ = answer(stream, &attached); // who goes away is no matter
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    text::line_to_stderr(&format!("hakmem: process {} has ended", arguments.pid));
    Ok(0)
}

fn answer(mut stream: TcpStream, attached: &Attached) -> std::io::Result<()> {
    const REQUEST_BYTES_MAX: usize = 8 << 10;
    const PATIENCE: Duration = Duration::from_secs(2);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut part)?;
        request.extend_from_slice(&part[..count]);
        if count == 0 || request.len() > REQUEST_BYTES_MAX || Instant::now() > until {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => match metrics(attached) {
            Ok(body) => ("200 OK", body),
            Err(failure) => ("503 Service Unavailable", failure.line + "\n"),
        },
        ("GET" | "HEAD", _) => ("404 Not Found", "/metrics is what there is\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET is what can be done\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// One metric after another, each with its line of help.
#[derive(Default)]
struct Page {
    text: String,
    names: BTreeSet<String>,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', " ");
        let _ = writeln!(self.text, "# HELP hakmem_{name} {help}\n# TYPE hakmem_{name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.text, "hakmem_{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = format!("{name}_total");
        // The library's counters may have a figure of the recording again.
        if !self.names.insert(name.clone()) {
            return;
        }
        self.head(&name, "counter", help);
        let _ = writeln!(self.text, "hakmem_{name} {value}");
    }

    fn by_class(&mut self, name: &str, help: &str, values: impl Iterator<Item = (u64, u64)>) {
        self.head(name, "gauge", help);
        for (bytes, value) in values {
            let _ = writeln!(self.text, "hakmem_{name}{{class_bytes=\"{bytes}\"}} {value}");
        }
    }
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn metrics(attached: &Attached) -> Result<String, Failure> {
    let tables = attached.tables()?;
    let pid = attached.process.pid;
    let residence = Residence::of_process(pid);
    let census = Census::take(&attached.process, &tables.published, &tables.classes, &residence)
        .map_err(|reason| attached.failure(&reason))?;
    Ok(page(&tables, &census, pid))
}

fn page(tables: &Tables, census: &Census, pid: u32) -> String {
    let published = &tables.published;
    let mut page = Page::default();
    let name = system::text_read(format!("/proc/{pid}/comm")).unwrap_or_default();
    page.head("info", "gauge", "The library and the program");
    let version = raw::text_of(&published.library_version);
    let _ = writeln!(
        page.text,
        "hakmem_info{{version=\"{}\",program=\"{}\",pid=\"{pid}\"}} 1",
        label(&version),
        label(name.trim_end())
    );
    let kib = |field| {
        let value = system::status_field(pid, field).ok().flatten()?;
        Some(value.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    if let Some(resident) = kib("VmRSS") {
        page.gauge("resident_bytes", "Resident memory of the process, as the kernel counts it", resident);
    }
    if let Some(peak) = kib("VmHWM") {
        page.gauge("resident_peak_bytes", "The most that was resident", peak);
    }
    let small: u64 = census.classes.iter().map(|class| class.live_count * class.block_bytes).sum();
    page.gauge("small_live_bytes", "Blocks of up to 32 KiB that the program holds", small);
    let in_slabs: u64 = census.classes.iter().map(|class| class.resident_bytes).sum();
    page.gauge("slab_resident_bytes", "Resident memory of slabs", in_slabs);
    page.gauge(
        "sparse_bytes",
        "Of it, what pages less than a quarter in use hold beside their blocks",
        census.sparse_bytes(),
    );
    let used: Vec<_> = census.classes.iter().filter(|class| class.slab_count > 0).collect();
    page.by_class("class_slabs", "Slabs", used.iter().map(|c| (c.block_bytes, c.slab_count)));
    page.by_class(
        "class_live_blocks",
        "Blocks that the program holds",
        used.iter().map(|c| (c.block_bytes, c.live_count)),
    );
    page.by_class(
        "class_resident_bytes",
        "Resident memory of slabs",
        used.iter().map(|c| (c.block_bytes, c.resident_bytes)),
    );
    page.by_class(
        "class_sparse_bytes",
        "What sparse pages pin",
        used.iter().map(|c| (c.block_bytes, c.sparse_bytes)),
    );
    page.gauge("recording", "1 while a recording goes on", u64::from(published.is_on != 0));
    page.gauge(
        "recording_rate_bytes",
        "Mean distance between two samples; 0: none are taken",
        published.rate_bytes,
    );
    page.counter("samples", "Samples taken", published.samples);
    page.counter(
        "samples_lost",
        "Samples that found no place in a table",
        published.lost_live + published.lost_stacks,
    );
    page.counter(
        "samples_without_thread",
        "Samples of threads that found no place in the table of threads",
        published.lost_threads,
    );
    page.counter(
        "recording_held_ns",
        "Time that recording took from the program's threads, nanoseconds",
        published.held_ns,
    );
    page.gauge("recording_held_max_ns", "The longest of it at once", published.held_max_ns);
    let is_on = published.is_on != 0;
    if is_on {
        page.counter("allocated_bytes", "Allocated while recording, estimated", published.alloc_bytes);
        page.counter("freed_bytes", "Of it, freed, estimated", published.free_bytes);
    }
    page.gauge("guarded_blocks", "Live blocks between guard pages", published.guarded_live);
    page.gauge(
        "guarded_freed_blocks",
        "Freed blocks that stay untouchable, so that their use is found",
        published.guarded_freed,
    );
    page.counter("guard_found", "Misuses of guarded blocks that were found", published.guard_found);
    if is_on || published.large_bytes_address != 0 {
        page.gauge("large_live_bytes", "Blocks above 32 KiB that the program holds, and those freed last that its threads keep, up to 3 MiB each", tables.large.bytes);
        page.gauge("large_live_blocks", "How many they are", tables.large.count);
    }
    // The timeline ends with the recording: its last figures are not of now.
    if let Some(last) = tables.timeline.last().filter(|_| is_on) {
        page.gauge("free_bytes", "Free and resident, as the allocator counts it", last.free_bytes);
        page.counter("returned_bytes", "Given back to the kernel", last.returned_bytes);
        page.counter("retouched_bytes", "Of it, used again", last.retouched_bytes);
    }
    for (name, value) in tables.counters.iter().filter(|(name, _)| is_name(name)) {
        let help =
            COUNTERS.iter().find(|row| row.name == name).map_or("A counter of the library", |row| row.text);
        page.counter(name, help, *value);
    }
    page.text
}

/// Names come from another process: only what the format allows goes out.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_names_stay_in_the_format() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert!(is_name("visit_new_slab") && !is_name("a{b") && !is_name(""));
        let mut page = Page::default();
        page.by_class("x", "of\nx", [(16, 1), (32, 2)].into_iter());
        assert_eq!(
            page.text,
            "# HELP hakmem_x of x\n# TYPE hakmem_x gauge\nhakmem_x{class_bytes=\"16\"} 1\nhakmem_x{class_bytes=\"32\"} 2\n"
        );
    }
}
