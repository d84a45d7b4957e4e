//! guards.rs - what was done to guarded blocks, with names for the addresses: src/watch/guard_report.c says it in numbers.

use super::convert::Subject;
use super::names::Names;
use super::raw::{self, GuardEvent, GuardFault, GuardRow};
use crate::profile::file::name_clean;
use crate::profile::model::{Location, Profile};
use crate::text;
use std::fmt::Write as _;

const FREED: u32 = 3;
const OVERFLOW: u32 = 1;
const UNDERFLOW: u32 = 2;
const AFTER_FREE: u32 = 3;
const DOUBLE_FREE: u32 = 4;
const BY_FREE: u32 = 4;
const KINDS: [&str; 7] = [
    "misuse of the heap",
    "heap buffer overflow",
    "heap buffer underflow",
    "use after free",
    "double free",
    "invalid free",
    "wild access between guarded blocks",
];
const DEEDS: [(&str, &str); 5] = [
    ("access to", "touched"),
    ("read of", "read"),
    ("write to", "written"),
    ("jump to", "jumped to"),
    ("free of", "passed to the library"),
];

/// A misuse as text: what it was in one line, then each stack.
pub struct Misuse {
    pub line: String,
    pub stacks: Vec<Stack>,
}

pub struct Stack {
    pub head: String,
    /// Innermost first; inlined functions have lines of their own.
    pub frames: Vec<String>,
}

pub fn named(found: &[(GuardFault, Option<GuardRow>)], subject: &Subject) -> Vec<Misuse> {
    let mut names = Names::new(subject);
    let places: Vec<Vec<Vec<u32>>> = found
        .iter()
        .map(|(fault, row)| events(fault, row.as_ref()).iter().map(|e| locations(&mut names, e)).collect())
        .collect();
    let mut profile = Profile::default();
    names.into_profile(&mut profile);
    let misuse = |((fault, row), places): (&(GuardFault, Option<GuardRow>), Vec<Vec<u32>>)| Misuse {
        line: line(fault, row.as_ref()),
        stacks: events(fault, row.as_ref())
            .iter()
            .zip(places)
            .map(|(event, places)| Stack {
                head: head(event, fault.at.time_ns),
                frames: places
                    .iter()
                    .flat_map(|at| frames(&profile, &profile.locations[*at as usize]))
                    .collect(),
            })
            .collect(),
    };
    found.iter().zip(places).map(misuse).collect()
}

struct Event<'a> {
    what: &'static str,
    event: &'a GuardEvent,
    /// The first address is an instruction's own, not a return address.
    is_exact: bool,
}

fn events<'a>(fault: &'a GuardFault, row: Option<&'a GuardRow>) -> Vec<Event<'a>> {
    let deed = deed_of(fault);
    let mut events = vec![Event { what: deed.1, event: &fault.at, is_exact: fault.access < BY_FREE }];
    if let Some(row) = row {
        if row.free.tid != 0 && row.free.time_ns != fault.at.time_ns {
            events.push(Event { what: "freed", event: &row.free, is_exact: false });
        }
        events.push(Event { what: "allocated", event: &row.alloc, is_exact: false });
    }
    events
}

fn deed_of(fault: &GuardFault) -> (&'static str, &'static str) {
    DEEDS[(fault.access as usize).min(DEEDS.len() - 1)]
}

fn line(fault: &GuardFault, row: Option<&GuardRow>) -> String {
    let kind = KINDS[fault.kind as usize % KINDS.len()];
    let is_late = fault.access == BY_FREE && matches!(fault.kind, OVERFLOW | UNDERFLOW);
    let mut line = if is_late {
        format!("{kind}, found by free: {:#x} was written to", fault.address)
    } else if fault.access == BY_FREE && fault.kind == AFTER_FREE {
        format!("{kind}: {:#x} was passed to the library", fault.address) // by who asks its size
    } else {
        format!("{kind}: {} {:#x}", deed_of(fault).0, fault.address)
    };
    let Some(row) = row else { return line };
    let freed = if row.state == FREED && fault.kind != DOUBLE_FREE && !is_late { "freed " } else { "" };
    let block = format!(
        "a {freed}block of {} at {:#x}",
        text::counted(row.requested_bytes, "byte", "bytes"),
        row.block
    );
    let _ = match fault.address.checked_sub(row.block) {
        Some(0) if fault.access == BY_FREE => write!(line, ", {block}"),
        Some(offset) => write!(line, ", byte {offset} of {block}"),
        None => {
            write!(line, ", {} before {block}", text::counted(row.block - fault.address, "byte", "bytes"))
        }
    };
    line
}

