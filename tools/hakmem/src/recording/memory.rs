//! memory.rs - another process's memory, read and written without stopping it.
//!
//! Owns:   /proc/PID/maps, process_vm_readv and process_vm_writev, and what their refusals mean.
//! Rule:   the process goes on running: what is read is of many moments. Whoever needs one moment checks a sequence.
//! Limits: the system's ptrace rules decide; `hakmem doctor -p PID` says what they say.

use crate::system::{self, error_text};
use crate::text::Failure;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{fs, io};

/// Bytes at addresses: of a living process, or of a dump of one.
pub trait Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()>;

    /// Many short pieces (address, length), one behind the other. None: some of them cannot be read.
    fn read_pieces(&self, pieces: &[(u64, usize)]) -> Option<Vec<u8>> {
        let mut all = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        let mut rest = all.as_mut_slice();
        for (address, length) in pieces {
            let (piece, after) = rest.split_at_mut(*length);
            self.read(*address, piece).ok()?;
            rest = after;
        }
        Some(all)
    }
}

pub struct Process {
    pub pid: u32,
    start_time: Option<u64>, // by which another process with its number is told
}

#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub is_executable: bool,
    pub is_writable: bool,
    pub path: PathBuf, // empty: of no file
    pub is_deleted: bool,
    pub build_id: String, // empty: whatever the file has
}

impl Process {
    pub fn of(pid: u32) -> Process {
        Process { pid, start_time: system::start_time(pid) }
    }

    /// A process that may be looked at, or one line that says why not.
    pub fn open(pid: u32) -> Result<Process, Failure> {
        if let Some(obstacle) = system::proc_obstacle() {
            return Err(Failure::usage(obstacle));
        }
        let process = Process::of(pid);
        let state = system::status_field(pid, "State").map_err(|error| process.refusal(&error))?;
        if state.unwrap_or_default().starts_with('Z') {
            return Err(Failure::usage(format!("process {pid} has ended")));
        }
        let mappings = process.mappings()?;
        // Reading maps asks for less than reading memory does.
        let Some(first) = mappings.iter().find(|mapping| mapping.path.is_absolute()) else {
            return Err(Failure::usage(format!(
                "process {pid} is a part of the kernel and has no memory of its own"
            )));
        };
        match process.read(first.start, &mut [0; 4]) {
            Err(error) if error.raw_os_error() != Some(libc::EFAULT) => Err(process.refusal(&error)),
            _ => Ok(process),
        }
    }

    pub fn mappings(&self) -> Result<Vec<Mapping>, Failure> {
        let text = fs::read(format!("/proc/{}/maps", self.pid)).map_err(|error| self.refusal(&error))?;
        Ok(mappings_parse(&text))
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        let written = unsafe { libc::process_vm_writev(self.pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        complete(written, bytes.len())
    }

    pub fn is_alive(&self) -> bool {
        let state = system::status_field(self.pid, "State").ok().flatten();
        state.is_some_and(|state| !state.starts_with(['Z', 'X']))
            && self.start_time.is_none_or(|start| system::start_time(self.pid) == Some(start))
    }

    /// What an error means, in one line.
    pub fn refusal(&self, error: &io::Error) -> Failure {
        let pid = self.pid;
        Failure::usage(match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => format!("there is no process {pid}"),
            Some(libc::EACCES | libc::EPERM) => {
                format!("process {pid} may not be read: permission denied{}", self.rule())
            }
            Some(libc::ENOSYS) => "this kernel has no process_vm_readv".to_owned(),
            _ => format!("process {pid} cannot be read: {}", error_text(error)),
        })
    }
}

impl Process {
    /// Which of the system's rules it is that refuses us.
    fn rule(&self) -> &'static str {
        let is_root = system::user_id() == 0;
        let ids = system::status_field(self.pid, "Uid").ok().flatten().unwrap_or_default();
        let user: Option<u32> = ids.split_whitespace().nth(1).and_then(|id| id.parse().ok());
        // The kernel gives the files of a process that is not dumpable to root.
        let owner = fs::metadata(format!("/proc/{}/status", self.pid)).ok().map(|file| file.uid());
        match system::ptrace_scope() {
            Some(3) => "; kernel.yama.ptrace_scope is 3: nobody may, until the machine starts anew",
            Some(2) if !is_root => "; kernel.yama.ptrace_scope is 2: only root may",
            Some(1) if !is_root => "; kernel.yama.ptrace_scope is 1: only root and its parent may",
            _ if is_root => "; root needs CAP_SYS_PTRACE for it, which is not here",
            _ if owner != user => "; it is not dumpable (PR_SET_DUMPABLE, a setuid program): only root may",
            _ if user == Some(system::user_id()) => "; it has more rights than you: only root may",
            _ => "; its user may, and root",
        }
    }
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        // A call holds the process's map of memory for as long as it copies: short ones let its own changes in.
        const CALL_BYTES_MAX: usize = 256 << 10;
        let mut at = address;
        for part in into.chunks_mut(CALL_BYTES_MAX) {
            let local = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
            let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: part.len() };
            let read = unsafe { libc::process_vm_readv(self.pid as libc::pid_t, &local, 1, &remote, 1, 0) };
            complete(read, part.len())?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// A call for each thousand of them.
    fn read_pieces(&self, pieces: &[(u64, usize)]) -> Option<Vec<u8>> {
        const CALL_PIECES_MAX: usize = 1000;
        let mut all = vec![0_u8; pieces.iter().map(|(_, length)| length).sum()];
        let mut rest = all.as_mut_slice();
        for part in pieces.chunks(CALL_PIECES_MAX) {
            let bytes = part.iter().map(|(_, length)| length).sum();
            let (into, after) = rest.split_at_mut(bytes);
            rest = after;
            let piece = |(address, length): &(u64, usize)| libc::iovec {
                iov_base: *address as *mut libc::c_void,
                iov_len: *length,
            };
            let remote: Vec<libc::iovec> = part.iter().map(piece).collect();
            let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: bytes };
            let (count, pid) = (remote.len() as libc::c_ulong, self.pid as libc::pid_t);
            let read = unsafe { libc::process_vm_readv(pid, &local, 1, remote.as_ptr(), count, 0) };
            complete(read, bytes).ok()?;
        }
        Some(all)
    }
}

