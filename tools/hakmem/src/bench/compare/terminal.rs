//! terminal.rs - the comparison in words, for a terminal.

use super::shift::ALPHA;
use super::{CHANGE_MIN, Change, Comparison, REPEAT_LIMIT, Repeats, Verdict, What};
use crate::bench::words;
use crate::text::counted;
use std::fmt::Write;

/// Of those that are not the allocators' doing.
const DRIFTED_SHOWN: usize = 5;

pub fn text(comparison: &Comparison) -> String {
    let mut text =
        format!("Compared: {} (old) with {} (new).\n", comparison.old_started, comparison.new_started);
    for warning in &comparison.warnings {
        line(&mut text, &format!("warning: {warning}"));
    }
    for binary in &comparison.binaries {
        line(&mut text, &format!("note: {binary}"));
    }
    line(&mut text, &format!("note: {}", yardstick(comparison)));
    if let Some(repeats) = &comparison.repeats {
        line(&mut text, &format!("note: {}", repeats_sentence(repeats)));
    }

    let changed = comparison.of(Verdict::Changed);
    line(&mut text, &format!("\n{}", heading(comparison)));
    line(&mut text, &format!("{}\n", method(comparison)));
    table(&mut text, &changed);
    let drifted = comparison.of(Verdict::Drifted);
    if !drifted.is_empty() {
        line(&mut text, &format!("\n{}", drifted_sentence(comparison)));
        table(&mut text, &drifted[..drifted.len().min(DRIFTED_SHOWN)]);
    }
    for (title, lines) in comparison.lists() {
        line(&mut text, &format!("\n{title}:"));
        for item in lines {
            line(&mut text, &format!("  {item}"));
        }
    }
    text
}

impl Comparison {
    pub fn of(&self, verdict: Verdict) -> Vec<&Change> {
        self.changes.iter().filter(|change| change.verdict == verdict).collect()
    }

    /// What is to be listed beside the changes, with its heading; empty lists left out.
    pub fn lists(&self) -> Vec<(&'static str, &[String])> {
        let lists = [
            ("Failures that came or went", &self.turned[..]),
            ("In both files, but not comparable", &self.unlike[..]),
            ("Only in the old file", &self.only_old[..]),
            ("Only in the new file", &self.only_new[..]),
        ];
        lists.into_iter().filter(|(_, items)| !items.is_empty()).collect()
    }
}

pub fn heading(comparison: &Comparison) -> String {
    let of = |verdict| comparison.of(verdict).len() as u64;
    let all = counted(comparison.changes.len() as u64, "comparison", "comparisons");
    let few = match of(Verdict::TooFew) {
        0 => String::new(),
        few => format!(" {} had too few runs to say (5 in each file are enough).", crate::text::count(few)),
    };
    match of(Verdict::Changed) {
        0 => format!("Nothing changed by more than noise, in {all}.{few}"),
        1 => format!("1 change is more than noise, of {all}.{few}"),
        changed => format!("{} changes are more than noise, of {all}.{few}", crate::text::count(changed)),
    }
}

/// How it was decided.
pub fn method(comparison: &Comparison) -> String {
    let percent = ALPHA * 100.0;
    let floors: Vec<String> = comparison
        .floors
        .iter()
        .filter(|floor| floor.learnt_from > 0)
        .map(|floor| {
            let (percent, what) = ((floor.ratio - 1.0) * 100.0, floor.what.name());
            format!(" In {what}, changes up to {percent:.1}% are left out: the unchanged allocators show such too.")
        })
        .collect();
    format!(
        "More than noise: Mann-Whitney U test on the single runs, p below {percent:.0}%, and a change of at least {:.0}%.{} \
         The change is Hodges and Lehmann's estimate, with its {:.0}% interval.",
        CHANGE_MIN * 100.0,
        floors.concat(),
        100.0 - percent
    )
}

