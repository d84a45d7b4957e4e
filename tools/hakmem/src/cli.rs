//! cli.rs - the command line: what may be said, and what is said back when it is wrong.
//!
//! Rule: bad input is one line and status 2. clap finds what is wrong; its pages of explanation are cut to
//!       the line.

use crate::bench;
use crate::cmd;
use crate::library;
use crate::options::{OPTIONS, OptionRow, Value};
use crate::process;
use crate::report;
use crate::text::{self, Failure};
use crate::top;
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

const EXAMPLES: &str = "Examples:
  hakmem run -- python3 work.py              start a program with the library
  hakmem run --report -- sqlite3 data.db     and say at its end what became of memory
  hakmem run --purge-delay-ms 100 -- git gc  set an option of the library
  hakmem options purge_delay_ms              what an option does
  hakmem doctor redis-server                 what would keep the library from working well
  hakmem explain -- python3 work.py          what the library learns of a program, in words
  hakmem policy merge *.policy -o app.merged several runs' knowledge in one file
  hakmem bench                               compare it with other allocators, on this machine";

const RUN_EXAMPLES: &str = "Examples:
  hakmem run -- git gc
  hakmem run --report=full -- python3 work.py
  hakmem run --report-json memory.json --free-max-mb 64 -- sqlite3 data.db < queries.sql

The exit status is the program's; if it dies of a signal, so does this command.
125: nothing was started (no library). 126: PROGRAM cannot be executed. 127: there is none.
The library is $HAKMEM_LIB, or libhakmem.so beside this command, in ../lib of its folder,
or in the system's library folders.";

const EXPLAIN_EXAMPLES: &str = "Examples:
  hakmem explain app.policy                  what the runs that wrote it have learnt
  hakmem explain -p 1234                     what a running process has learnt until now
  hakmem explain -- redis-server --port 0    run it, and say at its end, on standard error

With a program the exit status is the program's. A policy of its own is kept only if HAKMEM_POLICY names a file.";

const BENCH_EXAMPLES: &str = "Examples:
  hakmem bench                               the profile quick, all allocators at hand
  hakmem bench threads larson                a profile and a workload
  hakmem bench --full --html page.html       every row at length, and a page that shows it
  hakmem bench --with glibc,new=./libnew.so  against these only
  hakmem bench seeds --count --syscalls      what an operation costs

The exit status is 0 if it was measured, 1 if HAKMEM itself failed in a row, 2 for wrong arguments,
125 without a library, 130 after Ctrl-C: what was measured until then is shown and written.";

const RECORD_EXAMPLES: &str = "Examples:
  hakmem record -p 4711 -o a.hakprof         ten seconds of a running process
  hakmem record -p 4711 --seconds 600 --rate 64K -o a.hakprof
  hakmem record -p 4711 --stop               end a recording whose recorder was killed
  hakmem leaks a.hakprof                     what grows
  hakmem pins a.hakprof                      what keeps pages from going back
  hakmem report a.hakprof -o a.html          a page: graph of the calls, sites, timeline, what if
  hakmem pprof a.hakprof -o a.pb.gz          for go tool pprof

The process is not stopped, and needs to be started with the library only. The system's ptrace rules
decide who may look at whom; `hakmem doctor -p PID` says what they say.";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

/// Start programs under the HAKMEM allocator, and see what it does for them
#[derive(Parser)]
#[command(name = "hakmem", after_help = EXAMPLES, styles = STYLES, disable_version_flag = true)]
#[command(max_term_width = 110)]
struct Cli {
    /// Print the version of this command and of the library it finds
    #[arg(short = 'V', long)]
    version: bool,

    #[command(subcommand)]
    command: Option<Commands>,
}

