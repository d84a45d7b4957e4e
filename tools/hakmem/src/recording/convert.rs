//! convert.rs - the library's tables become a profile: sums and live samples per stack, names for addresses.
//!
//! Owns:  the meaning of the tables' rows in the profile's terms. Symbols are found here, on the machine that
//!        recorded, so that the profile opens on any other.
//! Known: allocated sums carry their variance; freed ones do not, and take the allocated ones' in proportion.

use super::memory::Mapping;
use super::names::Names;
use super::pages::Census;
use super::pins::{self, Block};
use super::raw::{self, AGE_ENDS_US, COUNT_UNIT, LiveRow, StackRow, Tables};
use crate::profile::file::name_clean;
use crate::profile::interval::Sums;
use crate::profile::model::*;
use crate::symbols::perf_map::Author;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

const TEMPORARY_US: u64 = 1000;
const SLICES: u64 = 16;
/// A block is old, and pins, after this long, or after a quarter of a shorter recording.
const OLD_US: u64 = 10_000_000;

/// All about the process that its tables do not say.
pub struct Subject {
    pub program: Program,
    pub mappings: Vec<Mapping>,
    pub root: PathBuf,  // where its files are, seen from here
    pub author: Author, // of its map of code that it made
    pub settings: Vec<Setting>,
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
    /// CLOCK_MONOTONIC when the tables were read.
    pub now_ns: u64,
    pub reason: String,
    /// Recording began when we came.
    pub is_attached: bool,
}

/// Live bytes and blocks by stack, at one moment.
pub struct Tick {
    pub time_ns: u64,
    pub by_stack: HashMap<u32, (f64, f64)>,
}

impl Tick {
    pub fn of(time_ns: u64, live: &[LiveRow]) -> Tick {
        let mut by_stack: HashMap<u32, (f64, f64)> = HashMap::new();
        for row in live {
            let sums = by_stack.entry(row.stack).or_default();
            let weight = weight_of(row);
            sums.0 += weight * row.requested_bytes as f64;
            sums.1 += if row.from_bytes == 0 { weight } else { 0.0 };
        }
        Tick { time_ns, by_stack }
    }
}

fn weight_of(row: &LiveRow) -> f64 {
    let weight = f64::from_bits(row.weight);
    // A weight is 1/p; a torn or foreign one is none.
    if weight.is_finite() && weight >= 1.0 { weight } else { 1.0 }
}

fn amount(sums: &Sums) -> Amount {
    let (low, high) = sums.interval();
    Amount {
        count: sums.count.round() as u64,
        bytes: sums.bytes.round() as u64,
        bytes_low: low.round() as u64,
        bytes_high: high.round() as u64,
        samples: sums.samples,
    }
}

fn sums(samples: u64, count: u64, bytes: u64, variance: f64) -> Sums {
    let bytes = bytes as f64;
    let variance = if variance.is_finite() { variance.max(0.0) } else { 0.0 };
    // Of the squares only the variance is known; the samples are taken as of equal weight.
    let square = (bytes * bytes / samples.max(1) as f64).max(variance);
    Sums { samples, count: count as f64 / COUNT_UNIT as f64, bytes, variance, square }
}

/// The live samples of one stack.
#[derive(Default)]
struct Live {
    sums: Sums,
    earlier_bytes: f64,
    ages: Vec<f64>,
    births: Vec<f64>,
    classes: HashMap<u32, (f64, f64, f64)>, // count, bytes, old bytes
    threads: HashMap<u32, f64>,
}

