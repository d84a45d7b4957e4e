//! perf.rs - the processor's counters, by perf_event_open, for a program that is about to be started.
//!
//! Method: the events are opened on the process that will fork, disabled, to be inherited and enabled by exec: they
//!         count the program and its threads in user mode, and nothing else. Five events at most; where the
//!         processor has fewer counters than that the kernel takes turns, and the counts are scaled.
//! Rule:   all of the counters or none: a table with holes compares nothing.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::mem;
use std::os::fd::FromRawFd;

/// Of a whole process, in user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    pub instructions: u64,
    pub branches: u64,
    pub branch_misses: u64,
    pub d1_misses: u64,
    pub ll_misses: u64,
}

/// perf_event_attr in its first published form (64 bytes), which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

// linux/perf_event.h
const TYPE_HARDWARE: u32 = 0;
const TYPE_CACHE: u32 = 3;
const HARDWARE_INSTRUCTIONS: u64 = 1;
const HARDWARE_CACHE_MISSES: u64 = 3;
const HARDWARE_BRANCHES: u64 = 4;
const HARDWARE_BRANCH_MISSES: u64 = 5;
const CACHE_L1D_READ_MISS: u64 = 1 << 16; // cache L1D (0), operation read (0), result miss (1)
const FORMAT_TIMES: u64 = 3; // total time enabled, total time running
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_ENABLE_ON_EXEC: u64 = 1 << 12;
const FLAG_CLOSE_ON_EXEC: u64 = 8; // of the call

const EVENTS: [(u32, u64); 5] = [
    (TYPE_HARDWARE, HARDWARE_INSTRUCTIONS),
    (TYPE_HARDWARE, HARDWARE_BRANCHES),
    (TYPE_HARDWARE, HARDWARE_BRANCH_MISSES),
    (TYPE_CACHE, CACHE_L1D_READ_MISS),
    (TYPE_HARDWARE, HARDWARE_CACHE_MISSES),
];

pub struct Open {
    events: Vec<File>,
}

/// Whether this machine lets us count at all.
pub fn is_available() -> bool {
    open().is_some()
}

pub fn open() -> Option<Open> {
    let events = EVENTS.iter().map(|(kind, config)| event_open(*kind, *config)).collect::<Option<_>>()?;
    Some(Open { events })
}

fn event_open(kind: u32, config: u64) -> Option<File> {
    let attributes = Attributes {
        kind,
        size: mem::size_of::<Attributes>() as u32,
        config,
        read_format: FORMAT_TIMES,
        flags: FLAG_DISABLED
            | FLAG_INHERIT
            | FLAG_EXCLUDE_KERNEL
            | FLAG_EXCLUDE_HYPERVISOR
            | FLAG_ENABLE_ON_EXEC,
        ..Attributes::default()
    };
    let (this_process, any_processor, no_group) = (0, -1, -1);
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_process,
            any_processor,
            no_group,
            FLAG_CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    Some(unsafe { File::from_raw_fd(fd) })
}

impl Open {
    /// After the program's end. None if one of the events was never on a counter.
    pub fn read(self) -> Option<Counters> {
        let mut values = self.events.into_iter().map(value_read);
        let mut next = || values.next().flatten();
        Some(Counters {
            instructions: next()?,
            branches: next()?,
            branch_misses: next()?,
            d1_misses: next()?,
            ll_misses: next()?,
        })
    }
}

fn value_read(mut event: File) -> Option<u64> {
    let mut bytes = [0; 24];
    event.read_exact(&mut bytes).ok()?;
    let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    scaled(word(0)?, word(8)?, word(16)?)
}

/// What would have been counted, had the event been on a counter all the time.
fn scaled(value: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    if running_ns == 0 {
        return None;
    }
    let scaled = u128::from(value) * u128::from(enabled_ns) / u128::from(running_ns);
    u64::try_from(scaled).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn counts_are_scaled_by_the_time_on_a_counter() {
        assert_eq!(scaled(100, 10, 10), Some(100));
        assert_eq!(scaled(100, 30, 10), Some(300));
        assert_eq!(scaled(0, 10, 0), None);
        assert_eq!(scaled(u64::MAX / 2, 4, 2), Some(u64::MAX / 2 * 2));
    }

    /// The kernel's own count of page faults goes the same way as the processor's counters, and needs none.
    #[test]
    fn events_are_inherited_and_enabled_by_exec() {
        const TYPE_SOFTWARE: u32 = 1;
        const SOFTWARE_PAGE_FAULTS: u64 = 2;
        let Some(event) = event_open(TYPE_SOFTWARE, SOFTWARE_PAGE_FAULTS) else {
            eprintln!("perf_event_open is not permitted here");
            return;
        };
        let before = value_read(event.try_clone().unwrap());
        assert!(Command::new("true").status().unwrap().success());
        let after = value_read(event).unwrap();
        assert_eq!(before, None, "it counted before exec");
        assert!((10..100_000).contains(&after), "{after} page faults of `true`");
    }
}
