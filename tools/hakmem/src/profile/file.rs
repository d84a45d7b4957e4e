//! file.rs - a profile in a file (NAME.hakprof): JSON compressed by gzip, so that `zcat FILE | jq` reads it too.
//!
//! Files come from other machines and other people. Hence: limits on what is read, before and after
//! decompression; every index is checked (Profile::check); control characters in names are replaced, for names go
//! to terminals; and whatever is wrong is one line.

use super::bounds;
use super::model::Profile;
use crate::output::{Output, STREAM};
use crate::recording::dump::{self, Content};
use crate::system::error_text;
use crate::text::{self, Failure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// A recording of a program with a hundred thousand stacks takes 10 MB, 150 decompressed.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// How a dump begins, of any version.
const DUMP: &[u8] = b"HAKMEM DUMP ";

pub fn read(path: &Path) -> Result<Profile, Failure> {
    let shown = if path == Path::new(STREAM) { "standard input".to_owned() } else { text::quote(path) };
    let refused = |reason: String| Failure::usage(format!("{shown}: {reason}"));
    let file = file_open(path).map_err(|error| refused(error_text(&error)))?;
    let metadata = file.metadata().map_err(|error| refused(error_text(&error)))?;
    if metadata.is_dir() {
        return Err(refused("is a folder".to_owned()));
    }
    let mut head = Vec::new();
    (&file).take(DUMP.len() as u64).read_to_end(&mut head).map_err(|error| refused(error_text(&error)))?;
    if head != DUMP {
        if metadata.len() > FILE_BYTES_MAX {
            return Err(refused(format!(
                "is larger than a profile may be ({})",
                text::bytes(FILE_BYTES_MAX)
            )));
        }
        return parse(head.as_slice().chain(file.take(FILE_BYTES_MAX))).map_err(refused);
    }
    // The library's own dump: its names are found now.
    let content = Content::behind(head, &file).map_err(refused)?;
    let mut profile = dump::profile(&content).map_err(refused)?;
    names_clean(&mut profile);
    Ok(profile)
}

/// A file to be read; `-` is standard input.
pub fn file_open(path: &Path) -> io::Result<fs::File> {
    match path == Path::new(STREAM) {
        true => io::stdin().as_fd().try_clone_to_owned().map(fs::File::from),
        false => fs::File::open(path),
    }
}

/// Any stream of a profile; what is wrong with it is said without its name.
pub fn parse(stream: impl Read) -> Result<Profile, String> {
    parse_limited(stream, TEXT_BYTES_MAX)
}

fn parse_limited(mut stream: impl Read, bytes_max: u64) -> Result<Profile, String> {
    let mut magic = Vec::new();
    stream.by_ref().take(2).read_to_end(&mut magic).map_err(|error| error_text(&error))?;
    if magic != [0x1f, 0x8b] {
        let what = if magic.is_empty() { "is empty" } else { "is no hakmem profile" };
        return Err(what.to_owned());
    }
    let mut text = Vec::new();
    let mut decoder = GzDecoder::new(magic.as_slice().chain(stream)).take(bytes_max + 1);
    decoder.read_to_end(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "is cut short".to_owned(),
        _ => format!("is damaged: {}", error_text(&error)),
    })?;
    if text.len() as u64 > bytes_max {
        return Err(format!("holds more than a profile may ({})", text::bytes(bytes_max)));
    }
    bounds::renew();
    let mut profile: Profile = serde_json::from_slice(&text).map_err(|error| {
        // A gzip file of another kind is not a damaged profile.
        let is_profile = text.first() == Some(&b'{');
        if is_profile {
            format!("is damaged: {}", one_line(&error.to_string()))
        } else {
            "is no hakmem profile".to_owned()
        }
    })?;
    profile.check()?;
    names_clean(&mut profile);
    Ok(profile)
}

pub fn write(path: &Path, profile: &Profile) -> Result<u64, Failure> {
    debug_assert_eq!(profile.check(), Ok(()));
    Output::open(path)?.write_by(|file| stream_write(file, profile))
}

fn stream_write(file: fs::File, profile: &Profile) -> io::Result<u64> {
    let mut encoder = GzEncoder::new(Counted { to: BufWriter::new(file), bytes: 0 }, Compression::new(6));
    serde_json::to_writer(&mut encoder, profile)?;
    let mut counted = encoder.finish()?;
    counted.flush()?;
    Ok(counted.bytes)
}

struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.to.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn names_clean(profile: &mut Profile) {
    let program = &mut profile.program;
    let of_program = [&mut program.name, &mut program.path, &mut program.host, &mut program.kernel];
    let of_profile = [&mut profile.tool, &mut profile.library, &mut profile.recording.reason];
    of_program.into_iter().chain(of_profile).for_each(name_clean);
    name_clean(&mut program.machine);
    program.command.iter_mut().for_each(name_clean);
    for module in &mut profile.modules {
        [&mut module.path, &mut module.build_id, &mut module.debug_file].into_iter().for_each(name_clean);
    }
    for function in &mut profile.functions {
        [&mut function.name, &mut function.symbol, &mut function.file].into_iter().for_each(name_clean);
    }
    profile.threads.iter_mut().for_each(|thread| name_clean(&mut thread.name));
    for setting in &mut profile.settings {
        [&mut setting.name, &mut setting.value].into_iter().for_each(name_clean);
    }
}

/// A name as it may go to a terminal.
pub fn name_clean(name: &mut String) {
    if name.chars().any(char::is_control) {
        *name = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    }
}

