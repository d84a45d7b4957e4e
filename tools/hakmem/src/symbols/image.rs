//! image.rs - one ELF file as a source of names.
//!
//! Owns:  the file's segments (offset to address), its function symbols sorted by address, and the DWARF reader of
//!        the file that has debug information, itself or a separate one.
//! Trust: a file whose build id is not the process's is not read: its names would be somebody else's.

use super::{Mapped, Named, Quality, debug_files, demangled};
use addr2line::Loader;
use memmap2::Mmap;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind, elf};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub struct Image {
    segments: Vec<Segment>,
    symbols: Vec<Function>, // by start
    lines: Option<Loader>,
    quality: Quality,
}

struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

struct Function {
    start: u64,
    bytes: u64,
    name: String,
}

type Elf<'data> = ElfFile64<'data, Endianness>;

impl Image {
    pub fn open(mapped: &Mapped) -> Option<Image> {
        let own = opened(&mapped.file);
        let own = own.as_ref().and_then(|cache| Elf::parse(&**cache).ok());
        let own = own.filter(|file| mapped.build_id.is_empty() || build_id(file) == mapped.build_id);
        let id = own.as_ref().map_or_else(|| mapped.build_id.clone(), build_id);
        let has_own_lines = own.as_ref().is_some_and(has_lines);
        let mut quality = Quality { build_id: id.clone(), ..Quality::default() };

        let separate = if has_own_lines {
            None
        } else {
            let link = own.as_ref().and_then(|file| file.gnu_debuglink().ok().flatten());
            let link = link.map(|(name, sum)| (name.to_vec(), sum));
            debug_files::find(&mapped.file, &id, link)
        };
        let cache = separate.as_deref().and_then(opened);
        let debug = cache.as_ref().and_then(|cache| Elf::parse(&**cache).ok());
        let mut symbols = Vec::new();
        for file in own.iter().chain(&debug) {
            symbols_collect(file, &mut symbols);
        }
        // Of several names for one place the first of the largest: aliases are told by the file's own order.
        symbols.sort_by(|a, b| {
            (a.start, std::cmp::Reverse(a.bytes)).cmp(&(b.start, std::cmp::Reverse(b.bytes)))
        });
        symbols.dedup_by_key(|symbol| symbol.start);
        quality.has_symbols = !symbols.is_empty();

        let source = if has_own_lines { Some((mapped.file.as_path(), own.as_ref())) } else { None };
        let source = source.or_else(|| Some((separate.as_deref()?, debug.as_ref())));
        let lines = source.and_then(|(path, file)| {
            let shared = file.and_then(|file| debug_files::shared(path, file.gnu_debugaltlink().ok()??));
            Loader::new_with_sup(path, shared.as_deref()).ok()
        });
        quality.has_lines = lines.is_some() && (has_own_lines || debug.as_ref().is_some_and(has_lines));
        if quality.has_lines && !has_own_lines {
            quality.debug_file = separate.as_deref().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        }
        // Where the file itself is gone, its debug file has the same segments' addresses, and their offsets too.
        let segments = own.as_ref().or(debug.as_ref()).map(segments_of)?;
        Some(Image { segments, symbols, lines, quality })
    }

    pub fn quality(&self) -> Quality {
        self.quality.clone()
    }

    /// The frames at an offset in the file, innermost first.
    pub fn names(&self, offset: u64) -> Vec<Named> {
        let Some(address) = self.address_of(offset) else { return Vec::new() };
        let mut frames = self.dwarf_frames(address);
        let Some(symbol) = self.symbol_at(address) else { return frames };
        match frames.last_mut() {
            // A function that DWARF does not name, or only by its last part.
            Some(outermost) if outermost.symbol.is_empty() || !symbol.name.starts_with(&outermost.symbol) => {
                if outermost.symbol.is_empty()
                    || symbol.name.starts_with("_Z")
                    || symbol.name.starts_with("_R")
                {
                    outermost.name = demangled(&symbol.name);
                    outermost.symbol = symbol.name.clone();
                }
            }
            Some(_) => {}
            None => frames.push(Named {
                name: demangled(&symbol.name),
                symbol: symbol.name.clone(),
                ..Named::default()
            }),
        }
        frames
    }

