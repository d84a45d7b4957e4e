//! The files of `hakmem bench`: what is read, what is written, and what becomes of a run whose file cannot be.

mod common;

use common::fake::Fake;
use common::{assert_refused, hakmem, output};
use std::fs;

#[test]
fn what_was_measured_is_shown_whatever_becomes_of_the_files() {
    // The folder of the file goes away while the first row runs.
    let fake = Fake::new("unwritten", &[("first", "rm -rf $here/out\nsay"), ("second", "say")]);
    for (json, reason) in [("/dev/full", "no space left on device"), ("out/r.json", "no such file")] {
        fs::create_dir_all(fake.path("out")).unwrap();
        let mut command = hakmem(&["bench", "--with", "glibc", "--rounds", "1", "--json", json]);
        command.env("HAKMEM_BENCH_DIR", &fake.folder).env("HAKMEM_BENCH_SUITE", fake.path("suite.toml"));
        let (code, stdout, stderr) = output(command.current_dir(&fake.folder));
        assert_eq!(code, Some(1), "{stderr}");
        for part in ["\nfirst ", "\nsecond ", "Where HAKMEM is not the best"] {
            assert!(stdout.contains(part), "'{part}' is not in: {stdout}");
        }
        let told: Vec<&str> = stderr.lines().filter(|line| line.contains("cannot be written")).collect();
        assert_eq!(told.len(), 1, "{stderr}");
        assert!(told[0].starts_with(&format!("hakmem: {json} cannot be written: {reason}")), "{stderr}");
    }
}

#[test]
fn no_file_is_written_over_what_is_read_or_written_beside_it() {
    let fake = Fake::new("beside", &[("a", "echo >> $here/started\nsay")]);
    output(&mut fake.bench(&["glibc"], &["--rounds", "1"]));
    let (before, started) = (fake.read("out.json"), fake.read("started"));
    std::os::unix::fs::symlink("w", fake.path("link")).unwrap();
    let read = "out.json cannot be written: it is what is read";
    let twice = "--json and --html name the same file";
    for (arguments, part) in [
        (&["--from", "out.json", "--html", "./out.json"][..], read),
        (&["--compare", "out.json", "--json", "out.json"], read),
        (&["--compare", "out.json", "--html", "out.json"], read),
        (&["--json", "w", "--html", "w"], twice),
        (&["--json", "link", "--html", "./w"], twice),
        (&["--json", "-", "--html", "-"], twice),
    ] {
        let mut command = hakmem(&[&["bench"], arguments].concat());
        command.env("HAKMEM_BENCH_DIR", &fake.folder).env("HAKMEM_BENCH_SUITE", fake.path("suite.toml"));
        assert_refused(command.current_dir(&fake.folder), 2, part);
    }
    assert_eq!((fake.read("out.json"), fake.read("started")), (before, started));
    let (code, ..) = output(&mut fake.bench(&["glibc"], &["--rounds", "1", "--html", "/dev/null"]));
    assert_eq!(code, Some(0));
}

#[test]
fn a_file_of_results_can_be_shown_again() {
    let fake = Fake::new("again", &[("a", "say")]);
    let (_, first, _) = output(&mut fake.bench(&["glibc"], &["--rounds", "2"]));
    let out = fake.path("out.json");
    let page = fake.path("page.html");
    let (code, second, stderr) =
        output(&mut hakmem(&["bench", "--from", out.to_str().unwrap(), "--html", page.to_str().unwrap()]));
    assert_eq!((code, second, stderr), (Some(0), first, String::new()));
    assert!(fs::read_to_string(page).unwrap().contains("<!doctype html"));
    // One run, one line.
    let runs = fake.read("out.json").lines().filter(|line| line.contains("\"round\"")).count();
    assert_eq!(runs, 4);
}

#[test]
fn a_table_of_another_time_is_refused() {
    let fake = Fake::new("schema", &[]);
    fs::write(fake.path("old.json"), "{\"schema\": 99}").unwrap();
    let old = fake.path("old.json");
    assert_refused(&mut hakmem(&["bench", "--from", old.to_str().unwrap()]), 2, "schema 99");
    fs::write(&old, "{\"schema\": 1, \"rows\": 7}").unwrap();
    assert_refused(&mut hakmem(&["bench", "--from", old.to_str().unwrap()]), 2, "old.json");
}
