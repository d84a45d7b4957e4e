//! `hakmem pprof`: a profile as `go tool pprof` and the systems that collect its files read it.

use crate::profile::{file, pprof};
use crate::system::error_text;
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
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    let refused = |error: std::io::Error| {
        Failure::usage(format!(
            "{} cannot be written: {}",
            text::quote(&arguments.output),
            error_text(&error)
        ))
    };
    encoder.write_all(&pprof::encoded(&profile)).map_err(refused)?;
    let packed = encoder.finish().map_err(refused)?;
    if arguments.output.as_os_str() == "-" {
        std::io::stdout().lock().write_all(&packed).map_err(refused)?;
    } else {
        std::fs::write(&arguments.output, packed).map_err(refused)?;
    }
    Ok(0)
}
