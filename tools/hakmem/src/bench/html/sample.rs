//! sample.rs - result files for tests: one like a real one, and any number of rows and allocators of made-up numbers.
//! Everything is computed from the runs, as in a real file; the same seed gives the same file.

use crate::bench::figures::{row_complete, summarize};
use crate::bench::results::*;
use serde_json::json;

const ALLOCATORS: [(&str, &str, &str); 10] = [
    ("hakmem", "0.1.0", "built here"),
    ("glibc", "2.36", "the system's C library"),
    ("mimalloc3", "3.3.2", "crate libmimalloc-sys, built here with cc -O3"),
    ("mimalloc2", "2.3.2", "crate libmimalloc-sys, built here with cc -O3"),
    ("jemalloc5", "5.3.1", "crate tikv-jemalloc-sys, built here with cc -O3"),
    ("snmalloc", "0.7.6", "crate snmalloc-sys, built here"),
    ("rpmalloc", "0.2.3+b097fd0", "crate rpmalloc-sys, built here with cc -O3"),
    ("tcmalloc", "2.10-1", "Debian libtcmalloc-minimal4"),
    ("jemalloc", "5.3.0-1", "Debian libjemalloc2"),
    ("tbbmalloc", "2021.8.0-2", "Debian libtbbmalloc2"),
];

