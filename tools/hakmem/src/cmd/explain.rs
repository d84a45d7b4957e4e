//! `hakmem explain`: what the library has learnt, in plain words: of a policy file, a process, or a program that is run.

use super::run::{Reported, run_reported};
use crate::policy::learnt::Learnt;
use crate::policy::{self, words};
use crate::process;
use crate::text::{self, Failure};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

#[derive(clap::Args)]
pub struct Arguments {
    /// A running process
    #[arg(short, long, value_name = "PID", conflicts_with = "subject", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// A policy file; or, after --, a program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "FILE | PROGRAM")]
    subject: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    if let Some(pid) = arguments.pid {
        process::end_on_broken_pipe();
        print!("{}", words::explain(&process_learnt(pid)?));
        return Ok(0);
    }
    match arguments.subject.as_slice() {
        [file] if !follows_dashes() && Path::new(file).exists() && !is_executable(Path::new(file)) => {
            process::end_on_broken_pipe();
            print!("{}", words::explain(&(&policy::read(Path::new(file))?).into()));
            Ok(0)
        }
        [file] if !follows_dashes() && process::program_find(file).is_err() => {
            process::end_on_broken_pipe();
            policy::read(Path::new(file)).map(|_| 0) // it is not there, and this says so
        }
        command => program_explain(command),
    }
}

/// `hakmem explain -- NAME` is a program, whatever file has that name.
fn follows_dashes() -> bool {
    env::args_os().skip(2).take_while(|argument| argument != "-p").any(|argument| argument == "--")
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn program_explain(command: &[OsString]) -> Result<u8, Failure> {
    // With a policy to write, learning goes on by itself. What the caller named is kept; ours goes with the folder, in
    // which each process has a file of its own: what a child learnt is not the program's, and may be another program's.
    let own = env::var_os("HAKMEM_POLICY").filter(|path| !path.is_empty());
    let more: &[(&str, &str)] = if own.is_some() { &[] } else { &[("HAKMEM_POLICY", "%f/%p.policy")] };
    let reported = run_reported(command, more)?;
    let said = match &reported.report {
        Ok(report) => learnt(report, &reported, &command[0]),
        Err(reason) => Err(reason.clone()),
    };
    match said {
        Ok(learnt) => text::line_to_stderr(words::explain(&learnt).trim_end()),
        Err(reason) => text::line_to_stderr(&format!("hakmem: nothing to explain: {reason}")),
    }
    let end = reported.outcome.end;
    drop(reported); // before we may die of the program's signal
    Ok(process::end_alike(end))
}

/// The report has the duels, the file has what is known by call site.
fn learnt(report: &serde_json::Value, reported: &Reported, command: &OsStr) -> Result<Learnt, String> {
    let program = text::quote(command);
    // Of a link it is what the link names, as in the library.
    let file = process::program_find(command).map(|path| path.canonicalize().unwrap_or(path));
    let file_name = file.unwrap_or_default().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let whose = format!("{program} (process {})", reported.outcome.pid);
    let learnt = Learnt::of_report(report, &whose).ok_or("this library does not learn")?;
    let environment: Vec<(String, String)> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let pid = reported.outcome.pid;
    // Where the caller named none, it is ours, which this run wrote.
    let file = match policy::read(&reported.file(&format!("{pid}.policy"))) {
        Ok(policy) => Some(policy),
        Err(_) => policy::read_named(&environment, pid, &file_name, (Path::new("/"), Path::new("."))),
    };
    Ok(learnt.in_force(file.as_ref(), &environment))
}

fn process_learnt(pid: u32) -> Result<Learnt, Failure> {
    policy::live::learnt(pid)
}
