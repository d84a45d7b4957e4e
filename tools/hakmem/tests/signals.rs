//! `hakmem run` and signals: which the program inherits, which reach it, and how it ends, or stops, by them.

mod common;

use common::{WAYS, folder, hakmem, output, program, stand_in, with};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_death_by_signal_is_passed_on() {
    for way in WAYS {
        for signal in
            [libc::SIGKILL, libc::SIGSEGV, libc::SIGTERM, libc::SIGABRT, libc::SIGINT, libc::SIGPIPE]
        {
            let status = with(way, &["sh", "-c", &format!("kill -{signal} $$")])
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(status.signal(), Some(signal), "{way:?}");
        }
    }
}

const SIGNAL_STATE: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
int main(void) {
    struct sigaction action;
    sigset_t mask;
    sigaction(SIGPIPE, 0, &action);
    sigprocmask(SIG_SETMASK, 0, &mask);
    printf("%d %d %d %d\n", action.sa_handler == SIG_IGN, sigismember(&mask, SIGUSR1), sigismember(&mask, SIGTERM),
           fcntl(0, F_GETFD) == -1);
}
"#;

#[test]
fn signal_state_and_closed_files_are_inherited() {
    let folder = folder("inherit");
    let path = program(&folder, "state", SIGNAL_STATE);
    for way in WAYS {
        let mut command = with(way, &[path.to_str().unwrap()]);
        let (_, stdout, _) = output(&mut command);
        assert_eq!(stdout, "0 0 0 0\n", "{way:?}");
        let mut command = with(way, &[path.to_str().unwrap()]);
        unsafe {
            command.pre_exec(|| {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut mask);
                libc::sigaddset(&mut mask, libc::SIGUSR1);
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                libc::close(0);
                Ok(())
            });
        }
        let (_, stdout, _) = output(&mut command);
        assert_eq!(stdout, "1 1 0 1\n", "{way:?}");
    }
}

fn wait_for(path: &Path) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < Duration::from_secs(20), "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that writes down each signal it gets and goes on until SIGTERM.
const LISTENER: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
static const char *folder;
static void got(int signal) {
    char c = signal == SIGINT ? 'i' : signal == SIGTERM ? 't' : 'u';
    int file = open("signals", O_WRONLY | O_CREAT | O_APPEND, 0600);
    write(file, &c, 1);
    close(file);
    if (signal == SIGTERM) _exit(42);
}
int main(int argc, char **argv) {
    chdir(argv[1]);
    signal(SIGINT, got), signal(SIGTERM, got), signal(SIGUSR1, got);
    close(open("ready", O_WRONLY | O_CREAT, 0600));
    for (;;) pause();
}
"#;

#[test]
fn signals_sent_to_the_command_reach_the_program_once() {
    let folder = folder("signals");
    let path = program(&folder, "listener", LISTENER);
    let arguments = ["run", "--report", "--", path.to_str().unwrap(), folder.to_str().unwrap()];
    let mut child = hakmem(&arguments).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&folder.join("ready"));
    let log = folder.join("signals");
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    for (signal, so_far) in [(libc::SIGUSR1, "u"), (libc::SIGINT, "ui"), (libc::SIGTERM, "uit")] {
        unsafe { libc::kill(child.id() as i32, signal) };
        let started = Instant::now();
        while logged() != so_far {
            assert!(started.elapsed() < Duration::from_secs(20), "{} instead of {so_far}", logged());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(42));
    assert_eq!(logged(), "uit");
}

#[test]
fn ctrl_c_reaches_the_program_once_and_the_report_is_still_printed() {
    // util-linux's script gives the command a terminal of its own; the listener decides whether to end.
    if !Path::new("/usr/bin/script").exists() {
        return;
    }
    let folder = folder("terminal");
    let path = program(&folder, "listener", LISTENER);
    // exec: a shell that waits would raise SIGINT itself after us, as dash does, and its status would hide ours.
    let hakmem = env!("CARGO_BIN_EXE_hakmem");
    let command = format!("exec {hakmem} run --report -- {} {}", path.display(), folder.display());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).env("HAKMEM_LIB", stand_in()).env("NO_COLOR", "1");
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&folder.join("ready"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\x03").unwrap();
    stdin.flush().unwrap();
    wait_for(&folder.join("signals"));
    std::thread::sleep(Duration::from_millis(100));
    let log = folder.join("signals");
    assert_eq!(fs::read_to_string(&log).unwrap(), "i");
    // Now ask the listener itself to end; the command must have survived the Ctrl-C to tell its status.
    let listener = listener_of(&path);
    unsafe { libc::kill(listener, libc::SIGTERM) };
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42), "{shown}");
    assert!(shown.contains("listener ended with status 42"), "{shown}");
}

