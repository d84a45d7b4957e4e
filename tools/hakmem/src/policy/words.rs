//! words.rs - what was learnt, in plain words: the state, what is changed, what it gained, the duels, the history.

use super::file::knob_row;
use super::learnt::{Learnt, Rival, Window};
use super::{Change, Gain, Stage};
use crate::options::{OptionRow, REASONS, STRATEGIES};
use crate::text::{bytes, count, counted};
use std::fmt::Write;

const BASELINE: &str = "baseline";

pub fn explain(learnt: &Learnt) -> String {
    let mut out = format!("{}\n", head(learnt));
    section(&mut out, "What was learnt", &learnt_lines(learnt));
    section(&mut out, "What it changes", &knob_lines(learnt));
    section(&mut out, "What is known by call site", &site_lines(learnt));
    section(&mut out, "What earlier runs showed of memory", &memory_lines(learnt));
    section(&mut out, "The duels behind it", &duel_lines(learnt));
    section(&mut out, "What happened", &history_lines(&learnt.history));
    section(&mut out, "What the last window cost", &window_lines(learnt.window));
    out
}

fn section(out: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = write!(out, "\n{title}\n");
        lines.iter().for_each(|line| *out += &format!("  {line}\n"));
    }
}

fn head(learnt: &Learnt) -> String {
    let mut parts = vec![learnt.whose.clone()];
    parts.extend(learnt.runs.map(|runs| counted(runs, "run", "runs")));
    parts.extend(learnt.library.as_ref().map(|version| format!("HAKMEM {version}")));
    parts.join(", ")
}

/// "keep freed memory for the next burst".
fn strategy_words(name: &str) -> Option<&'static str> {
    STRATEGIES.iter().find(|(known, ..)| *known == name).map(|(_, words, _)| *words)
}

fn named(strategy: &str) -> String {
    strategy_words(strategy).map_or(strategy.to_owned(), |words| format!("{strategy} ({words})"))
}

fn learnt_lines(learnt: &Learnt) -> Vec<String> {
    let has_won = !learnt.strategy.is_empty() && learnt.strategy != BASELINE;
    let stage = match (learnt.stage, has_won) {
        (None | Some(Stage::Off), _) => {
            "Nothing is learnt: learning is off, or the program ended within a second, before it begins."
                .to_owned()
        }
        (Some(Stage::Learn), false) => {
            "LEARN: strategies duel; none has won yet, the defaults hold.".to_owned()
        }
        (Some(Stage::Learn), true) => {
            format!("LEARN: strategies duel again; {} won before.", named(&learnt.strategy))
        }
        (Some(Stage::Canary), _) => {
            format!("CANARY: {} is on trial against the defaults.", named(&learnt.strategy))
        }
        (Some(Stage::Frozen), true) => {
            format!("FROZEN: {} is in force, nothing more is learnt.", named(&learnt.strategy))
        }
        (Some(Stage::Frozen), false) => {
            "FROZEN: the defaults are in force, nothing more is learnt.".to_owned()
        }
    };
    let mut lines = vec![stage];
    let fixed = learnt.fixed.as_ref().filter(|_| !matches!(learnt.stage, None | Some(Stage::Off)));
    lines.extend(fixed.map(|fixed| match learnt.is_fixed_by_default {
        false => format!("The stage is fixed by HAKMEM_EVO_POLICY={fixed}."),
        true => {
            format!("The stage is fixed: {fixed} is the default of HAKMEM_EVO_POLICY without a policy file.")
        }
    }));
    match learnt.gain {
        Some(gain) if has_won => lines.push(gain_sentence(&gain)),
        _ if learnt.stage == Some(Stage::Frozen) && !has_won => {
            lines.push("No strategy was proved to be cheaper than they are.".to_owned());
        }
        _ => {}
    }
    lines
}

fn gain_sentence(gain: &Gain) -> String {
    let sure = if gain.error > 0 && gain.millionths.unsigned_abs() < gain.error.saturating_mul(2) {
        " That may be chance."
    } else {
        ""
    };
    let than = if gain.millionths >= 0 { "less" } else { "more" };
    format!(
        "Its windows cost {} {than} than the defaults' (standard error {}, {}).{sure}",
        percent(gain.millionths.unsigned_abs()),
        percent(gain.error),
        counted(gain.duels, "duel", "duels")
    )
}

/// Of millionths: "6.1%".
fn percent(millionths: u64) -> String {
    format!("{:.1}%", millionths as f64 / 1e4)
}

/// What is in force: what the environment sets wins over what was learnt.
fn knob_lines(learnt: &Learnt) -> Vec<String> {
    let line = |name: &str, learnt: Option<u64>, set: Option<u64>| {
        let row = knob_row(name);
        let default = row.map_or("its default".to_owned(), OptionRow::default_text);
        let is_default = |value: u64| value.to_string() == default;
        if learnt.is_none_or(is_default) && set.is_none_or(is_default) {
            return None;
        }
        let value = set.or(learnt).unwrap_or_default();
        let instead = match is_default(value) {
            true => ", its default".to_owned(),
            false => format!(" instead of {default}"),
        };
        let variable = row.map_or(String::new(), OptionRow::variable);
        let set_by = match (set, learnt) {
            (None, _) => String::new(),
            (Some(set), Some(learnt)) if set != learnt => {
                format!(", as {variable} says, not {}", count(learnt))
            }
            (Some(_), _) => format!(", as {variable} says"),
        };
        let words = row.map_or(String::new(), |row| format!(": {}", row.text));
        Some(format!("{name} is {}{instead}{set_by}{words}", count(value)))
    };
    let value_in = |list: &[(String, u64)], name: &str| {
        list.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    };
    let mut lines: Vec<String> = learnt
        .knobs
        .iter()
        .filter_map(|(name, value)| line(name, Some(*value), value_in(&learnt.set, name)))
        .collect();
    let is_on = learnt.stage.is_some_and(|stage| stage != Stage::Off);
    let others = learnt.set.iter().filter(|(name, _)| is_on && value_in(&learnt.knobs, name).is_none());
    lines.extend(others.filter_map(|(name, value)| line(name, None, Some(*value))));
    match lines.is_empty() && is_on {
        true => vec!["Nothing: every option has its default.".to_owned()],
        false => lines,
    }
}

