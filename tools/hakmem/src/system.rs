//! system.rs - what the kernel says of this machine, of a process, and of what it lets us do.
//!
//! Owns:     every reading of /proc and /sys and every probe. Judging what was read is the doctor's work
//!           (check/).
//! Rule:     what cannot be read is None, never a guess.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io, ptr};

/// The system's word for an error, without Rust's "(os error 2)".
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_lowercase().chain(characters).collect())
}

pub fn page_bytes() -> u64 {
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

pub fn user_id() -> u32 {
    unsafe { libc::geteuid() }
}

pub fn group_id() -> u32 {
    unsafe { libc::getegid() }
}

pub fn kernel_release() -> Option<String> {
    trimmed("/proc/sys/kernel/osrelease")
}

pub fn overcommit_mode() -> Option<u64> {
    trimmed("/proc/sys/vm/overcommit_memory")?.parse().ok()
}

/// Yama's rule on who may read another process's memory: 0 its user, 1 its parent, 2 root, 3 nobody; None: no Yama.
pub fn ptrace_scope() -> Option<u64> {
    trimmed("/proc/sys/kernel/yama/ptrace_scope")?.parse().ok()
}

pub fn mapping_count_max() -> Option<u64> {
    trimmed("/proc/sys/vm/max_map_count")?.parse().ok()
}

/// always, madvise or never: the word in brackets.
pub fn huge_page_setting() -> Option<String> {
    let text = trimmed("/sys/kernel/mm/transparent_hugepage/enabled")?;
    let (_, after) = text.split_once('[')?;
    after.split_once(']').map(|(word, _)| word.to_owned())
}

/// The libraries that the loader puts into every program.
pub fn system_preloads() -> Vec<String> {
    let text = text_read("/etc/ld.so.preload").unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(preloads_split).collect()
}

/// The entries of an LD_PRELOAD.
pub fn preloads_split(value: &str) -> Vec<String> {
    value.split([' ', ':', '\t']).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

fn trimmed(path: &str) -> Option<String> {
    text_read(path).ok().map(|text| text.trim().to_owned())
}

/// Names of programs and of files stand in what the kernel says, and may be any bytes: it cuts them, too.
pub fn text_read(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

// --- limits -------------------------------------------------------------------------------------

/// A soft limit of a process ("self" or its number) by its name in /proc/PID/limits; None if there is none.
pub fn limit(process: &str, name: &str) -> Option<u64> {
    let text = text_read(format!("/proc/{process}/limits")).ok()?;
    limit_find(&text, name)
}

fn limit_find(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

// --- processes ----------------------------------------------------------------------------------

/// Why no process can be found here by its number: /proc is not there (a bare chroot), or is that of another pid
/// namespace (`unshare --pid` alone), in which the same numbers are other processes.
pub fn proc_obstacle() -> Option<&'static str> {
    match fs::read_link("/proc/self") {
        Err(_) => Some("/proc is not mounted here, and nothing can be known of a process"),
        Ok(own) if own.as_os_str() == std::process::id().to_string().as_str() => None,
        Ok(_) => Some(
            "/proc is another pid namespace's, and its numbers mean other processes; mount one of its own",
        ),
    }
}

/// This command's file, also without /proc: as it was started, then.
pub fn own_path() -> Option<PathBuf> {
    env::current_exe().ok().or_else(|| {
        let name = ptr::with_exposed_provenance::<libc::c_char>(
            unsafe { libc::getauxval(libc::AT_EXECFN) } as usize
        );
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
        fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
    })
}

pub struct Mapping {
    pub path: PathBuf,
    pub is_deleted: bool,
}

/// The files that a process has mapped, each once, in the order of their addresses.
pub fn mapped_files(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(mappings_parse(&text))
}

fn mappings_parse(text: &[u8]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(start) = line.iter().position(|byte| *byte == b'/') else { continue };
        let name = &line[start..];
        let (name, is_deleted) = match name.strip_suffix(b" (deleted)") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let path = PathBuf::from(OsString::from_vec(name_decode(name)));
        if mappings.iter().all(|mapping| mapping.path != path) {
            mappings.push(Mapping { path, is_deleted });
        }
    }
    mappings
}

/// A name in /proc/PID/maps: the kernel writes a line's end as \012, and everything else as it is.
pub fn name_decode(name: &[u8]) -> Vec<u8> {
    const LINE_END: &[u8] = b"\\012";
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        let found = rest.strip_prefix(LINE_END);
        decoded.push(if found.is_some() { b'\n' } else { *first });
        rest = found.unwrap_or(after);
    }
    decoded
}

/// The environment that a process was started with.
pub fn environment(pid: u32) -> io::Result<Vec<(String, String)>> {
    let text = fs::read(format!("/proc/{pid}/environ"))?;
    let entries = text.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    Ok(entries.filter_map(|entry| entry.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()))).collect())
}

