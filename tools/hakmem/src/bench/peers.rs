//! peers.rs - the allocators that are known here, at hand or not, and how to get those that are missing.
//!
//! Order: HAKMEM; the C library's own; the newest ones, which bench/peers.py builds into build/peers with their list
//!        peers.json (or the folder that HAKMEM_BENCH_PEERS names); Debian's packages; what is missing.
//! Rule:  a package whose family has a newer build at hand takes part only if it is named.

use super::places;
use crate::{library, shared_objects, text};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

pub const VARIABLE: &str = "HAKMEM_BENCH_PEERS";
pub const HAKMEM: &str = "hakmem";
pub const GLIBC: &str = "glibc";

/// name, Debian packages with their files: of Debian 12, and what Debian 13 has instead.
type Package = (&'static str, &'static [(&'static str, &'static str)]);
const PACKAGES: [Package; 4] = [
    ("mimalloc", &[("libmimalloc2.0", "libmimalloc.so.2"), ("libmimalloc3", "libmimalloc.so.3")]),
    ("jemalloc", &[("libjemalloc2", "libjemalloc.so.2")]),
    (
        "gperftools",
        &[
            ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
            ("libtcmalloc-minimal4t64", "libtcmalloc_minimal.so.4"),
        ],
    ),
    ("tbbmalloc", &[("libtbbmalloc2", "libtbbmalloc_proxy.so.2")]),
];
const SCUDO_PACKAGE: &str = "libclang-rt-dev";
/// What bench/peers.py can build.
const NEWEST: [&str; 8] =
    ["mimalloc3", "mimalloc2", "jemalloc5", "snmalloc", "rpmalloc", "tcmalloc-google", "hardened-light", "hardened"];

const OLDER: &str = "only if named: a newer one is at hand";
/// In rows of large blocks these take a hundred times as long as the others, and with them a third of a quick run.
const HARDENED: &str = "only if named: made for safety, not for speed";

/// An allocator by name: at hand, or with the way to get it.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub name: String,
    pub version: String,
    pub source: String,
    /// What is preloaded: nothing for the C library's own.
    pub preload: Vec<PathBuf>,
    /// What it needs to be set, to work as it is meant to.
    pub environment: BTreeMap<String, String>,
    /// How it was compiled, and how it works here, in words.
    pub options: Option<String>,
    pub mode: Option<String>,
    /// How to get it, if it is not there.
    pub missing: Option<String>,
    /// It takes part only if it is named, in words why.
    pub only_named: Option<&'static str>,
    /// It may be built again while we measure.
    pub may_change: bool,
}

pub fn known() -> Vec<Known> {
    let own = hakmem();
    let mut all = vec![own.clone(), glibc()];
    all.extend(OWN_KINDS.iter().map(|kind| own_kind(&own, kind)));
    let built = built();
    let is_built = |name: &str| built.iter().any(|peer| peer.name == name);
    let absent: Vec<Known> =
        NEWEST.iter().filter(|name| !is_built(name)).map(|name| newest_absent(name)).collect();
    let debian = debian(&built);
    all.extend(built);
    all.extend(debian);
    all.push(scudo());
    all.extend(absent);
    all.sort_by_key(|known| known.missing.is_some() && !known.name.starts_with(HAKMEM)); // stable: those at hand first
    all
}

fn hakmem() -> Known {
    let known = Known { name: HAKMEM.to_owned(), source: "this project".to_owned(), ..Known::default() };
    match library::find() {
        Ok(found) => {
            Known { version: found.version_text(), preload: vec![found.path], may_change: true, ..known }
        }
        Err(failure) => Known { missing: Some(failure.line), ..known },
    }
}

/// HAKMEM as it is without learning and while it learns, by the names that they have always had here.
const OWN_KINDS: [(&str, &str, &str); 2] = [
    ("hakmem-baseline", "off", "only if named: HAKMEM with the defaults, nothing is learnt"),
    ("hakmem-evolving", "auto", "only if named: HAKMEM while it learns; it begins after a second"),
];

fn own_kind(own: &Known, (name, policy, why): &(&str, &str, &'static str)) -> Known {
    let environment = BTreeMap::from([("HAKMEM_EVO_POLICY".to_owned(), (*policy).to_owned())]);
    Known { name: (*name).to_owned(), environment, only_named: Some(why), ..own.clone() }
}

fn glibc() -> Known {
    let version = output_of(Command::new("getconf").arg("GNU_LIBC_VERSION"));
    let version = version.as_deref().and_then(|text| text.trim().strip_prefix("glibc "));
    Known {
        name: GLIBC.to_owned(),
        version: version.unwrap_or("unknown").to_owned(),
        source: "the system's C library, nothing preloaded".to_owned(),
        ..Known::default()
    }
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    String::from_utf8(output.stdout).ok()
}

// --- the newest ------------------------------------------------------------------------------------------

/// A row of peers.json.
#[derive(Deserialize)]
struct Listed {
    name: String,
    version: String,
    source: String,
    path: Option<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    options: Option<String>,
    mode: Option<String>,
}

/// Those of peers.json whose files are there. A path that is gone is looked for beside the list, so that the folder
/// may be moved.
fn built() -> Vec<Known> {
    let folder = match env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => match places::checkout() {
            Some(checkout) => checkout.join("build/peers"),
            None => return Vec::new(),
        },
    };
    let Ok(text) = fs::read_to_string(folder.join("peers.json")) else { return Vec::new() };
    let Ok(listed) = serde_json::from_str::<Vec<Listed>>(&text) else {
        let path = folder.join("peers.json");
        text::line_to_stderr(&format!("hakmem: {} is no list of peers; it is passed over", path.display()));
        return Vec::new();
    };
    let place = |path: &Path| {
        let beside = folder.join(path.file_name()?);
        [path.to_owned(), beside].into_iter().find_map(|path| fs::canonicalize(path).ok())
    };
    let known = |listed: Listed| {
        let path = place(&listed.path?)?;
        let name = listed.name;
        Some(Known {
            version: listed.version,
            source: listed.source,
            preload: vec![path],
            environment: listed.environment,
            options: listed.options,
            mode: listed.mode,
            may_change: true,
            only_named: family(&name).starts_with("hardened").then_some(HARDENED),
            name,
            ..Known::default()
        })
    };
    listed.into_iter().filter_map(known).collect()
}

