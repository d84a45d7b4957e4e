//! look.rs - what is seen of the processes that have the library: looked at from outside, at intervals.
//!
//! Owns:      the list of processes, what each had at the last look (for rates), the names of call sites already found.
//! Threads:   one, the watcher's (watcher.rs); or the command's own with --once.
//! Cost:      a process is asked for its header and counters each time, for its pages (Census) only so often that it takes
//!            a twentieth of our time; symbols are looked up once for each call site that is shown.
//! Rule:      a process that may not be read, or has ended meanwhile, is left out, not a failure.

use crate::policy::{self, learnt::Learnt};
use crate::profile::file::name_clean;
use crate::profile::model::Profile;
use crate::profile::site;
use crate::recording::attach::{Attached, Taken};
use crate::recording::convert;
use crate::recording::memory::Process;
use crate::recording::pages::{Census, ClassCount, Residence};
use crate::recording::pins::{self, Block};
use crate::recording::raw::{self, COUNT_UNIT, ClassRow, Plain, Published, StackRow, Tables};
use crate::recording::subject;
use crate::system;
use crate::text::Failure;
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// A process without the library may become one by exec.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The part of our time that counting pages may take is one in so many.
const CENSUS_PART: u32 = 20;
/// Call sites that are named and shown.
const SITES_MAX: usize = 200;
const NAMED_MAX: usize = 40; // new ones a look
const RATE_DEFAULT: u64 = 512 << 10;
/// A block is old, and pins, after this long, or after a quarter of a shorter recording.
const OLD_NS: u64 = 10_000_000_000;

/// A process with the library, as it stands.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub pid: u32,
    pub name: String,
    pub library: String,
    pub resident_bytes: u64,
    /// Live blocks, as the allocator has it; large ones of older libraries are known while recording only.
    pub live_bytes: u64,
    pub live_count: u64,
    pub free_bytes: Option<u64>, // known while recording
    /// Of the slabs' resident pages: what no live block fills, and what of it few blocks pin.
    pub empty_bytes: u64,
    pub pinned_bytes: u64,
    pub slab_bytes: u64,
    pub classes: Vec<ClassCount>,
    pub counters: Vec<(String, u64)>,
    pub faults_per_s: f64,
    pub visits_per_s: f64,
    pub returned_per_s: Option<f64>,
    pub allocated_per_s: Option<f64>, // bytes
    pub is_recording: bool,
    pub rate_bytes: u64,
    pub sample_count: u64,
    pub lost_count: u64,
    pub stage: String,
    pub sites: Vec<SeenSite>,
    /// Resident bytes at the looks before, oldest first.
    pub history: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct SeenSite {
    pub name: String,
    pub place: String,
    pub caller: String,
    pub live_bytes: u64,
    pub live_count: u64,
    pub allocated_bytes: u64,
    pub allocated_per_s: f64,
    pub pinned_bytes: u64,
    pub temporary_share: f64,
}

impl Seen {
    /// The part of the slabs' resident memory that no live block fills.
    pub fn fragmentation(&self) -> f64 {
        if self.slab_bytes == 0 { 0.0 } else { self.empty_bytes as f64 / self.slab_bytes as f64 }
    }
}

struct Known {
    start_time: u64,
    attached: Option<Attached>,
    look_again: Option<Instant>, // whether it has the library by now
    before: Option<Before>,
    classes: Vec<ClassRow>,
    census: Option<Census>,
    census_due: Instant,
    history: Vec<u64>,
    names: HashMap<u32, (String, String, String)>, // by stack
    names_of: u64,                                 // the recording that they are of
}

/// What grew since is a rate; None: it was not read, and there is none.
struct Before {
    at: Instant,
    faults: u64,
    visits: Option<u64>,
    allocated: Option<u64>,
    returned: Option<u64>,
    stacks: Option<HashMap<u32, u64>>,
    stacks_since: u64, // when the recording that they are of began: another's may have other numbers
}

