//! results.rs - the result file of `hakmem bench`: what --json writes, and --from and --compare read.
//!
//! Owns:      the names and meanings of the fields (docs/bench.md has them for readers).
//! Rule:      every single run is kept raw; whatever is computed from them stands beside them, never instead.
//! Invariant: `Cell::figures` is there if and only if `Cell::error` is not and at least one run was made;
//!            a cell with an error is part of no best, ratio or mean.
//! Units:     last in the name: `_ns`, `_kb` (KiB, as the kernel counts), `_us`, `_s`. Time per operation is in
//!            nanoseconds, as a fraction.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Raised whenever a field changes its meaning or goes; a new field that may be missing does not raise it.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub schema: u32,
    /// Version of the tool that measured.
    pub tool: String,
    /// When the first run began, in UTC: 2026-11-20T13:04:05Z.
    pub started: String,
    /// How long all of it took.
    pub wall_s: f64,
    /// Ctrl-C (or another signal) ended it: the rows are those that there was time for.
    pub is_interrupted: bool,
    pub machine: Machine,
    pub settings: Settings,
    /// In the order of the columns; "hakmem" first if it took part.
    pub allocators: Vec<Allocator>,
    /// In the order of the suite.
    pub rows: Vec<Row>,
    /// One per allocator, in the same order.
    pub summary: Vec<Summary>,
}

/// What a reader needs to know of the machine; "unknown" where it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    /// Processors that this process may run on.
    pub processors: u32,
    pub memory_bytes: u64,
    pub kernel: String,
    pub system: String,
    pub architecture: String,
    /// always, madvise or never.
    pub huge_pages: String,
    /// Load averages of one minute, before the first run and after the last one.
    pub load_before: f64,
    pub load_after: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    Quick,
    Full,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Which of a row's argument lists was used.
    pub size: Size,
    /// The command line, to repeat it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The workloads, rows and profiles that were asked for; the default is named as if it had been.
    pub asked: Vec<String>,
    /// Measured rounds of a row at most.
    pub rounds_max: u32,
    /// Time for all rows together; a row gets its share of it.
    pub budget_s: f64,
    /// A row is steady when half the 95% interval of each ratio to the best is at most this.
    pub steady_cpu: f64,
    pub steady_wall: f64,
    /// How the intervals are computed, in words.
    pub interval: String,
    /// How operations were counted (--count), in words: "cachegrind ..." or "perf_event_open ...".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_method: Option<String>,
    /// How system calls were counted (--syscalls), in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall_method: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocator {
    /// Unique: "hakmem", "glibc", "mimalloc3", or the NAME of --with NAME=/path.
    pub name: String,
    pub version: String,
    /// Where it comes from, in words: "Debian libjemalloc2", "crate snmalloc-sys, built here".
    pub source: String,
    /// The shared object; None for the C library's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Of the shared object that was preloaded; of libc.so.6 for the C library's own, where it is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// How it was compiled, and how it works here, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Variables that were set for its runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// Which clock a row is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// Processor time of the process: single-threaded work.
    Cpu,
    Wall,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub about: String,
    /// The workload's name, or the real program's.
    pub program: String,
    pub is_real: bool,
    /// The file that was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What a real program says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_version: Option<String>,
    pub arguments: Vec<String>,
    pub time: Time,
    /// People know this row as operations a second: show `Figures::rate_per_s` too.
    pub rate: bool,
    /// The memory after the work says something in this row.
    pub resident_after: bool,
    pub profiles: Vec<String>,
    /// Names of further numbers that belong into the report; they are in `Run::extra`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<String>,
    /// Seconds of each run that are slept: its time is what it does beside that.
    #[serde(default)]
    pub sleeps_s: f64,
    /// Why the row was not measured at all (a real program that is not installed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Measured rounds; what was run to warm up is not among them.
    pub rounds: u32,
    /// All ratios of time to the best are known as well as `Settings::steady_*` asks, but for those of allocators that
    /// are certainly more than twice as slow: these sit out after three rounds (ten times as slow: after one).
    pub is_steady: bool,
    /// Name of the allocator with the lowest median time per operation, and with the lowest median peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_peak: Option<String>,
    /// One per allocator, in the order of `Results::allocators`; empty if the row was skipped.
    pub cells: Vec<Cell>,
}

