//! `hakmem guard`: what was done to guarded blocks (HAKMEM_GUARD), with functions and lines.

use crate::profile::file::{file_open, name_clean};
use crate::recording::attach::Attached;
use crate::recording::dump::{self, Content};
use crate::recording::{guards, raw, subject};
use crate::system::error_text;
use crate::text::{self, Failure};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    /// The dump that the library wrote (HAKMEM_GUARD_DUMP)
    #[arg(value_name = "FILE", required_unless_present = "pid")]
    file: Option<PathBuf>,

    /// A process that lives on after it
    #[arg(short, long, value_name = "PID", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let found = match (&arguments.file, arguments.pid) {
        (Some(file), _) => of_dump(file)?,
        (None, Some(pid)) => of_process(pid)?,
        (None, None) => return Err(Failure::usage("a dump or -p PID is missing")),
    };
    if found.is_empty() {
        println!("no misuse of a guarded block");
        return Ok(0);
    }
    print!("{}", guards::text_of(&found));
    Ok(1)
}

pub fn of_dump(file: &Path) -> Result<Vec<guards::Misuse>, Failure> {
    let refused = |reason: &str| Failure::usage(format!("{} {reason}", text::quote(file)));
    let unread = |error: io::Error| refused(&format!("cannot be read: {}", error_text(&error)));
    // By its first bytes: what is none may be without end.
    let stream = file_open(file).map_err(unread)?;
    let mut head = Vec::new();
    (&stream).take(dump::MAGIC.len() as u64).read_to_end(&mut head).map_err(unread)?;
    if head != dump::MAGIC {
        return Err(refused("is no dump of the library"));
    }
    let content = Content::behind(head, &stream).map_err(|reason| refused(&reason))?;
    dump::guards(&content).map_err(|reason| refused(&reason))
}

fn of_process(pid: u32) -> Result<Vec<guards::Misuse>, Failure> {
    let attached = Attached::open(pid)?;
    let published = attached.published()?;
    let mut subject = subject::of_process(&attached.process, &published, "guard")?;
    name_clean(&mut subject.program.name);
    let found = raw::guards_read(&attached.process, attached.address)
        .map_err(|reason| Failure::usage(format!("process {pid} cannot be read: {reason}")))?;
    Ok(guards::named(&found, &subject))
}
