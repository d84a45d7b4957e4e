//! launcher.rs - start one program in a process of its own kind, wait for it, and leave nothing behind.
//!
//! Owns:      the hidden command `hakmem bench-launch`: a small process that stands between the bench and every
//!            program that it measures. One request on standard input, one answer on standard output.
//! Invariant: when the launcher has answered or died, no process that it started is left: they are its
//!            descendants for ever (PR_SET_CHILD_SUBREAPER), also those that made a session of their own.
//! Signals:   the program has its own process group, so that Ctrl-C reaches the bench alone. The bench's end, even
//!            by SIGKILL, closes the launcher's standard input, and all is killed; if the launcher itself is
//!            killed, the program dies with it (PR_SET_PDEATHSIG).
//! Rejected:  forking from the bench itself: it has threads, and its memory would count as the program's peak.

use super::perf::{self, Counters};
use crate::system::error_text;
use crate::text::Failure;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, mem, ptr, thread};

/// More than any workload says; what a broken one prints beyond it is thrown away.
const CAPTURE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Request {
    pub command: Vec<String>,
    /// All of the program's environment.
    pub environment: Vec<(String, String)>,
    pub timeout_ms: u64,
    /// Count with the processor's counters, if they can be had.
    pub is_counted: bool,
    /// The bench's folder of copies, removed for it if it cannot do so itself any more.
    pub scratch: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Why the program could not be started.
    pub refused: Option<String>,
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub has_timed_out: bool,
    pub wall_ns: u64,
    pub user_us: u64,
    pub system_us: u64,
    pub faults: u64,
    pub switches_voluntary: u64,
    pub switches_involuntary: u64,
    pub out: String,
    pub err: String,
    /// Processes that were still there after the program's end, and were killed.
    pub leftovers: u32,
    pub counters: Option<Counters>,
}

/// The command `hakmem bench-launch`.
pub fn serve() -> Result<u8, Failure> {
    let trouble = |what: String| Failure::start(format!("bench-launch: {what}"));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| trouble(error_text(&error)))?;
    let request: Request = serde_json::from_str(&line)
        .map_err(|error| trouble(format!("this command is for `hakmem bench` only ({error})")))?;
    own_group_make();
    let Some(answer) = run(&request) else {
        let _ = fs::remove_dir_all(&request.scratch);
        return Ok(1); // nobody is there to hear it
    };
    let text = serde_json::to_string(&answer).map_err(|error| trouble(error.to_string()))?;
    println!("{text}");
    Ok(0)
}

/// Nothing that a terminal sends may end this process before it has cleaned up.
fn own_group_make() {
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTTOU] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// None: the bench is gone.
fn run(request: &Request) -> Option<Answer> {
    let mut answer = Answer::default();
    let counters = if request.is_counted { perf::open() } else { None };
    let started = Instant::now();
    let mut child = match child_start(request) {
        Ok(child) => child,
        Err(reason) => {
            answer.refused = Some(reason);
            return Some(answer);
        }
    };
    let mut out = Stream::new(child.stdout.take().map(OwnedFd::from));
    let mut err = Stream::new(child.stderr.take().map(OwnedFd::from));
    let deadline = started + Duration::from_millis(request.timeout_ms);
    let end = wait(&child, deadline, &mut out, &mut err);
    if end != Event::Ended {
        group_kill(child.id());
    }
    answer.has_timed_out = end == Event::TimedOut;
    child_reap(&child, &mut answer);
    answer.wall_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    answer.leftovers = descendants_kill(child.id());
    if end == Event::BenchGone {
        return None;
    }
    answer.out = out.take();
    answer.err = err.take();
    answer.counters = counters.and_then(perf::Open::read);
    Some(answer)
}

fn child_start(request: &Request) -> Result<Child, String> {
    let [program, arguments @ ..] = request.command.as_slice() else { return Err("no program".to_owned()) };
    let launcher = unsafe { libc::getpid() };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(request.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != launcher {
                libc::_exit(127); // it died before we asked to be told
            }
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTTOU] {
                libc::signal(signal, libc::SIG_DFL);
            }
            limits_set();
            Ok(())
        });
    }
    command.spawn().map_err(|error| error_text(&error))
}

/// The same limits for every run, whatever shell the bench was started from: no limit of memory as far as we may
/// lift it, a stack of 8 MiB, no core files of broken allocators.
fn limits_set() {
    let set = |which, wanted| unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(which, &mut limit) == 0 {
            limit.rlim_cur = if limit.rlim_max < wanted { limit.rlim_max } else { wanted };
            libc::setrlimit(which, &limit);
        }
    };
    set(libc::RLIMIT_AS, libc::RLIM_INFINITY);
    set(libc::RLIMIT_DATA, libc::RLIM_INFINITY);
    set(libc::RLIMIT_CPU, libc::RLIM_INFINITY);
    set(libc::RLIMIT_STACK, 8 << 20);
    set(libc::RLIMIT_CORE, 0);
}

