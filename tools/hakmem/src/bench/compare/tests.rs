//! Two files, one told to be slower, larger, broken, or from elsewhere: what is said of it.

use super::*;
use crate::bench::html::sample::{self, made_up};

fn changed(comparison: &Comparison) -> Vec<(&str, &str, What)> {
    let changes = comparison.of(Verdict::Changed).into_iter();
    changes.map(|change| (change.row.as_str(), change.allocator.as_str(), change.what)).collect()
}

/// The same allocators measured again, but HAKMEM is another binary.
fn two_sessions(rows: usize, allocators: usize, rounds: usize) -> (Results, Results) {
    let mut old = made_up(rows, allocators, rounds, 1);
    // The same speeds with other noise: made_up draws them from the seed, so the noise is put on anew.
    let mut new = old.clone();
    let mut random = sample::Random(77);
    for cell in new.rows.iter_mut().flat_map(|row| &mut row.cells) {
        for run in &mut cell.runs {
            let factor = 1.0 + 0.005 * random.normal();
            (run.wall_ns, run.cpu_ns) =
                ((run.wall_ns as f64 * factor) as u64, (run.cpu_ns as f64 * factor) as u64);
        }
        // Not the same order, or the noise of the first session would be in both, round by round.
        let rounds: Vec<u32> = cell.runs.iter().map(|run| run.round).collect();
        cell.runs.reverse();
        cell.runs.iter_mut().zip(rounds).for_each(|(run, round)| run.round = round);
    }
    old.allocators[0].sha256 = Some("00".repeat(32));
    sample::finish(&mut new);
    (old, new)
}

#[test]
fn a_known_shift_is_found_with_its_size_and_nothing_else() {
    let (old, mut new) = two_sessions(20, 5, 9);
    sample::slow_down(&mut new, "hakmem", 1.12, &["workload/3"]);
    sample::slow_down(&mut new, "hakmem", 0.8, &["workload/8"]);
    let comparison = compare(&old, &new);
    let expected = [("workload/8", "hakmem", What::Time), ("workload/3", "hakmem", What::Time)];
    assert_eq!(changed(&comparison), expected, "the largest first");
    let shifts: Vec<Shift> =
        comparison.of(Verdict::Changed).iter().map(|change| change.shift.unwrap()).collect();
    for (shift, factor) in shifts.iter().zip([0.8, 1.12]) {
        assert!(
            (shift.ratio - factor).abs() < 0.03 && shift.low < factor && shift.high > factor,
            "{shift:?}"
        );
    }
    let text = text(&comparison);
    assert!(text.contains("2 changes are more than noise, of "), "{text}");
    assert!(
        text.contains("HAKMEM is another binary: 1.2.3 000000000000 then, 1.2.3 68616b6d656d now"),
        "{text}"
    );
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("'{part}' is not in {text}"));
    assert!(at("workload/8") < at("workload/3"));
}

#[test]
fn pure_noise_is_no_change() {
    let (old, new) = two_sessions(60, 10, 9);
    let comparison = compare(&old, &new);
    assert_eq!(changed(&comparison), []);
    // The test alone would find some of 1,400 at 1%; each is said to be of an unchanged binary.
    assert!(comparison.of(Verdict::Drifted).len() < 20, "{}", comparison.of(Verdict::Drifted).len());
    assert!(text(&comparison).contains("Nothing changed by more than noise, in 1,400 comparisons."));
}

#[test]
fn a_machine_that_is_slower_as_a_whole_changes_nothing() {
    let (old, mut new) = two_sessions(20, 5, 9);
    for allocator in new.allocators.clone() {
        sample::slow_down(&mut new, &allocator.name, 1.3, &[]);
    }
    let comparison = compare(&old, &new);
    assert_eq!(changed(&comparison), []);
    let drift = comparison.drift.unwrap();
    assert!((drift - 1.3).abs() < 0.01, "{drift}");
    assert!(text(&comparison).contains("took 30."), "{}", text(&comparison));

    // Without a yardstick nobody can tell the machine from the allocator, and that is said.
    let mut old = old;
    old.allocators.iter_mut().for_each(|allocator| allocator.sha256 = None);
    let comparison = compare(&old, &new);
    assert_eq!(changed(&comparison).iter().filter(|(.., what)| *what == What::Time).count(), 100);
    assert!(text(&comparison).contains("looks like a change"));
    assert!(text(&comparison).contains("glibc may be another binary: not both files have its checksum"));
}

