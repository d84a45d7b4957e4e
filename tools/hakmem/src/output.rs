//! output.rs - files that we write: whole or not at all.
//!
//! Rule: whether a file can be written is found out before the work is done. It is replaced by rename: a reader, a run that
//!       is killed, or a full disk never leaves half a file. A device or a pipe is written to, not replaced.

use crate::system::error_text;
use crate::text::{self, Failure};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that will be written.
pub struct Output {
    path: PathBuf,
    draft: PathBuf,
    is_replaced: bool,
}

impl Output {
    pub fn open(path: &Path) -> Result<Output, Failure> {
        let metadata = fs::metadata(path);
        if metadata.as_ref().is_ok_and(fs::Metadata::is_dir) {
            return Err(failure(path, "it is a directory"));
        }
        let is_replaced = metadata.as_ref().map_or(true, fs::Metadata::is_file);
        let Some(name) = path.file_name() else { return Err(failure(path, "it is no name of a file")) };
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}", std::process::id()));
        let output = Output { path: path.to_owned(), draft: path.with_file_name(draft), is_replaced };
        if is_replaced {
            output.draft_make().map_err(|error| failure(path, &error_text(&error)))?;
            let _ = fs::remove_file(&output.draft);
        }
        Ok(output)
    }

    /// An output that would take the place of what it is made of is a mistake.
    pub fn open_beside(path: &Path, inputs: &[PathBuf]) -> Result<Output, Failure> {
        match inputs.iter().find(|input| is_same(path, input)) {
            Some(_) => Err(failure(path, "it is what is read")),
            None => Output::open(path),
        }
    }

    pub fn write(&self, content: &[u8]) -> Result<(), Failure> {
        self.write_by(|mut file| file.write_all(content))
    }

    /// What `fill` writes becomes the file if it returns no error.
    pub fn write_by<T>(&self, fill: impl FnOnce(fs::File) -> io::Result<T>) -> Result<T, Failure> {
        let written = match self.is_replaced {
            true => self.draft_make().and_then(fill).and_then(|value| {
                fs::rename(&self.draft, &self.path)?;
                Ok(value)
            }),
            false => fs::OpenOptions::new().write(true).open(&self.path).and_then(fill),
        };
        written.map_err(|error| {
            if self.is_replaced {
                let _ = fs::remove_file(&self.draft);
            }
            failure(&self.path, &error_text(&error))
        })
    }

    /// A new one: what somebody else put there is not followed.
    fn draft_make(&self) -> io::Result<fs::File> {
        let _ = fs::remove_file(&self.draft);
        fs::OpenOptions::new().write(true).create_new(true).open(&self.draft)
    }
}

/// Two names of one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    place(one).is_some_and(|found| place(other) == Some(found))
}

fn failure(path: &Path, reason: &str) -> Failure {
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
}
