//! The example of docs/policy.md is read, written, merged and explained; whatever is broken is one line.

use super::file::{parse, write};
use super::learnt::{Learnt, Tally};
use super::merge::merge;
use super::*;

const EXAMPLE: &str = "\
hakmem-policy 1
program 4c1b0a7e2f3d5b6a8c9d0e1f2a3b4c5d6e7f8091 redis-server
library 0.1.0
runs 3
stage frozen
strategy hold
gain 61200 8100 45
noise 23000 51
spare 2 5
fell 1
dear 2
filled 64 12 13
filled 4224 3 3
knob purge_delay_ms 2000
knob free_max_mb 64
rating baseline 0 0 45 in
rating hold 34 9 62 in
rating bare -412 88 7 out
history 0 off learn program_begins 0 0
history 182340 learn canary gain_proved 61200 8100
history 243120 canary frozen trial_passed 58900 3100
site 4c1b0a7e2f3d5b6a 1a2f40 208 12 pool 1 874 2210
site 77aa01c2d3e4f506 9f3310 96 23 keep 2 1500 1000
";

fn example() -> Policy {
    parse(ended(EXAMPLE).as_bytes()).unwrap()
}

/// The text with its end.
fn ended(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{text}end {hash:016x}\n")
}

fn body(policy: &Policy) -> String {
    let text = write(policy);
    text[..text.rfind("end ").unwrap()].to_owned()
}

#[test]
fn what_is_written_is_read() {
    let policy = example();
    assert_eq!((policy.program.as_str(), policy.runs, policy.stage), ("redis-server", 3, Stage::Frozen));
    assert_eq!(policy.gain, Some(Gain { millionths: 61200, error: 8100, duels: 45 }));
    assert_eq!((policy.ratings.len(), policy.history.len(), policy.sites.len()), (3, 3, 2));
    assert_eq!(policy.sites[1].kind, Kind::Keep);
    assert_eq!(parse(write(&policy).as_bytes()).unwrap(), policy);
}

#[test]
fn comments_and_any_order_are_taken() {
    let policy = example();
    let text = body(&policy);
    let (head, rest) = text.split_at(text.find("library").unwrap());
    let mut lines: Vec<&str> = rest.lines().collect();
    // History keeps its order; all else may stand anywhere.
    lines.sort_by_key(|line| line.starts_with("history"));
    let shuffled = ended(&format!("{head}# a comment\n{}\n", lines.join("\n")));
    assert_eq!(parse(shuffled.as_bytes()).unwrap(), policy);
}