/// A field of /proc/PID/status.
pub fn status_field(pid: u32, name: &str) -> io::Result<Option<String>> {
    let text = text_read(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.map(|value| value.trim().to_owned()))
}

/// When a process began, in ticks since the machine did: a number that is given again comes with another.
pub fn start_time(pid: u32) -> Option<u64> {
    const FIELD: usize = 22 - 3; // of proc(5), of those behind the name
    let text = text_read(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(FIELD)?.parse().ok()
}

/// The same in nanoseconds since 1970.
pub fn start_time_ns(pid: u32) -> Option<u64> {
    let ticks_per_second =
        u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|n| *n > 0)?;
    let since_boot_ns = start_time(pid)?.checked_mul(1_000_000_000 / ticks_per_second)?;
    Some(realtime_ns().checked_sub(clock_ns(libc::CLOCK_BOOTTIME))? + since_boot_ns)
}

pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(clock, &mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The file that a process runs, also where that was deleted since.
pub fn executable_path(pid: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let path = path.to_string_lossy();
    Some(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
}

pub fn host_name() -> Option<String> {
    trimmed("/proc/sys/kernel/hostname")
}

/// Why we can make no file in a folder.
pub fn write_refusal(folder: &Path) -> Option<io::Error> {
    let folder = match CString::new(folder.as_os_str().as_bytes()) {
        Ok(folder) => folder,
        Err(error) => return Some(error.into()),
    };
    let rights = libc::W_OK | libc::X_OK;
    let refused = unsafe { libc::faccessat(libc::AT_FDCWD, folder.as_ptr(), rights, libc::AT_EACCESS) } != 0;
    refused.then(io::Error::last_os_error)
}

/// Whether a file carries capabilities; the loader ignores LD_PRELOAD when they are granted.
pub fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().to_owned().into_vec()) else { return false };
    let bytes = unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), ptr::null_mut(), 0) };
    bytes > 0
}

// --- probes: what the kernel lets this process do --------------------------------------------------

