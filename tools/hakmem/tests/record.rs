//! Attaching to running processes, and what is made of what they recorded. The library is a stand-in that publishes
//! known tables (common/published.rs); the library itself is attached to in test/tool.

mod common;

use common::published::{Sleeper, publishing, stripped};
use common::{assert_refused, folder, hakmem, output};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_running_process_is_recorded_and_left_as_it_was() {
    let folder = folder("attach");
    let mut process = Sleeper::with(Some(publishing()), &[]);
    let file = folder.join("a.hakprof");
    let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "-o", text(&file)];
    let (code, stdout, stderr) = output(&mut hakmem(&arguments));
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    assert!(stderr.contains("96 samples from sleep"), "{stderr}");
    assert!(process.is_alive());

    let (code, leaks, stderr) = output(&mut hakmem(&["leaks", text(&file)]));
    assert_eq!(code, Some(0), "{stderr}");
    let first = leaks.lines().next().unwrap();
    // 32 samples of 1,000 blocks of 60 bytes, in 16 seconds and a second of recording.
    assert!(
        first.starts_with("  1  stand_in_leak (libhakmem.so.c:") && first.contains("1.8 MiB live"),
        "{leaks}"
    );
    assert!(first.contains("32,000 blocks") && first.contains("50% of what"), "{leaks}");
    assert!(leaks.contains("called by stand_in_outer (libhakmem.so.c:"), "{leaks}");
    assert!(!leaks.contains("stand_in_pin"), "made once, no growth: {leaks}");

    // Ours ended with us: a dump now finds a recording that is over, and its tables still there.
    let again = folder.join("b.hakprof");
    let (code, _, stderr) = output(&mut hakmem(&["dump", "-p", &process.pid(), "-o", text(&again)]));
    assert_eq!(code, Some(0), "{stderr}");
    // With what was seen last: 14 seconds after its beginning, which was 16 before ours.
    assert!(stderr.contains("has ended; it went on for 14.000 s\n"), "{stderr}");
    let whole =
        Command::new("gzip").arg("-dc").stdin(fs::File::open(&again).unwrap()).output().unwrap().stdout;
    let rate = "\"rate_bytes\":524288,";
    assert!(String::from_utf8_lossy(&whole).contains(rate), "what its samples were taken with");
    let (_, same, _) = output(&mut hakmem(&["diff", text(&file), text(&again)]));
    assert!(same.contains("2 places") && !same.lines().any(|line| line.starts_with("* ")), "{same}");
    fs::remove_dir_all(&folder).unwrap();
}

/// What is left then waits here for a reader of the profile.
#[test]
fn a_second_signal_ends_the_command_when_the_recording_is_over() {
    let folder = folder("over");
    let process = Sleeper::with(Some(publishing()), &[]);
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "-o", text(&pipe)];
    let mut child = hakmem(&arguments).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    for _ in 0..2 {
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        std::thread::sleep(Duration::from_millis(200));
    }
    for _ in 0..100 {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.signal(), Some(libc::SIGTERM));
            fs::remove_dir_all(&folder).unwrap();
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    panic!("it still waits");
}

/// Their allocations are not in this recording's sums.
#[test]
fn blocks_of_an_earlier_recording_are_no_part_of_what_this_one_saw_asked_for() {
    let folder = folder("earlier");
    let process = Sleeper::with(Some(publishing()), &["STAND_IN_EARLIER"]);
    let file = folder.join("a.hakprof");
    let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "-o", text(&file)];
    assert_eq!(output(&mut hakmem(&arguments)).0, Some(0));
    let (_, leaks, _) = output(&mut hakmem(&["leaks", text(&file)]));
    assert!(
        leaks.contains("1.8 MiB live") && leaks.contains("32,000 blocks, 25% of what it asked for"),
        "{leaks}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_recording_that_was_on_stays_on() {
    let folder = folder("stays-on");
    let process = Sleeper::with(Some(publishing()), &["STAND_IN_RECORDS"]);
    let file = folder.join("a.hakprof");
    let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "--rate", "64K", "-o", text(&file)];
    let (code, _, stderr) = output(&mut hakmem(&arguments));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("records already; that recording does not end here, ")
            && stderr.contains(" --stop` ends it; --rate 65536 is not used"),
        "{stderr}"
    );
    let (_, metrics, _) = output(&mut hakmem(&["metrics", "-p", &process.pid()]));
    assert!(metrics.contains("\nhakmem_recording 1\n"), "{metrics}");
    fs::remove_dir_all(&folder).unwrap();
}

