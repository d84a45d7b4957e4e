//! perf_map.rs - names of code that a program made while it ran: /tmp/perf-PID.map, as `perf` reads it.
//!
//! Node writes it with --perf-basic-prof, Python from 3.12 on with -X perf, Java with perf-map-agent. Lines of start,
//! size (both hexadecimal) and name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Default)]
pub struct PerfMap {
    rows: Vec<(u64, u64, String)>, // start, end, name; by start
}

impl PerfMap {
    /// `root`: where the process's files are. Its number may be another inside a container; then there is none.
    pub fn of_process(pid: u32, root: &Path) -> PerfMap {
        let name = format!("tmp/perf-{pid}.map");
        let mut text = Vec::new();
        let Ok(file) = File::open(root.join(name)) else { return PerfMap::default() };
        if file.take(FILE_BYTES_MAX).read_to_end(&mut text).is_err() {
            return PerfMap::default();
        }
        PerfMap::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> PerfMap {
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let row = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let (start, bytes) = (number(parts.next()?)?, number(parts.next()?)?);
            Some((start, start.checked_add(bytes)?, parts.next()?.trim().to_owned()))
        };
        let mut rows: Vec<_> = text.lines().filter_map(row).collect();
        // Code is replaced by other code at the same place: the last line is true.
        rows.reverse();
        rows.sort_by_key(|(start, ..)| *start);
        rows.dedup_by_key(|(start, ..)| *start);
        PerfMap { rows }
    }

    pub fn name(&self, return_address: u64) -> Option<&str> {
        let after = self.rows.partition_point(|(start, ..)| *start < return_address);
        let (_, end, name) = self.rows[..after].last()?;
        (return_address <= *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_has_the_last_name_it_was_given() {
        let map = PerfMap::parse("7f10 20 old\n7f10 20 py::work:/a.py\nbad line\n7f40 10 other\n");
        assert_eq!(map.name(0x7f11), Some("py::work:/a.py"));
        assert_eq!(map.name(0x7f30), Some("py::work:/a.py"));
        assert_eq!((map.name(0x7f10), map.name(0x7f31)), (None, None));
    }
}
