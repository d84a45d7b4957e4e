//! One room per command. A command returns the exit status, or the one line that says why it could not.

pub mod diff;
pub mod doctor;
pub mod explain;
pub mod leaks;
pub mod metrics;
pub mod options;
pub mod pins;
pub mod policy;
pub mod pprof;
pub mod record;
pub mod run;