fn head(event: &Event, until_ns: u64) -> String {
    let mut name = raw::text_of(&event.event.name);
    name_clean(&mut name);
    let before = until_ns.saturating_sub(event.event.time_ns);
    let before = if before == 0 { String::new() } else { format!(", {} before", duration(before)) };
    format!("{} by thread {} ({name}){before}", event.what, event.event.tid)
}

/// As the library's own lines have it: src/watch/guard_report.c.
fn duration(ns: u64) -> String {
    let us = ns / 1000;
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{}.{:03} ms", us / 1000, us % 1000),
        _ => format!("{}.{:03} s", us / 1_000_000, us / 1000 % 1000),
    }
}

fn locations(names: &mut Names, event: &Event) -> Vec<u32> {
    let count = (event.event.frame_count as usize).min(event.event.frame.len());
    let address = |(at, address): (usize, &u64)| address.saturating_add(u64::from(at == 0 && event.is_exact));
    let frames = event.event.frame[..count].iter().enumerate().map(address);
    frames.filter(|address| *address > 0).map(|address| names.location(address)).collect()
}

fn frames(profile: &Profile, location: &Location) -> Vec<String> {
    let module = location.module.map(|module| profile.modules[module as usize].path.as_str());
    let text = |line: &crate::profile::model::Line| {
        let function = &profile.functions[line.function as usize];
        match (function.file.as_str(), line.line, module) {
            ("", _, Some(module)) => format!("{} ({module})", function.name),
            ("", _, None) => function.name.clone(),
            (file, 0, _) => format!("{} {file}", function.name),
            (file, line, _) => format!("{} {file}:{line}", function.name),
        }
    };
    location.lines.iter().map(text).collect()
}

/// As it is printed.
pub fn text_of(misuses: &[Misuse]) -> String {
    let mut text = String::new();
    for misuse in misuses {
        let _ = writeln!(text, "{}", misuse.line);
        for stack in &misuse.stacks {
            let _ = writeln!(text, "  {}", stack.head);
            for (at, frame) in stack.frames.iter().enumerate() {
                let _ = writeln!(text, "    #{at} {frame}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::raw::Plain;

    #[test]
    fn the_line_says_where_in_which_block() {
        let mut fault = GuardFault { kind: 1, access: 2, address: 0x1064, ..GuardFault::zero() };
        let mut row = GuardRow { state: 2, block: 0x1000, requested_bytes: 100, ..GuardRow::zero() };
        assert_eq!(
            line(&fault, Some(&row)),
            "heap buffer overflow: write to 0x1064, byte 100 of a block of 100 bytes at 0x1000"
        );
        (fault.kind, fault.access, fault.address) = (2, 1, 0xfff);
        assert_eq!(
            line(&fault, Some(&row)),
            "heap buffer underflow: read of 0xfff, 1 byte before a block of 100 bytes at 0x1000"
        );
        (fault.kind, fault.address, row.state) = (3, 0x1000, FREED);
        assert_eq!(
            line(&fault, Some(&row)),
            "use after free: read of 0x1000, byte 0 of a freed block of 100 bytes at 0x1000"
        );
        (fault.kind, fault.access, fault.address) = (1, 4, 0x1064);
        assert_eq!(
            line(&fault, Some(&row)),
            "heap buffer overflow, found by free: 0x1064 was written to, byte 100 of a block of 100 bytes at 0x1000"
        );
        (fault.kind, fault.address) = (4, 0x1000);
        assert_eq!(line(&fault, Some(&row)), "double free: free of 0x1000, a block of 100 bytes at 0x1000");
        fault.kind = 3;
        assert_eq!(
            line(&fault, Some(&row)),
            "use after free: 0x1000 was passed to the library, a freed block of 100 bytes at 0x1000"
        );
        (fault.kind, fault.access) = (u32::MAX, u32::MAX);
        assert!(!line(&fault, None).is_empty());
    }

    #[test]
    fn times_are_the_librarys() {
        let told = [0, 28_300, 1_234_567, 61_000_900_000].map(duration);
        assert_eq!(told, ["0 us", "28 us", "1.234 ms", "61.000 s"]);
    }

    #[test]
    fn numbers_out_of_range_are_no_harm() {
        let mut fault = GuardFault { access: 1, ..GuardFault::zero() };
        (fault.at.frame_count, fault.at.frame[0]) = (u32::MAX, u64::MAX);
        let subject = Subject {
            program: crate::profile::model::Program::default(),
            mappings: Vec::new(),
            root: std::path::PathBuf::from("/"),
            author: crate::symbols::perf_map::Author::ended(None, 0),
            settings: Vec::new(),
            resident_bytes: 0,
            resident_peak_bytes: 0,
            now_ns: 0,
            reason: String::new(),
            is_attached: false,
        };
        let misuses = named(&[(fault, Some(GuardRow::zero()))], &subject);
        assert!(!text_of(&misuses).is_empty());
    }
}