#[test]
fn memory_is_compared_as_it_is() {
    let (old, mut new) = two_sessions(20, 4, 9);
    let row = new.rows.iter_mut().find(|row| row.name == "workload/6").unwrap();
    assert!(row.resident_after);
    for run in &mut row.cells[0].runs {
        run.peak_kb = run.peak_kb * 6 / 5;
        run.resident_kb = run.resident_kb.map(|kb| kb / 2);
    }
    let comparison = compare(&old, &new);
    assert_eq!(
        changed(&comparison),
        [("workload/6", "hakmem", What::After), ("workload/6", "hakmem", What::Peak)]
    );
}

#[test]
fn a_change_of_an_unchanged_binary_is_told_apart() {
    let (old, mut new) = two_sessions(20, 5, 9);
    sample::slow_down(&mut new, "glibc", 1.5, &["workload/4"]);
    let comparison = compare(&old, &new);
    let drifted: Vec<_> =
        comparison.of(Verdict::Drifted).iter().map(|change| change.allocator.as_str()).collect();
    assert!(drifted.contains(&"glibc"), "{drifted:?}");
    assert!(!changed(&comparison).iter().any(|(_, allocator, _)| *allocator == "glibc"));
    assert!(text(&comparison).contains("Unchanged binaries that seem to have changed"));
}

#[test]
fn what_repeats_and_what_does_not_is_said() {
    let (mut old, mut new) = two_sessions(20, 5, 9);
    let repeats = compare(&old, &new).repeats.unwrap();
    // HAKMEM is another binary; every fourth row has several threads.
    let single = old.rows.iter().filter(|row| row.time == Time::Cpu).count();
    assert_eq!((repeats.within, repeats.times), (4 * single, 4 * single));
    assert!(repeats.most > 1.0 && repeats.most < 1.02, "{}", repeats.most);
    sample::slow_down(&mut new, "glibc", 1.05, &["workload/4"]);
    old.rows.iter_mut().chain(&mut new.rows).for_each(|row| row.is_steady = true);
    let comparison = compare(&old, &new);
    let repeats = comparison.repeats.as_ref().unwrap();
    assert_eq!(
        (repeats.times - repeats.within, repeats.beyond.as_slice()),
        (1, &["workload/4, glibc".to_owned()][..])
    );
    assert_eq!(repeats.steady_times - repeats.steady_within, 1);
    let mut shaky = new.clone();
    shaky.rows.iter_mut().find(|row| row.name == "workload/4").unwrap().is_steady = false;
    let shaky = compare(&old, &shaky).repeats.unwrap();
    assert_eq!(
        (shaky.steady_within, shaky.steady_times),
        (repeats.steady_times - 4, repeats.steady_times - 4)
    );
    let text = text(&comparison);
    assert!(
        text.contains("times repeat within 3%") && text.contains("beyond it: workload/4, glibc"),
        "{text}"
    );
}

/// Who sat out most rounds is compared by those it has, and does not take the others' rounds from them.
#[test]
fn allocators_need_not_run_in_the_same_rounds() {
    let (mut old, mut new) = two_sessions(20, 5, 20);
    for results in [&mut old, &mut new] {
        results.rows.iter_mut().for_each(|row| row.cells[3].runs.retain(|run| run.round <= 3));
        sample::finish(results);
    }
    sample::slow_down(&mut new, "hakmem", 1.06, &["workload/2"]);
    for allocator in new.allocators.clone() {
        sample::slow_down(&mut new, &allocator.name, 1.3, &[]);
    }
    assert_eq!(changed(&compare(&old, &new)), [("workload/2", "hakmem", What::Time)]);
}

#[test]
fn too_few_runs_are_said() {
    let (old, mut new) = two_sessions(3, 3, 4);
    sample::slow_down(&mut new, "hakmem", 3.0, &[]);
    let comparison = compare(&old, &new);
    assert_eq!(changed(&comparison), []);
    assert!(text(&comparison).contains("too few runs to say"), "{}", text(&comparison));
}

