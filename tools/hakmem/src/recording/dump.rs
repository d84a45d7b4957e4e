//! dump.rs - the library's dump files: the same tables as in memory, at their addresses, in a file.
//!
//! Source:  src/watch/dump.c, docs/recording.md: "HAKMEM DUMP 1", then sections, each with its name, kind, address and
//!          length. Texts: about (reason, pid, clocks, where hak_published was), host, kernel, meminfo, options, cmdline, maps.
//!          Memory: all else.
//! Trust:   a dump may be cut short by a full disk or a kill, or be made by somebody: every length is checked, and what is
//!          not there reads as missing memory, as in a process.
//! Names:   are found here and now; a file that was replaced since is told by its build id, and gives no names.

mod about;

use self::about::{line_of, program_of, settings_of};
use super::convert::{self, Subject};
use super::guards::{self, Misuse};
use super::memory::{Mapping, Memory, mappings_parse};
use super::pages::{Census, Residence};
use super::raw::{self, Tables};
use super::subject;
use crate::profile::file::FILE_BYTES_MAX;
use crate::profile::model::Profile;
use crate::text;
use memmap2::Mmap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

pub const MAGIC: &[u8] = b"HAKMEM DUMP 1\n\n\0";
const HEAD_BYTES: usize = 40;
const KIND_TEXT: u64 = 1;
const KIND_MEMORY: u64 = 2;
/// Of 2.6 TiB of small blocks: a chunk of 4 MiB takes 63 to 99 KB.
const BYTES_MAX: u64 = 64 << 30;
/// Of a million mappings.
const TEXT_BYTES_MAX: usize = 128 << 20;
/// Two of each of two million chunks.
const SECTIONS_MAX: usize = 1 << 22;

/// A dump. 16 GiB of small blocks make 260 to 400 MB of them, of which little is looked at.
pub struct Content {
    bytes: Bytes,
    owner: Option<u32>, // of the file
}

enum Bytes {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Content {
    /// What `file` has behind `head`, which was read from it, with that; or, in one line, why it cannot be had.
    pub fn behind(head: Vec<u8>, mut file: &File) -> Result<Content, String> {
        let refused = |error: io::Error| crate::system::error_text(&error);
        let is_whole = file.stream_position().is_ok_and(|at| at == head.len() as u64);
        let metadata = file.metadata().map_err(refused)?;
        let owner = metadata.is_file().then(|| metadata.uid());
        if is_whole && metadata.is_file() {
            if metadata.len() > BYTES_MAX {
                return Err(format!("is larger than a dump may be ({})", text::bytes(BYTES_MAX)));
            }
            // A file that shrinks while it is mapped ends us; the library writes its dumps under another name first.
            if let Ok(map) = unsafe { Mmap::map(file) } {
                return Ok(Content { bytes: Bytes::Mapped(map), owner });
            }
        }
        let mut content = head;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(refused)?;
        match content.len() as u64 > FILE_BYTES_MAX {
            false => Ok(Content { bytes: Bytes::Read(content), owner }),
            true => {
                Err(format!("is larger than what can be read from here ({})", text::bytes(FILE_BYTES_MAX)))
            }
        }
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// A dump's sections; its memory is read like a process's.
struct Dump<'a> {
    texts: BTreeMap<String, Vec<u8>>,
    memory: BTreeMap<u64, &'a [u8]>,
    files: BTreeSet<u64>, // where images of mapped files begin
    is_whole: bool,
}

impl Memory for Dump<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let missing = || io::Error::from_raw_os_error(libc::EFAULT);
        let (start, bytes) = self.memory.range(..=address).next_back().ok_or_else(missing)?;
        let from = usize::try_from(address - start).map_err(|_| missing())?;
        let end = from.checked_add(into.len()).ok_or_else(missing)?;
        into.copy_from_slice(bytes.get(from..end).ok_or_else(missing)?);
        Ok(())
    }
}