// --- waiting ---------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq)]
enum Event {
    Ended,
    TimedOut,
    BenchGone,
}

struct Stream {
    file: Option<File>,
    text: Vec<u8>,
}

impl Stream {
    fn new(fd: Option<OwnedFd>) -> Stream {
        Stream { file: fd.map(File::from), text: Vec::new() }
    }

    fn poll_entry(&self) -> libc::pollfd {
        let fd = self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
    }

    /// One read of what poll has announced.
    fn read_some(&mut self) {
        let mut buffer = [0; 65536];
        let Some(file) = &mut self.file else { return };
        match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => self.file = None,
            Ok(count) => {
                let room = CAPTURE_BYTES_MAX - self.text.len();
                self.text.extend_from_slice(&buffer[..count.min(room)]);
            }
        }
    }

    /// Everything said, with what is still in the pipe; all writers are dead.
    fn take(mut self) -> String {
        while self.file.is_some() {
            let mut entry = self.poll_entry();
            if unsafe { libc::poll(&mut entry, 1, 0) } <= 0 {
                break;
            }
            self.read_some();
        }
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

fn wait(child: &Child, deadline: Instant, out: &mut Stream, err: &mut Stream) -> Event {
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    // Without pidfd_open (Linux 5.3) we look every few milliseconds.
    let pidfd = i32::try_from(number).ok().filter(|fd| *fd >= 0);
    let pidfd = pidfd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Event::TimedOut;
        }
        let step = if pidfd.is_some() { left } else { left.min(Duration::from_millis(5)) };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [
            entry(pidfd.as_ref().map_or(-1, AsRawFd::as_raw_fd)),
            entry(0),
            out.poll_entry(),
            err.poll_entry(),
        ];
        let timeout_ms = i32::try_from(step.as_millis() + 1).unwrap_or(i32::MAX);
        unsafe { libc::poll(entries.as_mut_ptr(), 4, timeout_ms) };
        if entries[2].revents != 0 {
            out.read_some();
        }
        if entries[3].revents != 0 {
            err.read_some();
        }
        if entries[1].revents != 0 {
            return Event::BenchGone; // nothing is ever sent after the request: this is the end of the file
        }
        if entries[0].revents != 0 || (pidfd.is_none() && has_ended(child)) {
            return Event::Ended;
        }
    }
}

fn has_ended(child: &Child) -> bool {
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        libc::waitid(libc::P_PID, child.id(), &mut info, flags) == 0 && info.si_pid() != 0
    }
}

fn child_reap(child: &Child, answer: &mut Answer) {
    let pid = libc::pid_t::try_from(child.id()).unwrap_or(-1);
    let mut status = 0;
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    while unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } == -1 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
    match libc::WIFSIGNALED(status) {
        true => answer.signal = Some(libc::WTERMSIG(status)),
        false => answer.status = Some(libc::WEXITSTATUS(status)),
    }
    let number = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let micros = |time: libc::timeval| number(time.tv_sec) * 1_000_000 + number(time.tv_usec);
    answer.user_us = micros(usage.ru_utime);
    answer.system_us = micros(usage.ru_stime);
    answer.faults = number(usage.ru_minflt) + number(usage.ru_majflt);
    answer.switches_voluntary = number(usage.ru_nvcsw);
    answer.switches_involuntary = number(usage.ru_nivcsw);
}

// --- leaving nothing behind --------------------------------------------------------------------------

fn group_kill(leader: u32) {
    let group = libc::pid_t::try_from(leader).unwrap_or(0);
    if group > 1 {
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// Kills every descendant; those whose parents die become our children, so that this comes to an end.
fn descendants_kill(leader: u32) -> u32 {
    const PATIENCE: Duration = Duration::from_secs(10); // a process in the kernel's hands may take long to die
    let mut killed = 0;
    let started = Instant::now();
    group_kill(leader);
    loop {
        loop {
            match unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) } {
                0 => break,
                -1 => return killed, // no child is left
                _ => killed += 1,
            }
        }
        if started.elapsed() > PATIENCE {
            return killed;
        }
        for child in own_children() {
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn own_children() -> Vec<libc::pid_t> {
    let pid = unsafe { libc::getpid() };
    let text = fs::read_to_string(format!("/proc/self/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