/// A shell with job control waits for its child, which is the command: it must see that stop.
#[test]
fn a_program_that_stops_itself_gives_the_terminal_back_and_goes_on() {
    if !Path::new("/usr/bin/script").exists() || Command::new("bash").arg("--version").output().is_err() {
        return;
    }
    let hakmem = env!("CARGO_BIN_EXE_hakmem");
    for (signal, status) in [("TSTP", 128 + libc::SIGTSTP), ("STOP", 128 + libc::SIGSTOP)] {
        let program = format!("sh -c 'kill -{signal} $$; echo woke; exit 7'");
        let job =
            format!("{hakmem} run --report -- {program}; echo stopped $?; fg >/dev/null; echo ended $?");
        let quoted = job.replace('\'', "'\\''");
        let mut terminal = Command::new("timeout");
        terminal.args([
            "-k",
            "1",
            "20",
            "script",
            "-qec",
            &format!("bash --norc -mc '{quoted}'"),
            "/dev/null",
        ]);
        terminal.env("HAKMEM_LIB", stand_in()).env("NO_COLOR", "1").stdin(Stdio::piped());
        let (_, shown, _) = output(&mut terminal);
        let at = |part: &str| shown.find(part).unwrap_or_else(|| panic!("'{part}' is not in: {shown}"));
        assert!(at(&format!("stopped {status}")) < at("\nwoke") && at("\nwoke") < at("ended 7"), "{shown}");
    }
    // Where no terminal waits, who stops the program and continues it need not know of us.
    let folder = folder("stopped");
    let path = program(&folder, "listener", LISTENER);
    let arguments = ["run", "--report", "--", path.to_str().unwrap(), folder.to_str().unwrap()];
    let mut command = hakmem_without_terminal(&arguments);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for(&folder.join("ready"));
    let listener = listener_of(&path);
    for signal in [libc::SIGSTOP, libc::SIGCONT, libc::SIGTERM] {
        unsafe { libc::kill(listener, signal) };
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

/// The work that is left when the program has ended waits here for a reader of the report.
#[test]
fn a_signal_after_the_program_s_end_loses_no_report_and_a_second_one_ends_the_command() {
    for signals in [1, 2] {
        let folder = folder(&format!("after-{signals}"));
        let path = program(&folder, "listener", LISTENER);
        let (pipe, temporary) = (folder.join("report"), folder.join("tmp"));
        fs::create_dir(&temporary).unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let arguments = [
            "run",
            "--report-json",
            pipe.to_str().unwrap(),
            "--",
            path.to_str().unwrap(),
            folder.to_str().unwrap(),
        ];
        let mut command = hakmem_without_terminal(&arguments);
        let child = command.env("TMPDIR", &temporary).stderr(Stdio::piped()).spawn().unwrap();
        wait_for(&folder.join("ready"));
        let listener = listener_of(&path);
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        while Path::new(&format!("/proc/{listener}")).exists() {
            std::thread::sleep(Duration::from_millis(5)); // until it is reaped
        }
        for _ in 0..signals {
            std::thread::sleep(Duration::from_millis(200));
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        if signals == 1 {
            let report = fs::read_to_string(&pipe).unwrap();
            assert!(report.contains("\"wall_seconds\""), "{report}");
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if signals == 1 {
            assert_eq!(output.status.code(), Some(42), "{said}");
            assert!(
                said.starts_with("hakmem: no report from the library: the program ended by _exit"),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        } else {
            assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{said}");
            assert!(
                said.starts_with("hakmem: ended; what was written stays in ") && said.lines().count() == 1,
                "{said}"
            );
        }
    }
}

fn hakmem_without_terminal(arguments: &[&str]) -> Command {
    let mut command = hakmem(arguments);
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    command
}

fn listener_of(path: &Path) -> i32 {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == path);
    numbers.find(is_it).expect("the listener runs")
}

/// Who ignores SIGCHLD hands that on by exec; children's ends are then the kernel's own affair.
#[test]
fn an_ignored_sigchld_loses_neither_the_status_nor_the_report() {
    let folder = folder("sigchld");
    let path = program(
        &folder,
        "state",
        "#include <signal.h>\nint main(void) { struct sigaction a; sigaction(SIGCHLD, 0, &a); return a.sa_handler == SIG_IGN ? 3 : 4; }\n",
    );
    for way in WAYS {
        let mut command = with(way, &[path.to_str().unwrap()]);
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
        let (code, _, stderr) = output(&mut command);
        assert_eq!(code, Some(3), "{way:?}: the program ignores it as before; {stderr}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// An alarm stays with the process that asked for it, over exec: it was meant for the program.
#[test]
fn an_alarm_from_before_ends_the_program() {
    for way in WAYS {
        let mut command = with(way, &["sleep", "30"]);
        unsafe {
            command.pre_exec(|| {
                libc::alarm(1);
                Ok(())
            });
        }
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGALRM), "{way:?}");
    }
}

/// A terminal that goes away says so to the session's leader alone, and to the others when that one ends.
#[test]
fn a_terminal_that_goes_away_ends_the_program_of_a_leader() {
    let (mut terminal, mut ours) = (0, 0);
    let null = std::ptr::null_mut();
    assert_eq!(unsafe { libc::openpty(&mut terminal, &mut ours, null, null.cast(), null.cast()) }, 0);
    let mut command = hakmem(&["run", "--report", "--", "sleep", "30"]);
    unsafe {
        libc::fcntl(terminal, libc::F_SETFD, libc::FD_CLOEXEC);
        command.pre_exec(move || {
            libc::setsid();
            libc::ioctl(ours, libc::TIOCSCTTY, 0);
            libc::close(ours);
            Ok(())
        });
    }
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    unsafe {
        libc::close(ours);
        libc::close(terminal);
    }
    let begun = Instant::now();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGHUP));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_crash_leaves_one_core_at_most() {
    let folder = folder("core");
    let path = program(&folder, "crash", "int main(void) { *(volatile int *)0 = 1; }");
    let mut command = hakmem(&["run", "--report", path.to_str().unwrap()]);
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_CORE, &limit);
            Ok(())
        });
    }
    let output = command.current_dir(&folder).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
    assert!(!output.status.core_dumped(), "the command itself dumped core");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("crash died of SIGSEGV"), "{stderr}");
    let is_core = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("core");
    assert!(fs::read_dir(&folder).unwrap().flatten().filter(is_core).count() <= 1);
}
