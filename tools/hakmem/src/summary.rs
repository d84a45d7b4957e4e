//! summary.rs - what `hakmem run --report` says at the end.
//!
//! Owns: the words. Times, faults and the peak are the kernel's (process.rs); the rest is the library's
//!       (stats.rs).

use crate::process::{End, Outcome, signal_name};
use crate::stats::{Counted, GROUPS, Stats};
use crate::text::{bytes, count, counted, seconds, wrapped};
use std::fmt::Write;

const CLASS_COUNT_SHORT: usize = 8;
const INDENT: usize = 13; // columns of a line's title
const WIDTH: usize = 100;

/// What is known of one run.
pub struct Run<'a> {
    pub program: &'a str,
    pub library_version: &'a str,
    pub outcome: &'a Outcome,
    pub stats: Result<&'a Stats, &'a str>, // or why there are none
    pub others: &'a [Stats],               // of other processes that it started
    pub is_full: bool,
}

pub fn summary(run: &Run) -> String {
    let mut text = String::new();
    let version = run.stats.map_or(run.library_version, |stats| &stats.version);
    let end = match run.outcome.end {
        End::Status(status) => format!("ended with status {status}"),
        End::Signal(signal) => format!("died of {}", signal_name(signal)),
    };
    put(&mut text, format_args!("hakmem {version}: {} {end}", run.program));
    // A shell ends without a word (_exit), but what it started may be what the user meant.
    let largest = run.others.iter().max_by_key(|stats| stats.alloc_count());
    if let Err(reason) = run.stats {
        put(&mut text, format_args!("  no report from the library: {reason}"));
    }
    if !run.others.is_empty() {
        let others = counted(run.others.len() as u64, "process that it started", "processes that it started");
        put(
            &mut text,
            format_args!(
                "  {others} reported too and {} not counted here",
                match run.others.len() {
                    1 => "is",
                    _ => "are",
                }
            ),
        );
    }
    usage_put(&mut text, run);
    match (run.stats, largest) {
        (Ok(stats), _) => stats_put(&mut text, stats, run.is_full),
        (Err(_), Some(stats)) => {
            put(
                &mut text,
                format_args!(
                    "process {}, of those that it started the one with most allocations:",
                    stats.pid
                ),
            );
            put(&mut text, format_args!("  resident   {} at the end", bytes(stats.resident_bytes)));
            stats_put(&mut text, stats, run.is_full);
        }
        (Err(_), None) => {}
    }
    text
}