pub fn profile(tables: &Tables, subject: &Subject, census: &Census, ticks: &[Tick]) -> Profile {
    let published = &tables.published;
    let start_ns = published.start_ns;
    let duration_ns = tables.end_ns(subject.now_ns).saturating_sub(start_ns).max(1);
    let old_us = OLD_US.min(duration_ns / 4000);
    let (classes, class_of) = classes(tables, census);
    let age_of = |row: &LiveRow| subject.now_ns.saturating_sub(row.birth_ns) / 1000;

    let mut lives: HashMap<u32, Live> = HashMap::new();
    let mut blocks = Vec::new();
    for row in &tables.live {
        let (weight, requested) = (weight_of(row), row.requested_bytes as f64);
        let (bytes, age_us) = (weight * requested, age_of(row));
        let live = lives.entry(row.stack).or_default();
        if live.ages.is_empty() {
            (live.ages, live.births) = (vec![0.0; AGE_ENDS_US.len() + 1], vec![0.0; SLICES as usize]);
        }
        live.sums.add(requested, 1.0 / weight);
        if row.from_bytes != 0 {
            live.sums.count -= weight; // it grew; it is no block more
        }
        if row.birth_ns < start_ns {
            live.earlier_bytes += bytes;
        }
        live.ages[AGE_ENDS_US.partition_point(|end| *end <= age_us)] += bytes;
        let since = row.birth_ns.saturating_sub(start_ns).min(duration_ns - 1);
        live.births[(u128::from(since) * u128::from(SLICES) / u128::from(duration_ns)) as usize] += bytes;
        if let Some(class) = class_of.get(&row.class_index) {
            let of_class = live.classes.entry(*class).or_default();
            of_class.0 += weight;
            of_class.1 += bytes;
            of_class.2 += if age_us >= old_us { bytes } else { 0.0 };
            blocks.push(Block {
                stack: row.stack,
                class: *class,
                class_index: row.class_index,
                place: row.place,
                block_bytes: row.block_bytes,
                requested_bytes: requested,
                weight,
                age_us,
            });
        }
        *live.threads.entry(row.thread).or_default() += bytes;
    }

    let mut names = Names::new(subject);
    let mut profile = Profile {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        library: raw::text_of(&published.library_version),
        program: subject.program.clone(),
        recording: Recording {
            started_unix_ms: published.start_realtime_ns / 1_000_000,
            duration_ms: duration_ns / 1_000_000,
            rate_bytes: published.rate_bytes_of_tables(),
            sample_count: published.samples,
            dropped_count: published.lost_live + published.lost_stacks + tables.torn_count,
            threadless_count: published.lost_threads,
            is_attached: subject.is_attached,
            reason: subject.reason.clone(),
            temporary_us_max: TEMPORARY_US,
        },
        bucket_ends_us: AGE_ENDS_US.to_vec(),
        classes,
        settings: subject.settings.clone(),
        counters: tables.counters.iter().cloned().collect(),
        ..Profile::default()
    };
    let (threads, thread_of) = threads(tables);
    profile.threads = threads;
    let mut stack_of: HashMap<u32, u32> = HashMap::new();
    for (index, row) in tables.stacks.iter().enumerate() {
        let index = index as u32;
        let live = lives.remove(&index).unwrap_or_default();
        if row.alloc_samples == 0 && live.sums.samples == 0 {
            continue;
        }
        let mut stack = stack_figures(row, &live);
        stack.locations =
            frames(row, &tables.frames).iter().map(|address| names.location(*address)).collect();
        stack.is_cut = row.frame_count as usize >= FRAMES_MAX || row.frame_count == 0;
        stack.live_over_time = over_time(index, ticks, start_ns);
        stack.threads = live
            .threads
            .iter()
            .filter_map(|(thread, bytes)| {
                Some(ThreadShare { thread: *thread_of.get(thread)?, live_bytes: bytes.round() as u64 })
            })
            .collect();
        stack.threads.sort_by_key(|share| (std::cmp::Reverse(share.live_bytes), share.thread));
        for share in &stack.threads {
            profile.threads[share.thread as usize].live_bytes += share.live_bytes;
        }
        stack_of.insert(index, profile.stacks.len() as u32);
        profile.stacks.push(stack);
    }
    profile.pins = pins::pins(census, &blocks, old_us, !subject.is_attached);
    profile.pins.retain_mut(|pin| match stack_of.get(&pin.stack) {
        Some(stack) => {
            pin.stack = *stack;
            true
        }
        None => false,
    });
    names.into_profile(&mut profile);
    timeline(tables, subject, &mut profile);
    totals(tables, subject, census, &mut profile);
    by_live_bytes(&mut profile);
    profile.threads.iter_mut().for_each(|thread| name_clean(&mut thread.name));
    debug_assert_eq!(profile.check(), Ok(()));
    profile
}

