//! sample.rs - a made-up profile for tests: a server with a cache that pins pages, a leak, a busy parser, names that
//! want to be markup, and as many other stacks as asked for.

use crate::profile::model::*;
use std::collections::HashMap;

pub const HOSTILE: &str = "evil<img src=x onerror=alert(1)>\"'&amp;</script><script>alert(2)</script>";

pub fn profile() -> Profile {
    many(60)
}

/// With `count` stacks of up to 28 frames.
pub fn many(count: usize) -> Profile {
    let mut maker = Maker::default();
    for path in
        ["/usr/bin/served", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/libstdc++.so.6", "/opt/plug in.so"]
    {
        maker.profile.modules.push(Module {
            path: path.to_owned(),
            has_symbols: !path.contains("plug"),
            has_lines: path.contains("served"),
            ..Module::default()
        });
    }
    maker.profile.classes = [48, 256, 4096, 0]
        .map(|bytes| Class {
            bytes,
            slab_count: 900,
            capacity_count: 500_000,
            live_count: 120_000,
            resident_bytes: 90 << 20,
            sparse_page_count: 9_000,
            sparse_bytes: 30 << 20,
            alloc_count: 4_000_000,
            free_count: 3_880_000,
        })
        .into();
    maker.profile.threads = ["main", "worker-1", "worker-2", "<b>io</b>"]
        .iter()
        .enumerate()
        .map(|(at, name)| Thread {
            id: 4711 + at as u32,
            name: (*name).to_owned(),
            allocated_bytes: (900 >> at) << 20,
            live_bytes: (80 >> at) << 20,
        })
        .collect();
    maker.profile.bucket_ends_us = (0..28).map(|bit| 1 << bit).collect();

    let main = ["_start", "__libc_start_main", "main", "serve"];
    maker.stack(&main, &["session_open", "operator new(unsigned long)"], 40 << 20, 1.0, 15);
    let pin = maker.profile.stacks.len() as u32 - 1;
    maker.profile.pins.push(Pin {
        stack: pin,
        pinned_bytes: 96 << 20,
        page_count: 26_000,
        held_bytes: 4 << 20,
        held_count: 60_000,
        old_bytes: 3 << 20,
        age_us_median: 8_000_000,
        classes: vec![0, 1],
    });
    maker.stack(&main, &["leak_a_little", "malloc"], 21 << 20, 1.0, 20);
    maker.growing();
    maker.stack(&main, &["parse_line", "std::string::append"], 20 << 10, 9000.0, 3);
    maker.stack(&main, &[HOSTILE, "calloc"], 9 << 20, 2.0, 9);
    maker.stack(&main, &["(anonymous namespace)::Table<std::string>::grow(int&&)"], 6 << 20, 3.0, 12);
    for index in 0..count.saturating_sub(5) {
        let bytes = (3 << 20) / (index as u64 + 3) + 100;
        let names: Vec<String> = (0..3 + index % 23)
            .map(|depth| format!("ns::layer_{depth}::step_{}", index * 7 / (24 - depth.min(23)) % 400))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        maker.stack(&main, &names, bytes, 1.0 + (index % 9) as f64, 4 + index % 20);
        if index % 4 == 0 {
            let stack = maker.profile.stacks.len() as u32 - 1;
            let pin = Pin { stack, pinned_bytes: bytes / 3, page_count: bytes / 8192 + 1, ..Pin::default() };
            maker.profile.pins.push(Pin { held_bytes: bytes / 9, held_count: 7, classes: vec![2], ..pin });
        }
    }
    maker.finish()
}

#[derive(Default)]
struct Maker {
    profile: Profile,
    functions: HashMap<String, u32>,
    locations: HashMap<u32, u32>, // by function
}

impl Maker {
    fn function(&mut self, name: &str) -> u32 {
        if let Some(number) = self.functions.get(name) {
            return *number;
        }
        let module = match name {
            "malloc" | "calloc" | "__libc_start_main" => 1,
            _ if name.starts_with("std::") || name.starts_with("operator") => 2,
            _ if name.contains("layer_5") => 3,
            _ => 0,
        };
        let file = if module == 0 { format!("/build/src/{}.c", name.len()) } else { String::new() };
        self.profile.functions.push(Function {
            name: name.to_owned(),
            file,
            module: Some(module),
            ..Function::default()
        });
        let number = self.profile.functions.len() as u32 - 1;
        self.functions.insert(name.to_owned(), number);
        number
    }

    /// Outer frames, then inner ones; all outermost first.
    fn stack(&mut self, outer: &[&str], inner: &[&str], live: u64, turnover: f64, bucket: usize) {
        let mut locations = Vec::new();
        for name in outer.iter().chain(inner).rev() {
            let function = self.function(name);
            let line = if self.profile.functions[function as usize].file.is_empty() {
                0
            } else {
                10 + function % 90
            };
            let location = *self.locations.entry(function).or_insert_with(|| {
                let module = self.profile.functions[function as usize].module;
                let address = 0x5500_0000_0000 + u64::from(function) * 64;
                self.profile.locations.push(Location {
                    module,
                    address,
                    lines: vec![Line { function, line }],
                });
                self.profile.locations.len() as u32 - 1
            });
            locations.push(location);
        }
        let amount = |bytes: u64, block: u64| Amount {
            count: bytes / block,
            bytes,
            bytes_low: bytes - bytes / 9,
            bytes_high: bytes + bytes / 8,
            samples: bytes / (512 << 10) + 4,
        };
        let allocated = amount((live as f64 * (turnover + 0.02)) as u64, 96);
        let freed = amount(allocated.bytes - live, 96);
        let mut lifetimes = vec![0; self.profile.bucket_ends_us.len() + 1];
        lifetimes[bucket] = freed.count * 3 / 4;
        lifetimes[bucket + 1] = freed.count / 4;
        let mut ages = vec![0; lifetimes.len()];
        ages[22] = live;
        let share = ThreadShare { thread: bucket as u32 % 4, live_bytes: live };
        self.profile.stacks.push(Stack {
            locations,
            is_cut: bucket % 7 == 6,
            temporary: if bucket < 8 {
                Amount { count: lifetimes[bucket] + lifetimes[bucket + 1], ..freed }
            } else {
                Amount::default()
            },
            allocated,
            freed,
            live: amount(live, 96),
            lifetimes,
            ages,
            classes: vec![ClassShare {
                class: 1,
                live_count: live / 250,
                live_bytes: live,
                old_bytes: live / 2,
            }],
            threads: vec![share],
            live_earlier_bytes: 0,
            live_by_birth: Vec::new(),
            live_over_time: Vec::new(),
        });
    }

    /// The last stack held a little at first and kept growing.
    fn growing(&mut self) {
        let Some(stack) = self.profile.stacks.last_mut() else { return };
        let bytes = stack.live.bytes;
        stack.freed = Amount::default();
        let at = |part: u64| LiveAt { at_ms: part * 1_000, bytes: bytes * part / 30, count: part };
        stack.live_over_time = (0..=30).map(at).collect();
        stack.live_by_birth = vec![bytes / 16; 16];
    }

    fn finish(mut self) -> Profile {
        let mut order: Vec<usize> = (0..self.profile.stacks.len()).collect();
        order.sort_by_key(|stack| std::cmp::Reverse(self.profile.stacks[*stack].live.bytes));
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, stack)| places[*stack] = place as u32);
        self.profile.stacks = order.iter().map(|stack| self.profile.stacks[*stack].clone()).collect();
        self.profile.pins.iter_mut().for_each(|pin| pin.stack = places[pin.stack as usize]);
        self.profile.pins.sort_by_key(|pin| std::cmp::Reverse(pin.pinned_bytes));

        let sum = |value: fn(&Stack) -> Amount| {
            self.profile.stacks.iter().map(value).fold(Amount::default(), |sum, part| Amount {
                count: sum.count + part.count,
                bytes: sum.bytes + part.bytes,
                bytes_low: sum.bytes_low + part.bytes_low,
                bytes_high: sum.bytes_high + part.bytes_high,
                samples: sum.samples + part.samples,
            })
        };
        let live = sum(|stack| stack.live);
        self.profile.totals = Totals {
            resident_bytes: 380 << 20,
            resident_peak_bytes: 512 << 20,
            live_bytes: live.bytes + (1 << 20),
            live_count: live.count,
            free_bytes: 20 << 20,
            reserved_bytes: 1 << 40,
            returned_bytes: 700 << 20,
            retouched_bytes: 30 << 20,
            sparse_bytes: 120 << 20,
            allocated: sum(|stack| stack.allocated),
            freed: sum(|stack| stack.freed),
            temporary: sum(|stack| stack.temporary),
            live,
        };
        self.profile.timeline = (0..300)
            .map(|at| {
                let wave = ((at as f64 / 40.0).sin() + 1.0) / 2.0;
                Moment {
                    at_ms: at * 100,
                    resident_bytes: (300 << 20) + ((200 << 20) as f64 * wave) as u64,
                    live_bytes: (60 << 20) + ((160 << 20) as f64 * wave) as u64 + (at << 16),
                    free_bytes: (180 << 20) - ((120 << 20) as f64 * wave) as u64,
                    allocated_bytes: at * 9_000_000 + (at % 17) * 400_000,
                    fault_count: at * 40,
                    ..Moment::default()
                }
            })
            .collect();
        self.profile.schema = SCHEMA;
        self.profile.tool = "0.1.0".to_owned();
        self.profile.library = "0.1.0".to_owned();
        self.profile.program = Program {
            name: "served".to_owned(),
            path: "/usr/bin/served".to_owned(),
            command: vec!["served".to_owned(), "--name=</title><script>alert(3)</script>".to_owned()],
            pid: 4711,
            host: "db-7".to_owned(),
            kernel: "6.18".to_owned(),
            machine: "x86_64".to_owned(),
            processor_count: 16,
            memory_bytes: 64 << 30,
            page_bytes: 4096,
            started_unix_ms: 1_795_179_000_000,
        };
        self.profile.recording = Recording {
            started_unix_ms: 1_795_179_845_000,
            duration_ms: 30_000,
            rate_bytes: 512 << 10,
            sample_count: 21_345,
            temporary_us_max: 128,
            reason: "record".to_owned(),
            ..Recording::default()
        };
        self.profile
    }
}
