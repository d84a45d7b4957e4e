//! hakmem - start programs under the HAKMEM allocator, and see what it does for them.
//!
//! One room per command (cmd/), and a house for some (bench/, report/, top/); what they share stands beside them: the tables (options, stats), the library
//! on this machine (library), programs as files (elf, shared_objects) and as processes (process), the machine
//! (system), files that we write (output), a process in numbers (metrics/), what programs have taught the allocator (policy/), the doctor's rules (check/) and how we speak (text).

mod bench;
mod check;
mod cli;
mod cmd;
mod elf;
mod groups;
mod library;
mod metrics;
mod options;
mod output;
mod policy;
mod process;
mod profile;
mod recording;
mod report;
mod shared_objects;
mod stats;
mod summary;
mod symbols;
mod system;
mod text;
mod top;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    recording::attach::end_with_panic();
    // What is still on its way to standard output may be refused, too.
    let flushed =
        |status| std::io::stdout().flush().map(|()| status).map_err(|error| text::output_failure(&error));
    match cli::run().and_then(flushed) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            text::line_to_stderr(&format!("hakmem: {}", failure.line));
            ExitCode::from(failure.status)
        }
    }
}