#[test]
fn whatever_is_wrong_is_told_with_its_line() {
    let good = body(&example());
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        ended(&good.replace(from, to))
    };
    for (text, line) in [
        (String::new(), "empty"),
        ("\u{7f}ELF\n".to_owned(), "line 1: not a policy file"),
        ("hakmem-policy 1".to_owned(), "line 1: it does not end"),
        (changed("hakmem-policy 1", "hakmem-policy 2"), "line 1: it has version 2"),
        (changed("program 4c1b", "program 4C1B"), "line 2: the program's build-id"),
        (changed("program ", "programm "), "line 2: the second line names the program"),
        (changed("redis-server", "redis server"), "line 2: 3 fields stand where 2 belong"),
        (changed("redis-server", "redis\u{1b}[31m"), "line 2: a name is"),
        (changed("runs 3", "r\u{1b}[2Juns 3"), "line 4: version 1 has no keyword 'r\\u{1b}[2Juns'"),
        (changed("runs 3", "runs 03"), "line 4: '03' is no whole number"),
        (changed("runs 3", "runs 3\nruns 4"), "line 5: 'runs' is there twice"),
        (changed("runs 3", "runs 0"), "line 4: no run stands behind it"),
        (changed("runs 3", "runs  3"), "line 4: 2 fields stand where 1 belong"),
        (changed("runs 3\n", ""), "it has no line 'runs'"),
        (
            changed("runs 3", "runs 99999999999999999999"),
            "line 4: '99999999999999999999' is no whole number up to",
        ),
        (changed("runs 3", "walks 3"), "line 4: version 1 has no keyword 'walks'"),
        (
            changed("knob free_max_mb 64", "knob free_max_mb 4294967295"),
            "free_max_mb is 4294967295, and may be",
        ),
        (changed("knob free_max_mb 64", "knob rm_rf 1"), "there is no knob 'rm_rf'"),
        (changed("knob free_max_mb 64", "knob report 1"), "there is no knob 'report'"),
        (changed("knob free_max_mb 64", "knob purge_delay_ms 7"), "knob purge_delay_ms is there twice"),
        (changed(" 45 in", " 45 inn"), "is neither in, aside nor out"),
        (changed("rating baseline", "rating hold"), "rating hold is there twice"),
        (changed("pool 1 874", "pool 2 874"), "'2' is no whole number up to 1"),
        (changed("208 12 pool", "208 99999 pool"), "'99999' is no whole number up to 65535"),
        (changed("learn canary", "start canary"), "'start' is no stage"),
        (changed("1a2f40", "1a2g40"), "'1a2g40' is no hexadecimal number"),
        (changed("stage frozen", &format!("stage {}", "x".repeat(300))), "line 5: longer than 256 bytes"),
        (good.clone(), "it has no end"),
        (format!("{good}end 0123456789abcdef\n"), "the sum over the file is another"),
        (ended(&good) + "runs 3\n", "something follows the end"),
    ] {
        let reason = parse(text.as_bytes()).unwrap_err();
        assert!(reason.contains(line) && reason.lines().count() == 1, "'{line}' is not in: {reason}");
        assert!(!reason.contains('\u{1b}'), "{reason}");
    }
    assert!(
        parse(b"hakmem-policy 1\nprogram \xff\xff x\n")
            .unwrap_err()
            .contains("line 2: the program's build-id")
    );
    assert!(parse(&vec![b'#'; (FILE_BYTES_MAX + 1) as usize]).unwrap_err().contains("larger than"));
    let many: String =
        (0..=SITES_MAX).map(|at| format!("site 4c1b0a7e2f3d5b6a {at:x} 8 1 pool 1 1 1\n")).collect();
    assert!(parse(ended(&(good.clone() + &many)).as_bytes()).unwrap_err().contains("more than 4096 sites"));
}