struct Pages {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Pages {
    fn map(bytes: usize, protection: libc::c_int) -> Option<Pages> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Pages { start, bytes })
    }

    fn map_one() -> Option<Pages> {
        Pages::map(usize::try_from(page_bytes()).ok()?, libc::PROT_READ | libc::PROT_WRITE)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// MADV_WIPEONFORK, by which forks of every kind are seen.
pub fn can_wipe_on_fork() -> bool {
    let probe = |pages: Pages| unsafe { libc::madvise(pages.start, pages.bytes, libc::MADV_WIPEONFORK) == 0 };
    Pages::map_one().is_some_and(probe)
}

/// MADV_DONTNEED by madvise, and by process_madvise of many ranges at once for the process itself.
pub fn can_return_pages() -> bool {
    let probe = |pages: Pages| unsafe { libc::madvise(pages.start, pages.bytes, libc::MADV_DONTNEED) == 0 };
    Pages::map_one().is_some_and(probe)
}

pub fn can_return_pages_in_bulk() -> bool {
    /* From include/uapi/linux/pidfd.h: the calling process, without opening it (Linux 6.14). */
    const PIDFD_SELF_THREAD_GROUP: libc::c_int = -10001;
    let Some(pages) = Pages::map_one() else { return false };
    let returns_with = |pidfd: libc::c_int| {
        let range = libc::iovec { iov_base: pages.start, iov_len: pages.bytes };
        unsafe {
            libc::syscall(libc::SYS_process_madvise, pidfd, &range, 1_usize, libc::MADV_DONTNEED, 0) >= 0
        }
    };
    if returns_with(PIDFD_SELF_THREAD_GROUP) {
        return true;
    }
    let Ok(pidfd) = libc::c_int::try_from(unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) })
    else {
        return false;
    };
    let returned = pidfd >= 0 && returns_with(pidfd);
    if pidfd >= 0 {
        unsafe { libc::close(pidfd) };
    }
    returned
}

/// MREMAP_DONTUNMAP, by which large blocks grow without copying.
pub fn can_move_pages() -> bool {
    let Some(pages) = Pages::map_one() else { return false };
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    // The address is a hint with this flag, and must be given: whatever else stands there is refused.
    let anywhere = ptr::null_mut::<libc::c_void>();
    let moved = unsafe { libc::mremap(pages.start, pages.bytes, pages.bytes, flags, anywhere) };
    if moved == libc::MAP_FAILED {
        return false;
    }
    drop(Pages { start: moved, bytes: pages.bytes });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_found_by_its_name() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max address space         67108864             unlimited            bytes\n\
                    Max locked memory         unlimited            unlimited            bytes\n";
        assert_eq!(limit_find(text, "Max address space"), Some(67108864));
        assert_eq!(limit_find(text, "Max locked memory"), None);
        assert_eq!(limit_find(text, "Max data size"), None);
    }

    #[test]
    fn mapped_files_are_listed_once_and_marked_when_deleted() {
        let text = b"5500-5501 r-xp 00000000 fe:00 12   /usr/bin/a b\n5501-5502 rw-p 0 fe:00 12   /usr/bin/a b\n\
                     7f00-7f01 r--p 00000000 00:00 0    [heap]\n7f02-7f03 r--p 00 fe:00 9   /tmp/x.so (deleted)\n";
        let mappings = mappings_parse(text);
        let seen: Vec<_> = mappings.iter().map(|m| (m.path.to_str().unwrap(), m.is_deleted)).collect();
        assert_eq!(seen, [("/usr/bin/a b", false), ("/tmp/x.so", true)]);
    }

    #[test]
    fn a_line_end_in_a_name_is_the_kernels_to_write() {
        assert_eq!(name_decode(b"/a\\012b \\040\\"), b"/a\nb \\040\\");
        let folder = std::env::temp_dir().join(format!("hakmem-a\nb \t\\040-{}", std::process::id()));
        fs::write(&folder, [7; 4096]).unwrap();
        let file = fs::File::open(&folder).unwrap();
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let mapped = mapped_files(std::process::id()).unwrap();
        assert!(mapped.iter().any(|mapping| mapping.path == folder), "{:?}", map[0]);
        fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn preloads_are_separated_by_blanks_and_colons() {
        assert_eq!(preloads_split(" a.so:b.so  c.so:"), ["a.so", "b.so", "c.so"]);
        assert!(preloads_split("").is_empty());
    }

    #[test]
    fn this_kernel_answers_the_probes() {
        assert!(can_return_pages());
        assert!(page_bytes() >= 4096);
    }

    #[test]
    fn errors_are_told_in_the_systems_words() {
        assert_eq!(error_text(&io::Error::from_raw_os_error(libc::ENOENT)), "no such file or directory");
    }
}
