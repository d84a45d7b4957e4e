//! process.rs - start a program as if the command had never stood in front of it.
//!
//! Owns:      the search of PATH, exec, and, where somebody must be there at the end, the wait for it.
//! Invariant: the program gets the terminal, files, signal mask and ignored signals that we got.
//! Signals:   what the terminal sends reaches the program by itself, being in its process group; what another
//!            process sends to us is handed on. At a terminal we stop when the program stops, and go on with it. We
//!            outlive the program and then end as it did.
//! Rejected:  std::process::Command: it empties the signal mask, resets SIGPIPE, opens closed standard files,
//!            and its wait has no resource usage.

use crate::system::error_text;
use crate::text::{self, Failure};
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs, io, mem, ptr};

// --- what we inherited, before Rust's start-up changes it ------------------------------------------

const SIGPIPE_IGNORED: u32 = 1 << 3;
const SIGCHLD_IGNORED: u32 = 1 << 4;
static INHERITED: AtomicU32 = AtomicU32::new(0); // bits 0 to 2: that standard file was closed

#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = inherited_record;

extern "C" fn inherited_record() {
    let mut found = 0;
    for file in 0..3 {
        if unsafe { libc::fcntl(file, libc::F_GETFD) } == -1 {
            found |= 1 << file;
        }
    }
    if signal_is_ignored(libc::SIGPIPE) {
        found |= SIGPIPE_IGNORED;
    }
    // Where it is ignored children are nobody's: how they ended could not be asked.
    if signal_is_ignored(libc::SIGCHLD) {
        found |= SIGCHLD_IGNORED;
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    INHERITED.store(found, Relaxed);
}

pub fn signal_is_ignored(signal: c_int) -> bool {
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

fn inherited_restore() {
    let found = INHERITED.load(Relaxed);
    let disposition = if found & SIGPIPE_IGNORED != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
    unsafe {
        libc::signal(libc::SIGPIPE, disposition);
        if found & SIGCHLD_IGNORED != 0 {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        (0..3).filter(|file| found & (1 << file) != 0).for_each(|file| {
            libc::close(file);
        });
    }
}

/// A reader that goes away ends us quietly, as it ends every filter.
pub fn end_on_broken_pipe() {
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

// --- PATH -------------------------------------------------------------------------------------------

/// The file that execvp would start.
pub fn program_find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = text::quote(name);
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable_check(&path) {
            Ok(()) => Ok(path),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
                Err(Failure::not_found(format!("{shown}: {}", error_text(&error))))
            }
            Err(error) => Err(Failure::not_executable(format!("{shown}: {}", error_text(&error)))),
        };
    }
    let mut refused = None;
    let search = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    for folder in env::split_paths(&search).filter(|_| !name.is_empty()) {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let path = folder.join(name);
        match executable_check(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.raw_os_error() == Some(libc::EACCES) && path.is_file() => {
                refused.get_or_insert((path, error));
            }
            Err(_) => {}
        }
    }
    Err(match refused {
        Some((path, error)) => {
            Failure::not_executable(format!("{}: {}", text::quote(&path), error_text(&error)))
        }
        None => Failure::not_found(format!("{shown}: there is no such program in PATH")),
    })
}

fn executable_check(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let path = c_string(path.as_os_str())?;
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

// --- exec -------------------------------------------------------------------------------------------

/// A program that is ready to be started.
pub struct Launch {
    path: PathBuf,
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

impl Launch {
    /// `command` is the program's name and its arguments; `changes` are variables to set.
    pub fn new(path: PathBuf, command: &[OsString], changes: &[(String, OsString)]) -> io::Result<Launch> {
        let is_changed = |name: &OsStr| changes.iter().any(|(changed, _)| name == OsStr::new(changed));
        let kept = env::vars_os().filter(|(name, _)| !is_changed(name));
        let set = changes.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        let entry = |(name, value): (OsString, OsString)| {
            CString::new([name.into_vec(), b"=".to_vec(), value.into_vec()].concat())
        };
        Ok(Launch {
            file: c_string(path.as_os_str())?,
            arguments: command.iter().map(|argument| c_string(argument)).collect::<io::Result<_>>()?,
            environment: kept.chain(set).map(entry).collect::<Result<_, _>>()?,
            path,
        })
    }

    /// Becomes the program; returns only if that cannot be.
    pub fn exec(&self) -> Failure {
        inherited_restore();
        let error = self.image_replace();
        self.failure(&error)
    }

    fn image_replace(&self) -> io::Error {
        let environment = pointers(&self.environment);
        let arguments = pointers(&self.arguments);
        unsafe { libc::execve(self.file.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        // A script without a first line that says so: the shell's, as execvp has it.
        let mut for_shell = vec![c"/bin/sh".to_owned(), self.file.clone()];
        for_shell.extend_from_slice(self.arguments.get(1..).unwrap_or_default());
        unsafe { libc::execve(c"/bin/sh".as_ptr(), pointers(&for_shell).as_ptr(), environment.as_ptr()) };
        error
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let shown = text::quote(&self.path);
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Failure::not_executable(format!("{shown}: {}", error_text(error)));
        }
        Failure::not_found(if self.path.exists() {
            format!("{shown}: its interpreter is not there")
        } else {
            format!("{shown}: {}", error_text(error))
        })
    }
}

// --- fork, wait, and end alike ----------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Status(u8),
    Signal(c_int),
}

/// What the kernel counted for the program and those of its children that it waited for.
#[derive(Debug)]
pub struct Usage {
    pub wall: Duration,
    pub user: Duration,
    pub system: Duration,
    pub resident_peak_bytes: u64,
    pub fault_count: u64,
    pub disk_fault_count: u64,
}

pub struct Outcome {
    pub pid: u32,
    pub end: End,
    pub usage: Usage,
}

/// Signals that other processes send to us and mean the program. SIGINT and SIGQUIT are mostly the
/// terminal's, which sends them to both of us.
const HANDED_ON: [c_int; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];
const ENDING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Longer than a signal needs to all of a process group.
const STOP_PAUSE: Duration = Duration::from_millis(20);
static CHILD: AtomicI32 = AtomicI32::new(0);
/// What is still to be done when the program has ended: see `hurry_on_signals`.
static IS_TO_HURRY: AtomicBool = AtomicBool::new(false);
static HURRIED: AtomicBool = AtomicBool::new(false);
static LAST_WORDS: OnceLock<Vec<u8>> = OnceLock::new();

extern "C" fn signal_hand_on(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let child = CHILD.load(Relaxed);
    if child > 0 && !(unsafe { (*info).si_code } == libc::SI_KERNEL && goes_to_both(signal)) {
        unsafe { libc::kill(child, signal) };
    }
    if child == 0 && ENDING.contains(&signal) && HURRIED.swap(true, Relaxed) {
        if let Some(words) = LAST_WORDS.get() {
            unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
        }
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal); // at our return: it is held back until then
        }
    }
}

/// What the kernel sends to us it sends to the program, too, being of our process group; but not an alarm, which we keep from before,
/// nor that the terminal is gone, where that is told to the session's leader alone.
fn goes_to_both(signal: c_int) -> bool {
    let is_leader = || unsafe { libc::getsid(0) == libc::getpid() };
    signal != libc::SIGALRM && !(signal == libc::SIGHUP && is_leader())
}

/// For who has work that takes a while when the program has ended: a signal then says that this is to be short
/// (`is_hurried`); a second one ends us, with these words on standard error.
pub fn hurry_on_signals(last_words: Vec<u8>) {
    let _ = LAST_WORDS.set(last_words);
    IS_TO_HURRY.store(true, Relaxed);
}

/// The same for who has no program, and begins that work now.
pub fn hurry_from_now(last_words: Vec<u8>) {
    hurry_on_signals(last_words);
    handlers_install();
}

/// As such a signal says it.
pub fn hurry() {
    HURRIED.store(true, Relaxed);
}

pub fn is_hurried() -> bool {
    HURRIED.load(Relaxed)
}

fn handlers_install() {
    for signal in HANDED_ON.into_iter().filter(|signal| !signal_is_ignored(*signal)) {
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction =
                signal_hand_on as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

fn handlers_remove() {
    if IS_TO_HURRY.load(Relaxed) {
        return;
    }
    for signal in HANDED_ON.into_iter().filter(|signal| !signal_is_ignored(*signal)) {
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn handed_on_set() -> libc::sigset_t {
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        HANDED_ON.iter().for_each(|signal| {
            libc::sigaddset(&mut set, *signal);
        });
        set
    }
}

impl Launch {
    /// Starts the program as a child and waits for its end.
    pub fn wait(&self) -> Result<Outcome, Failure> {
        self.wait_beside(|_| || ()).map(|(outcome, ())| outcome)
    }

    /// The same. `begin` is told the child's number when the program runs; what it returns is called when the
    /// program has ended, while the number is still the child's.
    pub fn wait_beside<R, E: FnOnce() -> R>(
        &self,
        begin: impl FnOnce(u32) -> E,
    ) -> Result<(Outcome, R), Failure> {
        let trouble =
            |what: &str| Failure::start(format!("{what}: {}", error_text(&io::Error::last_os_error())));
        // The child's exec closes the pipe; if it fails, the reason comes through it.
        let mut pipe = [0; 2];
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(trouble("no pipe"));
        }
        let started = Instant::now();
        let mut mask: libc::sigset_t = unsafe { mem::zeroed() };
        // Until the handlers know the child, nothing may arrive.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &handed_on_set(), &mut mask) };
        let child = unsafe { libc::fork() };
        if child == -1 {
            return Err(trouble("no process"));
        }
        if child == 0 {
            inherited_restore();
            let number = unsafe {
                libc::sigprocmask(libc::SIG_SETMASK, &mask, ptr::null_mut());
                self.image_replace().raw_os_error().unwrap_or(libc::ENOEXEC)
            };
            unsafe {
                libc::write(pipe[1], (&raw const number).cast(), mem::size_of::<c_int>());
                libc::_exit(127)
            }
        }
        CHILD.store(child, Relaxed);
        handlers_install();
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &mask, ptr::null_mut());
            libc::close(pipe[1]);
        }
        let begun = match error_from_pipe(pipe[0]) {
            Some(error) => Err(self.failure(&error)),
            None => Ok(begin(child as u32)),
        };
        child_end_await(child);
        let wall = started.elapsed();
        let found = begun.map(|end| end());
        let outcome = child_reap(child, wall);
        Ok((outcome?, found?))
    }
}

fn error_from_pipe(file: c_int) -> Option<io::Error> {
    let mut number: c_int = 0;
    let bytes = loop {
        let bytes = unsafe { libc::read(file, (&raw mut number).cast(), mem::size_of::<c_int>()) };
        if bytes != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break bytes;
        }
    };
    unsafe { libc::close(file) };
    (bytes > 0).then(|| io::Error::from_raw_os_error(number))
}