/// A dump, what is known of the process, and where it published.
struct Opened<'a> {
    dump: Dump<'a>,
    subject: Subject,
    address: u64,
}

fn opened(content: &Content) -> Result<Opened<'_>, String> {
    let dump = parse(content)?;
    let about = |name: &str| line_of(&dump, "about", name);
    let address = about("published");
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)
        .map_err(|_| "is damaged: it does not say what it is of")?;
    let number = |name: &str| about(name).parse::<u64>().unwrap_or(0);
    let mappings = mappings_of(&dump);
    let reason = about("reason");
    let program = program_of(&dump, &mappings, number("pid"));
    let written_unix_ms = number("realtime_ns") / 1_000_000;
    let subject = Subject {
        author: subject::author_then(program.pid, &program.path, written_unix_ms, content.owner),
        program,
        mappings,
        root: PathBuf::from("/"),
        settings: settings_of(&dump),
        resident_bytes: number("resident_bytes"),
        resident_peak_bytes: 0,
        now_ns: number("monotonic_ns"),
        // On request, somebody may have started the recording long after the program.
        is_attached: reason == "request",
        reason,
    };
    Ok(Opened { dump, subject, address })
}

impl Opened<'_> {
    fn refused(&self, reason: &str) -> String {
        match self.whole() {
            Ok(()) => format!("is damaged: {reason}"),
            Err(cut) => cut,
        }
    }

    /// What is missing at the end reads as nothing, and would be counted as nothing.
    fn whole(&self) -> Result<(), String> {
        if self.dump.is_whole { Ok(()) } else { Err("is cut short".to_owned()) }
    }
}

/// The profile of a dump; `content` begins with MAGIC.
pub fn profile(content: &Content) -> Result<Profile, String> {
    let opened = opened(content)?;
    let tables = Tables::read(&opened.dump, opened.address).map_err(|reason| opened.refused(&reason))?;
    opened.whole()?;
    let census = Census::take(&opened.dump, &tables.published, &tables.classes, &Residence::AsReturned)
        .map_err(|reason| opened.refused(&reason))?;
    let profile = convert::profile(&tables, &opened.subject, &census, &[]);
    profile.check()?;
    Ok(profile)
}

/// What was done to guarded blocks, as a dump has it; `content` begins with MAGIC.
pub fn guards(content: &Content) -> Result<Vec<Misuse>, String> {
    let opened = opened(content)?;
    let found = raw::guards_read(&opened.dump, opened.address).map_err(|reason| opened.refused(&reason))?;
    if found.is_empty() {
        opened.whole()?;
    }
    Ok(guards::named(&found, &opened.subject))
}

fn parse(content: &[u8]) -> Result<Dump<'_>, String> {
    let mut dump =
        Dump { texts: BTreeMap::new(), memory: BTreeMap::new(), files: BTreeSet::new(), is_whole: false };
    let mut rest = content.strip_prefix(MAGIC).ok_or("is a dump of another version")?;
    let (mut section_count, mut text_bytes) = (0, 0);
    while let Some((head, after)) = rest.split_at_checked(HEAD_BYTES) {
        let name = super::raw::text_of(&head[..16]);
        let field = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let (kind, address, bytes) = (field(16), field(24), field(32));
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if name == "end" {
            dump.is_whole = true;
            break;
        }
        let Some((bytes, after)) = after.split_at_checked(length) else { break };
        section_count += 1;
        text_bytes += if kind == KIND_TEXT { length } else { 0 };
        if section_count > SECTIONS_MAX || text_bytes > TEXT_BYTES_MAX {
            return Err("has more than a dump may".to_owned());
        }
        match kind {
            KIND_TEXT => dump.texts.entry(name).or_default().extend_from_slice(bytes),
            KIND_MEMORY => {
                if name == "file" {
                    dump.files.insert(address);
                }
                dump.memory.insert(address, bytes);
            }
            _ => {} // of a newer library
        }
        rest = after;
    }
    Ok(dump)
}

