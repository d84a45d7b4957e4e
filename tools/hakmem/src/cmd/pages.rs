//! `hakmem completions SHELL`, and what is installed beside the command: manual pages, and the completions of three shells.

use crate::system::error_text;
use crate::text::{self, Failure};
use clap::Command;
use clap_complete::{Shell, generate};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct CompletionsArguments {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    shell: Shell,
}

#[derive(clap::Args)]
pub struct PagesArguments {
    /// Below it man/man1, bash-completion, zsh and fish are made, as they lie in a share folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub fn completions(command: &Command, arguments: &CompletionsArguments) -> Result<u8, Failure> {
    let script = script_of(command, arguments.shell);
    io::stdout().write_all(&script).map_err(|error| text::output_failure(&error))?;
    Ok(0)
}

/// Hidden commands are left out, which the generators do not do themselves.
fn script_of(command: &Command, shell: Shell) -> Vec<u8> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let mut known = Command::new("hakmem").disable_version_flag(true);
    known = known.args(command.get_arguments().cloned()).subcommands(shown);
    let mut script = Vec::new();
    generate(shell, &mut known, "hakmem", &mut script);
    script
}

const PLACES: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/hakmem"),
    (Shell::Zsh, "zsh/site-functions/_hakmem"),
    (Shell::Fish, "fish/vendor_completions.d/hakmem.fish"),
];

pub fn pages(mut command: Command, arguments: &PagesArguments) -> Result<u8, Failure> {
    for (shell, place) in PLACES {
        file_write(&arguments.folder.join(place), &script_of(&command, shell))?;
    }
    command.build();
    page_write(&command, "hakmem", &arguments.folder.join("man/man1"))?;
    Ok(0)
}

/// A command's page, and those of its own commands.
fn page_write(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let mut page = Vec::new();
    let path = folder.join(format!("{name}.1"));
    clap_mangen::Man::new(command.clone())
        .source(format!("hakmem {}", env!("CARGO_PKG_VERSION")))
        .manual("HAKMEM")
        .render(&mut page)
        .map_err(|error| refused(&path, &error))?;
    file_write(&path, &page)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        page_write(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(())
}

fn file_write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| refused(path, &error);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    fs::write(path, bytes).map_err(failed)
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure { status: 1, line: format!("{} cannot be written: {}", text::quote(path), error_text(error)) }
}