fn is_interrupted() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// Only looks: while the child is a zombie its number cannot name another process, so that a signal handed on in
/// this moment goes nowhere else.
fn child_end_await(child: c_int) {
    while let Some(info) = child_look(child, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT) {
        if info.si_code != libc::CLD_STOPPED {
            return;
        }
        // What the terminal stopped stops us as well, here; continued, as we are then, the child is stopped no more.
        std::thread::sleep(STOP_PAUSE);
        let Some(stop) = child_look(child, libc::WSTOPPED | libc::WNOHANG) else { return };
        if unsafe { stop.si_pid() } == child && is_foreground(child) {
            stop_alike(child, unsafe { stop.si_status() });
        }
    }
}

fn child_look(child: c_int, flags: c_int) -> Option<libc::siginfo_t> {
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        while libc::waitid(libc::P_PID, child as u32, &mut info, flags) == -1 {
            if !is_interrupted() {
                return None;
            }
        }
        Some(info)
    }
}

/// Somebody at the terminal waits for us, or for the child where it has a process group of its own. Elsewhere a child that
/// stops is only waited for: who continues it need not know of us.
fn is_foreground(child: c_int) -> bool {
    unsafe {
        let terminal = libc::open(c"/dev/tty".as_ptr(), libc::O_RDONLY | libc::O_NOCTTY | libc::O_CLOEXEC);
        if terminal == -1 {
            return false;
        }
        let group = libc::tcgetpgrp(terminal);
        libc::close(terminal);
        group > 0 && (group == libc::getpgrp() || group == libc::getpgid(child))
    }
}

