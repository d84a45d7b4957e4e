//! rows.rs - the one table of metrics: name, unit, kind and help of each, and where its value is read.
//!
//! Names:  Prometheus has hakmem_NAME with the unit in it, OpenTelemetry hakmem.NAME in groups, the unit beside it (UCUM). Names and
//!         help of Prometheus's are those that the library writes itself: src/front/metrics.c, src/watch/metrics.c.
//! Kinds:  what is now is a gauge; what only grows a counter, of the process or of its recording, which begins anew with each.

use super::Look;
use crate::recording::pages::ClassCount;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Gauge,
    Counter,
    RecordingCounter,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    Bytes,
    /// OpenTelemetry has seconds for every time.
    Nanoseconds,
    /// Their plural.
    Things(&'static str),
    One,
}

impl Unit {
    pub fn ucum(self) -> Cow<'static, str> {
        match self {
            Unit::Bytes => "By".into(),
            Unit::Nanoseconds => "s".into(),
            Unit::Things(plural) => format!("{{{}}}", plural.strip_suffix('s').unwrap_or(plural)).into(),
            Unit::One => "1".into(),
        }
    }
}

pub enum Value {
    /// None: there is none at present.
    One(fn(&Look) -> Option<u64>),
    /// Of each size class that has slabs.
    ByClass(fn(&ClassCount) -> u64),
}

pub struct Row {
    pub name: &'static str,
    pub otel: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    pub help: &'static str,
    pub value: Value,
}

use Kind::{Counter, Gauge, RecordingCounter};
use Unit::{Bytes, Nanoseconds, One, Things};

type OneOf = fn(&Look) -> Option<u64>;
const BLOCKS: Unit = Things("blocks");
const SAMPLES: Unit = Things("samples");

const fn row(
    name: &'static str,
    otel: &'static str,
    unit: Unit,
    kind: Kind,
    help: &'static str,
    of: OneOf,
) -> Row {
    Row { name, otel, unit, kind, help, value: Value::One(of) }
}

const fn by_class(
    name: &'static str,
    otel: &'static str,
    unit: Unit,
    help: &'static str,
    of: fn(&ClassCount) -> u64,
) -> Row {
    Row { name, otel, unit, kind: Gauge, help, value: Value::ByClass(of) }
}

/// Large blocks are counted where the library publishes them, or in a recording's timeline.
fn is_large_known(look: &Look) -> bool {
    look.is_on() || look.tables.published.large_bytes_address != 0
}

#[rustfmt::skip] // one row, one line and its value
pub const ROWS: &[Row] = &[
    row("resident_bytes", "memory.resident", Bytes, Gauge, "Resident memory of the process, as the kernel counts it",
        |look| look.kib("VmRSS")),
    row("resident_peak_bytes", "memory.resident_peak", Bytes, Gauge, "The most that was resident",
        |look| look.kib("VmHWM")),
    row("small_live_bytes", "memory.small_live", Bytes, Gauge, "Blocks of up to 32 KiB that the program holds",
        |look| Some(look.classes(|class| class.live_count * class.block_bytes))),
    row("slab_resident_bytes", "memory.slab_resident", Bytes, Gauge, "Resident memory of slabs",
        |look| Some(look.classes(|class| class.resident_bytes))),
    row("sparse_bytes", "memory.sparse", Bytes, Gauge, "Of it, what pages less than a quarter in use hold beside their blocks",
        |look| Some(look.census.sparse_bytes())),
    by_class("class_slabs", "class.slabs", Things("slabs"), "Slabs", |class| class.slab_count),
    by_class("class_live_blocks", "class.live_blocks", BLOCKS, "Blocks that the program holds", |class| class.live_count),
    by_class("class_resident_bytes", "class.resident", Bytes, "Resident memory of slabs", |class| class.resident_bytes),
    by_class("class_sparse_bytes", "class.sparse", Bytes, "What sparse pages pin", |class| class.sparse_bytes),
    row("recording", "recording.is_on", One, Gauge, "1 while a recording goes on",
        |look| Some(u64::from(look.is_on()))),
    row("recording_rate_bytes", "recording.rate", Bytes, Gauge, "Mean distance between two samples; 0: none are taken",
        |look| Some(look.tables.published.rate_bytes)),
    row("samples", "recording.samples", SAMPLES, RecordingCounter, "Samples taken",
        |look| Some(look.tables.published.samples)),
    row("samples_lost", "recording.samples_lost", SAMPLES, RecordingCounter, "Samples that found no place in a table",
        |look| Some(look.tables.published.lost_live + look.tables.published.lost_stacks)),
    row("samples_without_thread", "recording.samples_without_thread", SAMPLES, RecordingCounter,
        "Samples of threads that found no place in the table of threads",
        |look| Some(look.tables.published.lost_threads)),
    row("recording_held_ns", "recording.held", Nanoseconds, RecordingCounter,
        "Time that recording took from the program's threads, nanoseconds",
        |look| Some(look.tables.published.held_ns)),
    row("recording_held_max_ns", "recording.held_max", Nanoseconds, Gauge, "The longest of it at once",
        |look| Some(look.tables.published.held_max_ns)),
    row("allocated_bytes", "recording.allocated", Bytes, RecordingCounter, "Allocated while recording, estimated",
        |look| look.is_on().then_some(look.tables.published.alloc_bytes)),
    row("freed_bytes", "recording.freed", Bytes, RecordingCounter, "Of it, freed, estimated",
        |look| look.is_on().then_some(look.tables.published.free_bytes)),
    row("guarded_blocks", "guard.live_blocks", BLOCKS, Gauge, "Live blocks between guard pages",
        |look| Some(look.tables.published.guarded_live)),
    row("guarded_freed_blocks", "guard.freed_blocks", BLOCKS, Gauge, "Freed blocks that stay untouchable, so that their use is found",
        |look| Some(look.tables.published.guarded_freed)),
    row("guard_found", "guard.misuses", Things("misuses"), Counter, "Misuses of guarded blocks that were found",
        |look| Some(look.tables.published.guard_found)),
    row("large_live_bytes", "memory.large_live", Bytes, Gauge,
        "Blocks above 32 KiB that the program holds, and those freed last that its threads keep, up to 3 MiB each",
        |look| is_large_known(look).then_some(look.tables.large.bytes)),
    row("large_live_blocks", "large.live_blocks", BLOCKS, Gauge, "How many they are",
        |look| is_large_known(look).then_some(look.tables.large.count)),
    // The timeline ends with the recording: its last figures are not of now.
    row("free_bytes", "memory.free", Bytes, Gauge, "Free and resident, as the allocator counts it",
        |look| look.tables.timeline.last().filter(|_| look.is_on()).map(|last| last.free_bytes)),
    row("returned_bytes", "memory.returned", Bytes, Counter, "Given back to the kernel",
        |look| look.tables.timeline.last().filter(|_| look.is_on()).map(|last| last.returned_bytes)),
    row("retouched_bytes", "memory.retouched", Bytes, Counter, "Of it, used again",
        |look| look.tables.timeline.last().filter(|_| look.is_on()).map(|last| last.retouched_bytes)),
];
