//! stats.rs - the library's statistics (hak_stats_json), as it writes them to the file of HAKMEM_REPORT.
//!
//! Rule: a key that is missing is zero and a key that is new is kept, so that tool and library of
//!       neighbouring versions understand each other.

use crate::options::{COUNTERS, CounterRow};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub version: String,
    pub pid: u64,
    pub live_bytes: u64,
    pub resident_bytes: u64,
    pub reserved_bytes: u64,
    pub committed_bytes: u64,
    pub free_bytes: u64,
    pub returned_bytes: u64,
    pub retouched_bytes: u64,
    pub large_count: u64,
    pub large_bytes: u64,
    pub heap_count: u64,
    pub dead_heap_count: u64,
    pub counters: Map<String, Value>,
    pub classes: Vec<Class>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Class {
    pub bytes: u64,
    pub slabs: u64,
    pub allocs: u64,
    pub frees: u64,
    pub live: u64,
}

/// What a kind of counters is about, in the report's order.
pub struct Group {
    pub title: &'static str,
    prefixes: &'static [&'static str],
}

pub static GROUPS: &[Group] = &[
    Group { title: "visits", prefixes: &["visit"] },
    Group { title: "frees", prefixes: &["free", "letter", "mail", "collected", "event"] },
    Group { title: "slabs", prefixes: &["slab"] },
    Group { title: "large", prefixes: &["large", "zero"] },
    Group { title: "pages", prefixes: &["sweep", "return"] },
    Group { title: "heaps", prefixes: &["heap"] },
    Group { title: "guards", prefixes: &["guard"] },
    Group { title: "other", prefixes: &[] }, // whatever no other group has, a newer library's counters too
];

pub struct Counted<'a> {
    pub name: &'a str,
    pub count: u64,
    pub row: Option<&'static CounterRow>, // None: the library is newer than this tool
}

impl Stats {
    pub fn parse(text: &str) -> Result<Stats, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    pub fn alloc_count(&self) -> u64 {
        self.classes.iter().map(|class| class.allocs).sum::<u64>() + self.counter("large_alloc")
    }

    pub fn free_count(&self) -> u64 {
        self.classes.iter().map(|class| class.frees).sum::<u64>() + self.counter("free_large")
    }

    pub fn live_count(&self) -> u64 {
        self.classes.iter().map(|class| class.live).sum::<u64>() + self.large_count
    }

    /// The classes by how often they were allocated.
    pub fn classes_by_use(&self) -> Vec<&Class> {
        let mut classes: Vec<&Class> = self.classes.iter().collect();
        classes.sort_by_key(|class| (std::cmp::Reverse(class.allocs), class.bytes));
        classes
    }

    /// The counters of a group: those of the table in its order, then those that the table does not have.
    pub fn counters_of(&self, group: &Group) -> Vec<Counted<'_>> {
        let known = COUNTERS.iter().filter(|row| self.counters.contains_key(row.name)).map(|row| row.name);
        let new = self.counters.keys().map(String::as_str);
        let new = new.filter(|name| COUNTERS.iter().all(|row| row.name != *name));
        known
            .chain(new)
            .filter(|name| std::ptr::eq(group_of(name), group))
            .map(|name| Counted {
                name,
                count: self.counter(name),
                row: COUNTERS.iter().find(|row| row.name == name),
            })
            .collect()
    }
}

fn group_of(name: &str) -> &'static Group {
    let fits = |prefix: &&str| {
        name.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let other = &GROUPS[GROUPS.len() - 1];
    GROUPS.iter().find(|group| group.prefixes.iter().any(fits)).unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_table_has_a_group_of_its_own_kind() {
        for row in COUNTERS {
            let known_kind = !group_of(row.name).prefixes.is_empty() || row.name.starts_with("event");
            assert!(known_kind, "{} would be listed as 'other': add its prefix to a group", row.name);
            assert!(!row.unit.is_empty() && !row.text.is_empty());
        }
    }

    #[test]
    fn missing_keys_are_zero_and_new_ones_do_no_harm() {
        let stats =
            Stats::parse("{\"pid\": 7, \"new\": [1], \"counters\": {\"visit\": 3, \"novelty\": 4}}").unwrap();
        assert_eq!(
            (stats.pid, stats.live_bytes, stats.counter("visit"), stats.counter("free_large")),
            (7, 0, 3, 0)
        );
        let other = stats.counters_of(&GROUPS[GROUPS.len() - 1]);
        assert_eq!(other.len(), 1);
        assert_eq!((other[0].name, other[0].count, other[0].row.is_none()), ("novelty", 4, true));
        assert!(Stats::parse("{").is_err());
    }

    #[test]
    fn small_and_large_blocks_are_counted_together() {
        let text = r#"{"large_count": 1, "counters": {"large_alloc": 5, "free_large": 4},
            "classes": [{"bytes": 16, "allocs": 10, "frees": 8, "live": 2}, {"bytes": 32, "allocs": 20, "live": 0}]}"#;
        let stats = Stats::parse(text).unwrap();
        assert_eq!((stats.alloc_count(), stats.free_count(), stats.live_count()), (35, 12, 3));
        assert_eq!(stats.classes_by_use()[0].bytes, 32);
    }
}