/// The mappings, each with the build id of the file that was mapped then.
fn mappings_of(dump: &Dump) -> Vec<Mapping> {
    let mut mappings = mappings_parse(dump.texts.get("maps").map(Vec::as_slice).unwrap_or_default());
    let paths: HashMap<u64, &PathBuf> = mappings.iter().rev().map(|m| (m.start, &m.path)).collect();
    let of_file = |start: &u64| {
        let build_id = build_id_of_image(dump.memory.get(start)?)?;
        Some((PathBuf::clone(paths.get(start)?), build_id))
    };
    let build_ids: HashMap<PathBuf, String> = dump.files.iter().filter_map(of_file).collect();
    for mapping in &mut mappings {
        if let Some(build_id) = build_ids.get(&mapping.path) {
            mapping.build_id.clone_from(build_id);
        }
    }
    // Deleted then: what stands there now is told by its build id.
    mappings.iter_mut().for_each(|mapping| mapping.is_deleted = false);
    mappings
}

/// The build id in the first page of an ELF image; its notes mostly lie there.
fn build_id_of_image(page: &[u8]) -> Option<String> {
    use object::elf;
    use object::read::elf::{FileHeader, ProgramHeader};
    const PAGE_BYTES: usize = 4096; // dump.c writes no more
    let page = page.get(..PAGE_BYTES).unwrap_or(page);
    let header = elf::FileHeader64::<object::Endianness>::parse(page).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, page).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, page) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::raw::{ClassRow, Geometry, Plain, Published, Table};
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    fn read(bytes: &[u8]) -> Content {
        Content { bytes: Bytes::Read(bytes.to_vec()), owner: None }
    }

    fn profile(bytes: &[u8]) -> Result<Profile, String> {
        super::profile(&read(bytes))
    }

    fn section(name: &str, kind: u64, address: u64, bytes: &[u8]) -> Vec<u8> {
        let mut head = [0; HEAD_BYTES];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[16..24].copy_from_slice(&kind.to_le_bytes());
        head[24..32].copy_from_slice(&address.to_le_bytes());
        head[32..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        [&head[..], bytes].concat()
    }

    fn bytes_of<T: raw::Plain>(value: &T) -> Vec<u8> {
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
    }

    fn published() -> Published {
        let bytes = size_of::<Published>() as u32;
        Published { magic: raw::MAGIC, version: raw::VERSION, bytes, ..Published::zero() }
    }

    /// All of a dump but its end.
    fn begun(published: &Published) -> Vec<u8> {
        [
            MAGIC.to_vec(),
            section("about", KIND_TEXT, 0, b"reason exit\npublished 0x5000\n"),
            section("published", KIND_MEMORY, 0x5000, &bytes_of(published)),
        ]
        .concat()
    }

    #[test]
    fn a_dump_may_be_larger_than_a_profile() {
        const SLABS_BYTES: u64 = 260 << 20; // of 10 to 16 GiB of small blocks
        let path = std::env::temp_dir().join(format!("hakmem-large-{}.hakdump", std::process::id()));
        let mut head = section("slabs", KIND_MEMORY, 0x10_0000, b"");
        head[32..40].copy_from_slice(&SLABS_BYTES.to_le_bytes());
        let begun = [begun(&published()), head].concat();
        std::fs::write(&path, &begun).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let end = begun.len() as u64 + SLABS_BYTES;
        file.write_all_at(&section("end", KIND_TEXT, 0, b""), end).unwrap();
        let whole = crate::profile::file::read(&path).map_err(|failure| failure.line);
        let misuses = crate::cmd::guard::of_dump(&path).map_err(|failure| failure.line);
        file.set_len(end).unwrap();
        let cut = crate::profile::file::read(&path).map_err(|failure| failure.line);
        file.write_all_at(&KIND_TEXT.to_le_bytes(), begun.len() as u64 - 24).unwrap();
        let text = crate::profile::file::read(&path).map_err(|failure| failure.line);
        file.set_len(BYTES_MAX + 1).unwrap();
        let larger = crate::profile::file::read(&path).map_err(|failure| failure.line);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(whole.map(|profile| profile.recording.reason), Ok("exit".to_owned()));
        assert_eq!(misuses.map(|misuses| misuses.len()), Ok(0));
        assert!(cut.err().unwrap().contains("is cut short"));
        assert!(text.err().unwrap().contains("has more than a dump may"));
        assert!(larger.err().unwrap().contains("is larger than a dump may be (64.0 GiB)"));
    }

    /// A dump of these tables and sections, looked at in little time.
    fn at_once(published: &Published, sections: &[Vec<u8>]) -> Result<Profile, String> {
        let start = Instant::now();
        let end = section("end", KIND_TEXT, 0, b"");
        let found = profile(&[begun(published), sections.concat(), end].concat());
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        found
    }

    /// A few bytes that were four million chunks: the same ones.
    #[test]
    fn chunks_that_lie_one_on_another_are_refused() {
        let mut published = published();
        let geometry = &mut published.geometry;
        (geometry.page_shift, geometry.granule_shift, geometry.unit_shift) = (10, 16, 0);
        (geometry.meta, geometry.chunk_top_address) = (0x9000, 0x9000);
        let mut memory = [0; 64];
        memory[..8].copy_from_slice(&(1_u64 << 22).to_le_bytes());
        let found = at_once(&published, &[section("chunk", KIND_MEMORY, 0x9000, &memory)]);
        assert_eq!(found.err().unwrap(), "is damaged: its chunks lie one on another");
        // All but one of the distances.
        let sane = sane_geometry();
        let cases: [fn(&mut Geometry); 5] = [
            |geometry| geometry.chunk_struct_bytes = 0,
            |geometry| geometry.slab_struct_bytes = 0,
            |geometry| geometry.meta_bytes = 0,
            |geometry| geometry.structs_bytes = 0,
            |geometry| geometry.unit_meta_bytes = 0,
        ];
        for spoil in cases {
            published.geometry = sane;
            spoil(&mut published.geometry);
            assert!(at_once(&published, &chunk_of(16, 4096, 64, 1 << 16)).is_err());
        }
    }

    fn sane_geometry() -> Geometry {
        Geometry {
            meta: 0x10_0000,
            chunk_top_address: 0x9000,
            unit_meta_bytes: 0x1000 + (128 << 10),
            structs_bytes: 0x1000,
            meta_bytes: 128 << 10,
            page_shift: 12,
            granule_shift: 16,
            chunk_struct_bytes: 384,
            chunk_slabs_offset: 16,
            slab_struct_bytes: 64,
            slab_owner_line_offset: 2,
            slab_remote_line_offset: 2,
            slab_page_shift_offset: 4,
            slab_returned_offset: 8,
            ..Geometry::zero()
        }
    }

    /// A chunk of 64 slabs of one class, and that class: all blocks live.
    fn chunk_of(block_bytes: u32, capacity: u32, word_count: u32, slab_bytes: u32) -> Vec<Vec<u8>> {
        const LINES: usize = 64; // the headers take as many
        let class = ClassRow { reciprocal: 0, block_bytes, capacity, word_count, slab_bytes };
        let mut chunk = vec![0; 0x1000];
        chunk[16..24].fill(0xff);
        let mut header = [0; 64];
        header[..3].copy_from_slice(&[1, 0, LINES as u8]);
        let metadata = [header.repeat(LINES), vec![0; 0x1000]].concat();
        vec![
            section("chunk_top", KIND_MEMORY, 0x9000, &1_u64.to_le_bytes()),
            section("chunk", KIND_MEMORY, 0x10_0000, &chunk),
            section("slabs", KIND_MEMORY, 0x10_1000, &metadata),
            section("classes", KIND_MEMORY, 0x8000, &[vec![0; 24], bytes_of(&class)].concat()),
        ]
    }

    #[test]
    fn a_class_whose_blocks_do_not_fit_their_slab_is_left_out() {
        let mut published = published();
        published.geometry = sane_geometry();
        published.classes = Table { address: 0x8000, row_bytes: 24, capacity: 2, used: 2 };
        let live = |block_bytes, capacity, word_count, slab_bytes| {
            let found =
                at_once(&published, &chunk_of(block_bytes, capacity, word_count, slab_bytes)).unwrap();
            found.classes.iter().map(|class| class.live_count).sum::<u64>()
        };
        assert_eq!(live(16, 4096, 64, 1 << 16), 64 * 4096);
        assert_eq!(live(u32::MAX, 4096, 64, 1 << 16), 0); // four million pages for each of 262,144 blocks
        assert_eq!(live(16, 4097, 65, 1 << 17), 0);
        assert_eq!(live(17, 4096, 64, 1 << 16), 0);
    }

    /// Of ten megabytes they were 2.4 gigabytes.
    #[test]
    fn a_table_of_rows_that_no_library_has_is_refused() {
        const COUNT: u64 = 2_500_000;
        let mut published = published();
        published.guard_faults = Table { address: 0x10_0000, row_bytes: 4, capacity: COUNT, used: COUNT };
        let faults = section("guard_faults", KIND_MEMORY, 0x10_0000, &vec![2; 4 * COUNT as usize]);
        let content = read(&[begun(&published), faults, section("end", KIND_TEXT, 0, b"")].concat());
        let start = Instant::now();
        let reason = guards(&content).err().unwrap();
        assert_eq!(reason, "is damaged: a table of 2500000 rows of 4 bytes cannot be");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        for (count, row_bytes, is_refused) in
            [(2, 311, true), (2, 312, false), (2, 5000, false), (129, 312, true)]
        {
            published.guard_faults = Table { address: 0x10_0000, row_bytes, capacity: count, used: count };
            let faults =
                section("guard_faults", KIND_MEMORY, 0x10_0000, &vec![0; (count * row_bytes) as usize]);
            let content = read(&[begun(&published), faults, section("end", KIND_TEXT, 0, b"")].concat());
            assert_eq!(guards(&content).is_err(), is_refused, "{count} of {row_bytes}");
        }
        // A table of each kind, of more than can be held, in a file of holes.
        let tables: [fn(&mut Published) -> &mut Table; 4] =
            [|p| &mut p.stacks, |p| &mut p.frames, |p| &mut p.live, |p| &mut p.timeline];
        for of in tables {
            let mut published = self::published();
            *of(&mut published) = Table { address: 0, row_bytes: 1 << 20, capacity: 1 << 12, used: 1 << 12 };
            of(&mut published).address = 0x10_0000;
            assert!(at_once(&published, &[]).err().unwrap().contains("rows of 1048576 bytes cannot be"));
        }
    }

    /// Rows are only ever appended to: a library that is older than a field has shorter ones.
    #[test]
    fn live_samples_of_an_older_library_are_read() {
        for (row_bytes, is_refused) in [(111, true), (112, false), (120, false), (128, false)] {
            let mut published = published();
            published.live = Table { address: 0x10_0000, row_bytes, capacity: 2, used: 2 };
            let live = section("live", KIND_MEMORY, 0x10_0000, &vec![0; 2 * row_bytes as usize]);
            assert_eq!(at_once(&published, &[live]).is_err(), is_refused, "{row_bytes}");
        }
    }

    /// As many as a dump of some megabytes has room for, each with each.
    #[test]
    fn mappings_and_images_are_gone_through_once() {
        let places = 0x100..100_000_u64;
        let line =
            |at: u64| format!("{:x}-{:x} r--p 00000000 fe:00 9 /lib/{at}.so\n", at << 12, (at + 1) << 12);
        let maps: String = places.clone().map(line).collect();
        let images = places.map(|at| section("file", KIND_MEMORY, at << 12, b"\x7fELF"));
        let sections: Vec<Vec<u8>> =
            [section("maps", KIND_TEXT, 0, maps.as_bytes())].into_iter().chain(images).collect();
        assert!(at_once(&published(), &[sections.concat()]).is_ok());
    }

    #[test]
    fn a_dump_that_comes_by_a_pipe_is_read_to_its_end() {
        let whole = [begun(&published()), section("end", KIND_TEXT, 0, b"")].concat();
        let (mut from, mut to) = UnixStream::pair().unwrap();
        to.write_all(&whole).unwrap();
        drop(to);
        let mut head = vec![0; MAGIC.len()];
        from.read_exact(&mut head).unwrap();
        let content = Content::behind(head, &File::from(OwnedFd::from(from)));
        assert!(content.is_ok_and(|content| *content == *whole && super::profile(&content).is_ok()));
    }

    #[test]
    fn sections_are_memory_and_texts() {
        let content = [
            MAGIC.to_vec(),
            section("about", KIND_TEXT, 0, b"reason exit\n"),
            section("about", KIND_TEXT, 0, b"pid 7\n"),
            section("live", KIND_MEMORY, 0x1000, b"abcdef"),
            section("end", KIND_TEXT, 0, b""),
        ]
        .concat();
        let dump = parse(&content).unwrap();
        assert!(dump.is_whole);
        assert_eq!(dump.texts["about"], b"reason exit\npid 7\n");
        let mut two = [0; 2];
        dump.read(0x1002, &mut two).unwrap();
        assert_eq!(&two, b"cd");
        assert!(dump.read(0x1005, &mut two).is_err() && dump.read(0xfff, &mut two).is_err());
    }

    #[test]
    fn a_dump_that_is_cut_or_made_up_is_refused_in_one_line() {
        let whole = [
            MAGIC.to_vec(),
            section("about", KIND_TEXT, 0, b"reason exit\npublished 0x5000\n"),
            section("published", KIND_MEMORY, 0x5000, &[0xff; 64]),
            section("huge", KIND_MEMORY, u64::MAX, b"x"),
        ]
        .concat();
        for length in MAGIC.len()..=whole.len() {
            let reason = profile(&whole[..length]).err().unwrap();
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason}");
        }
        let mut bytes = section("live", KIND_MEMORY, 0, b"");
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(profile(&[MAGIC.to_vec(), bytes].concat()).is_err());
        assert!(profile(b"HAKMEM DUMP 2\n\n\0").err().unwrap().contains("another version"));
    }

    #[test]
    fn nothing_found_in_half_a_dump_is_not_nothing() {
        let published = vec![0; size_of::<raw::Published>()];
        let tables = [
            MAGIC.to_vec(),
            section("about", KIND_TEXT, 0, b"reason guard\npublished 0x5000\n"),
            section("published", KIND_MEMORY, 0x5000, &published),
        ]
        .concat();
        let (cut, whole) = (read(&tables), read(&[&tables[..], &section("end", KIND_TEXT, 0, b"")].concat()));
        let (whole, cut) = (opened(&whole).ok().unwrap(), opened(&cut).ok().unwrap());
        assert_eq!((whole.whole(), cut.whole()), (Ok(()), Err("is cut short".to_owned())));
        assert_eq!(cut.refused("x"), "is cut short");
    }

    #[test]
    fn the_build_id_of_an_image_is_the_files() {
        let path = std::env::current_exe().unwrap();
        let content = std::fs::read(&path).unwrap();
        let of_page = build_id_of_image(&content[..4096]);
        assert!(of_page.is_none_or(|id| id.len() >= 16));
    }
}