const FRAMES_MAX: usize = 64;

fn frames<'a>(row: &StackRow, frames: &'a [u64]) -> &'a [u64] {
    let first = usize::try_from(row.frame_first).unwrap_or(usize::MAX);
    let count = (row.frame_count as usize).min(FRAMES_MAX);
    first.checked_add(count).and_then(|end| frames.get(first..end)).unwrap_or_default()
}

fn stack_figures(row: &StackRow, live: &Live) -> Stack {
    let variance = f64::from_bits(row.alloc_variance);
    let allocated = sums(row.alloc_samples, row.alloc_count, row.alloc_bytes, variance);
    let freed_part = row.free_bytes as f64 / (row.alloc_bytes as f64).max(1.0);
    let freed = sums(row.free_samples, row.free_count, row.free_bytes, variance * freed_part.min(1.0));
    // Temporary blocks are counted only; their sizes are taken as those of all freed ones.
    let part = row.temporary_count as f64 / (row.free_count as f64).max(1.0);
    let temporary = sums(
        (row.free_samples as f64 * part).round() as u64,
        row.temporary_count,
        (row.free_bytes as f64 * part) as u64,
        freed.variance * part,
    );
    let mut classes: Vec<ClassShare> = live
        .classes
        .iter()
        .map(|(class, (count, bytes, old))| ClassShare {
            class: *class,
            live_count: count.round() as u64,
            live_bytes: bytes.round() as u64,
            old_bytes: old.round() as u64,
        })
        .collect();
    classes.sort_by_key(|share| share.class);
    let rounded = |values: &[f64]| values.iter().map(|value| value.round() as u64).collect();
    Stack {
        allocated: amount(&allocated),
        freed: amount(&freed),
        live: amount(&live.sums),
        live_earlier_bytes: live.earlier_bytes.round() as u64,
        temporary: amount(&temporary),
        lifetimes: row.age_count.iter().map(|count| (count + COUNT_UNIT / 2) / COUNT_UNIT).collect(),
        ages: rounded(&live.ages),
        live_by_birth: rounded(&live.births),
        classes,
        ..Stack::default()
    }
}

fn over_time(stack: u32, ticks: &[Tick], start_ns: u64) -> Vec<LiveAt> {
    if ticks.iter().all(|tick| !tick.by_stack.contains_key(&stack)) {
        return Vec::new();
    }
    let at = |tick: &Tick| {
        let (bytes, count) = tick.by_stack.get(&stack).copied().unwrap_or_default();
        LiveAt {
            at_ms: tick.time_ns.saturating_sub(start_ns) / 1_000_000,
            bytes: bytes.round() as u64,
            count: count.round() as u64,
        }
    };
    ticks.iter().map(at).collect()
}

/// The classes that have slabs or samples, and the library's index of each; 0 there is large.
fn classes(tables: &Tables, census: &Census) -> (Vec<Class>, HashMap<u32, u32>) {
    let mut rows: Vec<(u32, Class)> = census
        .classes
        .iter()
        .enumerate()
        .skip(1)
        .map(|(index, count)| {
            let class = Class {
                bytes: count.block_bytes,
                slab_count: count.slab_count,
                capacity_count: count.capacity_count,
                live_count: count.live_count,
                resident_bytes: count.resident_bytes,
                sparse_page_count: count.sparse_page_count,
                sparse_bytes: count.sparse_bytes,
                ..Class::default()
            };
            (index as u32, class)
        })
        .collect();
    let large =
        Class { live_count: tables.large.count, resident_bytes: tables.large.bytes, ..Class::default() };
    rows.push((0, large));
    let sampled: HashSet<u32> = tables.live.iter().map(|row| row.class_index).collect();
    rows.retain(|(index, class)| class.slab_count > 0 || class.live_count > 0 || sampled.contains(index));
    rows.sort_by_key(|(_, class)| if class.bytes == 0 { u64::MAX } else { class.bytes });
    let class_of = rows.iter().enumerate().map(|(at, (index, _))| (*index, at as u32)).collect();
    (rows.into_iter().map(|(_, class)| class).collect(), class_of)
}