fn newest_absent(name: &str) -> Known {
    let how = match places::checkout() {
        Some(_) => format!("python3 bench/peers.py --build-newest --only {name}"),
        None => format!(
            "build it with bench/peers.py of the project's sources, and name its folder in {VARIABLE}"
        ),
    };
    Known {
        name: name.to_owned(),
        source: "newest of the crates registry".to_owned(),
        missing: Some(how),
        ..Known::default()
    }
}

// --- packages ----------------------------------------------------------------------------------------------

/// "mimalloc" of "mimalloc3".
fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn debian(built: &[Known]) -> Vec<Known> {
    let folders = shared_objects::system_folders();
    let format = "${Package} ${Version}\n";
    let packages = PACKAGES.iter().flat_map(|(_, packages)| *packages).map(|(package, _)| package);
    let versions = output_of(Command::new("dpkg-query").args(["-W", "-f", format]).args(packages));
    let versions = versions.unwrap_or_default();
    let version = |package: &str| {
        let line = versions.lines().find_map(|line| line.strip_prefix(package)?.strip_prefix(' '));
        line.filter(|version| !version.is_empty()).map(str::to_owned)
    };
    let path_of = |file: &str| folders.iter().find_map(|folder| fs::canonicalize(folder.join(file)).ok());
    let known = |(name, packages): &Package| {
        let here = packages.iter().filter_map(|(package, file)| Some((*package, path_of(file)?)));
        let found = here.max_by_key(|(package, _)| version(package).is_some());
        let package = found.as_ref().map_or_else(|| offered(packages), |(package, _)| package);
        let path = found.map(|(_, path)| path);
        let is_taken = built.iter().any(|peer| peer.name == *name);
        Known {
            name: if is_taken { format!("{name}-debian") } else { (*name).to_owned() },
            version: path
                .as_ref()
                .map_or(String::new(), |_| version(package).unwrap_or("unknown".to_owned())),
            source: format!("Debian {package}"),
            missing: path.is_none().then(|| format!("apt-get install {package}")),
            preload: path.into_iter().collect(),
            only_named: built.iter().any(|peer| family(&peer.name) == *name).then_some(OLDER),
            ..Known::default()
        }
    };
    PACKAGES.iter().map(known).collect()
}

/// The one that this release has, as far as apt's lists say.
fn offered(packages: &[(&'static str, &'static str)]) -> &'static str {
    let shown =
        |package: &str| output_of(Command::new("apt-cache").args(["show", package]).stderr(Stdio::null()));
    let is_known = |package: &&str| shown(package).is_some_and(|text| !text.is_empty());
    let mut names = packages.iter().map(|(package, _)| *package);
    if packages.len() == 1 { packages[0].0 } else { names.find(is_known).unwrap_or(packages[0].0) }
}

/// LLVM's, the newest of those that came with a clang of this machine's architecture.
fn scudo() -> Known {
    let file = format!("libclang_rt.scudo_standalone-{}.so", env::consts::ARCH);
    let mut found: Vec<(Vec<u32>, PathBuf)> = Vec::new();
    for llvm in entries_of(Path::new("/usr/lib")).filter(|path| name_of(path).starts_with("llvm-")) {
        for clang in entries_of(&llvm.join("lib/clang")) {
            if let Ok(path) = fs::canonicalize(clang.join("lib/linux").join(&file)) {
                let numbers = name_of(&clang).split('.').map(|part| part.parse().unwrap_or(0)).collect();
                found.push((numbers, path));
            }
        }
    }
    let newest = found.into_iter().max();
    let version =
        newest.as_ref().map(|(numbers, _)| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("."));
    Known {
        name: "scudo".to_owned(),
        version: version.unwrap_or_default(),
        source: "LLVM's, of the packages libclang-rt-*-dev".to_owned(),
        only_named: Some(HARDENED),
        missing: newest.is_none().then(|| format!("apt-get install {SCUDO_PACKAGE}")),
        preload: newest.into_iter().map(|(_, path)| path).collect(),
        ..Known::default()
    }
}

fn entries_of(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_the_name_without_its_generation() {
        assert_eq!(
            (family("mimalloc3"), family("tcmalloc-google"), family("x")),
            ("mimalloc", "tcmalloc-google", "x")
        );
    }

    /// What can be built is the table of bench/peers.py.
    #[test]
    fn the_newest_are_those_that_peers_py_builds() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers.py");
        let text = fs::read_to_string(script).unwrap();
        let (_, table) = text.split_once("\nNEWEST = [").unwrap();
        let (table, _) = table.split_once("\n]").unwrap();
        let rows = table.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split_once('"'));
        let names: Vec<&str> = rows.map(|(name, _)| name).collect();
        assert_eq!(names, NEWEST);
        for (name, packages) in PACKAGES {
            for (package, _) in packages {
                assert!(text.contains(&format!("(\"{name}\", \"{package}\"")), "{name}");
            }
        }
        assert!(text.contains(SCUDO_PACKAGE));
    }
}
