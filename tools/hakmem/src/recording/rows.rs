//! rows.rs - the library's tables as they lie in memory: src/watch/published.h, field by field.
//!
//! Rule: rows say their own size. What a newer library appended is passed over; what an older one has not is 0.

use std::mem::size_of;

pub const MAGIC: u64 = 0x3142_5550_4d45_4b48;
pub const VERSION: u32 = 1;
pub const COUNT_UNIT: u64 = 1024;
pub const AGE_COUNT: usize = 12;
/// Upper ends of the age buckets, in microseconds; the last bucket has none.
pub const AGE_ENDS_US: [u64; AGE_COUNT - 1] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// A struct of integers only: any bytes are a value of it.
///
/// # Safety
/// repr(C), and every field is an integer or an array or such a struct, without padding that matters.
pub unsafe trait Plain: Copy {
    fn zero() -> Self {
        // Integers of zeros.
        unsafe { std::mem::zeroed() }
    }

    /// From its bytes; missing ones are 0.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut value = Self::zero();
        let length = bytes.len().min(size_of::<Self>());
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), length) };
        value
    }
}

macro_rules! plain {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $(pub $field: $kind,)* }
        unsafe impl Plain for $name {}
    };
}

unsafe impl Plain for u64 {}

/// A row of a table. A table that is eight times as long as the library's, or has shorter rows, was made up: of a few bytes
/// it would be gigabytes here.
pub trait Row: Plain {
    const COUNT_MAX: u64;
    /// As the first library's were.
    const BYTES_LEAST: u64 = size_of::<Self>() as u64;
}

impl Row for StackRow {
    const COUNT_MAX: u64 = 8 << 14;
}
impl Row for u64 {
    const COUNT_MAX: u64 = 8 << 19; // return addresses
}
impl Row for LiveRow {
    const COUNT_MAX: u64 = 8 << 16;
    const BYTES_LEAST: u64 = std::mem::offset_of!(LiveRow, tid) as u64;
}
impl Row for ThreadRow {
    const COUNT_MAX: u64 = 8 << 11;
}
impl Row for TimeRow {
    const COUNT_MAX: u64 = 8 << 12;
}
impl Row for ClassRow {
    const COUNT_MAX: u64 = 4096;
}
impl Row for GuardRow {
    const COUNT_MAX: u64 = 8 * (17 << 10); // guard_blocks may be 16,384, and a sixteenth are larger ones
}
impl Row for GuardFault {
    const COUNT_MAX: u64 = 8 << 4;
    const BYTES_LEAST: u64 = std::mem::offset_of!(GuardFault, was) as u64;
}

plain!(Table { address: u64, row_bytes: u64, capacity: u64, used: u64 });

plain!(StackRow {
    sequence: u32,
    frame_count: u32,
    hash: u64,
    frame_first: u64,
    key: u64,
    explicit_site: u64,
    alloc_samples: u64,
    free_samples: u64,
    alloc_count: u64,
    alloc_bytes: u64,
    free_count: u64,
    free_bytes: u64,
    temporary_count: u64,
    alloc_variance: u64,
    age_count: [u64; AGE_COUNT],
    age_ns: u64,
    first_ns: u64,
    last_ns: u64,
    large_count: u64,
    large_bytes: u64,
});

plain!(LiveRow {
    sequence: u32,
    state: u32,
    stack: u32,
    thread: u32,
    block: u64,
    place: u64,
    requested_bytes: u64,
    block_bytes: u64,
    rate_bytes: u64,
    weight: u64,
    birth_ns: u64,
    birth_bytes: u64,
    key: u64,
    class_index: u32,
    guarded: u32,
    next: u32,
    serial: u32,
    from_bytes: u64,
    tid: u32,
    spare: u32,
});

plain!(ThreadRow {
    sequence: u32,
    tid: u32,
    name: [u8; 16],
    first_ns: u64,
    last_ns: u64,
    alloc_count: u64,
    alloc_bytes: u64,
    free_count: u64,
    free_bytes: u64,
    alloc_samples: u64,
});

