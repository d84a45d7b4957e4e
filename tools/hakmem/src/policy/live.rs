//! live.rs - what a running process has learnt until now: struct hak_learn_stats behind the symbol `hak_learn_shown`,
//! read from outside (src/learn/shown.h).
//!
//! Rule: the library writes it while we read: a number before the struct is odd meanwhile, and another one after. Then we
//!       read once more.

use super::learnt::{Learnt, Rival, Sites, Tally, Window, chosen, plain, strategy_knobs};
use super::{Change, Gain, Stage};
use crate::recording::locate;
use crate::recording::memory::{Memory, Process};
use crate::system;
use crate::text::Failure;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

const RATINGS: usize = 16;
const CHANGES: usize = 32;
const STANDINGS: [&str; 5] = ["in", "aside", "spent", "out", "barred"];
const FIXED: [&str; 5] = ["auto", "learn", "canary", "frozen", "off"];

#[repr(C)]
#[derive(Clone, Copy)]
struct RatingRow {
    strategy: [u8; 16],
    gain_millionths: i64,
    error_millionths: i64,
    elo: i32,
    elo_error: i32,
    duels: u32,
    state: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ChangeRow {
    ms: u64,
    from: u32,
    to: u32,
    reason: [u8; 24],
    strategy: [u8; 16],
    number: [i64; 2],
}

/// struct hak_learn_stats of hakmem.h, version 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stats {
    version: u32,
    pid: u32,
    stage: u32,
    policy: u32,
    strategy: [u8; 16],
    frozen_strategy: [u8; 16],
    time_ms: u64,
    windows: u64,
    duels: u64,
    void_duels: u64,
    noise_millionths: i64,
    gain_millionths: i64,
    gain_error_millionths: i64,
    gain_duels: u64,
    change_count: u64,
    rating_count: u32,
    change_rows: u32,
    rating: [RatingRow; RATINGS],
    change: [ChangeRow; CHANGES],
    window_ms: u64,
    window_work_ns: u64,
    window_fault_ns: u64,
    window_memory_ns: u64,
    window_visits: u64,
    window_resident_bytes: u64,
}

pub fn learnt(pid: u32) -> Result<Learnt, Failure> {
    let process = Process::open(pid)?;
    let address = locate::symbol_address(&process, b"hak_learn_shown").map_err(|failure| Failure {
        line: failure.line.replace("that does not record", "that does not show what it learns"),
        ..failure
    })?;
    let stats = whole(&process, address)?;
    match stats.version {
        0 => Err(Failure::usage(format!(
            "process {pid} has learnt nothing yet: learning is off, or it has not run for a second"
        ))),
        1 => {
            let set = system::environment(pid).unwrap_or_default();
            let is_set = set.iter().any(|(name, value)| name == "HAKMEM_EVO_POLICY" && !value.is_empty());
            let own = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
            let program = fs::read_link(own("exe")).unwrap_or_default();
            let program = program.file_name().unwrap_or_default().to_string_lossy();
            let file = super::read_named(&set, pid, &program, (&own("root"), &own("cwd")));
            let learnt = learnt_of(&stats, pid).in_force(file.as_ref(), &set);
            Ok(Learnt { is_fixed_by_default: !is_set, ..learnt })
        }
        other => Err(Failure::usage(format!(
            "process {pid} shows version {other} of what it learns; this reads 1"
        ))),
    }
}

/// The struct of one moment.
fn whole(process: &Process, address: u64) -> Result<Stats, Failure> {
    const TRIES: u32 = 200;
    let refused = |error| process.refusal(&error);
    let number = || -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        process.read(address, &mut bytes).map_err(refused)?;
        Ok(u64::from_le_bytes(bytes))
    };
    for _ in 0..TRIES {
        let before = number()?;
        let mut bytes = [0; size_of::<Stats>()];
        process.read(address + 8, &mut bytes).map_err(refused)?;
        if before % 2 == 0 && number()? == before {
            // Numbers and bytes only: every pattern of bits is one.
            return Ok(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(Failure::usage(format!("process {}: what it learns changes faster than it can be read", process.pid)))
}

fn name_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    plain(&String::from_utf8_lossy(&bytes[..end]))
}

fn learnt_of(stats: &Stats, pid: u32) -> Learnt {
    let stage = |number: u32| Stage::ALL.get(number as usize).copied().unwrap_or(Stage::Off);
    let rivals = stats.rating.iter().take(stats.rating_count as usize).map(|row| Rival {
        strategy: name_of(&row.strategy),
        gain: (row.duels > 0).then_some((row.gain_millionths, row.error_millionths.unsigned_abs())),
        elo: row.elo.into(),
        elo_error: row.elo_error.unsigned_abs().into(),
        duels: row.duels.into(),
        standing: STANDINGS.get(row.state as usize).copied().unwrap_or_default().to_owned(),
    });
    let history = stats.change.iter().take(stats.change_rows as usize).map(|row| Change {
        ms: row.ms,
        from: stage(row.from),
        to: stage(row.to),
        reason: name_of(&row.reason),
        numbers: row.number,
    });
    let rivals: Vec<Rival> = rivals.collect();
    let strategy = chosen(stage(stats.stage), name_of(&stats.frozen_strategy), &rivals);
    let fixed = FIXED.get(stats.policy as usize).filter(|name| **name != "auto");
    let gain = Gain {
        millionths: stats.gain_millionths,
        error: stats.gain_error_millionths.unsigned_abs(),
        duels: stats.gain_duels,
    };
    let window = Window {
        ms: stats.window_ms,
        work_ns: stats.window_work_ns,
        fault_ns: stats.window_fault_ns,
        memory_ns: stats.window_memory_ns,
    };
    Learnt {
        whose: format!("process {pid}, after {:.1} s", stats.time_ms as f64 / 1000.0),
        library: None,
        runs: None,
        stage: Some(stage(stats.stage)),
        fixed: fixed.map(|name| (*name).to_owned()),
        is_fixed_by_default: false,
        knobs: strategy_knobs(&strategy),
        set: Vec::new(),
        strategy,
        gain: (gain.duels > 0).then_some(gain),
        noise: Some(stats.noise_millionths.unsigned_abs()).filter(|noise| *noise > 0),
        spare: None,
        filled_bytes: 0,
        is_dear: false,
        tally: Some(Tally { windows: stats.windows, duels: stats.duels, void_duels: stats.void_duels }),
        rivals,
        history: history.collect(),
        sites: Sites::default(),
        window: Some(window).filter(|window| window.ms > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever stands in the other process's memory.
    #[test]
    fn any_bytes_are_an_answer() {
        for byte in [0_u8, 1, 0x7f, 0xff] {
            let bytes = [byte; size_of::<Stats>()];
            let stats: Stats = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
            let text = super::super::words::explain(&learnt_of(&stats, 7));
            assert!(text.starts_with("process 7, after "), "{text}");
        }
    }

    /// The header's struct, as C compilers lay it out.
    #[test]
    fn the_layout_is_the_headers() {
        let rows = RATINGS * size_of::<RatingRow>() + CHANGES * size_of::<ChangeRow>();
        assert_eq!((size_of::<RatingRow>(), size_of::<ChangeRow>()), (48, 72));
        assert_eq!(size_of::<Stats>(), 16 + 32 + 9 * 8 + 8 + rows + 6 * 8);
    }
}