#[derive(Subcommand)]
enum Commands {
    /// Start a program with the library
    #[command(after_help = RUN_EXAMPLES, override_usage = "hakmem run [OPTIONS] [--] PROGRAM [ARGUMENT]...")]
    Run(cmd::run::Arguments),
    /// List the library's options, or explain one
    Options(cmd::options::Arguments),
    /// Say what on this machine or in a program keeps the library from working well
    Doctor(cmd::doctor::Arguments),
    /// Watch the processes that have the library, or one of them, as it happens
    Top(top::Arguments),
    /// Record which code of a running process asks for memory, and what it keeps
    #[command(after_help = RECORD_EXAMPLES)]
    Record(cmd::record::Arguments),
    /// Write what a recording process has recorded until now, or what the library's dump holds
    Dump(cmd::record::DumpArguments),
    /// Say what grows, the surest first
    Leaks(cmd::PlacesArguments),
    /// Say which code keeps nearly empty pages from going back
    Pins(cmd::PlacesArguments),
    /// Compare two profiles, place by place
    Diff(cmd::diff::Arguments),
    /// Say what was done to guarded blocks, with functions and lines
    Guard(cmd::guard::Arguments),
    /// Print, serve or send a running process's memory: Prometheus's text format, OpenTelemetry's OTLP
    Metrics(cmd::metrics::Arguments),
    /// Make a page of a profile: who holds the memory, what pins it, what could be done
    Report(report::Arguments),
    /// Turn a profile into one that `go tool pprof` reads
    Pprof(cmd::pprof::Arguments),
    /// Show or merge what programs have taught the library (HAKMEM_POLICY)
    #[command(arg_required_else_help = false)]
    Policy(cmd::policy::Arguments),
    /// Say in plain words what was learnt, what it changes, and what it gained
    #[command(after_help = EXPLAIN_EXAMPLES, override_usage = "hakmem explain FILE | -p PID | [--] PROGRAM [ARGUMENT]...")]
    Explain(cmd::explain::Arguments),
    /// Compare the library with other allocators: time, memory, what an operation costs
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(bench::Arguments),
    /// Print the shell's rules for completing this command's words
    Completions(cmd::pages::CompletionsArguments),
    #[command(name = bench::LAUNCHER_COMMAND, hide = true)]
    BenchLaunch,
    /// Manual pages and completions, for those who install
    #[command(hide = true)]
    Pages(cmd::pages::PagesArguments),
}

/// Does what the command line says; the exit status is the result.
pub fn run() -> Result<u8, Failure> {
    let matches = match command().try_get_matches_from(arguments(std::env::args_os())) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            process::end_on_broken_pipe();
            error.print().map_err(|error| text::output_failure(&error))?;
            return Ok(0);
        }
        Err(error) => return Err(Failure::usage(line_of(&error))),
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|error| Failure::usage(line_of(&error)))?;
    // Who has something to bring to its end does not die of a reader that went away.
    let goes_on = |command: &Commands| {
        matches!(
            command,
            Commands::Run(_)
                | Commands::Bench(_)
                | Commands::Explain(_)
                | Commands::Record(_)
                | Commands::Dump(_)
        )
    };
    if !cli.command.as_ref().is_some_and(goes_on) {
        process::end_on_broken_pipe();
    }
    match cli.command {
        _ if cli.version => version_print(),
        Some(Commands::Run(arguments)) => {
            let set = matches.subcommand_matches("run").map(options_set).unwrap_or_default();
            cmd::run::run(&arguments, &set)
        }
        Some(Commands::Options(arguments)) => cmd::options::run(&arguments),
        Some(Commands::Doctor(arguments)) => cmd::doctor::run(&arguments),
        Some(Commands::Top(arguments)) => top::run(&arguments),
        Some(Commands::Record(arguments)) => cmd::record::run(&arguments),
        Some(Commands::Dump(arguments)) => cmd::record::dump(&arguments),
        Some(Commands::Leaks(arguments)) => cmd::leaks::run(&arguments),
        Some(Commands::Pins(arguments)) => cmd::pins::run(&arguments),
        Some(Commands::Diff(arguments)) => cmd::diff::run(&arguments),
        Some(Commands::Guard(arguments)) => cmd::guard::run(&arguments),
        Some(Commands::Metrics(arguments)) => cmd::metrics::run(&arguments),
        Some(Commands::Report(arguments)) => report::run(&arguments),
        Some(Commands::Pprof(arguments)) => cmd::pprof::run(&arguments),
        Some(Commands::Policy(arguments)) => cmd::policy::run(&arguments),
        Some(Commands::Explain(arguments)) => cmd::explain::run(&arguments),
        Some(Commands::Bench(arguments)) => bench::run(&arguments),
        Some(Commands::Completions(arguments)) => cmd::pages::completions(&command(), &arguments),
        Some(Commands::BenchLaunch) => bench::serve(),
        Some(Commands::Pages(arguments)) => cmd::pages::pages(command(), &arguments),
        None => Err(Failure::usage("no command given; hakmem --help lists them")),
    }
}

/// `hakmem help --help` is `hakmem help`: clap takes what follows for the name of a command.
fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = given.collect();
    if matches!(&all[..], [_, first, next, ..] if first == "help" && (next == "--help" || next == "-h")) {
        all.truncate(2);
    }
    all
}

