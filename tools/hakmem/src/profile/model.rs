//! model.rs - a profile: which code asked for memory, how much, for how long, and what it keeps from going back.
//!
//! Owns:      the meaning of every field. A reader meets plain numbers: bytes, blocks, microseconds, indices.
//! Invariant: check() holds for every profile that was read or written: indices are inside their tables, lists
//!            have the lengths that the profile states. Whoever shows a profile relies on it.
//! Estimates: a sample stands for many blocks (its weight); `Amount` carries the estimate with its 95% interval.
//!            Exact figures (classes, timeline, counters) come from the allocator's own counts.
//! Rejected:  pprof's format as our own: no lifetimes, intervals, timeline, classes. It is exported instead.

use super::bounds::{CLASSES_MAX, FRAMES_MAX, LINES_MAX, LOCATIONS_MAX, STACKS_MAX, list, map};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Grows when a reader of the old number would misread a new file. New fields alone do not: they default.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub schema: u32,
    #[serde(default)]
    pub tool: String, // version of the command that wrote it
    #[serde(default)]
    pub library: String, // version of the library that recorded it
    #[serde(default)]
    pub program: Program,
    #[serde(default)]
    pub recording: Recording,
    #[serde(default, deserialize_with = "list")]
    pub modules: Vec<Module>,
    #[serde(default, deserialize_with = "list")]
    pub functions: Vec<Function>,
    #[serde(default, deserialize_with = "list")]
    pub locations: Vec<Location>,
    #[serde(default, deserialize_with = "list")]
    pub stacks: Vec<Stack>, // by live bytes, largest first
    #[serde(default, deserialize_with = "list")]
    pub threads: Vec<Thread>,
    /// Upper ends of the buckets of `lifetimes` and `ages`; one bucket more follows for all that is longer.
    #[serde(default, deserialize_with = "list")]
    pub bucket_ends_us: Vec<u64>,
    #[serde(default, deserialize_with = "list")]
    pub timeline: Vec<Moment>, // by time
    #[serde(default, deserialize_with = "list")]
    pub classes: Vec<Class>, // by block size
    #[serde(default, deserialize_with = "list")]
    pub pins: Vec<Pin>, // by pinned bytes, largest first
    #[serde(default, deserialize_with = "list")]
    pub settings: Vec<Setting>,
    #[serde(default, deserialize_with = "map")]
    pub counters: BTreeMap<String, u64>,
    #[serde(default)]
    pub totals: Totals,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    pub name: String,
    pub path: String,
    #[serde(deserialize_with = "list")]
    pub command: Vec<String>,
    pub pid: u32,
    pub host: String,
    pub kernel: String,
    pub machine: String, // x86_64
    pub processor_count: u32,
    pub memory_bytes: u64, // of the machine
    pub page_bytes: u64,
    pub started_unix_ms: u64, // the program, not the recording
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recording {
    pub started_unix_ms: u64,
    pub duration_ms: u64,
    /// Mean distance between samples, in allocated bytes.
    pub rate_bytes: u64,
    pub sample_count: u64,
    /// Samples that found no place in the library's bounded tables: what is shown is then too small.
    pub dropped_count: u64,
    /// Samples of threads that found no place in the library's table of threads: they are the others'.
    pub threadless_count: u64,
    /// The recording began after the program did: older blocks are not in it.
    pub is_attached: bool,
    /// Why it was written: "record", "dump", "exit", "resident", "shortage", "request", "guard".
    pub reason: String,
    /// A block freed within this time of its allocation is temporary.
    pub temporary_us_max: u64,
}

/// A mapped file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    pub path: String,
    pub build_id: String, // hexadecimal; empty: the file has none
    pub start: u64,       // addresses in the process
    pub end: u64,
    pub offset: u64, // of `start` in the file
    pub has_symbols: bool,
    pub has_lines: bool,
    pub debug_file: String, // where lines came from, if not the file itself
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Function {
    pub name: String,        // demangled
    pub symbol: String,      // as the file has it; empty: as `name`
    pub file: String,        // of its source; empty: not known
    pub module: Option<u32>, // None: code without a file
}

/// One return address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Location {
    pub module: Option<u32>,
    pub address: u64, // in the process
    /// Innermost first: all but the last were inlined into the one that follows. At least one.
    #[serde(deserialize_with = "list")]
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    pub function: u32,
    pub line: u32, // 0: not known
}

