//! save.rs - results as a file that we write and read, and a folder for the copies of libraries.

use super::compare;
use super::results::Results;
use crate::system::error_text;
use crate::text::{self, Failure};
use serde_json::Value;
use std::ffi::CString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The longest results, of every row with every allocator, take a few megabytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// That a file cannot be written in the end is none of the arguments' fault.
pub fn kept(written: Result<(), Failure>) -> Result<(), Failure> {
    written.map_err(|failure| Failure { status: 1, ..failure })
}

/// One run, one line: a file that people can read, and that a diff can show.
pub fn text(results: &Results) -> String {
    const DEPTH_MAX: usize = 6; // results, rows, row, cells, cell, runs: what is below stays on a line
    let mut text = String::new();
    if let Ok(value) = serde_json::to_value(results) {
        value_write(&mut text, &value, 0, DEPTH_MAX);
    }
    text.push('\n');
    text
}

fn value_write(text: &mut String, value: &Value, depth: usize, depth_max: usize) {
    let indent = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&" ".repeat(depth));
    };
    match value {
        Value::Array(items) if depth < depth_max && items.iter().any(|item| item.is_object()) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                indent(text, depth + 1);
                value_write(text, item, depth + 1, depth_max);
            }
            indent(text, depth);
            text.push(']');
        }
        Value::Object(fields) if depth < depth_max && !fields.is_empty() => {
            text.push('{');
            for (at, (name, field)) in fields.iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                indent(text, depth + 1);
                text.push_str(&format!("{}: ", Value::from(name.as_str())));
                value_write(text, field, depth + 1, depth_max);
            }
            indent(text, depth);
            text.push('}');
        }
        flat => text.push_str(&flat.to_string()),
    }
}

pub fn read(path: &Path) -> Result<Results, Failure> {
    let refused = |reason: String| Failure::usage(format!("{} {reason}", text::quote(path)));
    let mut content = Vec::new();
    // What is none may be without end.
    fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content))
        .map_err(|error| Failure::usage(format!("{}: {}", text::quote(path), error_text(&error))))?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(format!(
            "is larger than a result file may be ({})",
            text::bytes(FILE_BYTES_MAX)
        )));
    }
    let text = String::from_utf8(content).map_err(|_| refused("is damaged: it is no text".to_owned()))?;
    compare::read(&text, &path.to_string_lossy()).map_err(Failure::usage)
}

/// A folder of ours, gone when we are.
pub struct Scratch {
    pub path: PathBuf,
}

impl Scratch {
    pub fn make() -> Result<Scratch, Failure> {
        let pattern = env::temp_dir().join("hakmem-bench-XXXXXX");
        let trouble = |reason: String| Failure::start(format!("{}: {reason}", env::temp_dir().display()));
        let pattern =
            CString::new(pattern.as_os_str().as_bytes()).map_err(|error| trouble(error.to_string()))?;
        let raw = pattern.into_raw();
        let made = unsafe { libc::mkdtemp(raw) };
        let path = unsafe { CString::from_raw(raw) };
        if made.is_null() {
            return Err(trouble(error_text(&std::io::Error::last_os_error())));
        }
        Ok(Scratch { path: PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