fn command() -> Command {
    let flags = OPTIONS.iter().filter(|row| !is_own(row)).map(option_flag);
    Cli::command().mut_subcommand("run", |run| run.args(flags))
}

/// --report and --record are this command's own; they tell the library where to write.
fn is_own(row: &OptionRow) -> bool {
    matches!(row.name, "report" | "record")
}

fn option_flag(row: &'static OptionRow) -> Arg {
    let help = match row.value {
        _ if row.is_switch() => row.text.to_owned(),
        Value::Number { default, min, max } => format!("{} [{min} to {max}; default {default}]", row.text),
        Value::Text => row.text.to_owned(),
    };
    let flag = Arg::new(row.name).long(row.flag).help(help).help_heading("Options of the library");
    if row.is_switch() {
        flag.num_args(0..=1).require_equals(true).default_missing_value("1").value_name("0|1")
    } else {
        flag.value_name(if row.value == Value::Text { "TEXT" } else { "N" })
    }
}

/// The library's options that were given by their own flags.
fn options_set(matches: &ArgMatches) -> Vec<(&'static OptionRow, String)> {
    let rows = OPTIONS.iter().filter(|row| !is_own(row));
    rows.filter_map(|row| Some((row, matches.get_one::<String>(row.name)?.clone()))).collect()
}

fn version_print() -> Result<u8, Failure> {
    println!("hakmem {}", env!("CARGO_PKG_VERSION"));
    match library::find() {
        Ok(library) => println!("libhakmem.so {} ({})", library.version_text(), library.path.display()),
        Err(failure) => println!("no library: {}", failure.line),
    }
    Ok(0)
}

/// A clap error as one line.
fn line_of(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    match (error.kind(), context(ContextKind::InvalidArg), context(ContextKind::InvalidSubcommand)) {
        (ErrorKind::UnknownArgument, Some(argument), _) => {
            let argument = argument.split_whitespace().next().unwrap_or_default().to_owned();
            if !argument.starts_with('-') {
                return format!("{} is one argument too many", text::quote(&argument));
            }
            let near = context(ContextKind::SuggestedArg).map(|near| format!("; did you mean {near}?"));
            format!("there is no flag {argument}{}", near.unwrap_or_default())
        }
        (ErrorKind::InvalidSubcommand, _, Some(name)) => {
            let command = Cli::command();
            let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
            let near = text::nearest(shown.map(Command::get_name), &name);
            let near =
                near.map_or("hakmem --help lists them".to_owned(), |near| format!("did you mean {near}?"));
            format!("there is no command {}; {near}", text::quote(&name))
        }
        (ErrorKind::MissingRequiredArgument, Some(argument), _) => format!("{argument} is missing"),
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.strip_prefix("error: ").unwrap_or(line).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let all = ["hakmem"].iter().chain(arguments);
        line_of(&command().try_get_matches_from(all).expect_err("taken"))
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_option_has_its_flag() {
        for row in OPTIONS.iter().filter(|row| !is_own(row)) {
            let flag = format!("--{}={}", row.flag, row.default_text());
            let matches = command().try_get_matches_from(["hakmem", "run", &flag, "true"]).unwrap();
            let set = options_set(matches.subcommand_matches("run").unwrap());
            assert_eq!(set.len(), 1);
            assert_eq!((set[0].0.name, set[0].1.as_str()), (row.name, row.default_text().as_str()));
        }
    }

    #[test]
    fn a_switch_needs_no_value_and_takes_none_from_the_program() {
        let matches = command().try_get_matches_from(["hakmem", "run", "--stats", "0", "--stats=x"]).unwrap();
        let run = matches.subcommand_matches("run").unwrap();
        assert_eq!(options_set(run)[0].1, "1");
    }

    #[test]
    fn what_is_wrong_is_said_on_one_line() {
        assert_eq!(refused(&["rnu"]), "there is no command rnu; did you mean run?");
        assert_eq!(refused(&["zzzzzzzz"]), "there is no command zzzzzzzz; hakmem --help lists them");
        assert_eq!(refused(&["run", "--stts", "true"]), "there is no flag --stts; did you mean --stats?");
        assert_eq!(refused(&["run"]), "<PROGRAM>... is missing");
        assert_eq!(refused(&["doctor", "sh", "ls"]), "ls is one argument too many");
        assert_eq!(refused(&["doctor", "-p", "x"]).lines().count(), 1);
    }
}