/// What one chain of calls asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    #[serde(deserialize_with = "list")]
    pub locations: Vec<u32>, // innermost first; the allocator's own frames are not among them
    pub is_cut: bool, // deeper than the library records, or the chain could not be followed further
    pub allocated: Amount, // while recording
    pub freed: Amount,
    pub live: Amount,
    /// Of live.bytes: of blocks that an earlier recording sampled; `allocated` is without them.
    pub live_earlier_bytes: u64,
    pub temporary: Amount,
    /// Freed blocks by lifetime, estimated counts; as long as bucket_ends_us and one more, or empty.
    #[serde(deserialize_with = "list")]
    pub lifetimes: Vec<u64>,
    /// Live bytes by age; likewise.
    #[serde(deserialize_with = "list")]
    pub ages: Vec<u64>,
    #[serde(deserialize_with = "list")]
    pub classes: Vec<ClassShare>, // of live blocks
    #[serde(deserialize_with = "list")]
    pub threads: Vec<ThreadShare>, // of live blocks
    /// Live bytes at the end by birth, in equal slices of the recording, oldest first; empty: not known. What a
    /// program made once lies in the first slices, what it uses for a while in the last; what leaks, in all.
    #[serde(deserialize_with = "list")]
    pub live_by_birth: Vec<u64>,
    #[serde(deserialize_with = "list")]
    pub live_over_time: Vec<LiveAt>, // by time; empty: only the end is known
}

/// An estimate from samples, with the interval that holds the truth in 95 of 100 cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    pub count: u64, // blocks
    pub bytes: u64, // as requested
    pub bytes_low: u64,
    pub bytes_high: u64,
    pub samples: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassShare {
    pub class: u32, // in Profile.classes
    pub live_count: u64,
    pub live_bytes: u64,
    pub old_bytes: u64, // of blocks older than half of what is recorded
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadShare {
    pub thread: u32, // in Profile.threads
    pub live_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveAt {
    pub at_ms: u64, // since the recording's start
    pub bytes: u64,
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    pub id: u32, // the kernel's
    pub name: String,
    pub allocated_bytes: u64,
    pub live_bytes: u64,
}

/// The process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    pub at_ms: u64, // since the recording's start
    pub resident_bytes: u64,
    pub live_bytes: u64,
    pub free_bytes: u64,      // free in the allocator, and resident
    pub allocated_bytes: u64, // since the recording's start, by samples
    pub freed_bytes: u64,
    pub alloc_count: u64, // calls since the program's start, exact
    pub fault_count: u64, // minor faults of the process since its start
    pub returned_bytes: u64,
    pub thread_count: u32,
}

/// The slabs of one block size; bytes 0: all blocks above the largest class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Class {
    pub bytes: u64,
    pub slab_count: u64,
    pub capacity_count: u64,
    pub live_count: u64,
    pub resident_bytes: u64,
    /// Resident pages whose live blocks fill less than a quarter of them, and hold at least one.
    pub sparse_page_count: u64,
    /// Of these pages, what live blocks do not fill: what they pin.
    pub sparse_bytes: u64,
    pub alloc_count: u64,
    pub free_count: u64,
}

/// What the old blocks of one stack keep from going back to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pin {
    pub stack: u32,
    pub pinned_bytes: u64, // its share of the sparse bytes of its classes
    pub page_count: u64,
    pub held_bytes: u64, // live bytes of its own in these classes, as requested
    pub held_count: u64,
    pub old_bytes: u64,     // of these, in old blocks
    pub age_us_median: u64, // of its live blocks
    #[serde(deserialize_with = "list")]
    pub classes: Vec<u32>, // in Profile.classes
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub is_default: bool,
}

/// The process at the recording's end; all but the estimates are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
    pub live_bytes: u64,
    pub live_count: u64,
    pub free_bytes: u64,
    pub reserved_bytes: u64,
    pub returned_bytes: u64,
    pub retouched_bytes: u64,
    pub sparse_bytes: u64,
    pub allocated: Amount,
    pub freed: Amount,
    pub live: Amount,
    pub temporary: Amount,
}

/// A frame as people read it: a function, and where in it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub function: &'a Function,
    pub module: Option<&'a Module>,
    pub line: u32,
    #[allow(dead_code)] // for the report
    pub address: u64,
    #[allow(dead_code)]
    pub is_inlined: bool, // into the frame that follows
}

