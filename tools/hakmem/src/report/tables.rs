//! tables.rs - the page's tables: sites for the script, lifetimes, threads, pins, classes and facts for the template.

use super::graph::file_name;
use super::sites::Site;
use super::words::{self, duration_us, name, percent, rounded, share};
use crate::bench::machine::date_text;
use crate::profile::model::Profile;
use crate::text::{bytes, count, counted};
use serde::Serialize;
use std::collections::HashMap;

/// Sites in the page without the script, and in the lists below the table.
const SITES_SHOWN: usize = 25;
const LIFETIME_ROWS_MAX: usize = 20;
const LIFETIME_COLUMNS_MAX: usize = 12;
const PINS_MAX: usize = 25;
const CHOICES_MAX: usize = 12;
const THREADS_MAX: usize = 64;
/// Shades of the lifetimes' table.
const SHADES: f64 = 8.0;

/// All sites, column by column.
#[derive(Debug, Default, Serialize)]
pub struct Columns {
    pub function: Vec<Option<u32>>, // in the graph
    pub place: Vec<String>,
    pub caller: Vec<Option<u32>>,
    pub live: Vec<u64>,
    pub live_low: Vec<u64>,
    pub live_high: Vec<u64>,
    pub blocks: Vec<u64>,
    pub allocated: Vec<u64>,
    pub allocated_low: Vec<u64>,
    pub allocated_high: Vec<u64>,
    pub calls: Vec<u64>,
    pub temporary: Vec<u64>,
    pub pinned: Vec<u64>,
    pub pinning: Vec<u64>,
    pub lifetime_us: Vec<Option<u64>>,
    pub threads: Vec<usize>,
    pub samples: Vec<u64>,
    pub stacks: Vec<Vec<u32>>,
    pub lifetimes: Vec<Vec<u64>>,
}

pub fn columns(profile: &Profile, sites: &[Site], numbers: &HashMap<u32, u32>) -> Columns {
    let number = |function: Option<u32>| function.and_then(|function| numbers.get(&function).copied());
    let mut columns = Columns::default();
    for site in sites {
        columns.function.push(number(site.function));
        columns.place.push(site.place.clone());
        columns.caller.push(number(site.caller));
        columns.live.push(site.live.bytes);
        columns.live_low.push(site.live.bytes_low);
        columns.live_high.push(site.live.bytes_high);
        columns.blocks.push(site.live.count);
        columns.allocated.push(site.allocated.bytes);
        columns.allocated_low.push(site.allocated.bytes_low);
        columns.allocated_high.push(site.allocated.bytes_high);
        columns.calls.push(site.allocated.count);
        columns.temporary.push(site.temporary.count);
        columns.pinned.push(site.pinned_bytes);
        columns.pinning.push(site.pinning_bytes);
        columns.lifetime_us.push(median_us(&profile.bucket_ends_us, &site.lifetimes));
        columns.threads.push(site.threads.len());
        columns.samples.push(site.allocated.samples);
        columns.stacks.push(site.stacks.clone());
        columns.lifetimes.push(site.lifetimes.clone());
    }
    columns
}

/// The upper end of the bucket that holds the middle one; None: there is nothing, or it lies past the last end.
fn median_us(ends_us: &[u64], buckets: &[u64]) -> Option<u64> {
    let whole: u64 = buckets.iter().sum();
    let mut sum = 0;
    let at = buckets.iter().position(|part| {
        sum += part;
        whole > 0 && sum * 2 >= whole
    })?;
    ends_us.get(at).or(ends_us.last()).copied()
}

/// What stands in the table before the script takes over.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub place: String,
    pub cells: Vec<String>,
}

pub fn rows(profile: &Profile, sites: &[Site]) -> Vec<Row> {
    let shown = sites.iter().take(SITES_SHOWN);
    shown
        .map(|site| Row {
            name: name(profile, site),
            place: site.place.clone(),
            cells: vec![
                bytes(site.live.bytes),
                rounded(site.live.count),
                bytes(site.allocated.bytes),
                rounded(site.allocated.count),
                share(site.temporary.count, site.allocated.count),
                median_us(&profile.bucket_ends_us, &site.lifetimes).map_or("–".to_owned(), duration_us),
                bytes(site.pinned_bytes),
            ],
        })
        .collect()
}

#[derive(Debug, Serialize)]
pub struct Lifetimes {
    pub heads: Vec<String>,
    pub rows: Vec<LifetimeRow>,
}

