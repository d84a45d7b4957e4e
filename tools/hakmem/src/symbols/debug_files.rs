//! debug_files.rs - where the debug information of a stripped file is.
//!
//! Order:    /usr/lib/debug/.build-id, the name in .gnu_debuglink (beside the file, in .debug, in /usr/lib/debug),
//!           debuginfod's servers where DEBUGINFOD_URLS names some.
//! Servers:  elfutils' own debuginfod-find asks them where it is installed: it has the cache, the proxies and the
//!           time limits that its users have set. Where it is not, curl asks for the same address, into the same
//!           kind of cache. What comes is believed only if it carries the build id that was asked for.
//! Rejected: an HTTPS client in the tool: 60 crates and 40 s of building for what two programs do.

use super::image::build_id_of;
use crate::process;
use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DEBUG_ROOT: &str = "/usr/lib/debug";

/// A file with the debug information of `file`; `link` is its .gnu_debuglink.
pub fn find(file: &Path, build_id: &str, link: Option<(Vec<u8>, u32)>) -> Option<PathBuf> {
    by_build_id(build_id).or_else(|| by_link(file, build_id, link?)).or_else(|| from_servers(build_id))
}

fn by_build_id(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    let path = Path::new(DEBUG_ROOT).join(".build-id").join(first).join(format!("{rest}.debug"));
    path.is_file().then_some(path)
}

fn by_link(file: &Path, build_id: &str, (name, sum): (Vec<u8>, u32)) -> Option<PathBuf> {
    let name = Path::new(OsStr::from_bytes(&name));
    // A name, not a way: "../../etc/shadow" is no debug file.
    if name.components().count() != 1 || name.file_name().is_none() {
        return None;
    }
    let folder = file.parent()?;
    let below = Path::new(DEBUG_ROOT).join(folder.strip_prefix("/").unwrap_or(folder));
    [folder.join(name), folder.join(".debug").join(name), below.join(name)]
        .into_iter()
        .find(|path| path != file && path.is_file() && belongs(path, build_id, sum))
}

/// By the build id, or where the file has none, by the checksum that the link carries.
fn belongs(path: &Path, build_id: &str, sum: u32) -> bool {
    if !build_id.is_empty() {
        return build_id_of(path) == build_id;
    }
    let Ok(content) = std::fs::read(path) else { return false };
    let mut crc = flate2::Crc::new();
    crc.update(&content);
    crc.sum() == sum
}

/// dwz's file of what several debug files share (.gnu_debugaltlink).
pub fn shared(debug: &Path, (name, build_id): (&[u8], &[u8])) -> Option<PathBuf> {
    let id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let named = debug.parent()?.join(OsStr::from_bytes(name));
    let named = (named.is_file() && build_id_of(&named) == id).then_some(named);
    named.or_else(|| by_build_id(&id)).or_else(|| from_servers(&id))
}

fn from_servers(build_id: &str) -> Option<PathBuf> {
    let servers = env::var("DEBUGINFOD_URLS").ok().filter(|servers| !servers.trim().is_empty())?;
    if build_id.is_empty() || !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let found = by_elfutils(build_id).or_else(|| by_curl(&servers, build_id))?;
    (build_id_of(&found) == build_id).then_some(found)
}

fn by_elfutils(build_id: &str) -> Option<PathBuf> {
    let mut command = quiet("debuginfod-find");
    let mut child = command.args(["debuginfo", build_id]).stdout(Stdio::piped()).spawn().ok()?;
    if !succeeds(&mut child) {
        return None;
    }
    let mut said = Vec::new(); // a path: less than a pipe holds
    child.stdout.take()?.read_to_end(&mut said).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(said.trim_ascii_end()));
    path.is_file().then_some(path)
}

fn by_curl(servers: &str, build_id: &str) -> Option<PathBuf> {
    let path = cache_folder()?.join(build_id).join("debuginfo");
    if path.is_file() && build_id_of(&path) == build_id {
        return Some(path); // else a power cut left it so
    }
    std::fs::create_dir_all(path.parent()?).ok()?;
    let draft = path.with_extension(format!("part{}", std::process::id()));
    let fetched = servers.split_whitespace().any(|server| {
        let address = format!("{}/buildid/{build_id}/debuginfo", server.trim_end_matches('/'));
        let limits = ["--connect-timeout", "10", "--max-time", "300", "--max-filesize", "4294967296"];
        let only = ["--proto", "=http,https", "--location", "--fail", "--silent", "--output"];
        let child =
            quiet("curl").args(limits).args(only).arg(&draft).arg(address).stdout(Stdio::null()).spawn();
        child.is_ok_and(|mut child| succeeds(&mut child))
    });
    if fetched && std::fs::rename(&draft, &path).is_ok() {
        return Some(path);
    }
    let _ = std::fs::remove_file(&draft);
    None
}

/// Where debuginfod's own client keeps what it fetched.
fn cache_folder() -> Option<PathBuf> {
    if let Some(own) = env::var_os("DEBUGINFOD_CACHE_PATH").filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(own));
    }
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cache")));
    cache.map(|cache| cache.join("debuginfod_client"))
}

/// Where there is no time for it, it is ended. A server may take minutes.
fn succeeds(child: &mut Child) -> bool {
    const LOOK: Duration = Duration::from_millis(20);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if !process::is_hurried() => std::thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}
