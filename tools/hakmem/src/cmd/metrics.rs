//! `hakmem metrics`: a running process's memory in Prometheus's text format or OpenTelemetry's messages, once, for whoever
//! asks, or sent to a collector.
//!
//! Serves: on loopback only, one answer at a time; it has no passwords, and numbers about a process are not for all.

use crate::metrics::{self, Endpoint, Reading};
use crate::recording::attach::Attached;
use crate::system;
use crate::text::{self, Failure};
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

    /// Send them by OTLP over HTTP until the process ends; without URL to where OTEL_EXPORTER_OTLP_ENDPOINT says
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with = "serve")]
    otlp: Option<String>,

    /// How often; without it OTEL_METRIC_EXPORT_INTERVAL says, or it is each minute
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), requires = "otlp")]
    every: Option<u64>,

    /// Print them as one request of OTLP in JSON, on one line
    #[arg(long, conflicts_with_all = ["serve", "otlp"])]
    otlp_json: bool,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    if let Some(given) = &arguments.otlp {
        let endpoint = Endpoint::find(given, &metrics::variable)?;
        let every =
            arguments.every.map_or_else(|| metrics::interval(&metrics::variable), Duration::from_secs);
        return metrics::push(&Attached::open(arguments.pid)?, endpoint, every);
    }
    let attached = Attached::open(arguments.pid)?;
    if let Some(address) = arguments.serve {
        return serve(address, &attached);
    }
    let reading = Reading::take(&attached)?;
    if arguments.otlp_json {
        let json = metrics::json(&reading).map_err(|error| Failure::usage(format!("no JSON: {error}")))?;
        println!("{json}");
    } else {
        print!("{}", reading.prometheus());
    }
    Ok(0)
}

fn serve(address: SocketAddr, attached: &Attached) -> Result<u8, Failure> {
    let pid = attached.process.pid;
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
    text::line_to_stderr(&format!("hakmem: http://{bound}/metrics has the metrics of process {pid}"));
    while attached.process.is_alive() {
        match listener.accept() {
            Ok((stream, _)) => {
                let _ = answer(stream, attached); // who goes away is no matter
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    text::line_to_stderr(&format!("hakmem: process {pid} has ended"));
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
        ("GET" | "HEAD", "/metrics") => match Reading::take(attached) {
            Ok(reading) => ("200 OK", reading.prometheus()),
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
