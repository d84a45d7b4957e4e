//! groups.rs - what the control groups around a process allow it: the same rules as the library's src/os/group.c.
//!
//! Limits: trees are looked for where everybody mounts them, below /sys/fs/cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use crate::system::text_read;

/// What the smallest of the limits is, and the file that says so.
pub type Found<T> = Option<(T, PathBuf)>;

/// The trees in which a controller may have its files: folder below the mount, name in the list ("": version 2), files.
type Tree<'a> = (&'a str, &'a str, &'a [&'a str]);
const MEMORY: [Tree; 3] = [
    ("", "", &["memory.max", "memory.high"]),
    ("unified", "", &["memory.max", "memory.high"]),
    ("memory", "memory", &["memory.limit_in_bytes"]),
];
const PROCESSORS: [Tree; 3] =
    [("", "", &["cpu.max"]), ("unified", "", &["cpu.max"]), ("cpu", "cpu", &["cpu.cfs_quota_us"])];

/// "max", -1, and the old interface's number of pages beyond counting, are no limit.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number < 1 << 60)
}

/// The smallest memory.max and memory.high (version 1: memory.limit_in_bytes), in bytes.
pub fn memory(process: &str) -> Found<u64> {
    memory_of(&text_read(format!("/proc/{process}/cgroup")).ok()?, Path::new("/sys/fs/cgroup"))
}

/// The smallest cpu.max (version 1: cpu.cfs_quota_us), rounded up to processors.
pub fn processors(process: &str) -> Found<u64> {
    processors_of(&text_read(format!("/proc/{process}/cgroup")).ok()?, Path::new("/sys/fs/cgroup"))
}

fn memory_of(list: &str, mount: &Path) -> Found<u64> {
    smallest(list, mount, &MEMORY, |path| number(text_read(path).ok()?.trim()))
}

fn processors_of(list: &str, mount: &Path) -> Found<u64> {
    smallest(list, mount, &PROCESSORS, |path| {
        let text = text_read(path).ok()?;
        let mut fields = text.split_whitespace();
        let quota = number(fields.next()?)?;
        let period = match fields.next() {
            Some(period) => number(period)?,
            None => number(text_read(path.with_file_name("cpu.cfs_period_us")).ok()?.trim())?,
        };
        (quota > 0 && period > 0).then(|| quota.div_ceil(period))
    })
}

fn smallest(list: &str, mount: &Path, trees: &[Tree; 3], read: impl Fn(&Path) -> Option<u64>) -> Found<u64> {
    let mut least: Found<u64> = None;
    for (folder, controller, files) in trees {
        let Some(group) = group_of(list, controller) else { continue };
        for path in
            folders(&mount.join(folder), group).iter().flat_map(|at| files.iter().map(|file| at.join(file)))
        {
            let Some(limit) = read(&path) else { continue };
            if least.as_ref().is_none_or(|(bound, _)| limit < *bound) {
                least = Some((limit, path));
            }
        }
    }
    least
}

/// The path of the group in the tree of this controller.
fn group_of<'a>(list: &'a str, controller: &str) -> Option<&'a str> {
    list.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, group) = (fields.next()?, fields.next()?, fields.next()?);
        names.split(',').any(|name| name == controller).then_some(group)
    })
}

/// The group's folder and those that it lies in. Of a group outside of the namespace ("/../other") the mount is another's.
fn folders(mount: &Path, group: &str) -> Vec<PathBuf> {
    let mut rest = group;
    while let Some(further) =
        rest.strip_prefix("/..").filter(|further| further.is_empty() || further.starts_with('/'))
    {
        rest = further;
    }
    if !group.starts_with('/') || rest.split('/').any(|name| name == "..") {
        return Vec::new();
    }
    let is_beyond = rest.len() < group.len();
    let relative = Path::new(rest.trim_matches('/'));
    let all = relative.ancestors().filter(|at| !is_beyond || !at.as_os_str().is_empty());
    all.map(|at| mount.join(at)).filter(|at| fs::metadata(at).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Mount(PathBuf);

    impl Mount {
        fn new(name: &str) -> Mount {
            Mount(std::env::temp_dir().join(format!("hakmem-groups-{name}-{}", std::process::id())))
        }

        fn put(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn memory(&self, list: &str) -> Option<(u64, String)> {
            memory_of(list, &self.0)
                .map(|(n, at)| (n, at.strip_prefix(&self.0).unwrap().display().to_string()))
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_smallest_limit_and_its_file_are_found() {
        let mount = Mount::new("memory");
        mount.put("a/b/memory.max", "max\n");
        assert_eq!(mount.memory("0::/a/b\n"), None);
        mount.put("a/memory.max", "2000\n");
        assert_eq!(mount.memory("0::/a/b\n"), Some((2000, "a/memory.max".to_owned())));
        mount.put("a/b/memory.high", "1000\n");
        assert_eq!(mount.memory("0::/a/b\n"), Some((1000, "a/b/memory.high".to_owned())));
        mount.put("memory.max", "500\n");
        assert_eq!(mount.memory("0::/hosts/path\n"), Some((500, "memory.max".to_owned())));
        assert_eq!(mount.memory("0::/..\n"), None);
        assert_eq!(mount.memory("0::/../a\n"), Some((2000, "a/memory.max".to_owned())));
        assert_eq!(mount.memory("0::/a/../..\n"), None);
        mount.put("memory/box/memory.limit_in_bytes", "400\n");
        mount.put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let found = Some((400, "memory/box/memory.limit_in_bytes".to_owned()));
        assert_eq!(mount.memory("4:hugetlb,memory:/box\n0::/\n"), found);
    }

    #[test]
    fn a_quota_is_rounded_up() {
        let mount = Mount::new("cpu");
        let count = |list| processors_of(list, &mount.0).map(|(count, _)| count);
        mount.put("a/cpu.max", "max 100000\n");
        assert_eq!(count("0::/a\n"), None);
        mount.put("a/cpu.max", "250000 100000\n");
        assert_eq!(count("0::/a\n"), Some(3));
        mount.put("cpu/cpu.cfs_quota_us", "-1\n");
        mount.put("cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(count("2:cpu,cpuacct:/docker\n"), None);
        mount.put("cpu/cpu.cfs_quota_us", "50000\n");
        assert_eq!(count("2:cpu,cpuacct:/docker\n"), Some(1));
    }
}