impl Before {
    /// What it grew by in a second.
    fn rate(&self, at: Instant, then: Option<u64>, now: Option<u64>) -> Option<f64> {
        let seconds = at.duration_since(self.at).as_secs_f64().max(1e-3);
        Some(now?.saturating_sub(then?) as f64 / seconds)
    }
}

#[derive(Default)]
pub struct Looker {
    known: HashMap<u32, Known>,
    /// Recordings that we began, to be ended by us.
    pub begun: Vec<u32>,
}

impl Looker {
    /// All that have the library, or the one that was asked for. `detailed`: whose sites are wanted.
    pub fn look(&mut self, only: Option<u32>, detailed: Option<u32>) -> Vec<Seen> {
        let pids = match only {
            Some(pid) => vec![pid],
            None => pids(),
        };
        self.known.retain(|pid, _| pids.contains(pid));
        pids.into_iter().filter_map(|pid| self.look_at(pid, detailed == Some(pid))).collect()
    }

    fn look_at(&mut self, pid: u32, is_detailed: bool) -> Option<Seen> {
        let stat = stat_of(pid)?;
        let now = Instant::now();
        let known = self.known.entry(pid).or_insert_with(|| Known::new(stat.start_time));
        if known.start_time != stat.start_time {
            *known = Known::new(stat.start_time);
        }
        if known.attached.is_none() {
            if known.look_again.is_some_and(|at| at > now) {
                return None;
            }
            known.look_again = Some(now + LOOK_AGAIN);
            known.attached = Attached::open(pid).ok();
        }
        let seen = known.look(pid, &stat, is_detailed);
        if seen.is_none() {
            known.attached = None; // it became another program, or may not be read any more
        }
        seen
    }

    /// Starts the recording of a process, or ends the one that we began.
    pub fn record(&mut self, pid: u32, is_on: bool) -> Result<String, Failure> {
        let attached = Attached::open(pid)?;
        if !is_on && !self.begun.contains(&pid) {
            return Ok(format!("the recording of {pid} was not begun here and goes on"));
        }
        let taken = if is_on { attached.start(RATE_DEFAULT)? } else { attached.stop()? };
        self.begun.retain(|other| *other != pid);
        if is_on {
            self.begun.push(pid);
        }
        let what = if is_on { "recording begins" } else { "recording ended" };
        Ok(match taken {
            Taken::Yes => what.to_owned(),
            Taken::NotYet => format!("{what} when process {pid} next allocates"),
        })
    }

    /// What we began ends with us; of what may not have ended, a line each.
    pub fn end(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for pid in self.begun.drain(..) {
            let stopped = Attached::open(pid).and_then(|attached| attached.stop());
            if stat_of(pid).is_none() {
                continue; // the process has ended, and its recording with it
            }
            match stopped {
                Ok(Taken::Yes) => {}
                Ok(Taken::NotYet) => {
                    lines.push(format!("the recording of process {pid} ends when it next allocates"));
                }
                Err(failure) => {
                    lines.push(format!("the recording of process {pid} may go on: {}", failure.line));
                }
            }
        }
        lines
    }
}

impl Known {
    fn new(start_time: u64) -> Known {
        let now = Instant::now();
        Known {
            start_time,
            attached: None,
            look_again: None,
            before: None,
            classes: Vec::new(),
            census: None,
            census_due: now,
            history: Vec::new(),
            names: HashMap::new(),
            names_of: 0,
        }
    }