/// Every byte changed, every cut: an answer, and never a file that is believed although it says something else.
#[test]
fn no_damage_is_believed() {
    let text = write(&example());
    for at in 0..text.len() {
        assert!(parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        for byte in [b' ', b'0', b'\n', 0, 0xff, b'z'] {
            let mut bytes = text.clone().into_bytes();
            if bytes[at] != byte {
                bytes[at] = byte;
                assert!(parse(&bytes).is_err(), "byte {at} is {byte}");
            }
        }
    }
}

/// Lines by chance, well formed and with their sum: whatever is taken is written so that it is taken again.
#[test]
fn hostile_lines_do_no_harm() {
    let mut state = 7_u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let numbers = [
        "18446744073709551615",
        "-9223372036854775807",
        "9223372036854775807",
        "0",
        "1",
        "999",
        "64",
        "-",
        "",
        "4c1b0a7e2f3d5b6a",
        "ffffffffffffffff",
    ];
    let names =
        ["hold", "in", "out", "frozen", "start", "learn", "free_max_mb", "pool", "keep", "gain_proved"];
    // Keyword, then a name (n) or a number (0) for each field.
    let lines = [
        "gain 000",
        "noise 00",
        "spare 00",
        "fell 0",
        "dear 0",
        "filled 000",
        "knob n0",
        "rating n000n",
        "history 0nnn00",
        "site 0000n000",
        "runs 0",
        "stage n",
    ];
    let good: String = body(&example())
        .lines()
        .filter(|line| {
            !["gain ", "noise ", "spare ", "fell ", "dear ", "knob "]
                .iter()
                .any(|keyword| line.starts_with(keyword))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let mut taken = 0;
    for _ in 0..30_000 {
        let (keyword, fields) = lines[random(lines.len())].split_once(' ').unwrap();
        let fields: String = fields
            .chars()
            .map(|kind| match kind {
                'n' => format!(" {}", names[random(names.len())]),
                _ => format!(" {}", numbers[random(numbers.len())]),
            })
            .collect();
        if let Ok(policy) = parse(ended(&format!("{good}{keyword}{fields}\n")).as_bytes()) {
            taken += 1;
            assert_eq!(parse(write(&policy).as_bytes()).unwrap(), policy);
            assert!(merge(&[policy.clone(), policy.clone()], &["a".into(), "b".into()]).is_ok());
            assert!(!words::explain(&(&policy).into()).is_empty());
        }
    }
    assert!(taken > 500, "{taken}");
}

// --- merging ---------------------------------------------------------------------------------------------

fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("file{at}")).collect()
}

#[test]
fn runs_and_duels_add_up_and_ratings_are_weighted() {
    let (one, mut other) = (example(), example());
    other.runs = 5;
    other.library = "0.10.0".to_owned();
    // Half the error: four times the weight.
    other.ratings[1] = Rating { elo: 134, error: 18, duels: 10, ..one.ratings[1].clone() };
    let merged = merge(&[one.clone(), other], &names(2)).unwrap();
    assert_eq!((merged.runs, merged.library.as_str()), (8, "0.10.0"));
    assert_eq!((merged.ratings[1].elo, merged.ratings[1].error, merged.ratings[1].duels), (54, 8, 72));
    assert_eq!((merged.ratings[0].elo, merged.ratings[0].error, merged.ratings[0].duels), (0, 0, 90));
    assert_eq!(merged.ratings[2].standing, Standing::Out, "both say so");
    assert_eq!(merged.strategy, "hold");
    assert_eq!(parse(write(&merged).as_bytes()).unwrap(), merged);
}

/// More than another run fills would be memory for nothing.
#[test]
fn what_all_of_them_fill_is_filled() {
    let (one, mut other) = (example(), example());
    other.filled = vec![Filled { block_bytes: 64, slabs: 20, last: 9 }];
    (other.fell, other.dear) = (3, 0);
    let merged = merge(&[one, other], &names(2)).unwrap();
    assert_eq!(merged.filled, [Filled { block_bytes: 64, slabs: 12, last: 9 }]);
    assert_eq!((merged.fell, merged.dear), (3, 2));
    let words = words::explain(&(&example()).into());
    let filled = "Blocks of up to 1 MiB fill 1.5 MiB in each run: those come in huge pages from the first on. But the kernel";
    assert!(words.contains(filled), "{words}");
}

#[test]
fn the_higher_rated_of_the_frozen_ones_is_chosen() {
    let (mut one, mut other) = (example(), example());
    other.strategy = "bare".to_owned();
    other.knobs = vec![("free_max_mb".to_owned(), 0)];
    other.ratings =
        vec![Rating { strategy: "bare".to_owned(), elo: 500, error: 5, duels: 900, standing: Standing::In }];
    let both = [one.clone(), other.clone()];
    let merged = merge(&both, &names(2)).unwrap();
    assert_eq!((merged.strategy.as_str(), merged.knobs[0].1), ("bare", 0));
    // Who is not frozen is not asked.
    other.stage = Stage::Learn;
    assert_eq!(merge(&[one.clone(), other.clone()], &names(2)).unwrap().strategy, "hold");
    // Where nobody is, the one that knows most decides.
    one.stage = Stage::Canary;
    let merged = merge(&[one, other], &names(2)).unwrap();
    assert_eq!((merged.strategy.as_str(), merged.stage), ("bare", Stage::Learn));
}

#[test]
fn what_is_known_of_a_site_is_one() {
    let (one, mut other) = (example(), example());
    other.sites[0].numbers = [0, 20, 22100]; // ten times the samples say it is short-lived
    other.sites[1].numbers = [1, 9000, 40];
    other.sites.push(Site { offset: 1, ..one.sites[0].clone() });
    let merged = merge(&[one, other], &names(2)).unwrap();
    let site = |offset: u64| merged.sites.iter().find(|site| site.offset == offset).unwrap().numbers;
    // (874 x 2210 + 20 x 22100) / 24310 = 97.6.
    assert_eq!(site(0x1a2f40), [0, 98, 24310]);
    assert_eq!(site(0x9f3310), [2, 9000, 1000]);
    assert_eq!((merged.sites.len(), site(1)[1]), (3, 874));
}

#[test]
fn a_pool_of_which_files_differ_is_the_same_in_any_order() {
    let with = |numbers: [u64; 3]| {
        let mut policy = example();
        policy.sites[0].numbers = numbers;
        policy
    };
    let files = [with([1, 110, 40]), with([0, 50, 40]), with([0, 300, 20])];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let merged = merge(&order.map(|at| files[at].clone()), &names(3)).unwrap();
        let site = merged.sites.iter().find(|site| site.kind == Kind::Pool).unwrap();
        assert_eq!(site.numbers, [1, 124, 100], "{order:?}");
    }
}