impl Profile {
    /// The frames of a stack, innermost first, inlined ones included.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = Frame<'a>> + 'a {
        stack.locations.iter().flat_map(move |at| {
            let location = &self.locations[*at as usize];
            let last = location.lines.len() - 1;
            location.lines.iter().enumerate().map(move |(depth, line)| Frame {
                function: &self.functions[line.function as usize],
                module: location.module.map(|module| &self.modules[module as usize]),
                line: line.line,
                address: location.address,
                is_inlined: depth < last,
            })
        })
    }

    /// The buckets that `lifetimes` and `ages` have.
    pub fn bucket_count(&self) -> usize {
        self.bucket_ends_us.len() + 1
    }

    /// One line that says what does not fit, if anything.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!("it is of schema {}; this command reads {SCHEMA}", self.schema));
        }
        let inside = |what: &str, index: u32, length: usize| match (index as usize) < length {
            true => Ok(()),
            false => Err(format!("{what} {index} is named, but there are {length}")),
        };
        for location in &self.locations {
            location.module.map_or(Ok(()), |module| inside("module", module, self.modules.len()))?;
            if location.lines.is_empty() {
                return Err("a location has no line".to_owned());
            }
            if location.lines.len() > LINES_MAX {
                return Err(format!("a location has {} lines, more than {LINES_MAX}", location.lines.len()));
            }
            for line in &location.lines {
                inside("function", line.function, self.functions.len())?;
            }
        }
        for function in &self.functions {
            function.module.map_or(Ok(()), |module| inside("module", module, self.modules.len()))?;
        }
        for (what, count, most) in [
            ("stacks", self.stacks.len(), STACKS_MAX),
            ("pins", self.pins.len(), STACKS_MAX),
            ("classes", self.classes.len(), CLASSES_MAX),
        ] {
            if count > most {
                return Err(format!("it has {count} {what}, more than {most}"));
            }
        }
        // Each is named once.
        let apart = |what: &str, count: usize, length: usize| match count <= length {
            true => Ok(()),
            false => Err(format!("{count} {what} are named in one place, but there are {length}")),
        };
        let mut frame_count = 0;
        for stack in &self.stacks {
            if stack.locations.len() > LOCATIONS_MAX {
                return Err(format!(
                    "a stack has {} locations, more than {LOCATIONS_MAX}",
                    stack.locations.len()
                ));
            }
            for location in &stack.locations {
                inside("location", *location, self.locations.len())?;
                frame_count += self.locations[*location as usize].lines.len();
            }
            if frame_count > FRAMES_MAX {
                return Err(format!("its stacks have more than {FRAMES_MAX} frames"));
            }
            for buckets in [&stack.lifetimes, &stack.ages] {
                if !buckets.is_empty() && buckets.len() != self.bucket_count() {
                    return Err(format!("{} buckets instead of {}", buckets.len(), self.bucket_count()));
                }
            }
            apart("classes", stack.classes.len(), self.classes.len())?;
            apart("threads", stack.threads.len(), self.threads.len())?;
            stack.classes.iter().try_for_each(|share| inside("class", share.class, self.classes.len()))?;
            stack.threads.iter().try_for_each(|share| inside("thread", share.thread, self.threads.len()))?;
        }
        for pin in &self.pins {
            inside("stack", pin.stack, self.stacks.len())?;
            apart("classes", pin.classes.len(), self.classes.len())?;
            pin.classes.iter().try_for_each(|class| inside("class", *class, self.classes.len()))?;
        }
        let rising = |ordered: bool, what: &str| match ordered {
            true => Ok(()),
            false => Err(format!("{what} are out of order")),
        };
        rising(self.bucket_ends_us.is_sorted(), "buckets")?;
        rising(self.timeline.is_sorted_by_key(|moment| moment.at_ms), "moments")
    }
}

impl Frame<'_> {
    /// "file.c:12" without its folders, or the module's name.
    pub fn place(&self) -> String {
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        match (self.function.file.as_str(), self.line, self.module) {
            ("", _, Some(module)) => name(&module.path),
            ("", _, None) => String::new(),
            (file, 0, _) => name(file),
            (file, line, _) => format!("{}:{line}", name(file)),
        }
    }
}