    fn look(&mut self, pid: u32, stat: &Stat, is_detailed: bool) -> Option<Seen> {
        const HISTORY_MAX: usize = 240;
        let attached = self.attached.take()?;
        let published = attached.published().ok()?;
        // All tables only where they are shown; without a recording they are small.
        let tables = match is_detailed || published.is_on == 0 || self.classes.is_empty() {
            true => Some(attached.tables().ok()?),
            false => None,
        };
        if let Some(tables) = &tables {
            self.classes.clone_from(&tables.classes);
        }
        self.census_renew(&attached.process, &published);
        let mut library = raw::text_of(&published.library_version);
        name_clean(&mut library); // the other process's memory
        let mut seen = Seen {
            pid,
            name: stat.name.clone(),
            library,
            resident_bytes: stat.resident_bytes,
            is_recording: published.is_on != 0,
            rate_bytes: published.rate_bytes,
            sample_count: published.samples,
            lost_count: published.lost_live.saturating_add(published.lost_stacks),
            ..Seen::default()
        };
        self.history.push(stat.resident_bytes);
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
        seen.history.clone_from(&self.history);
        let census: &[ClassCount] = self.census.as_ref().map_or(&[], |census| &census.classes);
        for class in census.iter().filter(|class| class.slab_count > 0) {
            let live = class.live_count.saturating_mul(class.block_bytes);
            seen.live_bytes = seen.live_bytes.saturating_add(live);
            seen.live_count = seen.live_count.saturating_add(class.live_count);
            seen.slab_bytes = seen.slab_bytes.saturating_add(class.resident_bytes);
            seen.empty_bytes = seen.empty_bytes.saturating_add(class.resident_bytes.saturating_sub(live));
            seen.pinned_bytes = seen.pinned_bytes.saturating_add(class.sparse_bytes);
            seen.classes.push(*class);
        }
        seen.classes.sort_by_key(|class| std::cmp::Reverse(class.resident_bytes));

        let mut after = Before {
            at: Instant::now(),
            faults: stat.faults,
            visits: None,
            allocated: seen.is_recording.then_some(published.alloc_bytes),
            returned: None,
            stacks: None,
            stacks_since: published.start_ns,
        };
        let last = tables.as_ref().and_then(|tables| tables.timeline.last()).copied();
        if let Some(tables) = &tables {
            let visits = tables.counters.iter().filter(|(name, _)| name.starts_with("visit"));
            let visits = visits.map(|(_, count)| count).fold(0_u64, |sum, count| sum.wrapping_add(*count));
            after.visits = Some(visits);
            after.returned = last.filter(|_| seen.is_recording).map(|row| row.returned_bytes);
            after.stacks = seen.is_recording.then(|| stacks_of(tables));
            seen.counters.clone_from(&tables.counters);
        }
        if is_detailed {
            seen.stage = stage_of(pid);
        }
        let last_seen = last.filter(|_| seen.is_recording);
        seen.free_bytes = last_seen.map(|row| row.free_bytes);
        // Blocks above 32 KiB lie in no slab.
        let large = raw::large_read(&attached.process, &published);
        if let Some(large) = large.or_else(|| last_seen.map(|row| row.large())) {
            seen.live_bytes = seen.live_bytes.saturating_add(large.bytes);
            seen.live_count = seen.live_count.saturating_add(large.count);
        }
        if let Some(before) = &self.before {
            let rate = |then, now| before.rate(after.at, then, now);
            seen.faults_per_s = rate(Some(before.faults), Some(after.faults)).unwrap_or(0.0);
            seen.visits_per_s = rate(before.visits, after.visits).unwrap_or(0.0);
            seen.allocated_per_s = rate(before.allocated, after.allocated);
            seen.returned_per_s = rate(before.returned, after.returned);
        }
        if let Some(tables) = tables.filter(|_| is_detailed && seen.is_recording) {
            seen.sites = self.sites(&attached.process, tables, &after);
        }
        self.before = Some(after);
        self.attached = Some(attached);
        Some(seen)
    }

    fn census_renew(&mut self, process: &Process, published: &Published) {
        let start = Instant::now();
        if start < self.census_due || self.classes.is_empty() {
            return;
        }
        let residence = Residence::of_process(process.pid);
        self.census = Census::take(process, published, &self.classes, &residence).ok();
        self.census_due = start + start.elapsed() * CENSUS_PART;
    }