fn one_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// The file that the integration tests read is this sample: `HAKMEM_WRITE_SAMPLE=1 cargo test the_sample` renews it.
    #[test]
    fn the_sample_file_is_the_sample() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample.hakprof");
        if std::env::var_os("HAKMEM_WRITE_SAMPLE").is_some() {
            write(&path, &sample::profile()).unwrap();
        }
        assert!(read(&path).unwrap() == sample::profile(), "renew it");
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let path = std::env::temp_dir().join(format!("hakmem-profile-{}.hakprof", std::process::id()));
        let profile = sample::profile();
        let bytes = write(&path, &profile).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
        assert!(read(&path).unwrap() == profile);
        // Cut anywhere it is refused, and never half believed.
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for length in (0..whole.len()).step_by(whole.len() / 50 + 1) {
            let reason = parse(&whole[..length]).unwrap_err();
            assert!(!reason.is_empty() && !reason.contains('\n'), "{length}: {reason}");
        }
    }

    #[test]
    fn a_changed_byte_is_noticed_or_harmless() {
        let path = std::env::temp_dir().join(format!("hakmem-flip-{}.hakprof", std::process::id()));
        write(&path, &sample::profile()).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            if let Err(reason) = parse(changed.as_slice()) {
                assert!(!reason.contains('\n'), "{reason}");
            }
        }
    }

    #[test]
    fn hostile_files_are_refused_in_one_line() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "is empty"),
            (b"hello", "is no hakmem profile"),
            (&packed(b"a gzip of something else"), "is no hakmem profile"),
            (&packed(b"{}"), "schema"),
            (&packed(b"{\"schema\": 99}"), "it is of schema 99"),
            (&packed(b"{\"schema\": 1, \"stacks\": [{\"locations\": [7]}]}"), "location 7 is named"),
            (&packed(b"{\"schema\": 1, \"stacks\": 3}"), "is damaged"),
            (&packed(&[b"{\"a\":".to_vec(), vec![b'['; 100_000]].concat()), "is damaged"),
        ];
        for (bytes, part) in cases {
            let reason = parse(bytes).unwrap_err();
            assert!(reason.contains(part) && !reason.contains('\n'), "{reason}");
        }
        // Small files that would fill the memory, or take for ever.
        let many = |row: &str, count: usize| vec![row; count].join(",");
        let stacks = format!("{{\"schema\": 1, \"stacks\": [{}]}}", many("{}", 2 << 20));
        let reason = parse(packed(stacks.as_bytes()).as_slice()).unwrap_err();
        assert!(reason.contains("more rows than a profile may have") && !reason.contains('\n'), "{reason}");
        let stacks = format!("{{\"schema\": 1, \"stacks\": [{}]}}", many("{}", 200_000));
        assert!(
            parse(packed(stacks.as_bytes()).as_slice()).unwrap_err().contains("200000 stacks, more than")
        );
        let lines = |count| format!("{{\"lines\": [{}]}}", many("{}", count));
        let of = |lines: String, locations: usize, stacks: usize| {
            let stack = format!("{{\"locations\": [{}]}}", many("0", locations));
            let stacks = many(&stack, stacks);
            let text = format!(
                "{{\"schema\": 1, \"functions\": [{{}}], \"locations\": [{lines}], \"stacks\": [{stacks}]}}"
            );
            parse(packed(text.as_bytes()).as_slice())
        };
        assert!(of(lines(256), 64, 1).is_ok());
        assert!(of(lines(257), 64, 1).unwrap_err().contains("257 lines, more than 256"));
        assert!(of(lines(256), 65, 1).unwrap_err().contains("65 locations, more than 64"));
        assert!(of(lines(256), 64, 2049).unwrap_err().contains("more than 33554432 frames"));
        let refused = |text: String| parse(packed(text.as_bytes()).as_slice()).unwrap_err();
        let classes = refused(format!("{{\"schema\": 1, \"classes\": [{}]}}", many("{}", 4097)));
        assert!(classes.contains("4097 classes, more than 4096"), "{classes}");
        // Each class and thread once: what is looked at for each of a million pairs never ends.
        let named = |what: &str, rows: &str| {
            refused(format!(
                "{{\"schema\": 1, \"threads\": [{{}}], \"classes\": [{{}}], \"stacks\": [{{{what}: [{rows}]}}]}}"
            ))
        };
        let threads = named("\"threads\"", &many("{}", 2));
        assert!(threads.contains("2 threads are named in one place, but there are 1"), "{threads}");
        assert!(named("\"classes\"", &many("{}", 2)).contains("2 classes are named in one place"));
        let pins = "\"stacks\": [{}], \"classes\": [{}], \"pins\": [{\"classes\": [0, 0]}]";
        assert!(refused(format!("{{\"schema\": 1, {pins}}}")).contains("2 classes are named in one place"));
        // A small file that would fill the memory.
        let bomb = packed(&vec![b' '; 4 << 20]);
        assert!(parse_limited(bomb.as_slice(), 1 << 20).unwrap_err().contains("holds more"));
    }

    #[test]
    fn names_cannot_speak_to_the_terminal() {
        let text = b"{\"schema\": 1, \"functions\": [{\"name\": \"a\\u001b[2Jb\\n\"}]}";
        let profile = parse(packed(text).as_slice()).unwrap();
        assert_eq!(profile.functions[0].name, "a\u{fffd}[2Jb\u{fffd}");
    }
}
