//! A program as there are many: maps, sorted lists, strings, worker threads; what it finds is known by other means.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::thread;

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

/// Word `number` of a text in which word n stands about 1/n times as often as the first.
fn word(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let rank = (1 << 24) / (mixed + 1);
    format!("w{rank}{}", "x".repeat((rank % 40) as usize))
}

#[test]
fn words_counted_three_ways() {
    const COUNT: u64 = 300_000;
    let mut table: HashMap<String, u32> = HashMap::new();
    let mut tree: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for number in 0..COUNT {
        *table.entry(word(number)).or_default() += 1;
        tree.entry(word(number)).or_default().push(number);
    }
    let mut list: Vec<String> = (0..COUNT).map(word).collect();
    list.sort();
    let runs: Vec<(&String, u32)> =
        list.chunk_by(|a, b| a == b).map(|run| (&run[0], run.len() as u32)).collect();

    assert_eq!(table.len(), runs.len());
    assert_eq!(tree.len(), runs.len());
    for ((name, count), (key, places)) in runs.iter().zip(&tree) {
        assert_eq!((*name, *count as usize), (key, places.len()));
        assert_eq!(table[*name], *count);
        assert!(places.iter().all(|place| word(*place) == **name));
    }
    // Half of the text is forgotten, what is left stays as it is.
    tree.retain(|key, _| key.len() % 2 == 0);
    table.retain(|key, _| key.len() % 2 == 0);
    assert!(tree.iter().map(|(key, places)| (key, places.len() as u32)).eq({
        let mut rows: Vec<_> = table.iter().map(|(key, count)| (key, *count)).collect();
        rows.sort();
        rows
    }));
}

#[test]
fn workers_share_a_map() {
    let shared = Arc::new(Mutex::new(HashMap::<String, u64>::new()));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut own: HashMap<String, u64> = HashMap::new();
                for number in (worker..80_000).step_by(4) {
                    *own.entry(word(number)).or_default() += number;
                }
                let mut all = shared.lock().unwrap();
                for (key, sum) in own {
                    *all.entry(key).or_default() += sum;
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let all = shared.lock().unwrap();
    assert_eq!(all.values().sum::<u64>(), (0..80_000).sum());
}
