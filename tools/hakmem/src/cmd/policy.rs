//! `hakmem policy`: files of what programs have taught the allocator (docs/policy.md), shown and merged.

use crate::output::{self, Output, STREAM, is_same};
use crate::policy::{self, Policy, file, merge, words};
use crate::system::error_text;
use crate::text::{self, Failure};
use clap::Subcommand;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What a file says, in words
    Show {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Every line of the file that is believed, as the library would write it
        #[arg(long)]
        text: bool,
    },
    /// Several files of one program in one
    Merge {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Write to OUT, by rename; otherwise to standard output
        #[arg(short, long, value_name = "OUT")]
        output: Option<PathBuf>,
    },
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    match &arguments.command {
        Command::Show { file, text } => {
            let policy = policy::read(file)?;
            match text {
                true => print!("{}", file::write(&policy)),
                false => print!("{}", words::explain(&(&policy).into())),
            }
        }
        Command::Merge { files, output } => {
            // What the shell wrote to, too: `*.policy > all.policy` has all.policy among its inputs the next time.
            let output = output.as_deref().filter(|path| *path != Path::new(STREAM));
            let out = output.unwrap_or(Path::new("/proc/self/fd/1"));
            if let Some(input) = files.iter().find(|input| is_same(out, input)) {
                return Err(Failure::usage(format!(
                    "{} is merged, and cannot be the output",
                    text::quote(input)
                )));
            }
            let policies = files.iter().map(|path| policy::read(path)).collect::<Result<Vec<Policy>, _>>()?;
            let names: Vec<String> = files.iter().map(text::quote).collect();
            let merged = merge::merge(&policies, &names).map_err(|line| Failure { status: 1, line })?;
            let text = file::write(&merged);
            match output {
                Some(path) => write(path, &text)?,
                None => print!("{text}"),
            }
        }
    }
    Ok(0)
}

/// To a new file beside it, readable by its owner alone, then by rename: a program that starts meanwhile reads the old
/// or the new one, whole. What is no regular file is not replaced.
fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let refused = |reason: String| Failure {
        status: 1,
        line: format!("{} cannot be written: {reason}", text::quote(path)),
    };
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        return Err(refused("it is no regular file".to_owned()));
    }
    // A link in /dev names what we have open: that is written to.
    if let Some(stream) = Output::open(path).ok().filter(|output| !output.is_replaced()) {
        return stream.write(content.as_bytes()).map_err(|failure| Failure { status: 1, ..failure });
    }
    let name = path.file_name().ok_or_else(|| refused("it is no name of a file".to_owned()))?;
    let draft = path.with_file_name(format!("{}.{}.new", name.to_string_lossy(), std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(content.as_bytes()).and_then(|()| output::flush(&file)))
        .and_then(|()| fs::rename(&draft, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        refused(error_text(&error))
    })
}
