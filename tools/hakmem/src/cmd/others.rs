//! others.rs - the dumps of a recorded program's children, where nobody wants them: a build starts thousands of processes,
//! and what each leaves (30 to 200 KB) would fill the place for temporary files until the program ends.
//!
//! Rule: a dump is whole when it has its name, and is counted once. What guarded blocks left is kept: it is told at the end.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Takes away what others than the program leave in the folder, until its end.
pub struct Others {
    end: Sender<()>,
    count: JoinHandle<u64>,
}

impl Others {
    /// None: there is no thread to be had.
    pub fn begin(folder: PathBuf, pid: u32) -> Option<Others> {
        const STEP: Duration = Duration::from_millis(500);
        let (end, ended) = channel();
        let taken_away = move || {
            let mut of = HashSet::new(); // a process may leave more than one
            while ended.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                of.extend(take_away(&folder, pid));
            }
            of.len() as u64
        };
        let count = std::thread::Builder::new().spawn(taken_away).ok()?;
        Some(Others { end, count })
    }

    /// How many there were.
    pub fn end(self) -> u64 {
        drop(self.end);
        self.count.join().unwrap_or(0)
    }
}

/// Whose they were.
fn take_away(folder: &Path, pid: u32) -> Vec<u32> {
    let others = |name: &OsStr| {
        dump_name(name).filter(|(of, reason)| *of != pid && *reason != "guard").map(|(of, _)| of)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| others(&entry.file_name()).map(|of| (of, entry.path())));
    found.filter(|(_, path)| fs::remove_file(path).is_ok()).map(|(of, _)| of).collect()
}

/// PROGRAM.PID.REASON.hakdump, as the library calls its files.
pub fn dump_name(name: &OsStr) -> Option<(u32, &str)> {
    // The program's name may be any bytes; what follows it is not.
    let name = name.as_bytes().strip_suffix(b".hakdump")?;
    let mut parts = name.rsplitn(3, |byte| *byte == b'.');
    let reason = std::str::from_utf8(parts.next()?).ok()?;
    let pid = std::str::from_utf8(parts.next()?).ok()?;
    parts.next()?;
    Some((pid.parse().ok()?, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_known_by_their_names() {
        assert_eq!(dump_name(OsStr::new("redis.server.42.exit.hakdump")), Some((42, "exit")));
        let odd = OsStr::from_bytes(b"caf\xe9.x.42.guard.hakdump");
        assert_eq!(dump_name(odd), Some((42, "guard")));
        for other in ["42.json", "x.hakdump", "a.b.hakdump", "a.x.exit.hakdump", "a.42.exit.hakdump~"] {
            assert_eq!(dump_name(OsStr::new(other)), None);
        }
    }

    #[test]
    fn what_others_left_goes_and_is_counted() {
        let folder = std::env::temp_dir().join(format!("hakmem-others-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let put = |name: &str| fs::write(folder.join(name), "x").unwrap();
        for name in ["sh.7.exit.hakdump", "cc.8.guard.hakdump", "8.json", "cc.9.exit.hakdump.new"] {
            put(name);
        }
        let others = Others::begin(folder.clone(), 7).unwrap();
        for number in 10..20 {
            put(&format!("cc.{number}.exit.hakdump"));
        }
        put("cc.10.resident.hakdump"); // of one that is counted already
        let count = || fs::read_dir(&folder).unwrap().count();
        for _ in 0..100 {
            if count() == 4 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!((others.end(), count()), (10, 4));
        fs::remove_dir_all(&folder).unwrap();
    }
}