fn threads(tables: &Tables) -> (Vec<Thread>, HashMap<u32, u32>) {
    let mut threads = Vec::new();
    let mut thread_of = HashMap::new();
    for (index, row) in tables.threads.iter().enumerate() {
        if row.alloc_samples == 0 && row.alloc_bytes == 0 && row.free_bytes == 0 {
            continue;
        }
        thread_of.insert(index as u32, threads.len() as u32);
        let name = raw::text_of(&row.name);
        let name = if name.is_empty() && index == 0 { "others".to_owned() } else { name };
        threads.push(Thread { id: row.tid, name, allocated_bytes: row.alloc_bytes, live_bytes: 0 });
    }
    (threads, thread_of)
}

fn timeline(tables: &Tables, subject: &Subject, profile: &mut Profile) {
    let start_ns = tables.published.start_ns;
    let moments = tables.timeline.iter().filter(|row| row.time_ns <= subject.now_ns);
    profile.timeline = moments
        .map(|row| Moment {
            at_ms: (row.time_ns - start_ns) / 1_000_000,
            resident_bytes: row.resident_bytes,
            live_bytes: row.live_bytes,
            free_bytes: row.free_bytes,
            allocated_bytes: row.alloc_bytes,
            freed_bytes: row.alloc_bytes.saturating_sub(row.live_bytes),
            alloc_count: 0,
            fault_count: row.fault_count,
            returned_bytes: row.returned_bytes,
            thread_count: u32::try_from(row.heap_count).unwrap_or(u32::MAX),
        })
        .collect();
}

fn totals(tables: &Tables, subject: &Subject, census: &Census, profile: &mut Profile) {
    let last = tables.timeline.last();
    let sum = |part: fn(&Stack) -> &Amount| {
        let mut total = Amount::default();
        let (mut below, mut above) = (0.0, 0.0);
        for amount in profile.stacks.iter().map(part) {
            total.count += amount.count;
            total.bytes += amount.bytes;
            total.samples += amount.samples;
            // Independent estimates: their deviations add in squares.
            below += ((amount.bytes - amount.bytes_low.min(amount.bytes)) as f64).powi(2);
            above += (amount.bytes_high.saturating_sub(amount.bytes) as f64).powi(2);
        }
        total.bytes_low = total.bytes.saturating_sub(below.sqrt().round() as u64);
        total.bytes_high = total.bytes + above.sqrt().round() as u64;
        total
    };
    let small: u64 = census.classes.iter().map(|class| class.live_count * class.block_bytes).sum();
    let small_count: u64 = census.classes.iter().map(|class| class.live_count).sum();
    profile.totals = Totals {
        resident_bytes: subject.resident_bytes,
        resident_peak_bytes: subject.resident_peak_bytes,
        live_bytes: small + tables.large.bytes,
        live_count: small_count + tables.large.count,
        free_bytes: last.map_or(0, |row| row.free_bytes),
        reserved_bytes: last.map_or(0, |row| row.used_bytes),
        returned_bytes: last.map_or(0, |row| row.returned_bytes),
        retouched_bytes: last.map_or(0, |row| row.retouched_bytes),
        sparse_bytes: census.sparse_bytes(),
        allocated: sum(|stack| &stack.allocated),
        freed: sum(|stack| &stack.freed),
        live: sum(|stack| &stack.live),
        temporary: sum(|stack| &stack.temporary),
    };
}

fn by_live_bytes(profile: &mut Profile) {
    let mut order: Vec<u32> = (0..profile.stacks.len() as u32).collect();
    order.sort_by_key(|at| {
        let stack = &profile.stacks[*at as usize];
        (std::cmp::Reverse(stack.live.bytes), std::cmp::Reverse(stack.allocated.bytes), *at)
    });
    let mut new_of = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, old)| new_of[*old as usize] = new as u32);
    let mut old: Vec<Option<Stack>> = std::mem::take(&mut profile.stacks).into_iter().map(Some).collect();
    profile.stacks = order.iter().filter_map(|at| old[*at as usize].take()).collect();
    profile.pins.iter_mut().for_each(|pin| pin.stack = new_of[pin.stack as usize]);
}
