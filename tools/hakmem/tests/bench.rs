//! `hakmem bench`, with programs that only pretend to work: what they say is known, and so is what must come out.

mod common;

use common::fake::{Fake, SAY};
use common::{assert_refused, hakmem, output, script, stand_in};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn cell<'a>(json: &'a Value, row: usize, allocator: &str) -> &'a Value {
    let cells = json["rows"][row]["cells"].as_array().unwrap();
    cells.iter().find(|cell| cell["allocator"] == allocator).unwrap()
}

fn summary<'a>(json: &'a Value, allocator: &str) -> &'a Value {
    json["summary"].as_array().unwrap().iter().find(|one| one["allocator"] == allocator).unwrap()
}

fn near(value: &Value, wanted: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - wanted).abs() < 1e-9, "{value} is not {wanted}");
}

// --- figures ---------------------------------------------------------------------------------------------

/// Known waste must come out as such: in the ratios, the means, and in the words at the end.
#[test]
fn what_is_known_comes_out() {
    let body = |waste: &str| format!("case $name in wasteful) {waste};; esac\nsay");
    let rows = [("a/1", body("ns=4000000 kb=4096")), ("b", body("ns=500000 kb=16384"))];
    let rows = rows.map(|(name, body)| (name.replace('/', "-"), body));
    let rows: Vec<(&str, &str)> = rows.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let fake = Fake::new("known", &rows);
    let (code, stdout, stderr) = output(&mut fake.bench(&["glibc", "wasteful"], &["quick"]));
    assert_eq!(code, Some(0), "{stderr}");
    let json = fake.json();
    assert_eq!(json["schema"], 1);
    let wasteful = cell(&json, 0, "wasteful");
    near(&wasteful["figures"]["time_ratio"]["median"], 4.0);
    near(&wasteful["figures"]["time_ratio"]["low"], 4.0);
    near(&wasteful["figures"]["time_ns"]["median"], 4000.0);
    near(&wasteful["figures"]["peak_ratio"]["median"], 2.0);
    near(&cell(&json, 1, "hakmem")["figures"]["time_ratio"]["median"], 2.0);
    // By hand: wasteful's time is 4 and 1 times the best's, its peak 2 and 8 times.
    near(&summary(&json, "wasteful")["time_over_best"], 2.0);
    near(&summary(&json, "wasteful")["peak_over_best"], 4.0);
    near(&summary(&json, "hakmem")["time_over_best"], 2.0_f64.sqrt());
    near(&summary(&json, "hakmem")["peak_over_best"], 1.0);
    // Over the best of the others: 4 times glibc's time in the one row, half of it in the other.
    near(&summary(&json, "wasteful")["time_over_others"], 2.0_f64.sqrt());
    near(&summary(&json, "hakmem")["time_over_others"], 2.0_f64.sqrt());
    near(&summary(&json, "wasteful")["peak_over_others"], 4.0);
    near(&summary(&json, "hakmem")["peak_over_others"], 1.0);
    assert_eq!(json["rows"][0]["is_steady"], true);
    assert_eq!(json["rows"][0]["rounds"], 6, "the first round in which an interval of 95% can be had");

    let table = "\
row                    unit hakmem  of best  glibc  wasteful
a-1                    us     1.00*    1.00   1.00*     4.00
b                      ns    1,000     2.00  1,000       500*
-------------------------------------------------------------
geometric mean / best        1.414           1.414     2.000
the same / best other        1.414           1.414     1.414
rows, best or equal              1               1         1
";
    assert!(stdout.contains(table), "{stdout}");
    assert!(
        stdout.contains("  time: in 1 of 2 rows\n    b  2.00 times wasteful (2.00 to 2.00)\n"),
        "{stdout}"
    );
    assert!(stdout.contains("  peak memory: nowhere; in all 2 rows"), "{stdout}");
    assert!(!stdout.contains('\x1b') && stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
    assert!(stderr.contains("[2/2] b: 6 rounds") && stderr.contains("steady"), "{stderr}");
}

/// Memory that is kept after the work is told too, and a table that is too wide is folded.
#[test]
fn what_is_kept_after_the_work_is_told() {
    let body = "case $name in hakmem) kb=4096;; esac\nsay";
    let fake = Fake::new("after", &[("a", body)]);
    let suite = fs::read_to_string(fake.path("suite.toml")).unwrap() + "resident_after = true\n";
    fs::write(fake.path("suite.toml"), suite).unwrap();
    let peers: Vec<String> = (1..12).map(|number| format!("allocator{number}")).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let (code, stdout, _) = output(&mut fake.bench(&peers, &["--rounds", "1"]));
    assert_eq!(code, Some(0));
    let told = "  memory after the work: in 1 of 1 row\n    a  2.00 times allocator1\n";
    assert!(
        stdout.contains(told) && stdout.contains("    a  2.00 times allocator1 (one round)\n"),
        "{stdout}"
    );
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
    assert!(stdout.contains("allocator11"), "{stdout}");
}

#[test]
fn the_same_allocator_twice_ties() {
    let fake = Fake::new("twice", &[("a", "say")]);
    let (code, stdout, _) = output(&mut fake.bench(&["hakmem", "hakmem2"], &[]));
    assert_eq!(code, Some(0));
    let json = fake.json();
    for name in ["hakmem", "hakmem2"] {
        let ratio = &cell(&json, 0, name)["figures"]["time_ratio"];
        assert_eq!(
            (&ratio["median"], &ratio["low"], &ratio["high"]),
            (&1.0.into(), &1.0.into(), &1.0.into())
        );
    }
    assert_eq!(json["allocators"][0]["sha256"], json["allocators"][1]["sha256"]);
    assert_eq!(stdout.matches(" 1.00*").count(), 2, "{stdout}");
    assert!(stdout.contains("time: nowhere; in its only row it is the best"), "{stdout}");
}

#[test]
fn rounds_are_interleaved_and_turn_round() {
    let fake = Fake::new("order", &[("a", "echo $name >> $here/order\nsay")]);
    let (code, ..) = output(&mut fake.bench(&["glibc", "third"], &["--rounds", "3"]));
    assert_eq!(code, Some(0));
    let warm_up = "hakmem glibc third";
    let rounds = "glibc third hakmem hakmem third glibc third hakmem glibc"; // the row's name says who begins
    let order = fake.read("order").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(order, format!("{warm_up} {rounds}"));
    assert_eq!(cell(&fake.json(), 0, "third")["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn what_does_not_settle_is_not_called_steady() {
    // No two runs of HAKMEM's take as long, up to 2.2 times: whichever a busy machine sets aside, the interval of the
    // rest is never small.
    let body = "n=$(cat $here/$name 2>/dev/null || echo 0)\necho $((n + 1)) > $here/$name\n\
                [ $name = glibc ] || ns=$((1000000 + n * 37 % 121 * 10000))\nsay";
    let fake = Fake::new("unsteady", &[("a", body)]);
    let (_, stdout, _) = output(&mut fake.bench(&["glibc"], &[]));
    let json = fake.json();
    assert_eq!((&json["rows"][0]["is_steady"], &json["rows"][0]["rounds"]), (&false.into(), &120.into()));
    assert!(stdout.contains("\na ~ ") && stdout.contains("1 row is not steady"), "{stdout}");
}

// --- allocators that fail --------------------------------------------------------------------------------

const FAILING: &str = "case $name in
crashing) kill -SEGV $$;;
hanging) echo 'I will be back' >&2; sleep 1000;;
talking) echo 'Welcome to the allocator!';;
failing) echo 'block 0x1 has changed' >&2; exit 1;;
absent) o='\"/nowhere/libc.so.6\"'; ns=1;;
idle) echo '{\"ops\":0,\"wall_ns\":1,\"cpu_ns\":1,\"peak_kb\":1,\"faults\":1,\"objects\":[\"/x.so\"]}'; exit;;
esac
say";