#[test]
fn what_cannot_be_compared_is_listed() {
    let (mut old, mut new) = two_sessions(8, 4, 9);
    old.rows.remove(0);
    new.rows.remove(6);
    new.allocators.pop();
    new.rows.iter_mut().for_each(|row| drop(row.cells.pop()));
    new.rows[2].arguments[0] = "5".to_owned();
    new.rows[3].skipped = Some("redis is not installed".to_owned());
    (new.rows[3].cells, new.rows[4].program_version) = (Vec::new(), Some("2".to_owned()));
    sample::fail(&mut new, "workload/5", "glibc", "crashed: SIGSEGV");
    (new.machine.processors, new.settings.size) = (64, crate::bench::results::Size::Full);
    new.is_interrupted = true;
    let text = text(&compare(&old, &new));
    for part in [
        "warning: The machine is another one, or set up otherwise: processors 2 then, 64 now.",
        "warning: The settings differ: quick then, full now.",
        "warning: The new run was interrupted",
        "workload/5, glibc: fails now: crashed: SIGSEGV",
        "workload/2: other arguments, '1000000 4096 16 1024 12345' then, '5 4096 16 1024 12345' now",
        "workload/3: not measured now: redis is not installed",
        "workload/4: another version of workload, unknown then, 2 now",
        "Only in the old file:\n  allocator mimalloc2\n  row workload/6\n",
        "Only in the new file:\n  row workload/0\n",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

#[test]
fn two_files_without_anything_in_common_or_at_all() {
    let nothing = compare(&sample::empty(), &sample::empty());
    assert!(text(&nothing).contains("Nothing changed by more than noise, in 0 comparisons."));
    let text = text(&compare(&sample::empty(), &sample::sample()));
    assert!(text.contains("Only in the new file:\n  allocator hakmem\n"), "{text}");
}

#[test]
fn zero_operations_and_zero_times_are_left_out() {
    let (old, mut new) = two_sessions(2, 2, 9);
    for cell in new.rows.iter_mut().flat_map(|row| &mut row.cells) {
        cell.runs.iter_mut().for_each(|run| (run.ops, run.peak_kb, run.resident_kb) = (0, 0, Some(0)));
    }
    let comparison = compare(&old, &new);
    assert!(comparison.changes.is_empty(), "{:?}", comparison.changes);
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let results = sample::sample();
    let text = serde_json::to_string(&results).unwrap();
    let again = read(&text, "x.json").unwrap();
    let runs = |results: &Results| -> Vec<Run> {
        results.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| cell.runs.clone()).collect()
    };
    assert_eq!(again.allocators, results.allocators);
    assert!(runs(&again) == runs(&results));
}

#[test]
fn a_damaged_or_foreign_file_is_one_clear_line() {
    let whole = serde_json::to_string(&made_up(1, 1, 5, 1)).unwrap();
    let newer = whole.replacen(&format!("\"schema\":{SCHEMA}"), "\"schema\":999", 1);
    let older = whole.replacen(&format!("\"schema\":{SCHEMA}"), "\"schema\":0", 1);
    for (text, part) in [
        ("", "x.json is empty"),
        (" \n", "x.json is empty"),
        (&whole[..whole.len() / 2], "x.json is damaged: "),
        ("{\"rows\": {}}", "is not a result file of hakmem bench: it has no field 'schema'"),
        ("[1, 2]", "x.json is damaged: "),
        (
            &whole.replacen("workload/0", &"w".repeat(70_000), 1),
            "x.json is damaged: a text in it is longer than",
        ),
        ("\u{0}\u{1}garbage", "x.json is damaged: "),
        (&newer, "is from a newer hakmem bench: it has schema 999"),
        (&older, "is from an older hakmem bench: it has schema 0"),
        (&whole.replacen("\"rows\"", "\"raws\"", 1), "x.json is damaged: missing field `rows`"),
    ] {
        let error = read(text, "x.json").unwrap_err();
        assert!(error.contains(part), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(read("", "odd\nname").unwrap_err().contains("\"odd\\nname\""));
}