/// One allocator in one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub allocator: String,
    /// In words, one line: "not loaded: ...", "crashed: SIGSEGV", "hangs: killed after 10 s", "garbage: ...".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// All measured runs, in the order they were made, also those before an error.
    pub runs: Vec<Run>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// With --count, in rows that can be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Why there are none although they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_error: Option<String>,
    /// With --syscalls: how often each was called in one run, start and end of the process included; rows that can be
    /// counted run with their shorter arguments for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscalls: Option<BTreeMap<String, u64>>,
    /// Of rows that can be counted per operation: what more operations call more, divided by how many more they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscalls_per_op: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscalls_error: Option<String>,
}

/// One run of a program: what it said, then what the kernel said of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Counted from 1; runs of one round are paired.
    pub round: u32,
    pub ops: u64,
    /// Of the measured part.
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub peak_kb: u64,
    /// Of the peak: the workload's own tables, which are not the allocator's.
    #[serde(default)]
    pub tables_kb: u64,
    /// After the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_kb: Option<u64>,
    pub faults: u64,
    /// The whole process, from its start to its end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process_wall_ns: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process_user_us: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process_system_us: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process_faults: u64,
    /// Context switches: it waited; it was interrupted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub switches_voluntary: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub switches_involuntary: u64,
    /// What a load took before and after the run, of the least it ever took (quiet.rs): 1 is quiet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_before: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_after: Option<f64>,
    /// Whatever else the workload said as numbers: live_bytes, pages_copied, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
    /// Results within the run, such as one per size of block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// A digest of what the program computed: the same under every allocator, or it is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
}

/// Left out: what a result of record does not keep.
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub ops: u64,
    pub ns: u64,
}

/// A median, its 95% interval, and the extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub min: f64,
    pub max: f64,
}

/// A median of ratios and its 95% interval. The best's own is 1, 1, 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Ratio {
    pub const ONE: Ratio = Ratio { median: 1.0, low: 1.0, high: 1.0 };

    /// Worse than the best, and not by chance.
    pub fn is_worse(&self) -> bool {
        self.low > 1.0
    }
}

/// What the runs of a cell come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How many they were computed from.
    #[serde(default)]
    pub runs: u32,
    /// Of these, begun or ended while others used the memory: times are of the rest, if there are enough.
    #[serde(default)]
    pub disturbed: u32,
    /// Time per operation by the row's clock.
    pub time_ns: Spread,
    /// To the row's best, pair by pair within a round.
    pub time_ratio: Ratio,
    /// Operations a second, from the wall clock: median.
    pub rate_per_s: f64,
    /// Without the workload's own tables.
    pub peak_kb: Spread,
    pub peak_ratio: Ratio,
    /// Of rows that say it; after the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_kb: Option<Spread>,
    pub faults: Spread,
    /// Processor time over wall time of the measured part: how many processors were busy.
    pub cpu_over_wall: f64,
    /// This cell's ratio is known well enough.
    pub is_steady: bool,
}

/// Per operation, by the two-lengths method: what more operations cost more, start and end left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Operations that the costs were divided by.
    pub ops: u64,
    /// All of the process.
    pub total: Costs,
    /// Without the workload's own loop: the allocator's and the C library's part. Only cachegrind knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_harness: Option<Costs>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    pub instructions: f64,
    /// Conditional and indirect branches.
    pub branches: f64,
    pub branch_misses: f64,
    /// Reads and writes; 0 where only the processor's counters were asked.
    #[serde(default)]
    pub d1_accesses: f64,
    /// Those of them that missed the first-level data cache.
    pub d1_misses: f64,
    /// Reads and writes that missed the last level.
    pub ll_misses: f64,
}

/// One allocator over all rows in which it has figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub allocator: String,
    /// Rows with figures.
    pub rows: u32,
    /// Rows in which it failed.
    pub failed: Vec<String>,
    /// Geometric means over the row's best; None without rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_over_best: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_over_best: Option<f64>,
    /// The same over the best of the others in each row, so below 1 who is ahead of them all; what else is of this
    /// project is no other to it. None without others, and in files from before it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_over_others: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_over_others: Option<f64>,
    /// Rows in which it is the best, or not worse by the interval.
    pub time_best_rows: u32,
    pub peak_best_rows: u32,
    /// Every row in which it is worse than the best by the interval, the worst first.
    pub time_worse: Vec<Worse>,
    pub peak_worse: Vec<Worse>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worse {
    pub row: String,
    pub ratio: Ratio,
    /// The row's best.
    pub best: String,
}
