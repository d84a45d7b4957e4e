//! places.rs - where the suite's programs are, and how a source checkout builds those that are missing.
//!
//! Order: $HAKMEM_BENCH_DIR; `bench` beside the command; ../libexec/hakmem/bench of its folder; the checkout's
//!        build/bench, built when it is not there. What is older than its source in a checkout is passed over. Real
//!        programs' drivers are in `real` of the same folders; a checkout's own are in bench/real, and come first.

use super::suite::SuiteRow;
use crate::system::error_text;
use crate::{output, system, text};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

pub const VARIABLE: &str = "HAKMEM_BENCH_DIR";
/// From the command's folder.
const INSTALLED: &str = "../libexec/hakmem/bench";

/// The compiler's line is the same for every workload. The allocator's functions are called, not guessed at, and
/// bound before the work begins: calls through a lazy table would be counted as the allocator's.
const FLAGS_C: &[&str] =
    &["-O2", "-g", "-std=gnu11", "-D_GNU_SOURCE", "-fno-builtin", "-fno-plt", "-Wl,-z,now", "-pthread"];
const FLAGS_CXX: &[&str] =
    &["-O2", "-g", "-std=gnu++17", "-D_GNU_SOURCE", "-fno-builtin", "-fno-plt", "-Wl,-z,now", "-pthread"];

/// The project's folder, if this command runs out of one: above the command, or where it was compiled, but not if it
/// was installed since.
pub fn checkout() -> Option<PathBuf> {
    let is_checkout =
        |folder: &Path| folder.join("bench/suite.toml").is_file() && folder.join("CMakeLists.txt").is_file();
    let own = system::own_path();
    let is_installed =
        own.iter().filter_map(|path| path.parent()).any(|folder| folder.join(INSTALLED).is_dir());
    let above = own.iter().flat_map(|path| path.ancestors());
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    above.chain(compiled.filter(|_| !is_installed)).find(|folder| is_checkout(folder)).map(Path::to_owned)
}

fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(own) = system::own_path().as_deref().and_then(Path::parent) {
        folders.push(own.join("bench"));
        folders.push(own.join(INSTALLED));
    }
    folders
}

/// The file to run for a row. Says on standard error what is being built.
pub fn program_of(row: &SuiteRow) -> Result<PathBuf, String> {
    let name = row.program();
    let place =
        |folder: &Path| if row.is_real() { folder.join("real").join(name) } else { folder.join(name) };
    if let Some(folder) = env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from) {
        let path = place(&folder);
        return match path.is_file() {
            true => absolute(&path),
            false => Err(format!("{} is not there ({VARIABLE} names its folder)", text::quote(&path))),
        };
    }
    let installed = folders().iter().map(|folder| place(folder)).find(|path| path.is_file());
    let source = checkout().and_then(|checkout| Some((source_of(&checkout, row)?, checkout)));
    match (installed, source) {
        (Some(path), None) => absolute(&path),
        (None, None) => Err(format!("{} is not installed: name its folder in {VARIABLE}", text::quote(name))),
        (_, Some((source, _))) if row.is_real() => absolute(&source),
        (Some(path), Some((source, _))) if !is_older(&path, &source) => absolute(&path),
        (_, Some((source, checkout))) => absolute(&built(&checkout, name, &source)?),
    }
}

/// What a checkout has of a row: a workload's source, a real program's driver.
fn source_of(checkout: &Path, row: &SuiteRow) -> Option<PathBuf> {
    let bench = checkout.join("bench");
    let places = match row.is_real() {
        true => vec![bench.join("real").join(row.program())],
        false => {
            ["c", "cc"].map(|end| bench.join("workloads").join(format!("{}.{end}", row.program()))).into()
        }
    };
    places.into_iter().find(|path| path.is_file())
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(path).map_err(|error| format!("{}: {}", path.display(), error_text(&error)))
}

/// Whether a program was built before its source, or the header that all share, was changed.
fn is_older(program: &Path, source: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    changed(program) < changed(source).max(changed(&source.with_file_name("work.h")))
}

/// The workload in build/bench, compiled if it is older than its source.
fn built(checkout: &Path, name: &str, source: &Path) -> Result<PathBuf, String> {
    let folder = checkout.join("build/bench");
    let target = folder.join(name);
    if target.is_file() && !is_older(&target, source) {
        return Ok(target);
    }
    let is_cxx = source.extension().is_some_and(|end| end == "cc");
    let (variable, compiler, flags) = if is_cxx { ("CXX", "c++", FLAGS_CXX) } else { ("CC", "cc", FLAGS_C) };
    let compiler = env::var(variable).ok().filter(|name| !name.is_empty()).unwrap_or(compiler.to_owned());
    text::line_to_stderr(&format!("hakmem: building {}", target.display()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {}", folder.display(), error_text(&error)))?;
    // By rename: another bench may be running the old one.
    let fresh = folder.join(format!("{name}.{}", std::process::id()));
    let output = Command::new(&compiler).args(flags).arg(source).arg("-o").arg(&fresh).output();
    let output = output.map_err(|error| format!("{compiler} cannot be run: {}", error_text(&error)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find(|line| line.contains("error")).or(said.lines().next());
        return Err(format!("{} does not compile: {}", source.display(), line.unwrap_or("no reason given")));
    }
    let flushed = fs::File::open(&fresh).and_then(|file| output::flush(&file));
    flushed.map_err(|error| format!("{}: {}", fresh.display(), error_text(&error)))?;
    fs::rename(&fresh, &target).map_err(|error| format!("{}: {}", target.display(), error_text(&error)))?;
    Ok(target)
}