#[derive(Debug, Serialize)]
pub struct LifetimeRow {
    pub site: usize,
    pub name: String,
    pub place: String,
    pub cells: Vec<Shade>,
    pub calls: String,
}

#[derive(Debug, Serialize)]
pub struct Shade {
    pub class: u32,
    pub text: String,
    pub title: String,
}

/// How long the blocks of the busiest sites lived, as shares of what each allocated.
pub fn lifetimes(profile: &Profile, sites: &[Site]) -> Option<Lifetimes> {
    let mut busiest: Vec<(usize, &Site)> = sites.iter().enumerate().collect();
    busiest.retain(|(_, site)| site.allocated.count > 0 && !site.lifetimes.is_empty());
    busiest.sort_by_key(|(_, site)| std::cmp::Reverse(site.allocated.count));
    busiest.truncate(LIFETIME_ROWS_MAX);
    let is_used = |bucket: &usize| busiest.iter().any(|(_, site)| site.lifetimes[*bucket] > 0);
    let first = (0..profile.bucket_count()).find(is_used)?;
    let last = (0..profile.bucket_count()).rev().find(is_used)?;
    let group = (last + 1 - first).div_ceil(LIFETIME_COLUMNS_MAX);
    let starts: Vec<usize> = (first..=last).step_by(group).collect();
    let end = |start: usize| profile.bucket_ends_us.get((start + group - 1).min(last)).copied();
    let label = |start: usize| match (start, end(start)) {
        (_, Some(end)) => format!("≤ {}", duration_us(end)),
        (0, None) => "any".to_owned(),
        (start, None) => format!("> {}", duration_us(profile.bucket_ends_us[start - 1])),
    };
    let rows = busiest.iter().map(|(index, site)| {
        let live = site.allocated.count.saturating_sub(site.freed.count);
        let freed = starts.iter().map(|start| {
            let buckets = &site.lifetimes[*start..(start + group).min(last + 1)];
            (label(*start), buckets.iter().sum::<u64>())
        });
        let parts: Vec<(String, u64)> = freed.chain([("live at the end".to_owned(), live)]).collect();
        let whole: u64 = parts.iter().map(|(_, part)| part).sum();
        LifetimeRow {
            site: *index,
            name: name(profile, site),
            place: site.place.clone(),
            calls: rounded(site.allocated.count),
            cells: parts
                .iter()
                .map(|(label, part)| Shade {
                    class: (percent(*part, whole) / 100.0 * SHADES).ceil() as u32,
                    text: if *part == 0 { String::new() } else { share(*part, whole) },
                    title: format!("{label}: {} of {} blocks", rounded(*part), rounded(whole)),
                })
                .collect(),
        }
    });
    Some(Lifetimes { rows: rows.collect(), heads: starts.iter().map(|start| label(*start)).collect() })
}

#[derive(Debug, Serialize)]
pub struct ThreadRow {
    pub name: String,
    pub id: u32,
    pub live: String,
    pub allocated: String,
    pub live_width: f64,
    pub allocated_width: f64,
}

pub struct Threads {
    pub rows: Vec<ThreadRow>,
    pub left_out: usize,
}

pub fn threads(profile: &Profile) -> Threads {
    let mut threads: Vec<_> = profile.threads.iter().collect();
    threads.sort_by_key(|thread| std::cmp::Reverse((thread.live_bytes, thread.allocated_bytes)));
    let largest = |value: fn(&crate::profile::model::Thread) -> u64| profile.threads.iter().map(value).max();
    let live = largest(|thread| thread.live_bytes).unwrap_or(0);
    let allocated = largest(|thread| thread.allocated_bytes).unwrap_or(0);
    let rows = threads.iter().take(THREADS_MAX).map(|thread| ThreadRow {
        name: if thread.name.is_empty() { "(without a name)".to_owned() } else { thread.name.clone() },
        id: thread.id,
        live: bytes(thread.live_bytes),
        allocated: bytes(thread.allocated_bytes),
        live_width: percent(thread.live_bytes, live),
        allocated_width: percent(thread.allocated_bytes, allocated),
    });
    Threads { rows: rows.collect(), left_out: threads.len().saturating_sub(THREADS_MAX) }
}

/// A site that holds pages or much memory, and what it would give back.
#[derive(Debug, Serialize)]
pub struct PinRow {
    pub site: usize,
    pub name: String,
    pub place: String,
    pub pinned: String,
    pub pages: String,
    pub pinning: String,
    pub blocks: String,
    pub age: String,
    pub sizes: String,
    pub width: f64,
}