/// A shell that waits for us sees us stop as the program did. When we go on, so does the program.
fn stop_alike(child: c_int, signal: c_int) {
    unsafe {
        let before = libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        if before != libc::SIG_ERR {
            libc::signal(signal, before);
        }
        libc::kill(child, libc::SIGCONT);
    }
}

fn child_reap(child: c_int, wall: Duration) -> Result<Outcome, Failure> {
    CHILD.store(0, Relaxed);
    handlers_remove();
    unsafe {
        let mut status = 0;
        let mut usage: libc::rusage = mem::zeroed();
        while libc::wait4(child, &mut status, 0, &mut usage) == -1 {
            if !is_interrupted() {
                let error = io::Error::last_os_error();
                return Err(Failure::start(format!("the program is lost: {}", error_text(&error))));
            }
        }
        let end = match libc::WIFSIGNALED(status) {
            true => End::Signal(libc::WTERMSIG(status)),
            false => End::Status(libc::WEXITSTATUS(status) as u8),
        };
        let usage = Usage {
            wall,
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            resident_peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
            fault_count: u64::try_from(usage.ru_minflt + usage.ru_majflt).unwrap_or(0),
            disk_fault_count: u64::try_from(usage.ru_majflt).unwrap_or(0),
        };
        Ok(Outcome { pid: child as u32, end, usage })
    }
}

fn duration(time: libc::timeval) -> Duration {
    let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
    Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_micros(micros.unwrap_or(0))
}

/// The exit status that says how the program ended; for a death by signal we die of the same, so that whoever
/// started us sees no difference, but without a core of our own.
pub fn end_alike(end: End) -> u8 {
    let signal = match end {
        End::Status(status) => return status,
        End::Signal(signal) => signal,
    };
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        // A core_pattern that is a pipe ignores the limit.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// SIGSEGV and its like by name.
pub fn signal_name(signal: c_int) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        assert!(program_find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(program_find(OsStr::new("/bin/sh")), Ok(PathBuf::from("/bin/sh")));
        for (name, status) in
            [("no-such-program", 127), ("", 127), ("/no/such", 127), ("/", 126), ("/etc/passwd", 126)]
        {
            assert_eq!(program_find(OsStr::new(name)).unwrap_err().status, status, "{name}");
        }
    }

    #[test]
    fn an_argument_with_a_zero_byte_is_refused() {
        let command = [OsString::from("a\0b")];
        assert!(Launch::new(PathBuf::from("/bin/sh"), &command, &[]).is_err());
    }
}