/// A site with few samples is short-lived to the library whatever its share is; two such files agree.
#[test]
fn what_all_files_say_of_a_site_stands() {
    let mut one = example();
    one.sites[0].numbers = [0, 874, 3];
    let merged = merge(&[one.clone(), one.clone()], &names(2)).unwrap();
    let site = merged.sites.iter().find(|site| site.offset == one.sites[0].offset).unwrap();
    assert_eq!(site.numbers, [0, 874, 6]);
}

#[test]
fn programs_are_not_mixed() {
    let (one, mut other) = (example(), example());
    other.build_id = "00".repeat(20);
    let reason = merge(&[one, other], &names(2)).unwrap_err();
    assert!(reason.starts_with("file1 is of another program than file0"), "{reason}");
}

#[test]
fn numbers_at_their_ends_do_not_overflow() {
    let text = EXAMPLE
        .replace("runs 3", "runs 4294967295")
        .replace("gain 61200 8100 45", "gain -100000000 100000000 4294967295")
        .replace("hold 34 9 62", "hold -100000 100000 4294967295")
        .replace("history 0 ", "history 1000000000000000000 ")
        .replace("1 874 2210", "1 1000 281474976710656")
        .replace("61200 8100", "-1000000000000000000 1000000000000000000");
    let one = parse(ended(&text).as_bytes()).unwrap();
    let merged = merge(&[one.clone(), one.clone(), one], &names(3)).unwrap();
    assert_eq!((merged.runs, merged.ratings[1].duels), (4_294_967_295, 4_294_967_295));
    assert!(!words::explain(&(&merged).into()).is_empty());
    assert_eq!(parse(write(&merged).as_bytes()).unwrap(), merged);
}

// --- words -----------------------------------------------------------------------------------------------