    fn address_of(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| offset >= s.offset && offset - s.offset < s.bytes)?;
        Some(offset - segment.offset + segment.address)
    }

    fn symbol_at(&self, address: u64) -> Option<&Function> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let symbol = self.symbols[..after].last()?;
        // A size of 0 is hand-written assembly: it reaches to the next symbol.
        let ends = if symbol.bytes == 0 { u64::MAX } else { symbol.start + symbol.bytes };
        (address < ends).then_some(symbol)
    }

    fn dwarf_frames(&self, address: u64) -> Vec<Named> {
        const DEPTH_MAX: usize = 256;
        let mut frames = Vec::new();
        let Some(mut found) = self.lines.as_ref().and_then(|lines| lines.find_frames(address).ok()) else {
            return frames;
        };
        while let Ok(Some(frame)) = found.next() {
            let symbol = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let symbol = symbol.map(|name| name.into_owned()).unwrap_or_default();
            let place = frame.location.as_ref();
            frames.push(Named {
                name: demangled(&symbol),
                symbol,
                file: place.and_then(|place| place.file).unwrap_or_default().to_owned(),
                line: place.and_then(|place| place.line).unwrap_or_default(),
            });
            if frames.len() == DEPTH_MAX {
                break;
            }
        }
        // A unit with lines and no function here: what remains is the symbol's name with this place.
        frames
    }
}

fn opened(path: &Path) -> Option<Mmap> {
    if path.as_os_str().is_empty() {
        return None;
    }
    // A dump may name a pipe: nobody is waited for at its other end.
    let file = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok().filter(fs::Metadata::is_file)?;
    // A file that shrinks while it is mapped ends us; files that programs run from are replaced, not cut.
    unsafe { Mmap::map(&file).ok() }
}

fn segments_of(file: &Elf) -> Vec<Segment> {
    let endian = file.endian();
    let loaded = file.elf_program_headers().iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
    loaded
        .map(|header| Segment {
            offset: header.p_offset(endian),
            // A debug file has the sizes in memory only.
            bytes: header.p_filesz(endian).max(header.p_memsz(endian)),
            address: header.p_vaddr(endian),
        })
        .collect()
}

fn symbols_collect(file: &Elf, symbols: &mut Vec<Function>) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.is_undefined() || symbol.address() == 0 {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        symbols.push(Function { start: symbol.address(), bytes: symbol.size(), name: name.to_owned() });
    }
}

fn has_lines(file: &Elf) -> bool {
    let has = |name| file.section_by_name(name).is_some_and(|section| section.size() > 0);
    has(".debug_info") || has(".zdebug_info")
}