/// Until the process records, however slow the machine is.
fn recording_await(pid: &str) {
    for _ in 0..600 {
        if output(&mut hakmem(&["metrics", "-p", pid])).1.contains("hakmem_recording 1\n") {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it does not record after a minute");
}

#[test]
fn a_recording_whose_recorder_was_killed_is_ended_by_stop() {
    let folder = folder("stop");
    let file = folder.join("a.hakprof");
    for (variables, part) in
        [(&[][..], "is ended; `hakmem dump"), (&["STAND_IN_DEAF"], "the request to do so is taken back\n")]
    {
        let process = Sleeper::with(Some(publishing()), variables);
        let pid = process.pid();
        let mut recorder = hakmem(&["record", "-p", &pid, "--seconds", "60", "-o", text(&file)]);
        let mut recorder = recorder.stderr(std::process::Stdio::null()).spawn().unwrap();
        match variables {
            [] => recording_await(&pid),
            _ => std::thread::sleep(Duration::from_millis(1500)), // it is asked to, and does not
        }
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        let (code, _, stderr) = output(&mut hakmem(&["record", "-p", &pid, "--stop"]));
        assert!(code == Some(0) && stderr.contains(part) && stderr.lines().count() == 1, "{stderr}");
        assert_refused(&mut hakmem(&["record", "-p", &pid, "--stop"]), 2, "there is nothing to end");
    }
    assert_refused(&mut hakmem(&["record", "-p", "1", "--stop", "-o", text(&file)]), 2, "--stop");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_recorder_outlives_its_readers_and_ends_by_every_signal() {
    let folder = folder("ends-by");
    let file = folder.join("a.hakprof");
    let process = Sleeper::with(Some(publishing()), &[]);
    let pid = process.pid();
    for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGTERM] {
        let mut recorder = hakmem(&["record", "-p", &pid, "--seconds", "60", "-o", text(&file)]);
        let mut recorder = recorder.stderr(std::process::Stdio::piped()).spawn().unwrap();
        drop(recorder.stderr.take());
        recording_await(&pid); // its handlers stand
        unsafe { libc::kill(recorder.id() as libc::pid_t, libc::SIGPIPE) };
        std::thread::sleep(std::time::Duration::from_millis(100));
        unsafe { libc::kill(recorder.id() as libc::pid_t, signal) };
        assert_eq!(recorder.wait().unwrap().code(), Some(0), "signal {signal}");
        fs::remove_file(&file).unwrap();
        assert_refused(&mut hakmem(&["record", "-p", &pid, "--stop"]), 2, "there is nothing to end");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_process_that_is_stopped_is_said_to_be() {
    let folder = folder("stopped");
    let file = folder.join("a.hakprof");
    let process = Sleeper::with(Some(publishing()), &[]);
    let pid = process.0.id() as libc::pid_t;
    // A signal that is sent has not arrived: told of once every thread stands, and none can take the request any more.
    let mut status = 0;
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    assert!(unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) } == pid && libc::WIFSTOPPED(status));
    let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "-o", text(&file)];
    let (code, _, stderr) = output(&mut hakmem(&arguments));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("is stopped, and cannot allocate; it records when it does"), "{stderr}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_recording_that_another_ends_ends_here_too() {
    let folder = folder("joined");
    let process = Sleeper::with(Some(publishing()), &[]);
    let (first, second) = (folder.join("a.hakprof"), folder.join("b.hakprof"));
    let record = |seconds: &str, file: &Path| {
        let pid = process.pid();
        let arguments = ["record", "-p", &pid, "--seconds", seconds, "-o", text(file)];
        hakmem(&arguments).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let one = record("6", &first);
    recording_await(&process.pid());
    let start = std::time::Instant::now();
    let two = record("60", &second).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&two.stderr).into_owned();
    assert!(start.elapsed().as_secs() < 30, "it ends with the first");
    assert_eq!(two.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("was ended by another; the profile is of its time until then"), "{stderr}");
    assert!(one.wait_with_output().unwrap().status.success() && second.is_file());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_process_that_does_not_allocate_is_not_waited_for() {
    let folder = folder("deaf");
    let mut process = Sleeper::with(Some(publishing()), &["STAND_IN_DEAF"]);
    let file = folder.join("a.hakprof");
    let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "-o", text(&file)];
    let (code, _, stderr) = output(&mut hakmem(&arguments));
    assert!(stderr.contains("has not allocated for a second"), "{stderr}");
    assert!(stderr.contains("0 samples from sleep") && stderr.contains("no sample: "), "{stderr}");
    assert!(!stderr.contains("held the program up"), "by a recording before: {stderr}");
    assert_eq!(code, Some(0), "{stderr}");
    assert_refused(&mut hakmem(&["leaks", text(&file)]), 2, "nothing was recorded");
    let unpacked =
        Command::new("gzip").arg("-dc").stdin(fs::File::open(&file).unwrap()).output().unwrap().stdout;
    let unpacked = String::from_utf8_lossy(&unpacked);
    let duration = unpacked.split("\"duration_ms\":").nth(1).unwrap().split(',').next().unwrap();
    assert!((1000..60_000).contains(&duration.parse::<u64>().unwrap()), "of its own seconds: {duration}");
    // When it allocates again, no request waits for it.
    unsafe { libc::kill(process.0.id() as libc::pid_t, libc::SIGUSR1) };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let (_, metrics, _) = output(&mut hakmem(&["metrics", "-p", &process.pid()]));
    assert!(metrics.contains("\nhakmem_recording 0\n"), "{metrics}");
    assert!(process.is_alive());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_process_that_ends_meanwhile_leaves_its_last_moment() {
    let folder = folder("ends");
    let mut process = Sleeper::with(Some(publishing()), &[]);
    let file = folder.join("a.hakprof");
    let arguments = ["record", "-p", &process.pid(), "--seconds", "20", "-o", text(&file)];
    let child = hakmem(&arguments).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("ended; the profile is of a moment shortly before"), "{stderr}");
    assert!(file.is_file());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_process_that_becomes_another_program_leaves_its_last_moment() {
    let folder = folder("execs");
    let file = folder.join("a.hakprof");
    let library = publishing();
    let script = "read line; exec env -u LD_PRELOAD sleep 30";
    let mut process = Command::new("sh");
    process.args(["-c", script]).env("LD_PRELOAD", library).stdin(std::process::Stdio::piped());
    let mut process = Sleeper(process.spawn().unwrap());
    let pid = process.pid();
    let is_up = || output(&mut hakmem(&["metrics", "-p", &pid])).0 == Some(0);
    assert!((0..500).any(|_| is_up() || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        false
    }));
    let arguments = ["record", "-p", &pid, "--seconds", "20", "-o", text(&file)];
    let child = hakmem(&arguments).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    process.0.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let start = std::time::Instant::now();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("became another program; the profile is of a moment shortly before"), "{stderr}");
    assert!(start.elapsed().as_secs() < 10 && file.is_file() && process.is_alive());
    fs::remove_dir_all(&folder).unwrap();
}

