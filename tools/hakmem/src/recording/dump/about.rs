//! about.rs - what a dump says of its program and of the machine that it ran on, which need not be ours.

use super::Dump;
use crate::options::{OPTIONS, OptionRow};
use crate::profile::file::name_clean;
use crate::profile::model::{Program, Setting};
use crate::recording::memory::Mapping;
use std::collections::HashSet;
use std::path::PathBuf;

/// The program's own image: the lowest that has code. Java maps an archive of classes lower.
fn image_of(mappings: &[Mapping]) -> PathBuf {
    let with_code: HashSet<&PathBuf> =
        mappings.iter().filter(|mapping| mapping.is_executable).map(|mapping| &mapping.path).collect();
    let mut images =
        mappings.iter().filter(|mapping| mapping.path.is_absolute()).map(|mapping| &mapping.path);
    images.find(|path| with_code.contains(path)).cloned().unwrap_or_default()
}

pub(super) fn program_of(dump: &Dump, mappings: &[Mapping], pid: u64) -> Program {
    let command = dump.texts.get("cmdline").map(Vec::as_slice).unwrap_or_default();
    let command = command.strip_suffix(b"\0").unwrap_or(command);
    let command = command.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
    let path = image_of(mappings).to_string_lossy().into_owned();
    let mut program = Program {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        path,
        command: command.collect(),
        pid: u32::try_from(pid).unwrap_or(0),
        ..machine_of(dump)
    };
    let texts = [&mut program.name, &mut program.path, &mut program.host, &mut program.kernel];
    texts.into_iter().chain(program.command.iter_mut()).for_each(name_clean);
    name_clean(&mut program.machine);
    program
}

/// Where the program ran. Dumps of libraries that did not say leave it open; it need not have been here.
fn machine_of(dump: &Dump) -> Program {
    let text = |name: &str| {
        let bytes = dump.texts.get(name).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(bytes).trim_end().to_owned()
    };
    let number = |name: &str| line_of(dump, "about", name).parse().unwrap_or(0);
    let memory = line_of(dump, "meminfo", "MemTotal:");
    let memory_kib = memory.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    Program {
        host: text("host"),
        kernel: text("kernel"),
        machine: line_of(dump, "about", "machine"),
        processor_count: u32::try_from(number("processors")).unwrap_or(0),
        memory_bytes: memory_kib.unwrap_or(0).saturating_mul(1 << 10),
        page_bytes: number("page_bytes"),
        ..Program::default()
    }
}

/// The options as they were; none where the library did not say.
pub(super) fn settings_of(dump: &Dump) -> Vec<Setting> {
    if !dump.texts.contains_key("options") {
        return Vec::new();
    }
    let setting = |row: &OptionRow| {
        let value = Some(line_of(dump, "options", row.name)).filter(|value| !value.is_empty());
        let mut value = value.unwrap_or_else(|| row.default_text());
        name_clean(&mut value);
        Setting { name: row.name.to_owned(), is_default: value == row.default_text(), value }
    };
    OPTIONS.iter().map(setting).collect()
}

/// Of a text of lines, each a key, blanks and a value: that key's value, or nothing.
pub(super) fn line_of(dump: &Dump, text: &str, key: &str) -> String {
    let text = String::from_utf8_lossy(dump.texts.get(text).map(Vec::as_slice).unwrap_or_default());
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.unwrap_or_default().trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{KIND_TEXT, MAGIC, parse};
    use super::*;
    use crate::recording::memory::mappings_parse;
    use std::path::Path;

    fn dump(texts: &[(&str, &str)]) -> Vec<u8> {
        let section = |(name, text): &(&str, &str)| {
            let mut head = [0; 40];
            head[..name.len()].copy_from_slice(name.as_bytes());
            head[16..24].copy_from_slice(&KIND_TEXT.to_le_bytes());
            head[32..].copy_from_slice(&(text.len() as u64).to_le_bytes());
            [&head[..], text.as_bytes()].concat()
        };
        [MAGIC.to_vec(), texts.iter().flat_map(section).collect()].concat()
    }

    #[test]
    fn the_machine_is_the_one_that_the_program_ran_on() {
        let bytes = dump(&[
            ("about", "reason exit\nmachine aarch64\nprocessors 96\npage_bytes 65536\n"),
            ("host", "far-away\n"),
            ("kernel", "4.19.0-x\n"),
            ("meminfo", "MemFree:  1 kB\nMemTotal:       1024 kB\n"),
            ("cmdline", "/bin/x\0--y\0"),
        ]);
        let program = program_of(&parse(&bytes).unwrap(), &[], 7);
        assert_eq!((program.host.as_str(), program.kernel.as_str()), ("far-away", "4.19.0-x"));
        assert_eq!((program.machine.as_str(), program.processor_count), ("aarch64", 96));
        assert_eq!((program.memory_bytes, program.page_bytes, program.pid), (1 << 20, 65536, 7));
        assert_eq!(program.command, ["/bin/x", "--y"]);
    }

    #[test]
    fn what_an_older_library_did_not_say_is_left_open() {
        let bytes = dump(&[("about", "reason exit\n")]);
        let found = parse(&bytes).unwrap();
        let program = program_of(&found, &[], 7);
        assert_eq!((program.host.as_str(), program.memory_bytes, program.processor_count), ("", 0, 0));
        assert!(settings_of(&found).is_empty());
    }

    #[test]
    fn options_are_as_they_were() {
        let bytes = dump(&[("options", "free_max_mb 7\nrecord \npurge_delay_ms 800\npolicy /a b\u{1b}\n")]);
        let settings = settings_of(&parse(&bytes).unwrap());
        let of = |name: &str| settings.iter().find(|setting| setting.name == name).unwrap();
        assert_eq!(settings.len(), OPTIONS.len());
        assert_eq!((of("free_max_mb").value.as_str(), of("free_max_mb").is_default), ("7", false));
        assert!(of("purge_delay_ms").is_default && of("record").is_default && of("free_share").is_default);
        assert_eq!(of("policy").value, "/a b\u{fffd}");
    }

    #[test]
    fn the_program_is_what_has_code_and_lies_lowest() {
        let text = b"7000-8000 rw-p 00000000 fe:00 9 /opt/java/classes.jsa\n\
            a000-b000 r--p 00000000 fe:00 10 /opt/java/bin/java\n\
            b000-c000 r-xp 00001000 fe:00 10 /opt/java/bin/java\n\
            d000-e000 r-xp 00000000 fe:00 11 /usr/lib/libc.so.6\n";
        assert_eq!(image_of(&mappings_parse(text)), Path::new("/opt/java/bin/java"));
        assert_eq!(image_of(&[]), Path::new(""));
    }
}