fn complete(done: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Ok(done) if done == wanted => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

pub fn mappings_parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n').filter_map(mapping_parse).collect()
}

fn mapping_parse(line: &[u8]) -> Option<Mapping> {
    // 7f00-7f01 r-xp 00001000 fe:00 12       /usr/lib/a b.so (deleted)
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let field = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 1..];
        Some(field)
    };
    let (start, end) = field()?.split_once('-')?;
    let rights = field()?;
    let offset = field()?;
    field()?;
    let inode = rest.trim_ascii_start();
    let name =
        inode.iter().position(|byte| *byte == b' ').map_or(&b""[..], |at| inode[at..].trim_ascii_start());
    let (name, is_deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        is_executable: rights.contains('x'),
        is_writable: rights.contains('w'),
        path: PathBuf::from(OsString::from_vec(system::name_decode(name))),
        is_deleted,
        build_id: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_reads_itself() {
        let process = Process::open(std::process::id()).unwrap();
        let words = [1_u64, 2, 3];
        let mut read = [0; 24];
        process.read(words.as_ptr() as u64, &mut read).unwrap();
        assert_eq!(read[8], 2);
        let mut target = 5_u64;
        let address = &raw mut target as u64;
        process.write(address, &7_u64.to_le_bytes()).unwrap();
        assert_eq!(unsafe { std::ptr::read_volatile(&raw const target) }, 7);
        assert!(process.read(8, &mut [0; 4]).is_err());
        let start = words.as_ptr() as u64;
        let pieces: Vec<(u64, usize)> = (0..3000).map(|n| (start + n % 3 * 8, 8)).collect();
        let read = process.read_pieces(&pieces).unwrap();
        assert!(read.chunks(8).zip((1_u8..=3).cycle()).all(|(piece, first)| piece[0] == first));
        assert!(process.read_pieces(&[(start, 8), (8, 8)]).is_none());
    }

    #[test]
    fn another_process_with_its_number_is_not_it() {
        let process = Process::of(std::process::id());
        assert!(process.is_alive() && process.start_time.is_some());
        let before = process.start_time.map(|start| start - 1);
        assert!(!Process { start_time: before, ..process }.is_alive());
    }

    #[test]
    fn lines_of_maps_are_taken_apart() {
        let text = b"5500-5600 r-xp 00001000 fe:00 12                       /usr/bin/a b\\012\n\
                     5600-5700 rw-p 00000000 00:00 0 \n\
                     7f02-7f03 r--p 00000000 fe:00 9   /tmp/x.so (deleted)\nnonsense\n";
        let mappings = mappings_parse(text);
        assert_eq!(mappings.len(), 3);
        assert_eq!((mappings[0].start, mappings[0].end, mappings[0].offset), (0x5500, 0x5600, 0x1000));
        assert!(mappings[0].is_executable && !mappings[0].is_writable);
        assert_eq!(mappings[0].path.to_str(), Some("/usr/bin/a b\n"));
        assert!(mappings[1].path.as_os_str().is_empty());
        assert!(mappings[2].is_deleted && mappings[2].path.ends_with("x.so"));
    }

    #[test]
    fn who_may_not_be_read_is_told_in_one_line() {
        let process = Process { pid: 42, start_time: None };
        let line = |code| process.refusal(&io::Error::from_raw_os_error(code)).line;
        assert_eq!(line(libc::ESRCH), "there is no process 42");
        assert!(line(libc::EPERM).starts_with("process 42 may not be read: permission denied; "));
        assert!(Process::open(u32::MAX >> 1).is_err());
    }
}