/// The table, and what is said of the rest.
pub fn pins(profile: &Profile, sites: &[Site]) -> (Vec<PinRow>, String) {
    let mut pinning: Vec<(usize, &Site)> =
        sites.iter().enumerate().filter(|(_, site)| site.pinned_bytes > 0).collect();
    pinning.sort_by_key(|(_, site)| std::cmp::Reverse(site.pinned_bytes));
    let largest = pinning.first().map_or(0, |(_, site)| site.pinned_bytes);
    let worth = pinning.iter().take(PINS_MAX).filter(|(_, site)| site.pinned_bytes >= largest / 500).count();
    let rest: u64 = pinning[worth..].iter().map(|(_, site)| site.pinned_bytes).sum();
    let left_out = match pinning.len() - worth {
        0 => String::new(),
        places => format!("{} more pin {}.", counted(places as u64, "place", "places"), bytes(rest)),
    };
    let rows = pinning[..worth]
        .iter()
        .map(|(index, site)| PinRow {
            site: *index,
            name: name(profile, site),
            place: site.place.clone(),
            pinned: bytes(site.pinned_bytes),
            pages: count(site.pinned_pages),
            pinning: bytes(site.pinning_bytes),
            blocks: rounded(site.pinning_count),
            age: age(profile, site),
            sizes: sizes(profile, site),
            width: percent(site.pinned_bytes, largest),
        })
        .collect();
    (rows, left_out)
}

/// The median of its stacks' median ages, by what they pin.
fn age(profile: &Profile, site: &Site) -> String {
    let mut ages: Vec<(u64, u64)> = profile
        .pins
        .iter()
        .filter(|pin| site.stacks.binary_search(&pin.stack).is_ok())
        .map(|pin| (pin.age_us_median, pin.pinned_bytes))
        .collect();
    ages.sort_unstable();
    let whole: u64 = ages.iter().map(|(_, bytes)| bytes).sum();
    let mut sum = 0;
    let middle = ages.iter().find(|(_, bytes)| {
        sum += bytes;
        sum * 2 >= whole
    });
    middle.map_or("–".to_owned(), |(age, _)| duration_us(*age))
}