fn build_id(file: &Elf) -> String {
    let id = file.build_id().ok().flatten().unwrap_or_default();
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build id of a file; empty: it has none, or is none of ours.
pub fn build_id_of(path: &Path) -> String {
    let cache = opened(path);
    cache.as_ref().and_then(|cache| Elf::parse(&**cache).ok()).map(|file| build_id(&file)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    const SOURCE: &str = "#include <vector>\n#include <cstdio>\n\
        struct Cache { __attribute__((noinline)) void *insert(int key);\n\
          inline __attribute__((always_inline)) void *inner(int key) { return __builtin_return_address(0); } };\n\
        void *Cache::insert(int key) {\n\
          return inner(key); }\n\
        __attribute__((noinline)) void here(Cache &cache, void **at) {\n\
          *at = cache.insert(7);\n\
          asm volatile(\"\"); }\n\
        int main() { Cache cache; void *at; here(cache, &at); std::printf(\"%p %p\\n\", at, (void *)main); }\n";

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hakmem-image-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn ran(program: &str, arguments: &[&str], folder: &Path) {
        let status = Command::new(program).args(arguments).current_dir(folder).status().unwrap();
        assert!(status.success(), "{program} {arguments:?}");
    }

    /// The program's file as mapped from 0, so that addresses are offsets.
    fn mapped(file: &Path) -> Mapped {
        let path = file.to_string_lossy().into_owned();
        Mapped { path, file: file.to_owned(), build_id: build_id_of(file), start: 0, end: 1 << 40, offset: 0 }
    }

    /// The address that the program prints, less where it was loaded: a return address in here().
    fn return_address(file: &Path) -> u64 {
        let output = Command::new(file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<u64> =
            text.split_whitespace().map(|n| u64::from_str_radix(&n[2..], 16).unwrap()).collect();
        let cache = opened(file).unwrap();
        let parsed = Elf::parse(&*cache).unwrap();
        let main = parsed.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap().address();
        numbers[0] - (numbers[1] - main)
    }

    #[test]
    fn inlined_frames_lines_and_separate_debug_files_are_found() {
        let folder = folder("lines");
        fs::write(folder.join("p.cc"), SOURCE).unwrap();
        ran(
            "c++",
            &["-O1", "-g", "-fno-optimize-sibling-calls", "-Wl,--build-id", "-o", "p", "p.cc"],
            &folder,
        );
        let program = folder.join("p");
        let address = return_address(&program);
        let image = Image::open(&mapped(&program)).unwrap();
        let frames = image.names(address - 1);
        assert_eq!(frames.len(), 1, "{frames:?}");
        assert_eq!((frames[0].name.as_str(), frames[0].line), ("here(Cache&, void**)", 8));
        assert!(frames[0].file.ends_with("p.cc"));

        // Stripped, with its debug information beside it.
        ran("objcopy", &["--only-keep-debug", "p", "p.debug"], &folder);
        ran("objcopy", &["--strip-all", "--add-gnu-debuglink=p.debug", "p", "stripped"], &folder);
        let image = Image::open(&mapped(&folder.join("stripped"))).unwrap();
        assert_eq!(image.names(address - 1), frames);
        assert!(image.quality().debug_file.ends_with("p.debug"));

        // Another program's debug file under the name is not believed, and no name is better than a wrong one.
        fs::write(folder.join("q.cc"), "int main() { return 1; }\n").unwrap();
        ran("c++", &["-g", "-Wl,--build-id", "-o", "p.debug", "q.cc"], &folder);
        let image = Image::open(&mapped(&folder.join("stripped"))).unwrap();
        assert_eq!(image.names(address - 1), []);
        assert!(!image.quality().has_lines);

        // A file that was replaced since the process mapped it.
        let replaced = Mapped { build_id: "00".repeat(20), ..mapped(&program) };
        assert!(Image::open(&replaced).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_inlined_call_is_two_frames() {
        let folder = folder("inlined");
        let source = "#include <cstdlib>\nextern \"C\" void *outer(int);\n\
            static inline __attribute__((always_inline)) void *make(int n) {\n  void *p = malloc(n);\n  asm volatile(\"\");\n  return p; }\n\
            void *outer(int n) {\n  return make(n); }\n";
        fs::write(folder.join("l.cc"), source).unwrap();
        ran("c++", &["-O1", "-g", "-shared", "-fPIC", "-fno-builtin", "-o", "l.so", "l.cc"], &folder);
        let library = folder.join("l.so");
        let image = Image::open(&mapped(&library)).unwrap();
        let cache = opened(&library).unwrap();
        let parsed = Elf::parse(&*cache).unwrap();
        let outer = parsed.symbols().find(|symbol| symbol.name() == Ok("outer")).unwrap();
        let all: Vec<Vec<Named>> =
            (outer.address()..outer.address() + outer.size()).map(|at| image.names(at)).collect();
        let inlined = all.iter().find(|frames| frames.len() == 2).expect("make is not seen in outer");
        assert!(inlined[0].name.starts_with("make") && inlined[1].name == "outer", "{inlined:?}");
        assert_eq!(inlined[1].line, 8);
        fs::remove_dir_all(&folder).unwrap();
    }
    #[test]
    fn a_pipe_is_no_file_of_a_program() {
        let path = std::env::temp_dir().join(format!("hakmem-image-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (is_none, (told, said)) = (path.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || told.send(opened(&is_none).is_none()));
        let said = said.recv_timeout(std::time::Duration::from_secs(10));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(said, Ok(true), "it waits for somebody who writes");
    }
}