/// What the times are relative to.
pub fn yardstick(comparison: &Comparison) -> String {
    let Some(drift) = comparison.drift else {
        return "no allocator is the same binary in both files, so times are compared as they are: a machine that is \
                faster or slower today looks like a change"
            .to_owned();
    };
    let names: Vec<String> =
        comparison.yardstick.iter().map(|name| words::allocator(name).to_owned()).collect();
    let speed = match (drift - 1.0) * 100.0 {
        percent if percent > 0.05 => format!("{percent:.1}% longer than"),
        percent if percent < -0.05 => format!("{:.1}% less time than", -percent),
        _ => "the same time as".to_owned(),
    };
    format!(
        "the allocators whose binary is the same in both files ({}) took {speed} in the old file; changes of time are \
         relative to them, round by round",
        words::list(&names)
    )
}

/// How well the stand repeats itself.
pub fn repeats_sentence(repeats: &Repeats) -> String {
    const SHOWN: usize = 6;
    let limit = (REPEAT_LIMIT - 1.0) * 100.0;
    let beyond = match repeats.beyond.as_slice() {
        [] => String::new(),
        all => format!("; beyond it: {}", words::list_some(all, SHOWN)),
    };
    format!(
        "unchanged allocators in rows of one thread: {} of {} times repeat within {limit:.0}%, {} of {} in rows that were \
         steady both times; 95% of all within {:.1}%{beyond}",
        repeats.within,
        repeats.times,
        repeats.steady_within,
        repeats.steady_times,
        (repeats.most - 1.0) * 100.0
    )
}

pub fn drifted_sentence(comparison: &Comparison) -> String {
    let drifted = comparison.of(Verdict::Drifted).len();
    let tested =
        comparison.changes.iter().filter(|change| change.is_same_binary && change.shift.is_some()).count();
    format!(
        "Unchanged binaries that seem to have changed: {drifted} of {tested} comparisons. That is what two runs differ \
         by; read the changes above beside it."
    )
}

pub const COLUMNS: [&str; 8] = ["row", "allocator", "what", "old", "new", "change", "99% interval", "p"];

/// What stands in the columns.
pub fn columns(change: &Change) -> [String; 8] {
    let number = |value: f64| match change.what {
        What::Time => format!("{}/op", words::time(value)),
        What::Peak | What::After => words::memory(value),
    };
    let (ratio, interval, p) = match change.shift {
        Some(shift) => (
            words::change(shift.ratio),
            format!("{} to {}", words::change(shift.low), words::change(shift.high)),
            words::probability(shift.p),
        ),
        None => (words::NONE.to_owned(), words::NONE.to_owned(), words::NONE.to_owned()),
    };
    [
        change.row.clone(),
        words::allocator(&change.allocator).to_owned(),
        change.what.name().to_owned(),
        number(change.old),
        number(change.new),
        ratio,
        interval,
        p,
    ]
}

fn table(text: &mut String, changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let mut lines = vec![COLUMNS.map(str::to_owned)];
    lines.extend(changes.iter().map(|change| columns(change).map(|column| one_line(&column))));
    let mut widths = [0; COLUMNS.len()];
    for columns in &lines {
        for (width, column) in widths.iter_mut().zip(columns) {
            *width = column.chars().count().max(*width);
        }
    }
    for columns in &lines {
        let mut put = String::from(" ");
        for (at, (width, column)) in widths.iter().zip(columns).enumerate() {
            // Names to the left, numbers to the right.
            let _ = if at < 3 { write!(put, " {column:<width$}") } else { write!(put, "  {column:>width$}") };
        }
        line(text, &put);
    }
}

/// Names come from a file: none of them may break a line or steer the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn line(text: &mut String, line: &str) {
    let (breaks, rest) = line.split_at(line.len() - line.trim_start_matches('\n').len());
    let ends = rest.ends_with('\n');
    let _ = writeln!(
        text,
        "{breaks}{}{}",
        one_line(rest.trim_end_matches('\n')).trim_end(),
        if ends { "\n" } else { "" }
    );
}