type Profile = (&'static str, &'static str, &'static str, Time, f64, f64, [f64; 10], [f64; 10]);

/// Name, about, profiles, clock, nanoseconds per operation and KiB of the best, and the factors of each allocator.
#[rustfmt::skip]
const ROWS: [Profile; 20] = [
    ("larson", "4 threads replace random ones of 1,024 blocks of 8 to 128 bytes; each hands its blocks to a successor", "quick threads server seeds", Time::Wall, 31.0, 3100.0,
        [1.04, 2.6, 1.12, 1.0, 1.9, 1.08, 1.21, 1.15, 2.1, 1.7], [1.0, 1.32, 2.9, 2.1, 1.6, 1.9, 2.2, 2.4, 1.7, 2.8]),
    ("larson/1000", "larson with blocks of 8 to 1,000 bytes, 5,000 a thread", "threads server", Time::Wall, 62.0, 14800.0,
        [1.18, 3.1, 1.05, 1.0, 1.6, 1.11, 1.09, 1.02, 1.8, 1.4], [1.0, 1.05, 1.5, 1.4, 1.22, 1.3, 1.37, 1.25, 1.26, 1.5]),
    ("random_mixed/256", "blocks of 16 to 1,024 bytes in 256 random slots", "quick tiny seeds", Time::Cpu, 11.2, 1800.0,
        [1.0, 3.4, 1.03, 1.05, 2.1, 1.2, 1.16, 1.31, 2.2, 1.6], [1.06, 1.0, 1.4, 1.31, 1.37, 1.28, 1.6, 3.4, 1.8, 1.9]),
    ("random_mixed/65536", "blocks of 16 to 1,024 bytes in 65,536 random slots", "quick mid memory", Time::Cpu, 19.8, 41800.0,
        [1.0, 2.9, 1.34, 1.22, 1.9, 1.26, 1.31, 1.4, 1.95, 1.8], [1.0, 1.06, 1.12, 1.1, 1.08, 1.11, 1.15, 1.09, 1.09, 1.2]),
    ("random_mixed/32K", "blocks of 16 to 32,768 bytes in 4,096 random slots", "quick mid", Time::Cpu, 41.0, 72000.0,
        [1.12, 4.6, 1.3, 1.21, 1.7, 1.0, 1.5, 1.1, 1.8, 2.0], [1.02, 1.0, 1.2, 1.22, 1.09, 1.31, 1.4, 1.11, 1.1, 1.3]),
    ("tiny_hot/64", "malloc and free of one block of 64 bytes", "quick tiny seeds", Time::Cpu, 3.1, 1400.0,
        [1.06, 2.2, 1.0, 1.03, 2.6, 1.3, 1.5, 1.9, 2.7, 2.0], [1.08, 1.0, 1.7, 1.6, 1.5, 1.7, 2.1, 4.4, 2.2, 2.6]),
    ("pairs/64", "256 mallocs of 64 bytes, then 256 frees", "quick tiny", Time::Cpu, 3.9, 1450.0,
        [1.0, 3.6, 1.01, 1.04, 2.4, 1.35, 1.42, 1.6, 2.5, 2.1], [1.05, 1.0, 1.7, 1.6, 1.5, 1.7, 2.1, 4.3, 2.2, 2.6]),
    ("mid_large", "2 threads, blocks of 2 to 32 KiB and some of 256 KiB", "quick mid threads seeds", Time::Wall, 128.0, 22100.0,
        [1.0, 5.9, 1.31, 1.4, 2.2, 1.17, 1.9, 1.6, 2.4, 2.7], [1.02, 1.0, 1.5, 1.6, 1.3, 1.7, 1.9, 1.4, 1.3, 1.8]),
    ("producer_consumer/four", "3 threads make blocks, one frees them", "threads server", Time::Wall, 58.0, 5200.0,
        [1.1, 1.9, 1.0, 1.03, 1.6, 0.99, 1.4, 1.2, 1.7, 1.9], [1.0, 1.21, 2.3, 2.0, 1.9, 2.4, 3.1, 2.7, 2.0, 2.9]),
    ("storm/1000", "4 threads allocate and free batches of up to 1,000 blocks", "quick threads", Time::Wall, 9.9, 4100.0,
        [1.49, 3.16, 1.22, 1.16, 2.1, 1.24, 1.28, 1.0, 2.34, 1.9], [1.98, 1.0, 3.5, 3.0, 1.5, 1.55, 1.9, 2.5, 1.9, 3.0]),
    ("storm/10000", "4 threads allocate and free batches of up to 10,000 blocks", "threads memory", Time::Wall, 14.2, 22900.0,
        [1.0, 4.4, 1.42, 1.39, 3.0, 1.96, 1.22, 1.32, 3.7, 2.2], [1.16, 1.0, 1.31, 1.68, 1.5, 1.31, 1.69, 1.38, 2.95, 1.9]),
    ("many_threads", "200 threads, each one live block in 30 classes", "quick threads memory", Time::Wall, 5200.0, 6900.0,
        [1.06, 1.0, 1.7, 1.5, 2.6, 2.1, 3.0, 1.4, 2.7, 1.9], [1.58, 1.0, 31.5, 13.3, 3.4, 9.1, 5.7, 1.25, 3.45, 7.2]),
    ("vm/touched", "buffers of 2 MiB, written whole, freed", "quick large", Time::Cpu, 19900.0, 3800.0,
        [1.2, 3.0, 1.0, 1.07, 1.32, 1.5, 2.2, 1.9, 1.31, 2.6], [1.0, 1.0, 1.7, 1.55, 1.3, 1.6, 2.0, 2.4, 1.4, 1.8]),
    ("vm/untouched", "buffers of 2 MiB, not touched, freed", "quick large", Time::Cpu, 210.0, 1500.0,
        [1.0, 11.0, 1.4, 1.5, 2.9, 3.6, 31.0, 1.8, 3.0, 48.0], [1.04, 1.0, 1.5, 1.4, 1.4, 1.5, 1.9, 3.7, 2.0, 2.3]),
    ("realloc_growth", "strings and vectors that grow by realloc", "quick large", Time::Cpu, 78.0, 9100.0,
        [1.0, 1.31, 1.22, 1.2, 1.44, 1.5, 1.7, 1.62, 1.5, 1.9], [1.03, 1.0, 1.6, 1.5, 1.45, 1.71, 2.0, 1.5, 1.5, 2.1]),
    ("three_peaks/1", "three peaks of 300 MB, 1% kept: what stays 12 s later", "quick memory", Time::Cpu, 64.0, 318000.0,
        [1.06, 1.3, 1.01, 1.0, 1.5, 1.08, 1.12, 1.06, 1.55, 1.6], [1.0, 1.03, 1.06, 1.06, 1.09, 1.08, 1.02, 1.05, 1.1, 1.11]),
    ("idle_pool", "8 threads free 100 MB each and wait: what stays 15 s later", "quick memory threads", Time::Wall, 101.0, 880000.0,
        [1.02, 1.9, 1.0, 1.03, 1.3, 1.09, 1.2, 1.11, 1.35, 1.7], [1.0, 1.01, 1.04, 1.03, 1.02, 1.06, 1.1, 1.02, 1.02, 1.1]),
    ("fork_cow/64", "a child frees and allocates among 64 MiB of its parent's", "quick memory server", Time::Cpu, 88.0, 71000.0,
        [1.0, 1.42, 1.2, 1.18, 1.4, 1.33, 1.5, 1.29, 1.4, 1.6], [1.0, 1.08, 1.14, 1.12, 1.1, 1.2, 1.25, 1.1, 1.1, 1.3]),
    ("sqlite/speedtest", "sqlite's own speed test, size 20", "real", Time::Cpu, 1.9e9, 21000.0,
        [1.01, 1.03, 1.0, 1.0, 1.04, 1.02, 1.03, 1.02, 1.05, 1.04], [1.03, 1.0, 1.3, 1.22, 1.2, 1.24, 1.4, 1.42, 1.28, 1.5]),
    ("cpython/json", "CPython: a document to JSON and back", "real", Time::Cpu, 410000.0, 12800.0,
        [1.0, 1.02, 1.01, 1.01, 1.03, 1.02, 1.04, 1.02, 1.03, 1.03], [1.05, 1.0, 2.4, 1.7, 1.1, 1.16, 1.25, 1.7, 1.22, 1.5]),
];

/// What stays after the work, in KiB, where it says something.
const AFTER: [(&str, [f64; 10]); 3] = [
    ("three_peaks/1", [110e3, 319e3, 329e3, 328e3, 219e3, 329e3, 311e3, 325e3, 339e3, 331e3]),
    ("idle_pool", [8.1e3, 250e3, 883e3, 889e3, 861e3, 898e3, 464e3, 872e3, 642e3, 850e3]),
    ("fork_cow/64", [3.1e3, 2.2e3, 5.1e3, 4.9e3, 6.2e3, 5.5e3, 7.1e3, 6.6e3, 6.3e3, 7.5e3]),
];

pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, with a standard deviation of 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// Like a real file: twenty rows, ten allocators, a failure, a row that is not steady, one not measured.
pub fn sample() -> Results {
    sample_of(7)
}

/// The same with other noise: a second session.
pub fn sample_of(seed: u64) -> Results {
    let mut random = Random(seed);
    let mut results = empty();
    results.allocators =
        ALLOCATORS.iter().map(|(name, version, source)| allocator(name, version, source)).collect();
    for profile in &ROWS {
        let (name, about, profiles, time, ns, kb, times, peaks) = profile;
        let mut row = row(name, about, *time);
        row.profiles = profiles.split(' ').map(str::to_owned).collect();
        row.is_real = profiles.contains("real");
        row.program_version = row.is_real.then(|| "3.40.1".to_owned());
        row.rate = name.starts_with("larson") || name.starts_with("random") || name.starts_with("tiny");
        let after = AFTER.iter().find(|(of, _)| of == name).map(|(_, after)| after);
        row.resident_after = after.is_some();
        let noise = if *name == "producer_consumer/four" { 0.09 } else { 0.004 };
        for (at, (allocator, ..)) in ALLOCATORS.iter().enumerate() {
            let after = after.map(|after| after[at]);
            let cell = cell(&mut random, allocator, &row, (ns * times[at], kb * peaks[at], after), noise, 9);
            row.cells.push(cell);
        }
        extras(&mut row, ns);
        results.rows.push(row);
    }
    fail(
        &mut results,
        "fork_cow/64",
        "snmalloc",
        "crashed: SIGSEGV after 0.4 s, 2 rounds were measured before",
    );
    fail(&mut results, "vm/untouched", "rpmalloc", "hangs: killed after 60 s");
    let mut skipped = row("redis", "redis-server under redis-benchmark", Time::Wall);
    skipped.skipped = Some("redis-server is not installed: apt-get install redis-server".to_owned());
    results.rows.push(skipped);
    finish(&mut results);
    results
}

fn extras(row: &mut Row, ns: &f64) {
    for (at, cell) in row.cells.iter_mut().enumerate() {
        let factor = 1.0 + at as f64 * 0.31;
        if row.name == "pairs/64" || row.name == "tiny_hot/64" {
            let costs = |base: f64| Costs {
                instructions: base * factor,
                branches: base * factor * 0.17,
                branch_misses: 0.01 * factor,
                d1_accesses: 4.0 * factor,
                d1_misses: 0.02 * factor,
                ll_misses: 0.0003 * factor,
            };
            cell.counts =
                Some(Counts { ops: 100_000, total: costs(60.0), without_harness: Some(costs(51.4)) });
        }
        if row.name.starts_with("vm/") {
            let calls =
                [("mmap", 20.0 + 270.0 * factor), ("munmap", 22.0 * factor), ("madvise", 60.0), ("brk", 3.0)];
            cell.syscalls =
                Some(calls.iter().map(|(call, count)| ((*call).to_owned(), *count as u64)).collect());
        }
        if row.name == "random_mixed/32K" {
            for run in &mut cell.runs {
                let part = |name: &str, share: f64| Part {
                    name: name.to_owned(),
                    ops: run.ops / 2,
                    ns: (run.cpu_ns as f64 * share) as u64,
                };
                run.parts = vec![part("up to 1 KiB", 0.3), part("above", 0.7)];
            }
        }
        if row.name.starts_with("fork") {
            row.shows = vec!["pages_copied".to_owned()];
            for run in &mut cell.runs {
                run.extra.insert("pages_copied".to_owned(), (1200.0 * factor).round());
            }
        }
    }
    if *ns > 1e6 {
        row.rate = false;
    }
}

/// `rows` times `allocators` of them, runs of `rounds` rounds.
pub fn made_up(rows: usize, allocators: usize, rounds: usize, seed: u64) -> Results {
    let mut random = Random(seed);
    let mut results = empty();
    for at in 0..allocators {
        let name = ALLOCATORS.get(at).map_or(format!("peer{at}"), |(name, ..)| (*name).to_owned());
        results.allocators.push(allocator(&name, "1.2.3", "built here"));
    }
    for at in 0..rows {
        let about = "some threads allocate and free some blocks of some sizes in some order, for a while";
        let mut row = row(&format!("workload/{at}"), about, if at % 2 == 0 { Time::Cpu } else { Time::Wall });
        row.profiles = vec![["tiny", "mid", "threads", "memory"][at % 4].to_owned()];
        row.resident_after = at % 3 == 0;
        for allocator in &results.allocators {
            let (time, peak) = (20.0 + 30.0 * random.next(), 4000.0 + 5000.0 * random.next());
            let after = row.resident_after.then_some(peak / 2.0);
            row.cells.push(cell(&mut random, &allocator.name, &row, (time, peak, after), 0.02, rounds));
        }
        results.rows.push(row);
    }
    finish(&mut results);
    results
}

pub fn empty() -> Results {
    Results {
        schema: SCHEMA,
        tool: "0.1.0".to_owned(),
        started: "2026-11-20T13:04:05Z".to_owned(),
        wall_s: 412.7,
        is_interrupted: false,
        machine: Machine {
            processor: "AMD EPYC".to_owned(),
            processors: 2,
            memory_bytes: 25 << 30,
            kernel: "6.18.44".to_owned(),
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            architecture: "x86_64".to_owned(),
            huge_pages: "madvise".to_owned(),
            load_before: 0.05,
            load_after: 1.1,
        },
        settings: from(json!({
            "size": "quick", "asked": ["quick"], "rounds_max": 30, "budget_s": 540.0, "steady_cpu": 0.015,
            "steady_wall": 0.03, "interval": "95%, of the median, by order statistics",
            "command": "hakmem bench quick --json results.json",
            "count_method": "cachegrind, with the branches and caches of its default machine",
            "syscall_method": "strace -f -c"
        })),
        allocators: Vec::new(),
        rows: Vec::new(),
        summary: Vec::new(),
    }
}

pub fn allocator(name: &str, version: &str, source: &str) -> Allocator {
    let sum: String = name.bytes().cycle().take(32).map(|byte| format!("{byte:02x}")).collect();
    let path = (name != "glibc").then(|| format!("/usr/lib/x86_64-linux-gnu/lib{name}.so"));
    from(json!({"name": name, "version": version, "source": source, "path": path, "sha256": sum}))
}

pub fn row(name: &str, about: &str, time: Time) -> Row {
    from(json!({
        "name": name, "about": about, "program": name.split('/').next(), "is_real": false,
        "arguments": ["1000000", "4096", "16", "1024", "12345"], "time": time, "rate": false, "resident_after": false,
        "profiles": ["quick"], "rounds": 9, "is_steady": true, "cells": []
    }))
}

/// As from a file: fields that may be missing are.
fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cell(
    random: &mut Random,
    allocator: &str,
    row: &Row,
    (ns, kb, after): (f64, f64, Option<f64>),
    noise: f64,
    rounds: usize,
) -> Cell {
    let ops = 1_000_000;
    let mut runs = Vec::new();
    for round in 1..=rounds {
        let time = (ns * (1.0 + noise * random.normal()).max(0.5) * ops as f64) as u64;
        let page = |kb: f64, random: &mut Random| ((kb * (1.0 + 0.004 * random.normal())) as u64) / 4 * 4;
        let (wall, cpu) =
            if row.time == Time::Cpu { (time + time / 200, time) } else { (time, time * 19 / 10) };
        runs.push(Run {
            round: round as u32,
            ops,
            wall_ns: wall,
            cpu_ns: cpu,
            peak_kb: page(kb, random),
            resident_kb: after.map(|kb| page(kb, random)),
            faults: (kb / 4.0) as u64,
            process_wall_ns: wall + 900_000,
            process_user_us: cpu / 1000,
            process_system_us: 800,
            process_faults: (kb / 4.0) as u64 + 90,
            ..Run::default()
        });
    }
    Cell {
        allocator: allocator.to_owned(),
        error: None,
        runs,
        figures: None,
        counts: None,
        counts_error: None,
        syscalls: None,
        syscalls_per_op: None,
        syscalls_error: None,
    }
}

pub fn fail(results: &mut Results, row: &str, allocator: &str, error: &str) {
    let row = results.rows.iter_mut().find(|candidate| candidate.name == row).unwrap();
    let cell = row.cells.iter_mut().find(|cell| cell.allocator == allocator).unwrap();
    cell.error = Some(error.to_owned());
    cell.figures = None;
    cell.runs.truncate(2);
}

/// Everything that is computed from the runs.
pub fn finish(results: &mut Results) {
    for row in results.rows.iter_mut().filter(|row| row.skipped.is_none()) {
        row_complete(row, &results.settings);
    }
    results.summary = summarize(&results.rows, &results.allocators);
}

/// Makes an allocator's times of some rows (all, if none are named) `factor` times as long.
pub fn slow_down(results: &mut Results, allocator: &str, factor: f64, rows: &[&str]) {
    let slower = |ns: u64| (ns as f64 * factor) as u64;
    for row in results.rows.iter_mut().filter(|row| rows.is_empty() || rows.contains(&row.name.as_str())) {
        for cell in row.cells.iter_mut().filter(|cell| cell.allocator == allocator) {
            cell.runs
                .iter_mut()
                .for_each(|run| (run.wall_ns, run.cpu_ns) = (slower(run.wall_ns), slower(run.cpu_ns)));
        }
    }
    finish(results);
}

pub fn rename(results: &mut Results, from: &str, to: &str) {
    let names = results.allocators.iter_mut().map(|allocator| &mut allocator.name);
    let cells = results.rows.iter_mut().flat_map(|row| &mut row.cells).map(|cell| &mut cell.allocator);
    names.chain(cells).filter(|name| *name == from).for_each(|name| *name = to.to_owned());
}
