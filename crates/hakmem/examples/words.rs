//! Counts the words of its input, and says what that took: `cargo run --example words < README.md`

use std::collections::HashMap;
use std::io::{self, BufRead};

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

fn main() -> io::Result<()> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for line in io::stdin().lock().lines() {
        for word in line?.split_whitespace() {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut rows: Vec<(String, u64)> = counts.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    for (word, count) in rows.iter().take(10) {
        println!("{count:8} {word}");
    }

    let stats = hakmem::stats();
    println!("HAKMEM {}: {} words hold {} KiB", hakmem::version(), rows.len(), stats.live_bytes >> 10);
    drop(rows);
    println!("{} KiB given back at the end", hakmem::collect() >> 10);
    Ok(())
}