/// Anybody may make a file of that name, and a pipe there has no other end.
#[test]
fn code_that_lies_in_no_file_has_the_names_of_its_map_and_a_pipe_is_none() {
    let folder = folder("generated");
    let process = Sleeper::with(Some(publishing()), &["STAND_IN_GENERATED"]);
    let (file, map) = (folder.join("a.hakprof"), format!("/tmp/perf-{}.map", process.pid()));
    let leaks = || {
        let arguments = ["record", "-p", &process.pid(), "--seconds", "1", "-o", text(&file)];
        let mut recorder = hakmem(&arguments).stderr(std::process::Stdio::null()).spawn().unwrap();
        for _ in 0..300 {
            if let Some(status) = recorder.try_wait().unwrap() {
                assert_eq!(status.code(), Some(0));
                return output(&mut hakmem(&["leaks", text(&file)])).1;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        "it does not end".to_owned()
    };
    assert!(Command::new("mkfifo").arg(&map).status().unwrap().success());
    let of_pipe = leaks();
    fs::remove_file(&map).unwrap();
    fs::write(&map, "600000000000 40 made_by_the_program\n").unwrap();
    let of_file = leaks();
    fs::remove_file(&map).unwrap();
    assert!(of_pipe.starts_with("  1  code without a file  "), "{of_pipe}");
    assert!(of_file.starts_with("  1  made_by_the_program  "), "{of_file}");
    fs::remove_dir_all(&folder).unwrap();
}

/// `hakmem run --record` of a program that records from its start, and ends by `how` after a second.
fn recorded_until(folder: &Path, how: &str) -> (std::process::ExitStatus, String) {
    let source = format!(
        "#include <signal.h>\n#include <unistd.h>\nint main(void) {{ sleep(1); {how}; pause(); return 0; }}"
    );
    let program = common::program(folder, "ends", &source);
    let file = folder.join("a.hakprof");
    let mut command = hakmem(&["run", "--record", text(&file), "--", text(&program)]);
    let output = command.env("HAKMEM_LIB", publishing()).env("STAND_IN_RECORDS", "1").output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_program_that_ends_without_a_dump_leaves_what_was_last_seen() {
    let folder = folder("last-look");
    let file = folder.join("a.hakprof");
    for (how, signal, part) in [
        ("kill(getpid(), SIGTERM)", Some(libc::SIGTERM), "SIGTERM ended the program before it could"),
        ("kill(getpid(), SIGKILL)", Some(libc::SIGKILL), "SIGKILL ended the program before it could"),
        ("_exit(3)", None, "the program ended by _exit"),
    ] {
        let (status, stderr) = recorded_until(&folder, how);
        assert_eq!((status.signal(), status.code()), (signal, signal.is_none().then_some(3)), "{stderr}");
        assert!(stderr.starts_with("hakmem: 96 samples from ends") && stderr.contains(part), "{stderr}");
        assert!(stderr.ends_with("; the profile is of a moment shortly before\n"), "{stderr}");
        let (_, leaks, _) = output(&mut hakmem(&["leaks", text(&file)]));
        assert!(leaks.contains("stand_in_leak (libhakmem.so.c:"), "{leaks}");
        fs::remove_file(&file).unwrap();
    }
    // Another program since, of which nothing can be seen; and one that is over before it was looked at.
    let (_, stderr) =
        recorded_until(&folder, "execlp(\"env\", \"env\", \"-u\", \"LD_PRELOAD\", \"sleep\", \"1\", NULL)");
    assert!(stderr.ends_with("shortly before it became another program\n") && file.is_file(), "{stderr}");
    fs::remove_file(&file).unwrap();
    let mut command = hakmem(&["run", "--record", text(&file), "--", "sh", "-c", "kill -9 $$"]);
    let (_, _, stderr) = output(command.env("HAKMEM_LIB", publishing()).env("STAND_IN_RECORDS", "1"));
    assert_eq!(
        stderr.contains("no profile at"),
        !file.exists(),
        "on a busy machine it was looked at: {stderr}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_attached_to_is_told_in_one_line() {
    let folder = folder("refused");
    let file = folder.join("a.hakprof");
    let record = |pid: &str| hakmem(&["record", "-p", pid, "--seconds", "1", "-o", text(&file)]);
    assert_refused(&mut record("4194303"), 2, "there is no process 4194303");
    assert_refused(&mut record("0"), 2, "0");
    assert_refused(&mut record("x"), 2, "x");
    assert_refused(&mut record("2"), 2, "process 2");
    let without = Sleeper::with(None, &[]);
    for command in ["record", "dump"] {
        let arguments = [command, "-p", &without.pid(), "-o", text(&file)];
        assert_refused(&mut hakmem(&arguments), 2, "runs without hakmem");
    }
    assert_refused(&mut hakmem(&["metrics", "-p", &without.pid()]), 2, "runs without hakmem");
    let old = Sleeper::with(Some(common::stand_in()), &[]);
    assert_refused(&mut record(&old.pid()), 2, "does not record");
    let silent = Sleeper::with(Some(publishing()), &["STAND_IN_SILENT"]);
    assert_refused(&mut record(&silent.pid()), 2, "publishes nothing yet");
    let off = Sleeper::with(Some(publishing()), &[]);
    assert_refused(&mut hakmem(&["dump", "-p", &off.pid(), "-o", text(&file)]), 2, "does not record");
    let nowhere = ["record", "-p", &off.pid(), "--seconds", "1", "-o", "/no/such/folder/a"];
    assert_refused(&mut hakmem(&nowhere), 2, "cannot be written");
    let start = std::time::Instant::now();
    let refusing = ["record", "-p", &off.pid(), "--seconds", "30", "-o", "/proc/a"];
    assert_refused(&mut hakmem(&refusing), 2, "/proc/a cannot be written");
    assert!(start.elapsed().as_secs() < 10, "not after all the time");
    assert!(!file.exists());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_process_of_somebody_else_is_refused() {
    let folder = std::env::temp_dir().join(format!("hakmem-record-{}", std::process::id()));
    let arguments = |pid: &str| ["record", "-p", pid, "-o", "/tmp/never.hakprof"].map(str::to_owned);
    if unsafe { libc::geteuid() } != 0 {
        assert_refused(hakmem(&[]).args(arguments("1")), 2, "may not be read");
        return;
    }
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join("hakmem");
    common::executable(&copy, Path::new(env!("CARGO_BIN_EXE_hakmem")));
    let process = Sleeper::with(Some(publishing()), &[]);
    let mut command = Command::new(&copy);
    command.uid(65534).current_dir("/").args(arguments(&process.pid()));
    let (code, stdout, stderr) = output(&mut command);
    let (_, doctor, _) = output(Command::new(&copy).uid(65534).current_dir("/").args(["doctor"]));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("may not be read: permission denied") && stderr.lines().count() == 1, "{stderr}");
    drop(doctor);
}

/// The text format's grammar, as far as a scraper relies on it.
fn assert_prometheus(text: &str) {
    let mut typed = std::collections::BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(typed.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            assert!(matches!(kind, "gauge" | "counter"));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(typed.contains_key(series.split('{').next().unwrap()), "{line} has no type");
            value.parse::<u64>().unwrap();
            assert_eq!(series.contains('{'), series.ends_with('}'), "{line}");
        }
    }
    assert!(text.ends_with('\n') && typed.len() > 5);
}

#[test]
fn metrics_are_in_prometheus_format_once_and_served() {
    let mut process = Sleeper::with(Some(publishing()), &["STAND_IN_RECORDS"]);
    let (code, metrics, stderr) = output(&mut hakmem(&["metrics", "-p", &process.pid()]));
    assert_eq!(code, Some(0), "{stderr}");
    assert_prometheus(&metrics);
    assert!(
        metrics.contains("hakmem_visit_total 70\n")
            && metrics.contains("version=\"7.8.9\",program=\"sleep\"")
    );
    // The format's own readers, where they are installed.
    if Command::new("promtool").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let parser = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families as f\n\
                  print(sum(len(m.samples) for m in f(sys.stdin.read())))";
    let installed = Command::new("python3").args(["-c", "import prometheus_client"]).output();
    if installed.is_ok_and(|output| output.status.success()) {
        let mut child = Command::new("python3")
            .args(["-c", parser])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let samples: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        assert_eq!(samples, metrics.lines().filter(|line| !line.starts_with('#')).count());
    }

    assert_refused(
        &mut hakmem(&["metrics", "-p", &process.pid(), "--serve", "0.0.0.0:0"]),
        2,
        "no loopback address",
    );
    let mut server = hakmem(&["metrics", "-p", &process.pid(), "--serve", "127.0.0.1:0"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut errors = std::io::BufReader::new(server.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut errors, &mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert_prometheus(body);
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("has ended"), "{rest}");
}

#[test]
fn debug_information_comes_from_a_server_where_one_is_named() {
    let folder = folder("debuginfod");
    let (library, debug, build_id) = stripped();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let wanted = format!("/buildid/{build_id}/debuginfo");
    let content = fs::read(&debug).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            let found = request.starts_with(&format!("GET {wanted} "));
            let (status, body) =
                if found { ("200 OK", content.as_slice()) } else { ("404 Not Found", &b""[..]) };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    let process = Sleeper::with(Some(&library), &["STAND_IN_RECORDS"]);
    let file = folder.join("a.hakprof");
    let dump = |servers: Option<&str>| {
        let mut command = hakmem(&["dump", "-p", &process.pid(), "-o", text(&file)]);
        command.env_remove("DEBUGINFOD_URLS").env("DEBUGINFOD_CACHE_PATH", folder.join("cache"));
        servers.map(|servers| command.env("DEBUGINFOD_URLS", servers));
        let (code, _, stderr) = output(&mut command);
        assert_eq!(code, Some(0), "{stderr}");
        output(&mut hakmem(&["leaks", text(&file)])).1
    };
    // Exported names remain in a stripped library; lines do not.
    let without = dump(None);
    assert!(without.contains("stand_in_leak (libhakmem.so)"), "{without}");
    let with = dump(Some(&address));
    assert!(with.contains("stand_in_leak (libhakmem.so.c:"), "{with}");
    fs::remove_dir_all(&folder).unwrap();
}
