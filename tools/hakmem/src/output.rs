//! output.rs - files that we write: whole or not at all.
//!
//! Rule: whether a file can be written is found out before the work is done. It is replaced by rename: a reader, a run that
//!       is killed, or a full disk never leaves half a file. A link is followed, and what it names is replaced. What is no
//!       regular file, and whatever stands in /dev or /proc, is written to, not replaced. `-` is standard output.

use crate::system::error_text;
use crate::text::{self, Failure};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The name of standard input among the files to be read, and of standard output among those to be written.
pub const STREAM: &str = "-";

/// A file that will be written.
pub struct Output {
    path: PathBuf,
    place: Place,
}

enum Place {
    /// A file that we have open.
    Descriptor(RawFd),
    /// It stays: a device, a pipe.
    Direct(PathBuf),
    Replaced {
        target: PathBuf,
        draft: PathBuf,
    },
}

impl Output {
    pub fn open(path: &Path) -> Result<Output, Failure> {
        let place = place_of(path).map_err(|error| failure(path, &error_text(&error)))?;
        let output = Output { path: path.to_owned(), place };
        output.check().map_err(|reason| failure(path, &reason))?;
        Ok(output)
    }

    /// An output that would take the place of what it is made of is a mistake.
    pub fn open_beside(path: &Path, inputs: &[PathBuf]) -> Result<Output, Failure> {
        let place = if path == Path::new(STREAM) { Path::new("/proc/self/fd/1") } else { path };
        let is_file = fs::metadata(place).is_ok_and(|found| found.is_file());
        match inputs.iter().find(|input| is_file && is_same(place, input)) {
            Some(_) => Err(failure(path, "it is what is read")),
            None => Output::open(path),
        }
    }

    /// Written anew each time; anything else takes one writing.
    pub fn is_replaced(&self) -> bool {
        matches!(self.place, Place::Replaced { .. })
    }

    /// What is written by one takes the place of what is written by the other. A device takes both.
    pub fn is_place_of(&self, other: &Output) -> bool {
        match (&self.place, &other.place) {
            (Place::Descriptor(one), Place::Descriptor(other)) => one == other,
            (Place::Replaced { target: one, .. }, Place::Replaced { target: other, .. }) => one == other,
            _ => false,
        }
    }

    pub fn write(&self, content: &[u8]) -> Result<(), Failure> {
        self.write_by(|mut file| file.write_all(content))
    }

    /// What `fill` writes becomes the file if it returns no error.
    pub fn write_by<T>(&self, fill: impl FnOnce(fs::File) -> io::Result<T>) -> Result<T, Failure> {
        let written = match &self.place {
            Place::Descriptor(descriptor) => descriptor_copy(*descriptor).and_then(fill),
            Place::Direct(path) => {
                fs::OpenOptions::new().write(true).truncate(true).open(path).and_then(fill)
            }
            Place::Replaced { target, draft } => draft_make(target, draft)
                .and_then(|file| {
                    let same = file.try_clone()?; // by name we might not be allowed to read it
                    let value = fill(file)?;
                    flush(&same)?; // before it has its name: a power cut leaves the old file or the new one
                    fs::rename(draft, target).map(|()| value)
                })
                .inspect_err(|_| drop(fs::remove_file(draft))),
        };
        written.map_err(|error| failure(&self.path, &error_text(&error)))
    }

    fn check(&self) -> Result<(), String> {
        let of_system = |error: io::Error| error_text(&error);
        match &self.place {
            Place::Descriptor(descriptor) => descriptor_copy(*descriptor).map(drop).map_err(of_system),
            Place::Direct(path) if fs::metadata(path).map_err(of_system)?.is_dir() => {
                Err("it is a directory".to_owned())
            }
            Place::Direct(_) => Ok(()),
            Place::Replaced { target, draft } => {
                draft_make(target, draft).map_err(of_system)?;
                let _ = fs::remove_file(draft);
                match may_replace(target) {
                    true => Ok(()),
                    false => Err(of_system(io::Error::from_raw_os_error(libc::EPERM))),
                }
            }
        }
    }
}

/// To the disk; a file system that has none says EINVAL.
pub fn flush(file: &fs::File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}

/// In a folder like /tmp another's file is not to be replaced.
fn may_replace(target: &Path) -> bool {
    let us = unsafe { libc::geteuid() };
    let folder = target.parent().and_then(|folder| fs::metadata(folder).ok());
    let is_sticky = folder.is_some_and(|folder| folder.mode() & libc::S_ISVTX != 0 && folder.uid() != us);
    us == 0 || !is_sticky || fs::symlink_metadata(target).map_or(true, |there| there.uid() == us)
}

