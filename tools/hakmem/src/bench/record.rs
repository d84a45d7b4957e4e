//! record.rs - --record: a run that is kept, as two files to be committed: what was measured, and a page to be read.
//!
//! Owns:  the files' names, and what of a run is worth keeping for years: enough for --from and --compare.
//! Rule:  the page says first where HAKMEM is not the best; nobody has to look for it.

use super::allocators::HAKMEM;
use super::results::{Results, Run, Size};
use super::save;
use super::{table, words};
use crate::output::Output;
use crate::text::{self, Failure};
use std::fmt::Write;
use std::path::Path;

/// Columns of the tables, so that ten allocators stand beside each other.
const WIDTH: usize = 180;

/// Both files, found writable before anything is measured.
pub struct Record {
    folder: std::path::PathBuf,
}

impl Record {
    pub fn open(folder: &Path) -> Result<Record, Failure> {
        if !folder.is_dir() {
            let line = format!("--record {}: it is no folder", text::quote(folder));
            return Err(Failure::usage(line));
        }
        Output::open(&folder.join("record"))?; // whether it can be written
        Ok(Record { folder: folder.to_owned() })
    }

    pub fn write(&self, results: &Results) -> Result<(), Failure> {
        let name = name(results);
        Output::open(&self.folder.join(format!("{name}.json")))?
            .write(without_here(&save::text(&thinned(results)), &here()).as_bytes())?;
        let page = self.folder.join(format!("{name}.md"));
        Output::open(&page)?.write(without_here(&markdown(results, &name), &here()).as_bytes())?;
        text::line_to_stderr(&format!("hakmem: written: {} and .json", page.display()));
        Ok(())
    }
}

fn here() -> String {
    std::env::current_dir().map(|folder| folder.display().to_string()).unwrap_or_default()
}

/// Paths are from where the command was started: what is kept for years names nobody's folders.
fn without_here(text: &str, here: &str) -> String {
    if here.len() < 2 {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&format!("{here}/")) {
        let is_start = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
        plain += &rest[..at];
        if !is_start {
            plain += &rest[at..at + here.len() + 1];
        }
        rest = &rest[at + here.len() + 1..];
    }
    plain + rest
}

/// 2026-11-20-amd-epyc-2cpu-quick.
fn name(results: &Results) -> String {
    let machine = &results.machine;
    let words =
        format!("{} {}cpu {}", machine.processor, machine.processors, results.settings.asked.join(" "));
    let plain = words.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), " ");
    let plain = plain.split_whitespace().collect::<Vec<_>>().join("-");
    let date: String =
        results.started.split('T').next().unwrap_or_default().chars().filter(|c| c.is_ascii_digit() || *c == '-').collect();
    let is_isolated = results.allocators.iter().any(|allocator| allocator.name.starts_with("no-"));
    let size = match results.settings.size {
        Size::Full if results.settings.asked != [super::suite::PROFILE_ALL] => "-full",
        Size::Quick if results.settings.asked == [super::suite::PROFILE_ALL] => "-quick", // every row, but short
        _ => "",
    };
    let isolated = if is_isolated { "-isolated" } else { "" };
    format!("{date}-{}{size}{isolated}", plain.chars().take(80).collect::<String>())
}

/// Without what nobody asks of an old run.
fn thinned(results: &Results) -> Results {
    let mut thin = results.clone();
    for row in &mut thin.rows {
        let shows = row.shows.clone();
        for run in row.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
            *run = Run {
                process_wall_ns: 0,
                process_user_us: 0,
                process_system_us: 0,
                process_faults: 0,
                switches_voluntary: 0,
                switches_involuntary: 0,
                extra: run.extra.iter().filter(|(name, _)| shows.contains(name)).map(own).collect(),
                parts: Vec::new(),
                ..run.clone()
            };
        }
    }
    thin
}

fn own((name, value): (&String, &f64)) -> (String, f64) {
    (name.clone(), *value)
}