fn sizes(profile: &Profile, site: &Site) -> String {
    let pins = profile.pins.iter().filter(|pin| site.stacks.binary_search(&pin.stack).is_ok());
    let mut sizes: Vec<u64> =
        pins.flat_map(|pin| &pin.classes).map(|class| profile.classes[*class as usize].bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let more = sizes.len().saturating_sub(3);
    let shown: Vec<String> =
        sizes.iter().take(3).map(|size| if *size == 0 { "large".to_owned() } else { count(*size) }).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &rest
}

#[derive(Debug, Serialize)]
pub struct Choice {
    pub site: usize,
    pub name: String,
    pub place: String,
    pub pooled: String,
    pub freed: String,
    pub pooled_bytes: u64,
    pub freed_bytes: u64,
}

/// What may be chosen in "what if": the sites that hold most, and those that pin most.
pub fn choices(profile: &Profile, sites: &[Site]) -> Vec<Choice> {
    let mut order: Vec<usize> = (0..sites.len()).collect();
    order.sort_by_key(|site| std::cmp::Reverse(sites[*site].pinned_bytes + sites[*site].live.bytes));
    order.truncate(CHOICES_MAX);
    order.retain(|site| sites[*site].pinned_bytes + sites[*site].live.bytes > 0);
    order
        .into_iter()
        .map(|index| {
            let site = &sites[index];
            Choice {
                site: index,
                name: name(profile, site),
                place: site.place.clone(),
                pooled: bytes(site.pinned_bytes),
                freed: bytes(site.pinned_bytes + site.live.bytes),
                pooled_bytes: site.pinned_bytes,
                freed_bytes: site.pinned_bytes + site.live.bytes,
            }
        })
        .collect()
}

#[derive(Debug, Serialize)]
pub struct ClassRow {
    pub size: String,
    pub live: String,
    pub used: String, // of the slabs' blocks
    pub resident: String,
    pub sparse: String,
    pub width: f64,
    pub live_width: f64,
}

pub fn classes(profile: &Profile) -> Vec<ClassRow> {
    let largest = profile.classes.iter().map(|class| class.resident_bytes).max().unwrap_or(0);
    let used = profile.classes.iter().filter(|class| class.slab_count > 0 || class.live_count > 0);
    used.map(|class| ClassRow {
        size: if class.bytes == 0 { "larger".to_owned() } else { count(class.bytes) },
        live: rounded(class.live_count),
        used: if class.capacity_count > 0 {
            share(class.live_count, class.capacity_count)
        } else {
            "–".to_owned()
        },
        resident: bytes(class.resident_bytes),
        sparse: bytes(class.sparse_bytes),
        width: percent(class.resident_bytes, largest),
        live_width: percent(class.resident_bytes.saturating_sub(class.sparse_bytes), largest),
    })
    .collect()
}

pub fn under(profile: &Profile) -> String {
    let (program, recording) = (&profile.program, &profile.recording);
    let mut parts = Vec::new();
    if program.pid > 0 {
        parts.push(format!("process {}", program.pid));
    }
    if !program.host.is_empty() {
        parts.push(format!("on {}", program.host));
    }
    if recording.started_unix_ms > 0 {
        let at = date_text(recording.started_unix_ms / 1000).replace('T', " ").replace('Z', " UTC");
        parts.push(format!(
            "recorded for {} from {at}",
            duration_us(recording.duration_ms.saturating_mul(1000))
        ));
    }
    parts.push(counted(recording.sample_count, "sample", "samples"));
    parts.join(", ")
}

pub fn facts(profile: &Profile) -> Vec<(&'static str, String)> {
    let (program, recording) = (&profile.program, &profile.recording);
    let mut facts = vec![(
        "What an estimate is worth",
        format!(
            "One allocation in about {} is looked at, by chance in proportion to its size, and stands for as many as \
             it was likely not to be. Intervals hold the truth in 95 of 100 cases. Sizes, classes and the timeline \
             are the allocator's own counts, and exact.",
            bytes(recording.rate_bytes)
        ),
    )];
    let reason = match recording.reason.as_str() {
        "exit" => "at the program's end",
        "resident" => "because resident memory passed a threshold",
        "shortage" => "because an allocation was about to fail",
        "guard" => "because a guarded block was misused",
        "dump" | "request" => "on request",
        _ => "at the recording's end",
    };
    facts.push(("Written", format!("{reason}, by hakmem {} of library {}", profile.tool, profile.library)));
    if !program.command.is_empty() {
        facts.push(("Command", program.command.join(" ")));
    } else if !program.path.is_empty() {
        facts.push(("Program", program.path.clone()));
    }
    if program.memory_bytes > 0 {
        facts.push((
            "Machine",
            format!(
                "{}, {}, {} of memory, pages of {}, {}",
                program.machine,
                counted(u64::from(program.processor_count), "processor", "processors"),
                bytes(program.memory_bytes),
                bytes(program.page_bytes),
                program.kernel
            ),
        ));
    }
    let own: Vec<String> = profile
        .settings
        .iter()
        .filter(|setting| !setting.is_default)
        .map(|setting| format!("{}={}", setting.name, setting.value))
        .collect();
    // Dumps of older libraries do not say.
    if !profile.settings.is_empty() {
        facts.push(("Options", if own.is_empty() { "all as they come".to_owned() } else { own.join(", ") }));
    }
    facts.push(("Temporary", format!("freed within {}", duration_us(recording.temporary_us_max))));
    facts
}

/// Where names came from, module by module.
pub fn modules(profile: &Profile) -> Vec<(String, String)> {
    let mut used: Vec<u32> = profile.locations.iter().filter_map(|location| location.module).collect();
    used.sort_unstable();
    used.dedup();
    used.iter()
        .map(|module| &profile.modules[*module as usize])
        .map(|module| {
            let lines = match (module.has_symbols, module.has_lines, module.debug_file.as_str()) {
                (false, _, _) => "no symbols".to_owned(),
                (true, false, _) => "symbols, no line numbers".to_owned(),
                (true, true, "") => "symbols and line numbers".to_owned(),
                (true, true, file) => format!("symbols, line numbers from {file}"),
            };
            (file_name(&module.path).to_owned(), lines)
        })
        .collect()
}

pub fn title(profile: &Profile) -> String {
    match profile.program.name.as_str() {
        "" => "Where the memory is".to_owned(),
        name => format!("{name}: where its memory is"),
    }
}

pub fn live_text(profile: &Profile) -> String {
    bytes(words::live_bytes(profile))
}