fn put(text: &mut String, line: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn usage_put(text: &mut String, run: &Run) {
    let usage = &run.outcome.usage;
    let (wall, user, system) = (seconds(usage.wall), seconds(usage.user), seconds(usage.system));
    put(text, format_args!("  time       {wall} wall, {user} user, {system} system"));
    let peak = usage.resident_peak_bytes;
    match run.stats {
        // Linux counts resident pages in batches per processor: the end may seem to lie above the peak.
        Ok(stats) => {
            let (peak, end) = (bytes(peak.max(stats.resident_bytes)), bytes(stats.resident_bytes));
            put(text, format_args!("  resident   {peak} at the peak, {end} at the end"));
        }
        Err(_) => put(text, format_args!("  resident   {} at the peak", bytes(peak))),
    }
    let disk = counted(usage.disk_fault_count, "of them read", "of them read");
    put(text, format_args!("  faults     {}, {disk} from disk", counted(usage.fault_count, "page", "pages")));
}

fn stats_put(text: &mut String, stats: &Stats, is_full: bool) {
    let live = counted(stats.live_count(), "block", "blocks");
    put(text, format_args!("  live       {live} of {} at the end", bytes(stats.live_bytes)));
    let (allocs, frees) =
        (counted(stats.alloc_count(), "allocation", "allocations"), count(stats.free_count()));
    put(text, format_args!("  calls      {allocs}, {frees} frees"));
    let (returned, again) = (bytes(stats.returned_bytes), bytes(stats.retouched_bytes));
    put(text, format_args!("  returned   {returned} to the kernel, {again} of it touched again"));
    if is_full {
        let (committed, reserved) = (bytes(stats.committed_bytes), bytes(stats.reserved_bytes));
        put(text, format_args!("  space      {reserved} reserved, {committed} of it committed"));
        put(text, format_args!("  free       {} resident for the next allocations", bytes(stats.free_bytes)));
        let (large, large_bytes) = (counted(stats.large_count, "block", "blocks"), bytes(stats.large_bytes));
        put(text, format_args!("  live large {large} of {large_bytes} above 32 KiB"));
        let heaps = counted(stats.heap_count, "heap", "heaps");
        put(
            text,
            format_args!("  threads    {heaps}, {} of them without a thread", count(stats.dead_heap_count)),
        );
    }
    for group in GROUPS {
        let counters = stats.counters_of(group);
        if is_full {
            counters_put_full(text, group.title, &counters);
        } else {
            counters_put_short(text, group.title, &counters);
        }
    }
    classes_put(text, stats, is_full);
}

/// The group's total first (the counter that is called like the group), then the others that counted
/// anything.
fn counters_put_short(text: &mut String, title: &str, counters: &[Counted]) {
    let prefix = format!("{}_", title.trim_end_matches('s'));
    let is_total = |counted: &Counted| format!("{}_", counted.name) == prefix;
    let mut items: Vec<String> = Vec::new();
    if let Some(total) = counters.iter().find(|counted| is_total(counted)) {
        items.push(format!("{} in all", count(total.count)));
    }
    for counted in counters.iter().filter(|counted| counted.count > 0 && !is_total(counted)) {
        let name = counted.name.strip_prefix(&prefix).unwrap_or(counted.name).replace('_', " ");
        items.push(format!("{name} {}", count(counted.count)));
    }
    if !items.is_empty() {
        put(text, format_args!("  {title:<11}{}", wrapped(&items, INDENT, WIDTH)));
    }
}

fn counters_put_full(text: &mut String, title: &str, counters: &[Counted]) {
    if counters.is_empty() {
        return;
    }
    put(text, format_args!("  {title}"));
    for counted in counters {
        let (unit, what) = counted.row.map_or(("", ""), |row| (row.unit, row.text));
        let number = count(counted.count);
        put(text, format_args!("    {:<16} {number:>15} {unit:<7} {what}", counted.name));
    }
}

fn classes_put(text: &mut String, stats: &Stats, is_full: bool) {
    let classes = stats.classes_by_use();
    let shown_count = if is_full { classes.len() } else { classes.len().min(CLASS_COUNT_SHORT) };
    if shown_count == 0 {
        return;
    }
    put(text, format_args!("  classes      bytes   slabs          allocs           frees            live"));
    for class in &classes[..shown_count] {
        let (block_bytes, slabs) = (count(class.bytes), count(class.slabs));
        let (allocs, frees, live) = (count(class.allocs), count(class.frees), count(class.live));
        put(text, format_args!("          {block_bytes:>10}{slabs:>8}{allocs:>16}{frees:>16}{live:>16}"));
    }
    let hidden = &classes[shown_count..];
    if !hidden.is_empty() {
        let allocs = count(hidden.iter().map(|class| class.allocs).sum());
        let more = counted(hidden.len() as u64, "more class", "more classes");
        put(text, format_args!("             and {more} with {allocs} allocations: --report=full shows all"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Usage;
    use std::time::Duration;

    fn outcome(end: End) -> Outcome {
        let second = Duration::from_secs(1);
        let usage = Usage {
            wall: second,
            user: second,
            system: second,
            resident_peak_bytes: 1 << 20,
            fault_count: 1000,
            disk_fault_count: 1,
        };
        Outcome { pid: 1, end, usage }
    }

    fn text_of(stats: Result<&Stats, &str>, end: End, is_full: bool) -> String {
        let outcome = outcome(end);
        let others = [Stats { pid: 77, large_count: 5, ..Stats::default() }];
        summary(&Run {
            program: "prog",
            library_version: "9",
            outcome: &outcome,
            stats,
            others: &others,
            is_full,
        })
    }

    #[test]
    fn without_statistics_the_kernels_numbers_are_still_told() {
        let text = text_of(Err("it is static"), End::Signal(libc::SIGSEGV), false);
        assert!(
            text.starts_with("hakmem 9: prog died of SIGSEGV\n  no report from the library: it is static\n")
        );
        assert!(
            text.contains("  1 process that it started reported too and is not counted here\n"),
            "{text}"
        );
        assert!(
            text.contains("1.0 MiB at the peak\n") && text.contains("1,000 pages, 1 of them read from disk")
        );
        assert!(text.contains("\nprocess 77, of those") && text.contains("  live       5 blocks"), "{text}");
    }

    #[test]
    fn zero_counters_are_told_in_full_only() {
        let mut stats = Stats::default();
        stats.counters.insert("visit".to_owned(), 7.into());
        stats.counters.insert("visit_dead".to_owned(), 0.into());
        stats.counters.insert("visit_new_slab".to_owned(), 2.into());
        let short = text_of(Ok(&stats), End::Status(0), false);
        assert!(short.contains("  visits     7 in all, new slab 2\n"), "{short}");
        assert!(!short.contains("dead 0"), "{short}");
        let full = text_of(Ok(&stats), End::Status(0), true);
        assert!(
            full.contains("visit_dead") && full.contains("visits that took a partly free slab"),
            "{full}"
        );
    }

    #[test]
    fn classes_beyond_the_top_are_summed() {
        let mut stats = Stats::default();
        for at in 1..=10 {
            stats.classes.push(crate::stats::Class { bytes: at * 16, allocs: at, ..Default::default() });
        }
        let short = text_of(Ok(&stats), End::Status(0), false);
        assert!(short.contains("and 2 more classes with 3 allocations"), "{short}");
        assert!(!text_of(Ok(&stats), End::Status(0), true).contains("more class"));
    }
}