fn place_of(path: &Path) -> io::Result<Place> {
    const LINKS_MAX: usize = 40; // the kernel's own bound
    if path == Path::new(STREAM) {
        return Ok(Place::Descriptor(1));
    }
    let (mut at, mut is_special) = (path.to_owned(), false);
    for _ in 0..LINKS_MAX {
        // "a/" and "a/.." name folders.
        let Some(name) = at.file_name().filter(|name| at.as_os_str().as_bytes().ends_with(name.as_bytes()))
        else {
            return Ok(Place::Direct(at));
        };
        let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = match fs::canonicalize(folder) {
            Err(_) if is_special => return Ok(Place::Direct(path.to_owned())),
            folder => folder?,
        };
        if let Some(descriptor) = own_descriptor(&folder, name) {
            return Ok(Place::Descriptor(descriptor));
        }
        is_special |= is_system(&folder);
        let target = folder.join(name);
        match fs::read_link(&target) {
            Ok(next) => at = folder.join(next),
            Err(_) if is_special || fs::metadata(&target).is_ok_and(|found| !found.is_file()) => {
                return Ok(Place::Direct(path.to_owned()));
            }
            Err(_) => {
                let draft = folder.join(draft_name(name));
                return Ok(Place::Replaced { target, draft });
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// What stands there is the kernel's or the machine's, and no file of ours takes its place.
fn is_system(folder: &Path) -> bool {
    (folder.starts_with("/dev") && !folder.starts_with("/dev/shm")) || folder.starts_with("/proc")
}

/// A name in /proc/self/fd, by which /dev/stdout and /dev/fd go, too.
fn own_descriptor(folder: &Path, name: &OsStr) -> Option<RawFd> {
    let own = format!("/proc/{}/fd", std::process::id());
    (folder == Path::new(&own)).then(|| name.to_str()?.parse().ok()).flatten()
}

/// Opened anew a file would be written from its start; a copy goes on where the shell's `>>` left off.
fn descriptor_copy(descriptor: RawFd) -> io::Result<fs::File> {
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags == -1 || flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map(fs::File::from)
}

/// Beside the file; no longer than a name may be.
fn draft_name(name: &OsStr) -> OsString {
    const NAME_BYTES_MAX: usize = 100;
    let name = name.as_bytes();
    let begin = &name[..name.len().min(NAME_BYTES_MAX)];
    let pid = std::process::id().to_string();
    OsString::from_vec([b".", begin, b".", pid.as_bytes()].concat())
}

/// A new one: what somebody else put there is not followed. It has the mode of the file that it will replace, and its
/// owner where that is allowed; nobody can read more of it meanwhile.
fn draft_make(target: &Path, draft: &Path) -> io::Result<fs::File> {
    let _ = fs::remove_file(draft);
    let before = fs::metadata(target).ok();
    let mut options = fs::OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(if before.is_some() { 0o600 } else { 0o666 })
        .open(draft)?;
    if let Some(before) = before {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (before.uid(), before.gid())
            && fchown(&file, Some(before.uid()), Some(before.gid())).is_err()
        {
            let _ = fchown(&file, None, Some(before.gid()));
        }
        file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o777))?;
    }
    Ok(file)
}

/// %p is the process's number and %% is one %, as in the library.
pub fn path_with_pid(path: &OsStr, pid: u32) -> PathBuf {
    path_with(path, &[(b'p', &pid.to_string())])
}

/// The same with further marks: letters, and what each stands for.
pub fn path_with(path: &OsStr, marks: &[(u8, &str)]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        bytes.extend_from_slice(&rest[..at]);
        let mark = rest.get(at + 1).copied();
        let known = marks.iter().find(|(letter, _)| Some(*letter) == mark);
        match (known, mark) {
            (Some((_, text)), _) => bytes.extend_from_slice(text.as_bytes()),
            (None, Some(b'%') | None) => bytes.push(b'%'),
            (None, Some(other)) => bytes.extend_from_slice(&[b'%', other]),
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    bytes.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(bytes))
}

/// Two names of one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    place(one).is_some_and(|found| place(other) == Some(found))
}

fn failure(path: &Path, reason: &str) -> Failure {
    if path == Path::new(STREAM) {
        return Failure::usage(format!("standard output: {reason}"));
    }
    Failure::usage(format!("{} cannot be written: {reason}", text::quote(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("hakmem-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a");
        let output = Output::open(&path).ok().unwrap();
        assert!(!path.exists(), "a check leaves nothing");
        output.write(b"old").ok().unwrap();
        let refused = output.write_by(|mut file| {
            file.write_all(b"half")?;
            Err::<(), _>(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        assert!(refused.unwrap_err().line.ends_with("a cannot be written: no space left on device"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
        std::os::unix::fs::symlink(&path, folder.join("b")).unwrap();
        let refused = Output::open_beside(&folder.join("b"), &[folder.join("no"), path.clone()]);
        assert!(refused.err().unwrap().line.ends_with("b cannot be written: it is what is read"));
        assert!(Output::open(&folder).is_err() && Output::open(&folder.join("no/a")).is_err());
        assert!(Output::open(Path::new("/dev/full")).ok().unwrap().write(b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
    /// As /tmp is, to another than root.
    #[test]
    fn anothers_file_in_a_sticky_folder_is_refused_before_the_work() {
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let folder = std::env::temp_dir().join(format!("hakmem-sticky-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(folder.join("a"), "root's").unwrap();
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = unsafe { libc::setuid(65534) };
            let is_right = status == 0
                && Output::open(&folder.join("a")).is_err()
                && Output::open(&folder.join("b")).is_ok();
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Root reads every file, others not even their own of mode 0200.
    #[test]
    fn what_may_be_written_but_not_read_is_written() {
        let folder = std::env::temp_dir().join(format!("hakmem-unread-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let (old, fresh) = (folder.join("old"), folder.join("fresh"));
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::setuid(65534) }; // where we are root
            let is_right = fs::write(&old, "old").is_ok()
                && fs::set_permissions(&old, fs::Permissions::from_mode(0o200)).is_ok()
                && Output::open(&old).is_ok_and(|output| output.write(b"new").is_ok())
                && unsafe { libc::umask(0o400) } != 0o400
                && Output::open(&fresh).is_ok_and(|output| output.write(b"new").is_ok());
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(fs::metadata(&old).unwrap().len() + fs::metadata(&fresh).unwrap().len(), 6);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_number_of_the_process_is_put_into_paths() {
        assert_eq!(path_with_pid(OsStr::new("/a/%p-%p.json"), 42), Path::new("/a/42-42.json"));
        assert_eq!(path_with_pid(OsStr::new("%d%"), 42), Path::new("%d%"));
        assert_eq!(path_with_pid(OsStr::new("%%p"), 42), Path::new("%p"));
    }

    #[test]
    fn a_link_is_followed_and_a_file_keeps_its_mode() {
        let folder = std::env::temp_dir().join(format!("hakmem-link-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        let (target, link, fresh) = (folder.join("in/a"), folder.join("l"), folder.join("f"));
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        for (to, at) in [("in/a", &link), ("in/b", &fresh), ("loop", &folder.join("loop"))] {
            std::os::unix::fs::symlink(to, at).unwrap();
        }
        Output::open(&link).unwrap().write(b"new").unwrap();
        Output::open(&fresh).unwrap().write(b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&fresh).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read(folder.join("in/b")).unwrap(), b"new");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.join("in")).unwrap().count(), 2);
        assert!(Output::open(&folder.join("loop")).is_err());
        let long = folder.join("n".repeat(255));
        Output::open(&long).unwrap().write(b"x").unwrap();
        assert_eq!(fs::metadata(&long).unwrap().len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_stands_in_dev_and_proc_is_never_replaced() {
        for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", STREAM] {
            assert!(matches!(place_of(Path::new(path)), Ok(Place::Descriptor(1))), "{path}");
        }
        for path in ["/dev/null", "/dev/no", "/proc/1/fd/1", "/proc/no"] {
            let place = place_of(Path::new(path));
            assert!(matches!(place, Ok(Place::Direct(_)) | Err(_)), "{path}");
        }
        assert!(Output::open(Path::new("/proc/no")).is_err() && Output::open(Path::new("/dev/no")).is_err());
        assert!(is_system(Path::new("/dev/pts")) && !is_system(Path::new("/dev/shm/x")));
        assert!(!is_system(Path::new("/development")));
        // At the place where the descriptor stands, whatever is there already.
        let path = std::env::temp_dir().join(format!("hakmem-descriptor-{}", std::process::id()));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(b"before ").unwrap();
        let name = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        Output::open(Path::new(&name)).unwrap().write(b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before after");
        fs::remove_file(&path).unwrap();
    }
}
