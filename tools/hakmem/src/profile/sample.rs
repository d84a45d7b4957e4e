//! sample.rs - a small profile made by hand, for tests: a parser that leaks, a cache that pins, a buffer that is
//! temporary.

use super::model::*;

fn amount(count: u64, bytes: u64) -> Amount {
    let samples = bytes.div_ceil(512 << 10);
    Amount { count, bytes, bytes_low: bytes * 9 / 10, bytes_high: bytes * 11 / 10, samples }
}

pub fn profile() -> Profile {
    let function = |name: &str, file: &str, module: u32| Function {
        name: name.to_owned(),
        symbol: String::new(),
        file: file.to_owned(),
        module: Some(module),
    };
    let line = |function: u32, line: u32| Line { function, line };
    let location = |module: u32, address: u64, lines: &[Line]| Location {
        module: Some(module),
        address,
        lines: lines.to_vec(),
    };
    let mib = |number: u64| number << 20;
    let stack = |locations: &[u32], allocated: u64, live: u64, size: u64, leaks: bool| Stack {
        locations: locations.to_vec(),
        allocated: amount(allocated / size, allocated),
        freed: amount((allocated - live) / size, allocated - live),
        live: amount(live / size, live),
        live_earlier_bytes: 0,
        temporary: amount((allocated - live) / size / 2, (allocated - live) / 2),
        lifetimes: vec![(allocated - live) / size, 0, 0, 0],
        ages: vec![0, live / 2, live / 2, 0],
        classes: vec![ClassShare {
            class: 0,
            live_count: live / size,
            live_bytes: live,
            old_bytes: live / 2,
        }],
        threads: vec![ThreadShare { thread: 0, live_bytes: live }],
        live_by_birth: if leaks { vec![live / 16; 16] } else { vec![live, 0, 0, 0] },
        live_over_time: (0..=10)
            .map(|at| {
                let bytes = if leaks { live * at / 10 } else { live };
                LiveAt { at_ms: at * 1000, bytes, count: bytes / size }
            })
            .collect(),
        is_cut: false,
    };
    let module = |path: &str, build_id: &str, start: u64| Module {
        path: path.to_owned(),
        build_id: build_id.to_owned(),
        start,
        end: start + mib(1),
        offset: 0,
        has_symbols: true,
        has_lines: true,
        debug_file: String::new(),
    };
    Profile {
        schema: SCHEMA,
        tool: "0.1.0".to_owned(),
        library: "0.1.0".to_owned(),
        program: Program {
            name: "server".to_owned(),
            path: "/usr/bin/server".to_owned(),
            command: vec!["server".to_owned(), "--port".to_owned(), "1".to_owned()],
            pid: 4711,
            machine: "x86_64".to_owned(),
            processor_count: 2,
            page_bytes: 4096,
            ..Program::default()
        },
        recording: Recording {
            started_unix_ms: 1_700_000_000_000,
            duration_ms: 10_000,
            rate_bytes: 512 << 10,
            sample_count: 1000,
            reason: "record".to_owned(),
            temporary_us_max: 1000,
            ..Recording::default()
        },
        modules: vec![
            module("/usr/bin/server", "0123456789abcdef0123456789abcdef01234567", 0x5500_0000_0000),
            module(
                "/lib/x86_64-linux-gnu/libc.so.6",
                "fedcba9876543210fedcba9876543210fedcba98",
                0x7f00_0000_0000,
            ),
        ],
        functions: vec![
            function("main", "/src/server/main.cc", 0),
            function("Parser::parse(std::string const&)", "/src/server/parser.cc", 0),
            function("Node::make", "/src/server/node.h", 0),
            function("Cache::insert(Key, Value)", "/src/server/cache.cc", 0),
            function("std::vector<char>::resize(unsigned long)", "/usr/include/c++/12/bits/stl_vector.h", 0),
            function("__libc_start_main", "", 1),
        ],
        locations: vec![
            location(0, 0x5500_0000_1100, &[line(0, 10)]),
            location(0, 0x5500_0000_2200, &[line(2, 7), line(1, 88)]),
            location(0, 0x5500_0000_3300, &[line(3, 41)]),
            location(0, 0x5500_0000_4400, &[line(4, 940), line(0, 20)]),
            location(1, 0x7f00_0000_0500, &[line(5, 0)]),
        ],
        stacks: vec![
            stack(&[1, 0, 4], mib(60), mib(50), 64, true),
            stack(&[2, 0, 4], mib(40), mib(20), 256, false),
            stack(&[3, 4], mib(900), mib(1), 4096, false),
        ],
        threads: vec![Thread {
            id: 4711,
            name: "server".to_owned(),
            allocated_bytes: mib(1000),
            live_bytes: mib(71),
        }],
        bucket_ends_us: vec![1000, 1_000_000, 60_000_000],
        timeline: (0..=10)
            .map(|at| Moment {
                at_ms: at * 1000,
                resident_bytes: mib(60 + 5 * at),
                live_bytes: mib(21 + 5 * at),
                free_bytes: mib(6),
                allocated_bytes: mib(100 * at),
                freed_bytes: mib(93 * at),
                thread_count: 1,
                ..Moment::default()
            })
            .collect(),
        classes: vec![Class {
            bytes: 64,
            slab_count: 900,
            capacity_count: 900 * 1024,
            live_count: 819_200,
            resident_bytes: mib(56),
            sparse_page_count: 512,
            sparse_bytes: mib(2) - 512 * 300,
            alloc_count: 983_040,
            free_count: 163_840,
        }],
        pins: vec![Pin {
            stack: 1,
            pinned_bytes: mib(2) - 512 * 300,
            page_count: 512,
            held_bytes: mib(20),
            held_count: mib(20) / 256,
            old_bytes: mib(10),
            age_us_median: 5_000_000,
            classes: vec![0],
        }],
        settings: vec![Setting {
            name: "purge_delay_ms".to_owned(),
            value: "250".to_owned(),
            is_default: true,
        }],
        counters: [("visit".to_owned(), 12_345)].into(),
        totals: Totals {
            resident_bytes: mib(110),
            resident_peak_bytes: mib(112),
            live_bytes: mib(71),
            live_count: 901_120,
            free_bytes: mib(6),
            sparse_bytes: mib(2) - 512 * 300,
            allocated: amount(1_400_000, mib(1000)),
            freed: amount(500_000, mib(929)),
            live: amount(901_120, mib(71)),
            temporary: amount(250_000, mib(464)),
            ..Totals::default()
        },
    }
}