#[test]
fn an_allocator_that_fails_says_so_and_the_run_goes_on() {
    let fake = Fake::new("failing", &[("first", FAILING), ("second", "say")]);
    let peers = ["glibc", "crashing", "hanging", "talking", "failing", "absent", "idle"];
    let (code, stdout, stderr) = output(&mut fake.bench(&peers, &["--rounds", "2", "--timeout", "1"]));
    assert_eq!(code, Some(0), "{stderr}");
    let json = fake.json();
    for (name, reason) in [
        ("crashing", "crashed: SIGSEGV"),
        ("hanging", "hangs: killed after 1 s (I will be back)"),
        ("talking", "garbage: 2 lines instead of one, the first: Welcome to the allocator!"),
        ("failing", "ended with status 1 (block 0x1 has changed)"),
        ("absent", "not loaded: libhakmem.so is not in the process"),
        ("idle", "garbage: no work was done"),
    ] {
        let failed = cell(&json, 0, name);
        assert!(failed["error"].as_str().unwrap().starts_with(reason), "{failed}");
        assert!(failed.get("figures").is_none(), "{failed}");
        assert!(stdout.contains(&format!("  {name} in first: {reason}")), "{stdout}");
        // It is part of the row in which it worked, and of nothing else.
        assert!(cell(&json, 1, name).get("figures").is_some());
        assert_eq!(
            (&summary(&json, name)["rows"], &summary(&json, name)["failed"][0]),
            (&1.into(), &"first".into())
        );
        near(&summary(&json, name)["time_over_best"], 1.0);
    }
    // Had the one that was not loaded been believed, its 1 ns would be the best.
    assert_eq!(json["rows"][0]["best_time"], "hakmem");
    assert_eq!(summary(&json, "hakmem")["rows"], 2);
}

