//! `hakmem options`, `--help`, `--version`, and what the command line says when it is wrong.

mod common;

use common::{assert_refused, folder, hakmem, output, stand_in};
use std::fs;
use std::process::Stdio;

#[test]
fn the_table_lists_every_row_of_the_library() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/rules/options.def");
    let Ok(source) = std::fs::read_to_string(source) else { return }; // a crate that is packaged alone
    let (code, stdout, stderr) = output(&mut hakmem(&["options"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let names = source.lines().filter_map(|line| {
        let row = line.strip_prefix("HAK_OPTION(").or_else(|| line.strip_prefix("HAK_OPTION_TEXT("))?;
        row.split([',', ')']).next()
    });
    let mut count = 0;
    for name in names {
        assert!(
            stdout.lines().any(|line| line.starts_with(&format!("{name} "))),
            "{name} is missing: {stdout}"
        );
        count += 1;
    }
    assert!(count >= 5, "{source}");
    assert!(!stdout.contains('\x1b'), "colours without a terminal");
}

#[test]
fn one_option_is_explained_in_any_spelling() {
    for name in ["purge_delay_ms", "HAKMEM_PURGE_DELAY_MS", "purge-delay-ms"] {
        let (code, stdout, _) = output(&mut hakmem(&["options", name]));
        assert_eq!(code, Some(0));
        assert!(
            stdout.contains("HAKMEM_PURGE_DELAY_MS") && stdout.contains("run --purge-delay-ms"),
            "{stdout}"
        );
    }
}

#[test]
fn options_are_there_as_json() {
    let (code, stdout, _) = output(&mut hakmem(&["options", "--json"]));
    assert_eq!(code, Some(0));
    let rows: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let stats = rows.as_array().unwrap().iter().find(|row| row["name"] == "stats").unwrap();
    assert_eq!((stats["environment"].as_str(), stats["max"].as_u64()), (Some("HAKMEM_STATS"), Some(1)));
    let (_, stdout, _) = output(&mut hakmem(&["options", "--json", "stats"]));
    assert_eq!(&serde_json::from_str::<serde_json::Value>(&stdout).unwrap(), stats);
}

#[test]
fn an_unknown_option_is_one_line_with_the_nearest() {
    assert_refused(&mut hakmem(&["options", "purge_delay"]), 2, "the nearest is purge_delay_ms");
    assert_refused(&mut hakmem(&["options", "two\nlines"]), 2, "there is no option");
}

#[test]
fn a_wrong_command_line_is_one_line() {
    assert_refused(&mut hakmem(&[]), 2, "no command given");
    assert_refused(&mut hakmem(&["optoins"]), 2, "did you mean options?");
    assert_refused(&mut hakmem(&["zzzzzzzz"]), 2, "no command zzzzzzzz; hakmem --help lists them\n");
    let unlike = "there is no allocator nosuch. Known: hakmem, glibc";
    assert_refused(&mut hakmem(&["bench", "--with", "nosuch"]), 2, unlike);
    let unlike = "there is no workload, row or profile zzzzzzzz. Profiles: ";
    assert_refused(&mut hakmem(&["bench", "zzzzzzzz"]), 2, unlike);
    assert_refused(&mut hakmem(&["options", "a", "b"]), 2, "b");
    assert_refused(&mut hakmem(&["run"]), 2, "PROGRAM");
    assert_refused(&mut hakmem(&["run", "--report=long", "true"]), 2, "long");
    assert_refused(&mut hakmem(&["doctor", "--nonsense"]), 2, "no flag --nonsense");
}

#[test]
fn the_version_is_the_tools_and_the_librarys() {
    let (code, stdout, _) = output(&mut hakmem(&["--version"]));
    assert_eq!(code, Some(0));
    let library = std::fs::canonicalize(stand_in()).unwrap();
    let expected =
        format!("hakmem {}\nlibhakmem.so 7.8.9 ({})\n", env!("CARGO_PKG_VERSION"), library.display());
    assert_eq!(stdout, expected);
    let (code, stdout, _) = output(hakmem(&["-V"]).env("HAKMEM_LIB", "/no/such/lib.so"));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("no library: HAKMEM_LIB names /no/such/lib.so, which is not there"), "{stdout}");
}

#[test]
fn help_has_examples_and_every_option_of_the_library() {
    let (code, stdout, _) = output(&mut hakmem(&["--help"]));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("Examples:") && stdout.contains("doctor"), "{stdout}");
    let (_, stdout, _) = output(&mut hakmem(&["run", "--help"]));
    assert!(stdout.contains("--free-max-mb <N>") && stdout.contains("[=<0|1>]"), "{stdout}");
}

#[test]
fn command_and_header_have_one_version() {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/hakmem/hakmem.h");
    let Ok(header) = std::fs::read_to_string(header) else { return }; // a crate that is packaged alone
    let line = format!("#define HAKMEM_VERSION \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(header.lines().any(|found| found == line), "{line} is not in hakmem.h");
}

#[test]
fn a_full_standard_output_is_told_in_one_line() {
    let sample = format!("{}/tests/data/sample.hakprof", env!("CARGO_MANIFEST_DIR"));
    let folder = folder("full-output");
    let page = folder.join("page.html");
    let commands: [&[&str]; 8] = [
        &["--help"],
        &["run", "--help"],
        &["--version"],
        &["options"],
        &["doctor"],
        &["leaks", &sample],
        &["pprof", &sample, "-o", "-"],
        &["report", &sample, "-o", page.to_str().unwrap()],
    ];
    for command in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = hakmem(command).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(
            stderr.contains("no space left on device") && stderr.lines().count() == 1,
            "{command:?}: {stderr}"
        );
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn help_is_helped_with_as_well() {
    let (_, help, _) = output(&mut hakmem(&["--help"]));
    for flag in ["--help", "-h"] {
        assert_eq!(output(&mut hakmem(&["help", flag])), (Some(0), help.clone(), String::new()));
    }
    assert_refused(&mut hakmem(&["help", "--hepl"]), 2, "there is no command --hepl");
}
