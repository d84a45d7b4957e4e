//! Statistics, as a struct and as JSON.

use alloc::string::String;
use alloc::vec;
use core::ffi::c_char;
use core::fmt;
use core::mem::{offset_of, size_of};
use core::ptr;

use crate::sys;

const CLASS_COUNT_MAX: usize = 128;
const COUNTER_COUNT_MAX: usize = 64;

include!(concat!(env!("OUT_DIR"), "/counters.rs"));

/// What one size class has handed out; classes have the blocks up to 32 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct ClassStats {
    /// The size of the class's blocks.
    pub block_bytes: u32,
    /// Slabs cut into such blocks.
    pub slab_count: u32,
    /// Blocks handed to the program since the start.
    pub alloc_count: u64,
    /// Blocks it gave back.
    pub free_count: u64,
    /// Blocks it has.
    pub live_count: u64,
}

/// What the allocator of the process has done. Exact while no other thread allocates; otherwise each number is one that was
/// true a moment ago. Bytes, and counts since the start unless said otherwise.
#[derive(Clone)]
#[repr(C)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of the blocks that the program holds, rounded to their usable sizes.
    pub live_bytes: u64,
    /// Bytes resident of the whole process, from the kernel; 0 where `/proc` cannot be read.
    pub resident_bytes: u64,
    /// Bytes of address space set aside.
    pub reserved_bytes: u64,
    /// Bytes of it that are usable without a further system call.
    pub committed_bytes: u64,
    /// Bytes resident and free for the next allocation (an upper estimate).
    pub free_bytes: u64,
    /// Bytes given back to the kernel since the start.
    pub returned_bytes: u64,
    /// Bytes of these that were used again since (an estimate by pages).
    pub retouched_bytes: u64,
    /// Live blocks above 32 KiB.
    pub large_count: u64,
    /// Bytes of these blocks.
    pub large_bytes: u64,
    /// Heaps there are: one per live thread that allocated or frees much, and spares.
    pub heap_count: u64,
    /// Heaps of these without a thread.
    pub dead_heap_count: u64,
    class_count: u32,
    counter_count: u32,
    class_stats: [ClassStats; CLASS_COUNT_MAX],
    counter: [u64; COUNTER_COUNT_MAX],
    /// Bytes that count against `HAKMEM_LIMIT_HARD_MB`: spans in use, and blocks outside the window.
    pub taken_bytes: u64,
}

// As in hakmem.h; src/layout.c says the same to the C compiler.
const _: () = {
    assert!(size_of::<ClassStats>() == 32);
    assert!(size_of::<Stats>() == 4712);
    assert!(offset_of!(Stats, dead_heap_count) == 80);
    assert!(offset_of!(Stats, class_stats) == 96);
    assert!(offset_of!(Stats, counter) == 4192);
    assert!(offset_of!(Stats, taken_bytes) == 4704);
};

impl Stats {
    /// One row per size class, by rising size.
    pub fn classes(&self) -> &[ClassStats] {
        &self.class_stats[..(self.class_count as usize).min(CLASS_COUNT_MAX)]
    }

    /// The counters by name, each with its value; docs/counters.md says what they count.
    ///
    /// ```
    /// let stats = hakmem::stats();
    /// assert!(stats.counters().any(|(name, value)| name == "visit_new_slab" && value > 0));
    /// ```
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTER_NAMES
            .iter()
            .copied()
            .zip(self.counter[..(self.counter_count as usize).min(COUNTER_COUNT_MAX)].iter().copied())
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = formatter.debug_struct("Stats");
        rows.field("live_bytes", &self.live_bytes).field("resident_bytes", &self.resident_bytes);
        rows.field("reserved_bytes", &self.reserved_bytes).field("committed_bytes", &self.committed_bytes);
        rows.field("free_bytes", &self.free_bytes).field("returned_bytes", &self.returned_bytes);
        rows.field("retouched_bytes", &self.retouched_bytes).field("large_count", &self.large_count);
        rows.field("large_bytes", &self.large_bytes).field("heap_count", &self.heap_count);
        rows.field("dead_heap_count", &self.dead_heap_count);
        rows.field("taken_bytes", &self.taken_bytes);
        rows.finish_non_exhaustive()
    }
}

/// The statistics of this moment. Allocates nothing.
///
/// ```
/// let before = hakmem::stats();
/// let block = std::hint::black_box(vec![1_u8; 10 << 20]);
/// let after = hakmem::stats();
/// assert!(after.large_bytes >= before.large_bytes + (10 << 20));
/// # drop(block);
/// ```
pub fn stats() -> Stats {
    let mut stats = Stats {
        live_bytes: 0,
        resident_bytes: 0,
        reserved_bytes: 0,
        committed_bytes: 0,
        free_bytes: 0,
        returned_bytes: 0,
        retouched_bytes: 0,
        large_count: 0,
        large_bytes: 0,
        heap_count: 0,
        dead_heap_count: 0,
        class_count: 0,
        counter_count: 0,
        class_stats: [ClassStats::default(); CLASS_COUNT_MAX],
        counter: [0; COUNTER_COUNT_MAX],
        taken_bytes: 0,
    };
    // SAFETY: writes as many bytes as there are.
    unsafe { sys::hak_stats_get(&raw mut stats, size_of::<Stats>()) };
    stats
}

/// The same, and what sampling and learning have to say, as a JSON object with a final newline.
///
/// ```
/// assert!(hakmem::stats_json().contains("\"live_bytes\""));
/// ```
pub fn stats_json() -> String {
    text_of(sys::hak_stats_json)
}

/// The same in Prometheus's text format (version 0.0.4), for an exporter in the program: the metrics of `hakmem metrics`. It asks the
/// kernel for each slab which of its pages are resident, a microsecond each.
///
/// ```
/// assert!(hakmem::stats_prometheus().contains("# TYPE hakmem_small_live_bytes gauge\n"));
/// ```
pub fn stats_prometheus() -> String {
    text_of(sys::hak_stats_prometheus)
}

/// What a function says that writes a text as snprintf does.
fn text_of(write: unsafe extern "C" fn(*mut c_char, usize) -> usize) -> String {
    // SAFETY: nothing is written at null; then as many bytes as there are.
    let mut room = unsafe { write(ptr::null_mut(), 0) };
    loop {
        room += room / 8 + 256; // it may have become longer
        let mut text = vec![0_u8; room];
        // SAFETY: as above.
        let length = unsafe { write(text.as_mut_ptr().cast(), text.len()) };
        if length < room {
            text.truncate(length);
            return String::from_utf8_lossy(&text).into_owned();
        }
        room = length;
    }
}
