//! counted.rs - --count: instructions, branches and misses per operation.
//!
//! Method:  two lengths. A row is run with its arguments `count` and again with `count_less`; what the additional
//!          operations cost more, divided by their number, is the cost of one: starting, ending and the loader fall
//!          away. The processor's counters do it where the machine has them, cachegrind where not.
//! Harness: cachegrind says which source file every instruction came from; those of the workload itself are left
//!          out of `without_harness`. The processor's counters cannot tell them apart.
//! Why not the measured runs: cachegrind's are some 50 times slower, and its counts need no repetition.

use super::allocators::Entry;
use super::judge::{Judgement, judge};
use super::perf;
use super::places;
use super::progress::Progress;
use super::results::{Costs, Counts, Row};
use super::stand::{Interrupted, Stand, Target};
use super::suite::SuiteRow;
use crate::process;
use crate::text::Failure;
use std::ffi::OsStr;
use std::fs;
use std::ops::{Add, Sub};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(300);
/// What the compiler was told of a workload's file.
const HARNESS: &str = "bench/workloads/";

pub enum Counter {
    Processor,
    Cachegrind { valgrind: PathBuf, out: PathBuf },
}

impl Counter {
    /// The best that this machine has. `scratch` is a folder of ours.
    pub fn find(scratch: &Path) -> Result<Counter, Failure> {
        if perf::is_available() {
            return Ok(Counter::Processor);
        }
        match process::program_find(OsStr::new("valgrind")) {
            Ok(valgrind) => Ok(Counter::Cachegrind { valgrind, out: scratch.join("cachegrind.out") }),
            Err(_) => Err(Failure::usage(
                "--count: this machine shows no processor counters, and there is no valgrind: apt-get install valgrind",
            )),
        }
    }

    /// For a reader of the results.
    pub fn method(&self) -> &'static str {
        match self {
            Counter::Processor => {
                "the processor's counters (perf_event_open, user mode), harness included, two lengths"
            }
            Counter::Cachegrind { .. } => {
                "cachegrind's simulated caches and branches, without the harness, two lengths"
            }
        }
    }
}

/// What a whole run cost, and what of that was the workload's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    all: Costs,
    harness: Costs,
}