fn markdown(results: &Results, name: &str) -> String {
    let library = results.allocators.iter().find(|allocator| allocator.name == HAKMEM);
    let mut page = format!("# {name}\n\n");
    if let Some(library) = library {
        let sha256 = library.sha256.as_deref();
        let _ = writeln!(page, "HAKMEM {}, libhakmem.so {}.", library.version, words::checksum(sha256));
    }
    if let Some(command) = &results.settings.command {
        let _ = writeln!(page, "Made by `{}`, begun {}.", command.replace('`', "'"), results.started);
    }
    let quiet = disturbed(results);
    let _ = writeln!(page, "{quiet}\nEvery run is in {name}.json; docs/bench.md says how it was measured.\n");
    let text = table::text(results, WIDTH, false);
    // The worst first: the end of the terminal's report is the beginning of this one.
    let (tables, worst) = text.split_once(table::NOT_THE_BEST).unwrap_or((&text, ""));
    if !worst.is_empty() {
        let _ = write!(page, "## {}\n\n```\n{}\n```\n\n", table::NOT_THE_BEST, worst.trim_matches('\n'));
    }
    let _ = write!(page, "## Tables\n\n```\n{}\n```\n", tables.trim_end().replace("```", "'''"));
    page
}

fn disturbed(results: &Results) -> String {
    let figures = results.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| cell.figures);
    let (runs, disturbed) =
        figures.fold((0, 0), |(runs, bad), one| (runs + u64::from(one.runs), bad + u64::from(one.disturbed)));
    format!(
        "{} in {:.0} s; during {} of them others used the machine's memory.",
        text::counted(runs, "run", "runs"),
        results.wall_s,
        text::count(disturbed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::compare;
    use crate::bench::html::sample::made_up;

    #[test]
    fn a_record_can_be_compared_with_and_says_the_worst_first() {
        let results = made_up(8, 4, 9, 1);
        let text = save::text(&thinned(&results));
        assert!(
            text.len() < save::text(&results).len() && !text.contains("process_wall_ns"),
            "{}",
            text.len()
        );
        let again = compare::read(&text, "record").unwrap();
        assert!(compare::compare(&results, &again).of(compare::Verdict::Changed).is_empty());
        let rows = |results: &Results| {
            results.summary[0].time_worse.iter().map(|one| one.row.clone()).collect::<Vec<_>>()
        };
        assert_eq!(rows(&again), rows(&results));
        let page = markdown(&results, "x");
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("'{part}' is not in {page}"));
        assert!(at("## Where HAKMEM is not the best") < at("## Tables"), "{page}");
        assert!(at("time: in ") < at("Time per operation"), "{page}");
        assert_eq!(page.matches("```").count(), 4);
    }

    #[test]
    fn a_record_names_no_folder_of_whoever_made_it() {
        let text = r#"{"file":"/home/jo/hakmem/build/libhakmem.so","sh":"/usr/bin/sh"}"#;
        assert_eq!(
            without_here(text, "/home/jo/hakmem"),
            r#"{"file":"build/libhakmem.so","sh":"/usr/bin/sh"}"#
        );
        assert_eq!(without_here(text, "/"), text);
        assert_eq!(without_here(text, "/hakmem"), text, "only whole paths");
    }

    #[test]
    fn a_name_says_when_where_and_what() {
        let mut results = made_up(1, 2, 1, 1);
        results.started = "2026-11-20T13:04:05Z".to_owned();
        results.machine.processor = "AMD EPYC (2.4 GHz)".to_owned();
        results.machine.processors = 2;
        results.settings.asked = vec!["quick".to_owned()];
        assert_eq!(name(&results), "2026-11-20-amd-epyc-2-4-ghz-2cpu-quick");
        results.settings.size = Size::Full;
        assert_eq!(name(&results), "2026-11-20-amd-epyc-2-4-ghz-2cpu-quick-full");
        results.settings.asked = vec!["full".to_owned()];
        assert_eq!(name(&results), "2026-11-20-amd-epyc-2-4-ghz-2cpu-full");
        results.settings.size = Size::Quick;
        assert_eq!(name(&results), "2026-11-20-amd-epyc-2-4-ghz-2cpu-full-quick");
        results.allocators[1].name = "no-elo".to_owned();
        assert!(name(&results).ends_with("-full-quick-isolated"));
        results.started = "/home/jo/2026-11-20T".to_owned();
        results.settings.asked = vec!["../../x".to_owned()];
        assert!(!name(&results).contains('/'));
    }
}