fn site_lines(learnt: &Learnt) -> Vec<String> {
    let sites = &learnt.sites;
    let mut lines = Vec::new();
    if sites.long.max(sites.short) > 0 {
        lines.push(format!(
            "{} for long-lived small blocks and {} for short-lived ones: each kind has slabs of its own.",
            counted(sites.long, "call site asks", "call sites ask"),
            count(sites.short)
        ));
    }
    if sites.keep > 0 {
        let sites = counted(sites.keep, "call site comes", "call sites come");
        lines.push(format!("{sites} back for large blocks: those are kept for a while when they are freed."));
    }
    lines
}

fn memory_lines(learnt: &Learnt) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((halvings, runs)) = learnt.spare {
        let part = ["all", "half", "a quarter", "an eighth"][usize::try_from(halvings).unwrap_or(0).min(3)];
        let runs = counted(runs, "run", "runs");
        lines.push(format!("Of the free memory that may stay resident, {part} is enough: {runs} would have gone as well with it."));
    }
    if learnt.filled_bytes > 0 {
        let dear = match learnt.is_dear {
            true => " But the kernel had none at hand the last time, so that few runs try.",
            false => "",
        };
        let filled = bytes(learnt.filled_bytes);
        lines.push(format!(
            "Blocks of up to 1 MiB fill {filled} in each run: those come in huge pages from the first on.{dear}"
        ));
    }
    lines
}

fn duel_lines(learnt: &Learnt) -> Vec<String> {
    let mut rivals: Vec<&Rival> = learnt.rivals.iter().filter(|rival| rival.duels > 0).collect();
    rivals.sort_by_key(|rival| std::cmp::Reverse(rival.elo));
    let mut lines = Vec::new();
    if let Some(tally) = learnt.tally.filter(|tally| tally.windows > 0) {
        let void = match tally.void_duels {
            0 => String::new(),
            void => format!(", {} thrown away", count(void)),
        };
        let windows = counted(tally.windows, "window", "windows");
        lines.push(format!("{windows}, {}{void}.", counted(tally.duels, "duel", "duels")));
    }
    // Before the first duel it is what the library assumes.
    if let Some(noise) = learnt.noise.filter(|_| learnt.tally.is_none_or(|tally| tally.duels > 0)) {
        lines.push(format!("A duel of two equal ones differs by {} (standard deviation).", percent(noise)));
    }
    if rivals.is_empty() {
        return lines;
    }
    let width = rivals.iter().map(|rival| rival.strategy.len()).max().unwrap_or(0).max("strategy".len());
    lines.push(format!(
        "{:<width$}  {:>6} {:>4}  {:>7} {:>6}  {:>5}  ",
        "strategy", "rating", "+-", "cheaper", "+-", "duels"
    ));
    for rival in rivals {
        let (gain, error) = rival.gain.map_or((String::new(), String::new()), |(gain, error)| {
            (format!("{:+.1}%", gain as f64 / 1e4), percent(error))
        });
        let words = match rival.standing.as_str() {
            _ if rival.strategy == BASELINE => "the defaults, which all are measured against",
            "in" => "may still win",
            "aside" => "not pursued",
            "spent" => "has had its duels",
            "out" => "proved worse",
            "barred" => "cannot win: a control",
            _ => "",
        };
        lines.push(format!(
            "{:<width$}  {:>+6} {:>4}  {gain:>7} {error:>6}  {:>5}  {words}",
            rival.strategy, rival.elo, rival.elo_error, rival.duels
        ));
    }
    lines
}

fn history_lines(history: &[Change]) -> Vec<String> {
    let begins = |change: &Change| change.reason == "program_begins" || change.from == Stage::Off;
    let line = |change: &Change| {
        let time = format!("{:.1} s", change.ms as f64 / 1000.0);
        let known = REASONS.iter().find(|(name, ..)| *name == change.reason);
        let words = known.map_or(change.reason.replace(['_', '-'], " "), |(_, _, words)| (*words).to_owned());
        let numbers = known.map_or("", |(_, numbers, _)| *numbers);
        let [a, b] = change.numbers;
        let numbers = match numbers {
            "" if a == 0 && b == 0 => String::new(),
            "" => format!(" ({a}, {b})"),
            what => format!(" ({what}: {a}, {b})"),
        };
        let from = if begins(change) { "start" } else { change.from.name() };
        format!("{time:>9}  {from} -> {}: {words}{numbers}", change.to.name())
    };
    history.iter().map(line).collect()
}

fn window_lines(window: Option<Window>) -> Vec<String> {
    let Some(window) = window else { return Vec::new() };
    let parts = [window.work_ns, window.fault_ns, window.memory_ns];
    let all = parts.iter().map(|ns| *ns as f64).sum::<f64>().max(1.0);
    let share = |ns: u64| format!("{:.0}%", ns as f64 * 100.0 / all);
    vec![format!(
        "{:.2} ms in {} of the program: {} the allocator's own work, {} page faults, {} memory that is held.",
        all / 1e6,
        if window.ms >= 1000 {
            format!("{:.1} s", window.ms as f64 / 1e3)
        } else {
            format!("{} ms", window.ms)
        },
        share(window.work_ns),
        share(window.fault_ns),
        share(window.memory_ns)
    )]
}