#[test]
fn a_policy_is_explained() {
    let text = words::explain(&(&example()).into());
    for part in [
        "redis-server (build-id 4c1b0a7e2f3d), 3 runs, HAKMEM 0.1.0\n",
        "  FROZEN: hold",
        "Its windows cost 6.1% less than the defaults' (standard error 0.8%, 45 duels).",
        "purge_delay_ms is 2,000 instead of",
        "1 call site asks for long-lived small blocks",
        "1 call site comes back for large blocks",
        "hold         +34    9    +6.1%   0.8%     62  may still win",
        "bare        -412   88                      7  proved worse",
        "      0.0 s  start -> learn: the program begins",
        "    182.3 s  learn -> canary: a strategy is proved cheaper than the default (gain and its error in millionths: 61200, 8100)",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

/// The file's values, not those that this command knows of a strategy of that name; and what the user set, before both.
#[test]
fn what_is_in_force_is_told_of_a_process() {
    let knob = |name: &str| file::knob_row(name).unwrap().default_text();
    let report = serde_json::json!({"learn": {"stage": "frozen", "frozen_strategy": "hold"}});
    let explained = |file: Option<&Policy>, set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        words::explain(&Learnt::of_report(&report, "x").unwrap().in_force(file, &set))
    };
    let mut policy = example();
    policy.knobs = vec![("free_max_mb".to_owned(), 7)];
    let text = explained(Some(&policy), &[("HAKMEM_FREE_MAX_MB", "banana")]);
    let default = knob("free_max_mb");
    assert!(text.contains(&format!("  free_max_mb is 7 instead of {default}: ")), "{text}");
    assert!(!text.contains("purge_delay_ms"), "the file's hold has none: {text}");
    assert!(text.contains("1 call site asks for long-lived small blocks"), "{text}");
    let saved = serde_json::json!({"learn": {"stage": "frozen", "frozen_strategy": "saved"}});
    let text = words::explain(&Learnt::of_report(&saved, "x").unwrap().in_force(Some(&policy), &[]));
    assert!(text.contains(&format!("  free_max_mb is 7 instead of {default}: ")), "{text}");
    // Of another strategy it is not what is in force.
    policy.strategy = "lean".to_owned();
    for file in [None, Some(&policy)] {
        let text = explained(file, &[]);
        assert!(
            text.contains("free_max_mb is 64 instead of") && text.contains("purge_delay_ms is 1,600"),
            "{text}"
        );
    }
    let text = explained(
        None,
        &[("HAKMEM_FREE_MAX_MB", "5"), ("HAKMEM_PURGE_DELAY_MS", "1600"), ("HAKMEM_WORD_BYTES", "8192")],
    );
    for part in [
        format!("free_max_mb is 5 instead of {default}, as HAKMEM_FREE_MAX_MB says, not 64: "),
        format!(
            "purge_delay_ms is 1,600 instead of {}, as HAKMEM_PURGE_DELAY_MS says: ",
            knob("purge_delay_ms")
        ),
        format!("word_bytes is 8,192 instead of {}, as HAKMEM_WORD_BYTES says: ", knob("word_bytes")),
    ] {
        assert!(text.contains(&part), "'{part}' is not in:\n{text}");
    }
    let text = explained(None, &[("HAKMEM_FREE_MAX_MB", &default)]);
    let part = format!("free_max_mb is {default}, its default, as HAKMEM_FREE_MAX_MB says, not 64: ");
    assert!(text.contains(&part), "{text}");
}

#[test]
fn a_gain_that_may_be_chance_is_said_to_be() {
    let mut policy = example();
    policy.gain = Some(Gain { millionths: 5000, error: 4000, duels: 3 });
    assert!(words::explain(&(&policy).into()).contains("That may be chance."));
    policy.strategy = "baseline".to_owned();
    policy.knobs.clear();
    policy.gain = None;
    let text = words::explain(&(&policy).into());
    assert!(
        text.contains("the defaults are in force") && text.contains("Nothing: every option has its default."),
        "{text}"
    );
}

#[test]
fn a_report_is_explained_too() {
    let report = serde_json::json!({"version": "0.1.0", "learn": {
        "stage": "canary", "policy": "canary", "strategy": "hold", "frozen_strategy": "hold", "time_ms": 9000,
        "windows": 120, "duels": 30, "void_duels": 2, "noise_millionths": 23000,
        "gain_millionths": 61200, "gain_error_millionths": 8100, "gain_duels": 20,
        "window": {"ms": 61, "work_ns": 600000, "fault_ns": 300000, "memory_ns": 100000, "visits": 2000, "resident_bytes": 1},
        "ratings": [{"strategy": "hold", "elo": 34, "elo_error": 9, "gain_millionths": 61200, "error_millionths": 8100,
                     "duels": 20, "state": "in"}],
        "changes": 1, "history": [{"ms": 1000, "from": "off", "to": "learn", "reason": "second_over\u{1b}[2J", "strategy": "hold",
                                   "numbers": [0, 0]}]}});
    let learnt = Learnt::of_report(&report, "app (process 7)").unwrap();
    let text = words::explain(&learnt);
    for part in [
        "app (process 7), HAKMEM 0.1.0\n",
        "CANARY: hold",
        "The stage is fixed by HAKMEM_EVO_POLICY=canary.",
        "120 windows, 30 duels, 2 thrown away.",
        "A duel of two equal ones differs by 2.3% (standard deviation).",
        "1.00 ms in 61 ms of the program: 60% the allocator's own work, 30% page faults, 10% memory that is held.",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
    // Nobody fixed it; no duel has said how much two equal ones differ.
    let tally = learnt.tally.map(|tally| Tally { duels: 0, ..tally });
    let text = words::explain(&Learnt { is_fixed_by_default: true, tally, ..learnt });
    assert!(
        text.contains("fixed: canary is the default of HAKMEM_EVO_POLICY without a policy file."),
        "{text}"
    );
    assert!(!text.contains("HAKMEM_EVO_POLICY=") && !text.contains("A duel of two equal ones"), "{text}");
    assert_eq!(Learnt::of_report(&serde_json::json!({"version": "0.1.0"}), "x"), None);
    // Whatever stands there is no reason to fail.
    let odd =
        serde_json::json!({"learn": {"stage": 7, "ratings": [null, 1, {}], "history": "x", "window": []}});
    assert!(!words::explain(&Learnt::of_report(&odd, "x").unwrap()).is_empty());
}