plain!(TimeRow {
    time_ns: u64,
    resident_bytes: u64,
    free_bytes: u64,
    used_bytes: u64,
    absent_bytes: u64,
    large_bytes: u64,
    large_count: u64,
    live_bytes: u64,
    alloc_bytes: u64,
    returned_bytes: u64,
    retouched_bytes: u64,
    fault_count: u64,
    heap_count: u64,
});

plain!(ClassRow { reciprocal: u64, block_bytes: u32, capacity: u32, word_count: u32, slab_bytes: u32 });

plain!(Geometry {
    window_base: u64,
    meta: u64,
    chunk_top_address: u64,
    unit_meta_bytes: u64,
    structs_bytes: u64,
    meta_bytes: u64,
    page_shift: u32,
    unit_shift: u32,
    granule_shift: u32,
    is_limited: u32,
    chunk_struct_bytes: u32,
    chunk_used_offset: u32,
    chunk_dirty_offset: u32,
    chunk_slabs_offset: u32,
    slab_struct_bytes: u32,
    slab_owner_offset: u32,
    slab_returned_offset: u32,
    slab_place_offset: u32,
    slab_class_offset: u32,
    slab_owner_line_offset: u32,
    slab_remote_line_offset: u32,
    slab_page_shift_offset: u32,
    row_head_bytes: u32,
    class_count: u32,
});

plain!(Control { request: u32, seen: u32, command: u32, result: i32, rate_bytes: u64, path: [u8; 256] });

plain!(Published {
    magic: u64,
    version: u32,
    bytes: u32,
    pid: u32,
    is_on: u32,
    rate_bytes: u64,
    start_ns: u64,
    start_realtime_ns: u64,
    timeline_ms: u64,
    timeline_sequence: u32,
    spare: u32,
    library_version: [u8; 16],
    stacks: Table,
    frames: Table,
    live: Table,
    threads: Table,
    timeline: Table,
    classes: Table,
    counter_names: Table,
    counters: Table,
    geometry: Geometry,
    control: Control,
    samples: u64,
    samples_freed: u64,
    alloc_count: u64,
    alloc_bytes: u64,
    free_count: u64,
    free_bytes: u64,
    lost_live: u64,
    lost_stacks: u64,
    lost_threads: u64,
    lost_bytes: u64,
    lost_block: u64,
    thinned: u64,
    dumps: u64,
    guarded_live: u64,
    guarded_freed: u64,
    stack_walks: u64,
    stack_unwinds: u64,
    stack_repeats: u64,
    learn: Table,
    guards: Table,
    guard_faults: Table,
    guarded: u64,
    guard_short: u64,
    guard_found: u64,
    held_count: u64,
    held_ns: u64,
    held_max_ns: u64,
    large_bytes_address: u64,
    large_count_address: u64,
    recorded_rate_bytes: u64,
    renewed: u64,
});

impl Published {
    /// Of what the tables hold. When the recording is off, rate_bytes is 0, or the guards' own.
    pub fn rate_bytes_of_tables(&self) -> u64 {
        if self.is_on == 0 && self.recorded_rate_bytes > 0 {
            self.recorded_rate_bytes
        } else {
            self.rate_bytes
        }
    }
}

plain!(GuardEvent { time_ns: u64, tid: u32, frame_count: u32, name: [u8; 16], frame: [u64; 32] });

plain!(GuardRow {
    sequence: u32,
    state: u32, // 3: freed
    low: u64,
    high: u64,
    block: u64,
    requested_bytes: u64,
    serial: u64,
    alloc: GuardEvent,
    free: GuardEvent,
});

plain!(GuardFault {
    sequence: u32,
    kind: u32,
    access: u32,
    row: u32,
    address: u64,
    at: GuardEvent,
    was: GuardRow, // an older library's dump has none: zeros
});

#[derive(Clone, Copy)]
pub enum Command {
    Start = 1,
    Stop = 2,
}