    /// The stacks with most live bytes, by the name of their innermost frame that is the program's own.
    fn sites(&mut self, process: &Process, tables: Tables, after: &Before) -> Vec<SeenSite> {
        if self.names_of != tables.published.start_ns {
            self.names.clear();
            self.names_of = tables.published.start_ns;
        }
        let pinned = self.pinned(&tables);
        let mut order: Vec<u32> = (0..tables.stacks.len() as u32).collect();
        order.retain(|at| tables.stacks[*at as usize].alloc_samples > 0);
        let live = |row: &StackRow| row.alloc_bytes.saturating_sub(row.free_bytes);
        order.sort_by_key(|at| {
            let row = &tables.stacks[*at as usize];
            std::cmp::Reverse((live(row), pinned.get(at).copied(), row.alloc_bytes))
        });
        order.truncate(SITES_MAX);
        let rows: Vec<StackRow> = order.iter().map(|at| tables.stacks[*at as usize]).collect();
        self.name(process, tables, &order);
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        let mut sites: Vec<SeenSite> = Vec::new();
        let mut calls: Vec<(f64, f64)> = Vec::new(); // temporary ones and all, in the library's unit
        for (at, row) in order.iter().zip(&rows) {
            let Some((name, place, caller)) = self.names.get(at).cloned() else { continue };
            // The largest stack of a place comes first, and its caller is the one that is named.
            let index = *places.entry((name.clone(), place.clone())).or_insert_with(|| {
                sites.push(SeenSite { name, place, caller, ..SeenSite::default() });
                calls.push((0.0, 0.0));
                sites.len() - 1
            });
            let of_this = |before: &&Before| before.stacks_since == after.stacks_since;
            let grown = self.before.as_ref().filter(of_this).and_then(|before| {
                let then = before.stacks.as_ref()?.get(at).copied().unwrap_or(0);
                before.rate(after.at, Some(then), Some(row.alloc_bytes))
            });
            let site = &mut sites[index];
            let count = row.alloc_count.saturating_sub(row.free_count) / COUNT_UNIT;
            site.live_bytes = site.live_bytes.saturating_add(live(row));
            site.live_count = site.live_count.saturating_add(count);
            site.allocated_bytes = site.allocated_bytes.saturating_add(row.alloc_bytes);
            site.allocated_per_s += grown.unwrap_or(0.0);
            site.pinned_bytes = site.pinned_bytes.saturating_add(pinned.get(at).copied().unwrap_or(0));
            calls[index].0 += row.temporary_count as f64;
            calls[index].1 += row.alloc_count as f64;
            site.temporary_share = calls[index].0 / calls[index].1.max(1.0);
        }
        sites
    }

    /// Names for those of `order` that have none yet: a profile of them alone is made.
    fn name(&mut self, process: &Process, mut tables: Tables, order: &[u32]) {
        let new: Vec<u32> =
            order.iter().copied().filter(|at| !self.names.contains_key(at)).take(NAMED_MAX).collect();
        if new.is_empty() {
            return;
        }
        let Ok(subject) = subject::of_process(process, &tables.published, "top") else { return };
        // Symbols stay loaded within a call, so all new ones go into one profile, and are told apart in it by what
        // they allocated: their number.
        for (at, row) in tables.stacks.iter_mut().enumerate() {
            let (frame_first, frame_count) = (row.frame_first, row.frame_count);
            *row = Plain::from_bytes(&[]);
            if let Some(place) = new.iter().position(|new| *new as usize == at) {
                (row.frame_first, row.frame_count) = (frame_first, frame_count);
                (row.alloc_samples, row.alloc_bytes) = (1, place as u64);
            }
        }
        tables.live.clear();
        tables.timeline.clear();
        let empty = Census::empty(&tables.published, &[]);
        let profile = convert::profile(&tables, &subject, &empty, &[]);
        for (index, stack) in profile.stacks.iter().enumerate() {
            let at = stack.allocated.bytes as usize;
            if let Some(at) = new.get(at) {
                self.names.insert(*at, name_of(&profile, index));
            }
        }
    }

