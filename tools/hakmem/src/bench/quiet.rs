//! quiet.rs - is the memory system quiet just now? Asked before every run, which waits for it, and after it.
//!
//! Why:      a processor's last cache and its memory are shared with whoever else is on the host, seen or not. On a
//!           virtual machine of two processors that was idle, another guest came and went every 30 to 100 ms: between
//!           its visits an operation on 9 MB took 30 ns, during them 150, and the load showed nothing. Runs that began in
//!           a quiet moment spread by 5% instead of 20%.
//! Method:   a chain of dependent loads over 4 MiB, which lie in the last cache as long as nobody else fills it. What a
//!           load takes, over the least it ever took, is the disturbance: 1 is quiet, 9 was seen.
//! Honest:   the probe knows nothing of the allocator, and what it finds after a run is found only after its own lines
//!           were brought back. So runs are set aside for what others did, never for what they themselves took.
//! Rejected: the least of many runs, which sets aside what an allocator itself does now and then; processors and
//!           addresses that are fixed (no difference); a probe beside the run, which would be a disturbance.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Above this the memory system is not quiet. Quiet moments differ by 5%, visits of others by 50 to 900%.
pub const LIMIT: f64 = 1.25;
const LINES: usize = (4 << 20) / 64;
const STEPS: u32 = 4000;
/// To learn what a quiet moment is: longer than the busy half of what was seen.
const LEARNING: Duration = Duration::from_millis(120);
/// How long a run waits. Where it is never quiet this is soon down to nothing.
const PATIENCE: Duration = Duration::from_millis(100);

#[repr(align(64))]
#[derive(Clone, Default)]
struct Line {
    next: u32,
}

pub struct Probe {
    lines: Vec<Line>,
    at: u32,
    least_ns: f64,
    /// Runs in a row that waited for nothing.
    in_vain: u32,
}

impl Probe {
    pub fn new() -> Probe {
        let mut probe = Probe { lines: chain(LINES), at: 0, least_ns: f64::INFINITY, in_vain: 0 };
        let started = Instant::now();
        while started.elapsed() < LEARNING {
            probe.look();
        }
        probe
    }

    /// What a load takes now, of the least it ever took.
    pub fn look(&mut self) -> f64 {
        for line in &self.lines {
            black_box(line.next);
        }
        let started = Instant::now();
        for _ in 0..STEPS {
            self.at = self.lines[self.at as usize].next;
        }
        black_box(self.at);
        let ns = started.elapsed().as_nanos() as f64 / f64::from(STEPS);
        self.least_ns = self.least_ns.min(ns.max(f64::MIN_POSITIVE));
        ns / self.least_ns
    }

    /// Waits for a quiet moment, but not for ever; what the last look found.
    pub fn wait(&mut self) -> f64 {
        let patience = PATIENCE / (1 << self.in_vain.min(6));
        let started = Instant::now();
        loop {
            let found = self.look();
            if found <= LIMIT {
                self.in_vain = 0;
                return found;
            }
            if started.elapsed() >= patience {
                self.in_vain += 1;
                return found;
            }
        }
    }
}

/// All lines, each once, in an order that no prefetcher knows.
fn chain(count: usize) -> Vec<Line> {
    let mut order: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
    let mut state = 12345_u64;
    for at in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    let mut lines = vec![Line::default(); count];
    for (at, line) in order.iter().enumerate() {
        lines[*line as usize].next = order[(at + 1) % order.len()];
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_goes_through_every_line_once() {
        let lines = chain(1000);
        let (mut at, mut seen) = (0, vec![false; lines.len()]);
        for _ in 0..lines.len() {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = lines[at].next as usize;
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn one_is_the_quietest_that_was_seen() {
        let mut probe = Probe { lines: chain(64), at: 0, least_ns: f64::INFINITY, in_vain: 0 };
        assert_eq!(probe.look(), 1.0);
        assert!((0..50).all(|_| probe.look() >= 1.0));
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_not_waited_for() {
        let mut probe = Probe { lines: chain(64), at: 0, least_ns: 1e-6, in_vain: 0 };
        (0..6).for_each(|_| assert!(probe.wait() > LIMIT));
        let started = Instant::now();
        probe.wait();
        assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
        probe.least_ns = f64::INFINITY;
        probe.wait();
        assert_eq!(probe.in_vain, 0);
    }
}
