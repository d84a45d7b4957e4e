//! `hakmem pprof`: a profile as `go tool pprof` and the systems that collect its files read it.

use crate::output::Output;
use crate::profile::{file, pprof};
use crate::text::{self, Failure};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// The profile
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Where to write it; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let profile = file::read(&arguments.file)?;
    let output = Output::open_beside(&arguments.output, std::slice::from_ref(&arguments.file))?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    let packed = encoder.write_all(&pprof::encoded(&profile)).and_then(|()| encoder.finish());
    let packed = packed.map_err(|error| text::output_failure(&error))?;
    output.write(&packed)?;
    Ok(0)
}