#[test]
fn hakmem_itself_failing_is_the_exit_status() {
    let fake = Fake::new("own", &[("good", "say"), ("bad", "[ $name != hakmem ] || kill -ABRT $$\nsay")]);
    let (code, _, stderr) = output(&mut fake.bench(&["glibc"], &["--rounds", "1"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("HAKMEM itself failed in bad: crashed: SIGABRT"), "{stderr}");
    assert!(!stderr.contains("in good"), "{stderr}");
}

#[test]
fn an_allocator_that_fails_later_loses_its_row() {
    let body = "echo >> $here/$name\n[ $name != tiring ] || [ $(wc -l < $here/$name) -lt 3 ] || exit 5\nsay";
    let fake = Fake::new("later", &[("a", body)]);
    let (code, ..) = output(&mut fake.bench(&["glibc", "tiring"], &["--rounds", "4"]));
    assert_eq!(code, Some(0));
    let json = fake.json();
    let tiring = cell(&json, 0, "tiring");
    assert_eq!((&tiring["error"], tiring.get("figures")), (&"ended with status 5".into(), None));
    assert_eq!(tiring["runs"].as_array().unwrap().len(), 1, "what was measured before is kept");
    assert_eq!(fake.read("tiring").len(), 3, "it is not started again");
}

#[test]
fn another_result_than_glibcs_is_an_error() {
    let body = "c=1\n[ $name != wrong ] || c=2\nmore=\",\\\"check\\\":\\\"$c\\\"\"\nsay";
    let fake = Fake::new("differs", &[("a", body)]);
    let (code, ..) = output(&mut fake.bench(&["wrong", "glibc"], &["--rounds", "1"]));
    assert_eq!(code, Some(0));
    let error = cell(&fake.json(), 0, "wrong")["error"].clone();
    assert_eq!(error, "differs: its result is 2, under glibc it is 1");
    assert!(cell(&fake.json(), 0, "hakmem").get("error").is_none());
}

#[test]
fn another_allocator_in_the_process_is_no_proof() {
    // Under the C library's malloc the program has HAKMEM in it, as by /etc/ld.so.preload.
    let body = format!("[ $name != glibc ] || o=\"$o,\\\"{}\\\"\"\nsay", stand_in().display());
    let fake = Fake::new("stranger", &[("a", &body)]);
    output(&mut fake.bench(&["glibc"], &["--rounds", "1"]));
    let error = cell(&fake.json(), 0, "glibc")["error"].clone();
    assert_eq!(error, "not loaded: libhakmem.so is in the process too");
}

// --- what a run sees ---------------------------------------------------------------------------------------

#[test]
fn every_run_has_the_same_surroundings() {
    let body = "[ \"$(ulimit -S -v)\" = unlimited ] || exit 3\n[ -z \"$HAKMEM_STATS$MALLOC_ARENA_MAX\" ] || exit 4\n\
                [ $$ = $(ps -o pgid= -p $$) ] || exit 5\necho \"$LD_PRELOAD\" > $here/preload.$name\nsay";
    let fake = Fake::new("clean", &[("a", body)]);
    let bench = fake.bench(&["glibc"], &["--rounds", "1"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -v 8000000; exec \"$@\"", "sh"]).arg(bench.get_program());
    limited.args(bench.get_args()).env_clear().env("PATH", "/usr/bin:/bin");
    limited.envs(bench.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, _, stderr) = output(limited.env("HAKMEM_STATS", "1").env("MALLOC_ARENA_MAX", "1"));
    assert_eq!(code, Some(0), "{stderr}");
    // The library that ran was a copy, and the copy is gone.
    let preload = fake.read("preload.hakmem").trim().to_owned();
    assert!(preload.ends_with("/hakmem/libhakmem.so") && Path::new(&preload) != stand_in(), "{preload}");
    assert!(!Path::new(&preload).exists() && stand_in().exists());
}

#[test]
fn real_programs_get_their_preload_by_their_driver() {
    let fake = Fake::new("real", &[]);
    fs::create_dir(fake.path("real")).unwrap();
    let driver = format!(
        "#!/bin/sh\n[ -z \"$LD_PRELOAD\" ] || exit 3\nLD_PRELOAD=$HAKMEM_BENCH_PRELOAD\n{SAY}\
         more=',\"version\":\"9.1\"'\nsay"
    );
    script(&fake.path("real"), "there", &driver);
    script(&fake.path("real"), "gone", "#!/bin/sh\necho 'gone-server is not installed' >&2\nexit 77\n");
    let row = |name: &str| {
        format!(
            "[[row]]\nname = \"{name}/x\"\nabout = \"a program\"\nreal = \"{name}\"\nquick = []\nfull = []\n\
             time = \"wall\"\nprofiles = [\"real\"]\n"
        )
    };
    fs::write(fake.path("suite.toml"), row("there") + &row("gone")).unwrap();
    let (code, stdout, stderr) = output(&mut fake.bench(&["glibc"], &["real", "--rounds", "1"]));
    assert_eq!(code, Some(0), "{stderr}");
    let json = fake.json();
    assert_eq!(json["rows"][0]["program_version"], "9.1");
    assert!(cell(&json, 0, "hakmem").get("figures").is_some(), "{json}");
    assert_eq!(json["rows"][1]["skipped"], "gone-server is not installed");
    assert!(stdout.contains("Not measured here\n  gone/x: gone-server is not installed"), "{stdout}");
}

// --- leaving nothing behind ----------------------------------------------------------------------------------

/// Once it is warmed up, it notes its own number and those of two children, one in a session of its own, and hangs.
const BREEDING: &str = "[ -e $here/warm ] || { touch $here/warm; say; exit; }
setsid sh -c 'echo $$ >> '$here'/pids; exec sleep 1000' > /dev/null 2>&1 &
sleep 1000 > /dev/null 2>&1 &
echo $! >> $here/pids
echo $$ >> $here/pids
while [ $(wc -l < $here/pids) -lt 3 ]; do sleep 0.01; done
touch $here/ready
wait";

fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_done() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn assert_all_end(fake: &Fake) {
    let pids = fake.read("pids");
    assert_eq!(pids.lines().count(), 3, "{pids}");
    wait_for("the end of all processes", || pids.lines().all(|pid| !is_alive(pid)));
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_nothing() {
    let fake = Fake::new("ctrl-c", &[("first", "say"), ("second", BREEDING)]);
    let page = fake.path("page.html");
    let child = start(fake.bench(&["glibc"], &["--html", page.to_str().unwrap()]));
    wait_for("the second row", || fake.path("ready").exists());
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert_all_end(&fake);
    assert!(stderr.contains("interrupted; what follows is of 1 row\n"), "{stderr}");
    assert!(stdout.contains("first") && stdout.contains("Where HAKMEM is not the best"), "{stdout}");
    let json = fake.json();
    assert_eq!((&json["is_interrupted"], &json["rows"][0]["name"]), (&true.into(), &"first".into()));
    assert!(cell(&json, 0, "hakmem").get("figures").is_some());
    assert!(page.exists());
}

#[test]
fn a_bench_that_is_killed_leaves_no_processes() {
    let fake = Fake::new("killed", &[("first", "say"), ("second", BREEDING)]);
    let temporary = fake.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let is_empty = || fs::read_dir(&temporary).unwrap().next().is_none();
    let mut bench = fake.bench(&["glibc"], &[]);
    bench.env("TMPDIR", &temporary);
    let mut child = start(bench);
    wait_for("the second row", || fake.path("ready").exists());
    assert!(!is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_end(&fake);
    wait_for("the end of the copies", is_empty);
    assert_eq!(fake.json()["rows"][0]["name"], "first", "each row is written when it is done");
}

#[test]
fn a_run_that_hangs_and_one_that_leaves_processes_are_cleaned_up() {
    let daemon = "setsid sleep 1000 > /dev/null 2>&1 &\necho $! >> $here/daemons\nsay";
    let fake = Fake::new("cleaned", &[("hangs", BREEDING), ("daemon", daemon)]);
    let (code, _, stderr) = output(&mut fake.bench(&["hakmem"], &["--rounds", "1", "--timeout", "2"]));
    assert_eq!(code, Some(1), "{stderr}");
    assert_all_end(&fake);
    let daemons = fake.read("daemons");
    assert!(!daemons.is_empty() && daemons.lines().all(|pid| !is_alive(pid)), "{daemons}");
    assert!(cell(&fake.json(), 1, "hakmem").get("figures").is_some());
}

// --- bad input -----------------------------------------------------------------------------------------------

#[test]
fn what_is_not_known_is_told_what_is() {
    let fake = Fake::new("unknown", &[("first", "touch $here/started; say"), ("second", "say")]);
    let with = |with: &str, rest: &[&str]| {
        let mut command = hakmem(&[&["bench", "--with", with], rest].concat());
        command.env("HAKMEM_BENCH_DIR", &fake.folder).env("HAKMEM_BENCH_SUITE", fake.path("suite.toml"));
        command
    };
    let near = "there is no workload, row or profile frist; did you mean first? Profiles: quick, full; workloads: \
                first, second";
    assert_refused(&mut with("glibc", &["frist"]), 2, near);
    assert_refused(
        &mut with("glbc", &[]),
        2,
        "there is no allocator glbc; did you mean glibc? Known: hakmem, glibc",
    );
    assert_refused(&mut with("glibc,glibc", &[]), 2, "glibc twice; a second entry needs a name");
    assert_refused(&mut with("x=/no/such.so", &[]), 2, "no such file");
    assert_refused(&mut with("x=/etc/passwd", &[]), 2, "no shared library");
    let no_allocator = format!("x={}", stand_in().display());
    assert_refused(&mut with(&no_allocator, &[]), 2, "exports no malloc");
    assert_refused(&mut with("/etc/passwd", &[]), 2, "give the file a name: NAME=/etc/passwd");
    assert_refused(&mut with("a b=/etc/passwd", &[]), 2, "the name is letters");
    assert_refused(&mut with("glibc", &["--quick", "--full"]), 2, "--quick");
    assert_refused(&mut with("glibc", &["--rounds", "0"]), 2, "rounds");
    assert_refused(
        &mut with("glibc", &["--json", "/no/such/folder/x.json"]),
        2,
        "cannot be written: no such file",
    );
    assert_refused(&mut with("glibc", &["--html", "/tmp"]), 2, "/tmp cannot be written: it is a directory");
    assert_refused(&mut with("glibc", &["--compare", "/no/such.json"]), 2, "no such file");
    assert_refused(&mut with("glibc", &["--compare", "/etc/passwd"]), 2, "/etc/passwd is damaged");
    assert_refused(&mut with("glibc", &["--compare", "/dev/zero"]), 2, "is larger than a result file may be");
    assert_refused(&mut with("glibc", &["--compare", "/proc/self/exe"]), 2, "is damaged: it is no text");
    assert_refused(with("glibc", &[]).env("HAKMEM_LIB", "/no/such.so"), 125, "which is not there");
    assert_refused(with("glibc", &[]).env("HAKMEM_BENCH_SUITE", "/no/suite"), 2, "no such file");
    assert!(!fake.path("started").exists(), "something was measured");
    // Programs that are missing are said, and that nothing was measured.
    let (code, stdout, stderr) = output(with("glibc", &[]).env("HAKMEM_BENCH_DIR", "/no/folder"));
    assert_eq!(code, Some(1));
    assert!(stderr.ends_with("hakmem: nothing was measured\n"), "{stderr}");
    assert!(
        stdout.contains("first: /no/folder/first is not there (HAKMEM_BENCH_DIR names its folder)"),
        "{stdout}"
    );
}

#[test]
fn lists_say_what_there_is() {
    let fake = Fake::new("lists", &[("first", "say")]);
    let (code, stdout, _) =
        output(hakmem(&["bench", "--list"]).env("HAKMEM_BENCH_SUITE", fake.path("suite.toml")));
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("first  cpu   pretends") && stdout.contains("1 row, profiles quick full"),
        "{stdout}"
    );
    assert!(stdout.contains("about 30 s a row"), "{stdout}");
    let peers = fake.path("peers");
    fs::create_dir(&peers).unwrap();
    let listed = "[{\"name\": \"here\", \"version\": \"1.2\", \"source\": \"a test\", \"path\": \"/gone/libhere.so\"},\
                  {\"name\": \"gone\", \"version\": \"3\", \"source\": \"a test\", \"path\": \"/gone/libgone.so\"}]";
    fs::write(peers.join("peers.json"), listed).unwrap();
    fs::copy(stand_in(), peers.join("libhere.so")).unwrap();
    let (code, stdout, _) = output(hakmem(&["bench", "--peers"]).env("HAKMEM_BENCH_PEERS", &peers));
    assert_eq!(code, Some(0));
    let line =
        |name: &str| stdout.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
    assert!(line("here").contains("1.2") && line("here").contains("peers/libhere.so"), "{stdout}");
    assert_eq!(line("gone"), "", "{stdout}");
    assert!(line("glibc").contains("2.") && line("hakmem").contains("libhakmem.so"), "{stdout}");
    assert!(line("mimalloc3").contains("missing: python3 bench/peers.py"), "{stdout}");
}

// --- counting --------------------------------------------------------------------------------------------------

/// A program whose operations are all its own: the C library's part of each is one call of getppid.
const COUNTED: &str = "#include \"work.h\"
int main(int argc, char **argv) {
    uint64_t count = work_arg(argc, argv, 1, \"count\", 1, 1, UINT32_MAX);
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += (uint64_t)getppid();
    work_begin(\"counted\", argc, argv);
    work_number(\"ops\", count);
    work_number(\"wall_ns\", count);
    work_number(\"cpu_ns\", count);
    return work_end();
}
";

#[test]
fn an_operation_is_counted_without_what_starting_costs() {
    let tools = ["valgrind", "strace"].map(|tool| Command::new(tool).arg("--version").output().is_ok());
    if tools != [true, true] {
        eprintln!("valgrind or strace is missing here");
        return;
    }
    let fake = Fake::new("counted", &[]);
    // The harness is known by the name of its folder.
    let sources = fake.path("bench/workloads");
    fs::create_dir_all(&sources).unwrap();
    let work_h = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/workloads/work.h");
    fs::copy(work_h, sources.join("work.h")).unwrap();
    assert!(common::compile(&sources, "counted", COUNTED, &["-g", "-O1", "-pthread"]));
    fs::rename(sources.join("counted"), fake.path("counted")).unwrap();
    let suite = "[[row]]\nname = \"c\"\nabout = \"counts\"\nprogram = \"counted\"\nquick = [\"10\"]\nfull = [\"20\"]\n\
                 time = \"cpu\"\nprofiles = [\"quick\"]\nper_operation = true\ncount = [\"3000\"]\n\
                 count_less = [\"1000\"]\n";
    fs::write(fake.path("suite.toml"), suite).unwrap();
    let (code, stdout, stderr) =
        output(&mut fake.bench(&["glibc"], &["--rounds", "1", "--count", "--syscalls"]));
    assert_eq!(code, Some(0), "{stderr}");
    let json = fake.json();
    for name in ["hakmem", "glibc"] {
        let cell = cell(&json, 0, name);
        assert_eq!(cell["counts"]["ops"], 2000, "{cell}");
        let all = cell["counts"]["total"]["instructions"].as_f64().unwrap();
        assert!((4.0..40.0).contains(&all), "{cell}");
        if json["settings"]["count_method"].as_str().unwrap().starts_with("cachegrind") {
            let theirs = cell["counts"]["without_harness"]["instructions"].as_f64().unwrap();
            assert!(theirs >= 1.0 && theirs < all - 2.0, "{cell}");
        }
        let calls = cell["syscalls"]["getppid"].as_u64();
        assert_eq!(calls, Some(3000), "{cell}");
        near(&cell["syscalls_per_op"], 1.0);
    }
    assert!(stdout.contains("\nPer operation, ") && stdout.contains("getppid 3,000"), "{stdout}");
}
