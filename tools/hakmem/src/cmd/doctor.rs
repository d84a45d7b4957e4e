//! `hakmem doctor`: what on this machine, in a program or in a process keeps the library from working well.
//!
//! The rules are in check/; here they are asked and their findings shown, the gravest first.

use crate::check::{self, Finding, Severity, environment_check, ok, serious};
use crate::profile::file::name_clean;
use crate::text::{Colour, Failure, colours_welcome, counted, paint};
use crate::{library, process};
use serde_json::json;
use std::ffi::OsString;

#[derive(clap::Args)]
pub struct Arguments {
    /// The program to examine, looked up in PATH
    #[arg(conflicts_with = "pid")]
    program: Option<OsString>,

    /// The running process to examine
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Status 0: nothing serious; 1: something is; 2: it could not be examined.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut findings = Vec::new();
    match (arguments.pid, &arguments.program) {
        (Some(pid), _) => {
            check::process::check(pid, &mut findings)?;
            check::machine::check(&pid.to_string(), &mut findings);
        }
        (None, program) => {
            if let Some(program) = program {
                let path = process::program_find(program).map_err(|failure| Failure::usage(failure.line))?;
                check::program::check(&path, &mut findings).map_err(Failure::usage)?;
            }
            findings.push(match library::find() {
                Ok(found) => ok(format!("libhakmem.so {} is {}", found.version_text(), found.path.display())),
                Err(failure) => serious(failure.line, "build it with make, or install it"),
            });
            let environment: Vec<(String, String)> = std::env::vars_os()
                .map(|(name, value)| {
                    (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
                })
                .collect();
            environment_check(&environment, &mut findings);
            check::machine::check("self", &mut findings);
        }
    }
    findings.sort_by_key(|finding| finding.severity);
    if arguments.json {
        println!("{:#}", json!({ "findings": findings }));
    } else {
        findings_print(&findings);
    }
    let is_serious = findings.iter().any(|finding| finding.severity == Severity::Serious);
    Ok(u8::from(is_serious))
}

fn findings_print(findings: &[Finding]) {
    let colours = colours_welcome(&std::io::stdout());
    for finding in findings {
        let (word, colour) = match finding.severity {
            Severity::Serious => ("serious", Colour::Red),
            Severity::Warning => ("warning", Colour::Yellow),
            Severity::Note => ("note", Colour::Bold),
            Severity::Ok => ("ok", Colour::Green),
        };
        let advice =
            if finding.advice.is_empty() { String::new() } else { format!(" -> {}", finding.advice) };
        let mut line = format!("{}{advice}", finding.what);
        name_clean(&mut line); // it may hold what another user put into his process's environment or paths
        println!("{} {line}", paint(&format!("{word:<8}"), colour, colours));
    }
    let number = |severity| findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    let warnings = counted(number(Severity::Warning), "warning", "warnings");
    let notes = counted(number(Severity::Note), "note", "notes");
    println!("{} serious, {warnings}, {notes}", number(Severity::Serious));
}
