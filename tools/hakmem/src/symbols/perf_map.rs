//! perf_map.rs - names of code that a program made while it ran: /tmp/perf-PID.map, as `perf` reads it.
//!
//! Node writes it with --perf-basic-prof, Python from 3.12 on with -X perf, Java with perf-map-agent. Lines of start,
//! size (both hexadecimal) and name.

use crate::system;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const FILE_BYTES_MAX: u64 = 256 << 20;
/// Of node, half an hour of much made code writes a tenth.
const ROWS_MAX: usize = 1 << 22;
/// Files have times of a coarser clock, and what was held back is written when a program ends.
const SLACK_MS: u64 = 1000;

/// Who wrote a process's map, and when. /tmp is everybody's, and numbers of processes are given again: what others left
/// there is not believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Author {
    user: Option<u32>, // beside root and us
    written_ms: RangeInclusive<u64>,
}

impl Author {
    /// Since its start, by a process that runs.
    pub fn running(user: Option<u32>, started_unix_ms: u64) -> Author {
        Author { user, written_ms: started_unix_ms.saturating_sub(SLACK_MS)..=u64::MAX }
    }

    /// By one that ended after it was seen at `seen_unix_ms`; another may have its number by now.
    pub fn ended(user: Option<u32>, seen_unix_ms: u64) -> Author {
        Author { user, written_ms: 0..=seen_unix_ms.saturating_add(SLACK_MS) }
    }

    /// None: it is none of his. Nobody is waited for at the other end of a pipe.
    fn text(&self, path: &Path) -> Option<Vec<u8>> {
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let is_his = [Some(0), Some(system::user_id()), self.user].contains(&Some(metadata.uid()));
        let written_ms =
            metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000);
        let is_of_then = self.written_ms.contains(&u64::try_from(written_ms).unwrap_or(0));
        let mut text = Vec::new();
        (metadata.is_file() && is_his && is_of_then).then_some(())?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

#[derive(Default)]
pub struct PerfMap {
    rows: Vec<(u64, u64, String)>, // start, end, name; by start
}

impl PerfMap {
    /// `root`: where the process's files are. Its number may be another inside a container; then there is none.
    pub fn of_process(pid: u32, root: &Path, author: &Author) -> PerfMap {
        let text = author.text(&root.join(format!("tmp/perf-{pid}.map"))).unwrap_or_default();
        PerfMap::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> PerfMap {
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let row = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let (start, bytes) = (number(parts.next()?)?, number(parts.next()?)?);
            Some((start, start.checked_add(bytes)?, parts.next()?.trim().to_owned()))
        };
        // Code is replaced by other code at the same place: the last line is true.
        let mut rows: Vec<_> = text.lines().rev().filter_map(row).take(ROWS_MAX).collect();
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
    use std::fs;
    use std::os::unix::fs::{chown, symlink};
    use std::process::Command;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    #[test]
    fn generated_code_has_the_last_name_it_was_given() {
        let map = PerfMap::parse("7f10 20 old\n7f10 20 py::work:/a.py\nbad line\n7f40 10 other\n");
        assert_eq!(map.name(0x7f11), Some("py::work:/a.py"));
        assert_eq!(map.name(0x7f30), Some("py::work:/a.py"));
        assert_eq!((map.name(0x7f10), map.name(0x7f31)), (None, None));
    }
    #[test]
    fn only_the_processs_own_map_is_believed() {
        let root = std::env::temp_dir().join(format!("hakmem-perf-map-{}", std::process::id()));
        fs::create_dir_all(root.join("tmp")).unwrap();
        let (path, other) = (root.join("tmp/perf-7.map"), root.join("other"));
        let is_read = |author: &Author| PerfMap::of_process(7, &root, author).name(0x1008) == Some("work");
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let (before, after) = (now_ms - 60_000, now_ms + 60_000);
        fs::write(&path, "1000 10 work\n").unwrap();
        assert!(is_read(&Author::running(None, before)) && is_read(&Author::running(None, now_ms)));
        assert!(is_read(&Author::ended(None, after)) && is_read(&Author::ended(None, now_ms)));
        assert!(!is_read(&Author::running(None, after)), "of an earlier process with its number");
        assert!(!is_read(&Author::ended(None, before)), "of a later one");
        assert!(!is_read(&Author::ended(None, 0)), "when is not known");
        if system::user_id() == 0 {
            chown(&path, Some(12345), None).unwrap();
            assert!(!is_read(&Author::running(None, 0)) && !is_read(&Author::running(Some(12346), 0)));
            assert!(is_read(&Author::running(Some(12345), 0)));
        }
        fs::rename(&path, &other).unwrap();
        symlink(&other, &path).unwrap();
        assert!(!is_read(&Author::running(Some(12345), 0)), "it leads elsewhere");
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let start = Instant::now();
        let nobody = is_read(&Author::running(None, 0)); // nobody writes to it
        fs::remove_dir_all(&root).unwrap();
        assert!(!nobody && start.elapsed() < Duration::from_secs(5));
    }
}
