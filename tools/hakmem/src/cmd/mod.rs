//! One room per command. A command returns the exit status, or the one line that says why it could not.

pub mod diff;
pub mod doctor;
pub mod explain;
pub mod guard;
pub mod leaks;
pub mod metrics;
pub mod options;
pub mod others;
pub mod pages;
pub mod pins;
pub mod policy;
pub mod pprof;
pub mod record;
pub mod reports;
pub mod run;

use std::path::PathBuf;

/// Of commands that list places of a profile.
#[derive(clap::Args)]
pub struct PlacesArguments {
    /// The profile
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How many places
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    top: usize,
}
