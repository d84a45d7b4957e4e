//! subject.rs - all about a live process that its tables do not say: its name, its mappings, its settings.

use super::convert::Subject;
use super::memory::Process;
use super::raw::Published;
use crate::options::OPTIONS;
use crate::profile::file::name_clean;
use crate::profile::model::{Program, Setting};
use crate::symbols::perf_map::Author;
use crate::system;
use crate::text::Failure;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// CLOCK_MONOTONIC, as the library's times are.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The same moment as a date.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn of_process(process: &Process, published: &Published, reason: &str) -> Result<Subject, Failure> {
    let pid = process.pid;
    let program = program_of(pid);
    let kib = |name| {
        let value = system::status_field(pid, name).ok().flatten()?;
        Some(value.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    // A program that records from its start has begun within a second of it.
    let late_ms = (published.start_realtime_ns / 1_000_000).saturating_sub(program.started_unix_ms);
    Ok(Subject {
        author: Author::running(user_of(pid), program.started_unix_ms),
        is_attached: late_ms > 1000,
        program,
        mappings: process.mappings()?,
        root: PathBuf::from(format!("/proc/{pid}/root")),
        settings: settings_of(&system::environment(pid).unwrap_or_default()),
        resident_bytes: kib("VmRSS").unwrap_or(0),
        resident_peak_bytes: kib("VmHWM").unwrap_or(0),
        now_ns: now_ns(),
        reason: reason.to_owned(),
    })
}

fn user_of(pid: u32) -> Option<u32> {
    let ids = system::status_field(pid, "Uid").ok().flatten()?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

/// Who wrote the map of a process that was seen at `seen_unix_ms` and had this image. Where it runs still, it writes on;
/// who has its number now and began later is another. `user`: whose the process was, if it is gone.
pub fn author_then(pid: u32, image: &str, seen_unix_ms: u64, user: Option<u32>) -> Author {
    let stat = system::text_read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_image = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == Path::new(image));
    match started_unix_ms(&stat).filter(|started| is_image && *started <= seen_unix_ms) {
        Some(started) => Author::running(user_of(pid), started),
        None => Author::ended(user, seen_unix_ms),
    }
}

fn program_of(pid: u32) -> Program {
    let text = |name: &str| system::text_read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let path = path.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = command.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
    let mut command: Vec<String> = command.collect();
    command.pop(); // behind the last zero
    let mut program = Program {
        name: text("comm").trim_end().to_owned(),
        path,
        command,
        pid,
        started_unix_ms: started_unix_ms(&text("stat")).unwrap_or(0),
        ..machine()
    };
    name_clean(&mut program.name);
    name_clean(&mut program.path);
    program.command.iter_mut().for_each(name_clean);
    program
}

/// What is true of every program here.
fn machine() -> Program {
    let host = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    Program {
        host: std::ffi::OsStr::from_bytes(host.trim_ascii_end()).to_string_lossy().into_owned(),
        kernel: system::kernel_release().unwrap_or_default(),
        machine: std::env::consts::ARCH.to_owned(),
        processor_count: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        memory_bytes: memory_bytes().unwrap_or(0),
        page_bytes: system::page_bytes(),
        ..Program::default()
    }
}

fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Field 22 of /proc/PID/stat counts clock ticks since boot. (The date of boot in /proc/stat is of whole seconds.)
fn started_unix_ms(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    let per_second =
        u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|rate| *rate > 0)?;
    let age_ms = (clock_ns(libc::CLOCK_BOOTTIME) / 1_000_000).checked_sub(ticks * 1000 / per_second)?;
    (clock_ns(libc::CLOCK_REALTIME) / 1_000_000).checked_sub(age_ms)
}

/// The library's options in an environment: those that were set.
pub fn settings_of(environment: &[(String, String)]) -> Vec<Setting> {
    let mut settings: Vec<Setting> = OPTIONS
        .iter()
        .map(|row| {
            let set = environment.iter().find(|(name, _)| *name == row.variable());
            let value = set.map_or_else(|| row.default_text(), |(_, value)| value.clone());
            Setting { name: row.name.to_owned(), is_default: value == row.default_text(), value }
        })
        .collect();
    settings.iter_mut().for_each(|setting| name_clean(&mut setting.value));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_again_is_of_another_process() {
        let (pid, image) = (std::process::id(), std::env::current_exe().unwrap());
        let image = image.to_str().unwrap();
        let now_ms = realtime_ns() / 1_000_000;
        let gone = |seen_ms| Author::ended(Some(7), seen_ms);
        assert_ne!(author_then(pid, image, now_ms, Some(7)), gone(now_ms));
        assert_eq!(author_then(pid, "/bin/another", now_ms, Some(7)), gone(now_ms));
        assert_eq!(author_then(pid, image, now_ms - 86_400_000, Some(7)), gone(now_ms - 86_400_000));
        assert_eq!(author_then(u32::MAX >> 1, image, now_ms, Some(7)), gone(now_ms));
    }
}
