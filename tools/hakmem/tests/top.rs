//! `hakmem top` in a terminal: a pty, and a terminal emulator (vt100) that says what would be on the screen. The
//! processes that are watched have the publishing stand-in of common/published.rs.

mod common;

use common::published::{Sleeper, publishing, stripped};
use common::{assert_refused, folder, hakmem, output};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// The command in a terminal of its own.
struct Terminal {
    child: Child,
    master: File,
    screen: Arc<Mutex<vt100::Parser>>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut master, mut slave) = (0, 0);
        let opened =
            unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(opened, 0);
        let (master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        let mut command = hakmem(arguments);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        for stream in [Command::stdin, Command::stdout, Command::stderr] {
            stream(&mut command, Stdio::from(slave.try_clone().unwrap()));
        }
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop((command, slave));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 0)));
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to, all) = (master.try_clone().unwrap(), screen.clone(), bytes.clone());
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut part) {
                all.lock().unwrap().extend_from_slice(&part[..length]);
                to.lock().unwrap().process(&part[..length]);
            }
        });
        Terminal { child, master, screen, bytes }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Until the screen is as wanted. A drawing may come in parts: what belongs together is asked for together.
    fn wait_screen(&self, otherwise: &str, is_wanted: impl Fn(&vt100::Screen) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_wanted(self.screen.lock().unwrap().screen()) {
            assert!(Instant::now() < until, "{otherwise}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What is on the screen as soon as it is as wanted.
    fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let text = std::cell::RefCell::new(String::new());
        self.wait_screen(&format!("{what} does not come"), |screen| {
            text.replace(screen.contents());
            is_there(&text.borrow())
        });
        text.into_inner()
    }

    fn wait_text(&self, wanted: &str) -> String {
        self.wait_texts(&[wanted])
    }

    fn wait_texts(&self, wanted: &[&str]) -> String {
        self.wait(&wanted.join(" and "), |text| wanted.iter().all(|one| text.contains(one)))
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().set_size(rows, columns);
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        assert_eq!(unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
    }

    fn signal(&self, number: i32) {
        unsafe { libc::kill(self.child.id() as libc::pid_t, number) };
    }

    fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// As a shell wants to find it: lines and echo, no other screen, the cursor seen. What the command wrote last may
    /// still be on its way to the emulator.
    fn assert_given_back(&self) {
        let mut modes: libc::termios = unsafe { std::mem::zeroed() };
        assert_eq!(unsafe { libc::tcgetattr(self.master.as_raw_fd(), &mut modes) }, 0);
        let wanted = libc::ICANON | libc::ECHO | libc::ISIG;
        assert_eq!(modes.c_lflag & wanted, wanted, "the terminal stays raw");
        self.wait_screen("the other screen stays", |screen| !screen.alternate_screen());
        self.wait_screen("the cursor stays hidden", |screen| !screen.hide_cursor());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_screen_draws_reacts_and_is_given_back() {
    let process = Sleeper::with(Some(publishing()), &[]);
    let other = Sleeper::with(Some(publishing()), &[]);
    let mut top = Terminal::start(&["top", "sleep", "-i", "0.2"], &[]);
    top.wait_texts(&[&process.pid(), &other.pid(), "resident*", "q quit"]);
    top.press("?");
    top.wait_texts(&["Keys and words", "hold the picture"]);
    top.press("x");
    top.wait("the help's end", |text| !text.contains("Keys and words"));
    // By pid, from the least, and only the one.
    top.press("sssssss");
    top.press(&format!("/\x7f\x7f\x7f\x7f\x7f{}\r", process.pid()));
    top.wait("the filter", |text| text.contains(&process.pid()) && !text.contains(&other.pid()));
    top.press("\r");
    top.wait_texts(&["does not record", "[Call sites]", "Resident"]);
    top.press("\t\t");
    top.wait_texts(&["[Counters]", "visit_new_slab"]);
    top.resize(10, 50);
    top.wait("the small screen", |text| text.lines().count() <= 10 && text.contains("[Counters]"));
    top.resize(40, 140);
    top.wait("the large screen", |text| text.lines().count() == 40);
    top.wait_screen("not on the other screen", vt100::Screen::alternate_screen);
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
    top.assert_given_back();
}

/// Who asks for a shorter one does not wait for the end of the one before.
#[test]
fn a_shorter_interval_begins_at_once() {
    let two = [(); 2].map(|()| Sleeper::with(Some(publishing()), &[])); // one alone would be opened
    let mut top = Terminal::start(&["top", "sleep", "-i", "60"], &[]);
    top.wait_texts(&[&two[0].pid(), &two[1].pid(), "q quit"]);
    let other = Sleeper::with(Some(publishing()), &[]);
    top.press("++++++++++");
    top.wait_text(&other.pid());
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}

/// Where no shell is there to go on with it, it cannot be stopped: it goes on by itself.
#[test]
fn ctrl_z_without_a_shell_stops_nothing() {
    let two = [(); 2].map(|()| Sleeper::with(Some(publishing()), &[]));
    let mut top = Terminal::start(&["top", "sleep", "-i", "0.2"], &[]);
    top.wait_texts(&[&two[0].pid(), &two[1].pid(), "q quit"]);
    top.press("\x1a");
    let other = Sleeper::with(Some(publishing()), &[]);
    top.wait_texts(&[&other.pid(), "q quit"]);
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
    top.assert_given_back();
}

#[test]
fn what_is_begun_here_is_shown_and_ends_here() {
    let process = Sleeper::with(Some(publishing()), &[]);
    let mut top = Terminal::start(&["top", "-p", &process.pid(), "-i", "0.2"], &[]);
    top.wait_text("does not record");
    top.press("r");
    top.wait_text("records one in 512.0 KiB: 96 samples");
    top.wait_texts(&["stand_in_pin", "stand_in_leak"]);
    top.press("ssss");
    let comes_first = |text: &str, one: &str, then: &str| match (text.find(one), text.find(then)) {
        (Some(one), Some(then)) => one < then,
        _ => false,
    };
    top.wait("the order by site", |text| {
        text.contains("site*") && comes_first(text, "stand_in_leak", "stand_in_pin")
    });
    top.press("i");
    top.wait("the other way", |text| comes_first(text, "stand_in_pin", "stand_in_leak"));
    let metrics = || output(&mut hakmem(&["metrics", "-p", &process.pid()])).1;
    assert!(metrics().contains("\nhakmem_recording 1\n"));
    top.press("\x03");
    assert_eq!(top.end().code(), Some(0));
    top.assert_given_back();
    assert!(metrics().contains("\nhakmem_recording 0\n"));
}

/// A server of debug files may take minutes; the look that waits for it does not keep the screen.
#[test]
fn the_end_waits_for_no_server() {
    let folder = folder("top-debuginfod");
    let (library, ..) = stripped();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let process = Sleeper::with(Some(&library), &["STAND_IN_RECORDS"]);
    let cache = folder.join("cache");
    let variables =
        [("DEBUGINFOD_URLS", address.as_str()), ("DEBUGINFOD_CACHE_PATH", cache.to_str().unwrap())];
    let mut top = Terminal::start(&["top", "-p", &process.pid(), "-i", "0.2"], &variables);
    let (_asked, _) = listener.accept().unwrap(); // and never answered
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
    top.assert_given_back();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn signals_and_panics_give_the_terminal_back() {
    let process = Sleeper::with(Some(publishing()), &[]);
    for (number, status) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let mut top = Terminal::start(&["top", "-p", &process.pid()], &[]);
        top.wait_text("Resident");
        top.signal(number);
        assert_eq!(top.end().code(), Some(status));
        top.assert_given_back();
    }
    if cfg!(debug_assertions) {
        let mut top = Terminal::start(&["top"], &[("HAKMEM_TEST_PANIC", "1"), ("RUST_BACKTRACE", "0")]);
        let end = top.end();
        assert!(end.code() == Some(101) || end.signal() == Some(libc::SIGABRT), "{end:?}");
        top.assert_given_back();
        top.wait_text("as the test wants it");
    }
}

#[test]
fn a_recording_begun_here_ends_with_signals_and_panics() {
    let process = Sleeper::with(Some(publishing()), &[]);
    let records = || {
        let metrics = output(&mut hakmem(&["metrics", "-p", &process.pid()])).1;
        metrics.contains("\nhakmem_recording 1\n")
    };
    for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let mut top = Terminal::start(&["top", "-p", &process.pid()], &[]);
        top.wait_text("does not record");
        top.press("r");
        top.wait_text("records one in");
        assert!(records());
        top.signal(number);
        top.end();
        assert!(!records(), "after signal {number}");
    }
    if cfg!(debug_assertions) {
        let panics = [("HAKMEM_TEST_PANIC", "recording begins"), ("RUST_BACKTRACE", "0")];
        let mut top = Terminal::start(&["top", "-p", &process.pid()], &panics);
        top.wait_text("does not record");
        top.press("r");
        let end = top.end();
        assert!(end.code() == Some(101) || end.signal() == Some(libc::SIGABRT), "{end:?}");
        top.wait_text("as the test wants it");
        assert!(!records(), "after a panic");
    }
}

#[test]
fn a_process_that_ends_is_said() {
    let first = Sleeper::with(Some(publishing()), &[]);
    let mut top = Terminal::start(&["top", "-p", &first.pid(), "-i", "0.2"], &[]);
    top.wait_text("Resident");
    drop(first);
    top.wait_text("The process has ended");
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn colours_only_where_they_are_welcome() {
    let process = Sleeper::with(Some(publishing()), &[]);
    let coloured = |variables: &[(&str, &str)]| {
        let mut top = Terminal::start(&["top", "-p", &process.pid()], variables);
        top.wait_text("Resident");
        top.press("q");
        top.end();
        top.assert_given_back(); // the last that it writes: all else has been read
        let bytes = top.bytes.lock().unwrap().clone();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let sgr = text.split("\x1b[").skip(1).filter_map(|part| part.split_once('m')).map(|(codes, _)| codes);
        let is_colour = |code: &str| code.starts_with('3') && code != "39" && code.len() > 1;
        sgr.flat_map(|codes| codes.split(';')).any(is_colour)
    };
    assert!(coloured(&[]));
    assert!(!coloured(&[("NO_COLOR", "1")]));
}

#[test]
fn once_is_text() {
    let process = Sleeper::with(Some(publishing()), &["STAND_IN_RECORDS"]);
    let (code, text, stderr) = output(&mut hakmem(&["top", "-p", &process.pid(), "--once", "-i", "0.1"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.starts_with(&format!("sleep {}, library 7.8.9\n", process.pid())), "{text}");
    assert!(text.contains("stand_in_leak") && text.contains("one in 512.0 KiB, 96 samples"), "{text}");
    assert!(!text.contains('\x1b'));
    let (code, list, _) = output(&mut hakmem(&["top", "--once", "-i", "0.1"]));
    assert_eq!(code, Some(0));
    assert!(list.lines().any(|line| line.contains(&process.pid()) && line.ends_with("sleep")), "{list}");
}

#[test]
fn what_cannot_be_shown_is_one_line() {
    assert_refused(&mut hakmem(&["top", "-p", "4194300"]), 2, "there is no process 4194300");
    for arguments in [&["top", "no-such-name-here"][..], &["top", "--once", "no-such-name-here"]] {
        assert_refused(&mut hakmem(arguments), 1, "no process with no-such-name-here in its name");
    }
    assert_refused(&mut hakmem(&["top", "-i", "0"]), 2, "from 0.1 to 3600 seconds");
    let process = Sleeper::with(Some(publishing()), &[]);
    assert_refused(hakmem(&["top", "-p", &process.pid()]).stdin(Stdio::null()), 2, "--once prints");
    let plain = Sleeper::with(None, &[]);
    assert_refused(&mut hakmem(&["top", "-p", &plain.pid()]), 2, "runs without hakmem");
}