impl Add for Costs {
    type Output = Costs;
    fn add(self, other: Costs) -> Costs {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for Costs {
    type Output = Costs;
    fn sub(self, other: Costs) -> Costs {
        self.with(other, |a, b| a - b)
    }
}

impl Costs {
    fn with(self, other: Costs, operation: impl Fn(f64, f64) -> f64) -> Costs {
        Costs {
            instructions: operation(self.instructions, other.instructions),
            branches: operation(self.branches, other.branches),
            branch_misses: operation(self.branch_misses, other.branch_misses),
            d1_accesses: operation(self.d1_accesses, other.d1_accesses),
            d1_misses: operation(self.d1_misses, other.d1_misses),
            ll_misses: operation(self.ll_misses, other.ll_misses),
        }
    }

    fn divided(self, by: f64) -> Costs {
        self.with(self, |value, _| value / by)
    }
}

/// Fills `counts` of every cell of a row that can be counted.
pub fn row_count(
    stand: &Stand,
    row: &SuiteRow,
    counter: &Counter,
    measured: &mut Row,
    progress: &Progress,
) -> Result<(), Interrupted> {
    if !row.per_operation || measured.cells.is_empty() {
        return Ok(());
    }
    let Ok(program) = places::program_of(row) else { return Ok(()) };
    let target = Target { row, program };
    for (cell, entry) in measured.cells.iter_mut().zip(&stand.entries) {
        if cell.error.is_some() {
            continue;
        }
        progress.step(&row.name, "counting", entry.name());
        match counts_of(stand, &target, counter, entry)? {
            Ok(counts) => cell.counts = Some(counts),
            Err(reason) => cell.counts_error = Some(reason),
        }
    }
    Ok(())
}

fn counts_of(
    stand: &Stand,
    target: &Target,
    counter: &Counter,
    entry: &Entry,
) -> Result<Result<Counts, String>, Interrupted> {
    let long = match sums_of(stand, target, counter, entry, &target.row.count)? {
        Ok(long) => long,
        Err(reason) => return Ok(Err(reason)),
    };
    let short = match sums_of(stand, target, counter, entry, &target.row.count_less)? {
        Ok(short) => short,
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(difference(long, short))
}

fn difference((long, long_ops): (Sums, u64), (short, short_ops): (Sums, u64)) -> Result<Counts, String> {
    let ops = long_ops.checked_sub(short_ops).filter(|ops| *ops > 0);
    let Some(ops) = ops else { return Err("its longer run has no more operations".to_owned()) };
    let all = long.all - short.all;
    let harness = long.harness - short.harness;
    let has_harness = harness.instructions > 0.0;
    Ok(Counts {
        ops,
        total: all.divided(ops as f64),
        without_harness: has_harness.then(|| (all - harness).divided(ops as f64)),
    })
}

fn sums_of(
    stand: &Stand,
    target: &Target,
    counter: &Counter,
    entry: &Entry,
    arguments: &[String],
) -> Result<Result<(Sums, u64), String>, Interrupted> {
    let before = match counter {
        Counter::Processor => Vec::new(),
        Counter::Cachegrind { valgrind, out } => vec![
            valgrind.display().to_string(),
            "-q".to_owned(),
            "--tool=cachegrind".to_owned(),
            "--cache-sim=yes".to_owned(),
            "--branch-sim=yes".to_owned(),
            format!("--cachegrind-out-file={}", out.display()),
        ],
    };
    let mut request = target.request(entry, arguments, &before);
    request.is_counted = matches!(counter, Counter::Processor);
    let answer = stand.launch(request, TIMEOUT)?;
    let ops = match judge(&answer, entry, &stand.strangers, TIMEOUT.as_secs()) {
        Judgement::Measured(run, _) => run.ops,
        Judgement::Failed(reason) | Judgement::NotInstalled(reason) => return Ok(Err(reason)),
    };
    let sums = match counter {
        Counter::Processor => {
            answer.counters.map(sums_of_counters).ok_or("the processor did not count".to_owned())
        }
        Counter::Cachegrind { out, .. } => {
            let text = fs::read_to_string(out).unwrap_or_default();
            let _ = fs::remove_file(out);
            cachegrind_parse(&text)
        }
    };
    Ok(sums.map(|sums| (sums, ops)))
}

fn sums_of_counters(counters: perf::Counters) -> Sums {
    let all = Costs {
        instructions: counters.instructions as f64,
        branches: counters.branches as f64,
        branch_misses: counters.branch_misses as f64,
        d1_accesses: 0.0,
        d1_misses: counters.d1_misses as f64,
        ll_misses: counters.ll_misses as f64,
    };
    Sums { all, harness: Costs::default() }
}

/// A cachegrind.out file: "events:" names the columns, "fl=" a file, and every line that begins with a digit is a
/// source line and its costs.
fn cachegrind_parse(text: &str) -> Result<Sums, String> {
    let events = text.lines().find_map(|line| line.strip_prefix("events:"));
    let events: Vec<&str> = events.ok_or("cachegrind wrote nothing")?.split_whitespace().collect();
    let columns = |names: &[&str]| -> Result<Vec<usize>, String> {
        let column = |name: &&str| events.iter().position(|event| event == name);
        names.iter().map(|name| column(name).ok_or(format!("cachegrind does not count {name}"))).collect()
    };
    let instructions = columns(&["Ir"])?;
    let branches = columns(&["Bc", "Bi"])?;
    let branch_misses = columns(&["Bcm", "Bim"])?;
    let d1_accesses = columns(&["Dr", "Dw"])?;
    let d1_misses = columns(&["D1mr", "D1mw"])?;
    let ll_misses = columns(&["DLmr", "DLmw"])?;
    let mut sums = Sums::default();
    let mut is_harness = false;
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("fl=") {
            is_harness = file.contains(HARNESS);
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            // Trailing zeroes may be left out.
            let numbers: Vec<f64> =
                line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0.0)).collect();
            let sum = |columns: &[usize]| columns.iter().filter_map(|at| numbers.get(*at)).sum();
            let costs = Costs {
                instructions: sum(&instructions),
                branches: sum(&branches),
                branch_misses: sum(&branch_misses),
                d1_accesses: sum(&d1_accesses),
                d1_misses: sum(&d1_misses),
                ll_misses: sum(&ll_misses),
            };
            sums.all = sums.all + costs;
            if is_harness {
                sums.harness = sums.harness + costs;
            }
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = "desc: I1 cache: 32768 B\ncmd: x\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim\n\
        fl=/p/bench/workloads/tiny_hot.c\nfn=main\n10 1000 0 0 10 1 0 10 2 0 100 5 0 0\n11 500\n\
        fl=???\nfn=malloc\n0 300 0 0 50 4 3 20 6 2 40 1 2 1\nsummary: 1800\n";

    #[test]
    fn a_file_of_cachegrind_is_split_into_harness_and_the_rest() {
        let sums = cachegrind_parse(OUT).unwrap();
        let all = Costs {
            instructions: 1800.0,
            branches: 142.0,
            branch_misses: 7.0,
            d1_accesses: 90.0,
            d1_misses: 13.0,
            ll_misses: 5.0,
        };
        assert_eq!(sums.all, all);
        assert_eq!((sums.harness.instructions, sums.harness.d1_misses), (1500.0, 3.0));
        assert!(cachegrind_parse("").is_err());
        assert!(cachegrind_parse("events: Ir\n").unwrap_err().contains("Bc"));
    }

    #[test]
    fn an_operation_costs_what_more_operations_cost_more() {
        let long = cachegrind_parse(&OUT.replace("0 300 0", "0 700 0").replace("11 500", "11 900")).unwrap();
        let short = cachegrind_parse(OUT).unwrap();
        let counts = difference((long, 150), (short, 50)).unwrap();
        assert_eq!((counts.ops, counts.total.instructions), (100, 8.0));
        assert_eq!(counts.without_harness.unwrap().instructions, 4.0);
        assert!(difference((short, 50), (short, 50)).is_err());
    }
}