    fn pinned(&self, tables: &Tables) -> HashMap<u32, u64> {
        let Some(census) = &self.census else { return HashMap::new() };
        let now_ns = subject::now_ns();
        let old_ns = OLD_NS.min(now_ns.saturating_sub(tables.published.start_ns) / 4);
        let blocks: Vec<Block> = tables
            .live
            .iter()
            .filter(|row| row.class_index > 0)
            .map(|row| {
                let weight = f64::from_bits(row.weight);
                Block {
                    stack: row.stack,
                    class: row.class_index,
                    class_index: row.class_index,
                    place: row.place,
                    block_bytes: row.block_bytes,
                    requested_bytes: row.requested_bytes as f64,
                    weight: if weight.is_finite() { weight.max(1.0) } else { 1.0 },
                    age_us: now_ns.saturating_sub(row.birth_ns) / 1000,
                }
            })
            .collect();
        let pins = pins::pins(census, &blocks, old_ns / 1000, false);
        pins.iter().map(|pin| (pin.stack, pin.pinned_bytes)).collect()
    }
}

fn stacks_of(tables: &Tables) -> HashMap<u32, u64> {
    tables.stacks.iter().enumerate().map(|(at, row)| (at as u32, row.alloc_bytes)).collect()
}

/// What it has learnt, in a word or two; empty where nothing is known.
fn stage_of(pid: u32) -> String {
    match policy::live::learnt(pid) {
        Ok(Learnt { stage: Some(stage), strategy, .. }) if strategy.is_empty() => stage.name().to_owned(),
        Ok(Learnt { stage: Some(stage), strategy, .. }) => format!("{}: {strategy}", stage.name()),
        _ => String::new(),
    }
}

/// Name, place and caller of a stack's site.
fn name_of(profile: &Profile, stack: usize) -> (String, String, String) {
    let frames: Vec<_> = profile.frames(&profile.stacks[stack]).collect();
    let at = site::own_frame(profile, &profile.stacks[stack]).unwrap_or(0);
    match frames.get(at) {
        Some(frame) => (
            frame.function.name.clone(),
            frame.place(),
            frames.get(at + 1).map_or(String::new(), |caller| caller.function.name.clone()),
        ),
        None => ("(callers not recorded)".to_owned(), String::new(), String::new()),
    }
}

// --- /proc ------------------------------------------------------------------------------------------

fn pids() -> Vec<u32> {
    let own = std::process::id();
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    let names = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = names.filter(|pid| *pid != own).collect();
    pids.sort_unstable();
    pids
}

struct Stat {
    name: String,
    start_time: u64,
    faults: u64,
    resident_bytes: u64,
}

fn stat_of(pid: u32) -> Option<Stat> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    if fields.first().is_none_or(|state| state.starts_with(['Z', 'X'])) {
        return None;
    }
    let plain = |c: char| if c.is_control() { '?' } else { c };
    Some(Stat {
        name: name.chars().map(plain).collect(),
        faults: number(7)?,
        start_time: number(19)?,
        resident_bytes: number(21)?.saturating_mul(system::page_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_and_is_none_of_them() {
        let own = std::process::id();
        assert!(!pids().contains(&own) && pids().iter().all(|pid| *pid > 0));
        let stat = stat_of(own).unwrap();
        assert!(stat.resident_bytes > 1 << 20 && stat.faults > 0 && !stat.name.is_empty());
        assert!(stat_of(u32::MAX).is_none());
    }

    #[test]
    fn what_was_not_read_before_has_no_rate() {
        let at = Instant::now();
        let before = Before {
            at,
            faults: 0,
            visits: None,
            allocated: None,
            returned: None,
            stacks: None,
            stacks_since: 0,
        };
        let later = at + Duration::from_secs(2);
        assert_eq!(before.rate(later, before.returned, Some(1 << 40)), None);
        assert_eq!(before.rate(later, Some(10), Some(30)), Some(10.0));
        assert_eq!(before.rate(later, Some(10), None), None);
    }

    #[test]
    fn a_process_without_the_library_is_left_out() {
        let mut looker = Looker::default();
        assert!(looker.look(Some(std::process::id()), None).is_empty());
        assert!(looker.record(std::process::id(), true).is_err());
        looker.begun.push(std::process::id());
        let lines = looker.end();
        assert!(lines.len() == 1 && lines[0].contains("may go on: "), "{lines:?}");
        looker.begun.push(u32::MAX >> 1); // it has ended
        assert!(looker.end().is_empty());
    }
}
