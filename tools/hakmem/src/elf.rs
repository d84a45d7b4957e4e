//! elf.rs - what a program file is: its machine, its loader, its libraries, and the symbols that matter to
//! us.
//!
//! Owns:     reading ELF files, scripts and the few bytes around them; never runs or loads what it reads.
//! Cost:     File::open reads headers and the dynamic section only (`hakmem run` does it on every start);
//!           symbols are read on demand, section by section, so a browser of 200 MB costs its symbol table.

use object::elf;
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

/// An ELF file's headers.
#[derive(Debug, Default, Clone)]
pub struct Headers {
    pub machine: u16,
    pub is_64: bool,
    pub is_program: bool, // not an object file or a core dump
    pub interpreter: Option<String>,
    pub needed: Vec<String>,
    pub soname: Option<String>,
    pub rpath: Vec<String>,
    pub runpath: Vec<String>,
    pub is_go: bool,
}

impl Headers {
    /// Whose loader takes it.
    pub fn libc(&self) -> &'static str {
        let by_loader = self.interpreter.as_ref().map(|interpreter| interpreter.contains("/ld-musl-"));
        let is_musl = by_loader.unwrap_or_else(|| self.needed.iter().any(|name| is_musl(name)));
        if is_musl { "musl" } else { "glibc" }
    }
}

/// musl as libraries and programs need it: its loader is the library, whatever file has the name.
pub fn is_musl(name: &str) -> bool {
    name == "libc.so" || name.starts_with("libc.musl-")
}

/// What stands at a path.
#[derive(Debug)]
pub enum File {
    Elf(Headers),
    Script { interpreter: String, argument: Option<String> },
    Other, // execvp gives such a file to /bin/sh
}

/// The names that the doctor asks about, of those that a file has.
#[derive(Debug, Default)]
pub struct Symbols {
    pub exported: BTreeSet<String>, // in the dynamic table and defined: they win over a preloaded library's
    pub imported: BTreeSet<String>,
    pub defined: BTreeSet<String>, // anywhere in the file, functions hidden from the loader included
}

pub fn open(path: &Path) -> Result<File, String> {
    let refused = |error: std::io::Error| format!("{}: {}", path.display(), reason(&error));
    let mut file = fs::File::open(path).map_err(refused)?;
    let mut start = Vec::new();
    file.by_ref().take(4096).read_to_end(&mut start).map_err(refused)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        return Ok(script_read(line));
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(File::Other);
    }
    let cache = ReadCache::new(file);
    let headers = match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => headers_read::<elf::FileHeader64<Endianness>, _>(&cache),
        Ok(FileKind::Elf32) => headers_read::<elf::FileHeader32<Endianness>, _>(&cache),
        _ => return Err(format!("{}: not an ELF file that can be read", path.display())),
    };
    headers.map(File::Elf).map_err(|error| format!("{}: {error}", path.display()))
}

/// Of the names that `wanted` accepts, those that the file has.
pub fn symbols(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Symbols, String> {
    let file = fs::File::open(path).map_err(|error| format!("{}: {}", path.display(), reason(&error)))?;
    let cache = ReadCache::new(file);
    let symbols = match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => symbols_read::<elf::FileHeader64<Endianness>, _>(&cache, wanted),
        Ok(FileKind::Elf32) => symbols_read::<elf::FileHeader32<Endianness>, _>(&cache, wanted),
        _ => return Err(format!("{}: not an ELF file that can be read", path.display())),
    };
    symbols.map_err(|error| format!("{}: {error}", path.display()))
}

/// The kernel's reading of a script's first line: a program, and at most one argument.
fn script_read(line: &[u8]) -> File {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim_matches([' ', '\t']); // not \r: it is a part of the name
    let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let argument = argument.trim_matches([' ', '\t']);
    File::Script {
        interpreter: interpreter.to_owned(),
        argument: (!argument.is_empty()).then(|| argument.to_owned()),
    }
}

fn headers_read<'data, Elf, R>(data: R) -> object::Result<Headers>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let mut headers = Headers {
        machine: header.e_machine(endian).0,
        is_64: header.is_class_64(),
        is_program: matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN),
        ..Headers::default()
    };
    let segments = header.program_headers(endian, data)?;
    for segment in segments {
        if let Some(interpreter) = segment.interpreter(endian, data)? {
            headers.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
        if let Some(rows) = segment.dynamic(endian, data)? {
            dynamic_read::<Elf, R>(endian, data, segments, rows, &mut headers);
        }
    }
    // A stripped or foreign file may have no sections; only this one answer is then missing.
    if let Ok(sections) = header.sections(endian, data) {
        headers.is_go = sections
            .iter()
            .filter_map(|section| sections.section_name(endian, section).ok())
            .any(|name| name == b".go.buildinfo" || name == b".note.go.buildid");
    }
    Ok(headers)
}

fn dynamic_read<'data, Elf, R>(
    endian: Endianness,
    data: R,
    segments: &[Elf::ProgramHeader],
    rows: &[Elf::Dyn],
    headers: &mut Headers,
) where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let value = |tag| rows.iter().find(|row| row.tag(endian) == tag).map(|row| row.val(endian));
    let (Some(address), Some(bytes)) = (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) else { return };
    let offset = segments.iter().find_map(|segment| {
        let start: u64 = segment.p_vaddr(endian).into();
        let file_bytes: u64 = segment.p_filesz(endian).into();
        let inside =
            segment.p_type(endian) == elf::PT_LOAD && address >= start && address - start < file_bytes;
        inside.then(|| segment.p_offset(endian).into() + (address - start))
    });
    let Some(offset) = offset else { return };
    let strings = StringTable::new(data, offset, offset.saturating_add(bytes));
    for row in rows.iter().take_while(|row| row.tag(endian) != elf::DT_NULL) {
        let text = || {
            let at = u32::try_from(row.val(endian)).ok()?;
            strings.get(at).ok().map(|name| String::from_utf8_lossy(name).into_owned())
        };
        let directories = || text().unwrap_or_default().split(':').map(str::to_owned).collect();
        match row.tag(endian) {
            elf::DT_NEEDED => headers.needed.extend(text()),
            elf::DT_SONAME => headers.soname = text(),
            elf::DT_RPATH => headers.rpath = directories(),
            elf::DT_RUNPATH => headers.runpath = directories(),
            _ => {}
        }
    }
}

fn symbols_read<'data, Elf, R>(data: R, wanted: &dyn Fn(&str) -> bool) -> object::Result<Symbols>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut symbols = Symbols::default();
    for (kind, is_dynamic) in [(elf::SHT_DYNSYM, true), (elf::SHT_SYMTAB, false)] {
        let table = sections.symbols(endian, data, kind)?;
        for symbol in table.iter() {
            let Ok(name) = symbol.name(endian, table.strings()) else { continue };
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if !wanted(name) {
                continue;
            }
            let is_defined = symbol.st_shndx(endian) != elf::SHN_UNDEF;
            let is_local = symbol.st_bind() == elf::STB_LOCAL;
            match (is_defined, is_dynamic) {
                (true, true) => symbols.exported.insert(name.to_owned()),
                (false, true) => symbols.imported.insert(name.to_owned()),
                // A local `malloc` is some file's own helper, not the program's allocator.
                (true, false) if !is_local => symbols.defined.insert(name.to_owned()),
                _ => false,
            };
        }
    }
    symbols.defined.extend(symbols.exported.iter().cloned());
    Ok(symbols)
}

/// This process's machine, as ELF numbers it.
pub fn machine_here() -> u16 {
    match std::env::consts::ARCH {
        "x86_64" => elf::EM_X86_64.0,
        "aarch64" => elf::EM_AARCH64.0,
        "x86" => elf::EM_386.0,
        "riscv64" => elf::EM_RISCV.0,
        _ => elf::EM_NONE.0,
    }
}

pub fn machine_name(machine: u16, is_64: bool) -> String {
    let name = match elf::Machine(machine) {
        elf::EM_X86_64 if is_64 => "x86-64",
        elf::EM_X86_64 => "x32",
        elf::EM_386 => "32-bit x86",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "32-bit ARM",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "POWER",
        elf::EM_S390 => "s390x",
        _ => return format!("ELF machine {machine}"),
    };
    name.to_owned()
}

/// The version that a build of the library carries: the only text of its read-only data that looks like one.
/// Reading it is safe for a library of any origin (another process's, another machine's); loading it is not.
pub fn library_version(path: &Path) -> Option<String> {
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let data = match FileKind::parse(&cache).ok()? {
        FileKind::Elf64 => read_only_data::<elf::FileHeader64<Endianness>, _>(&cache)?,
        FileKind::Elf32 => read_only_data::<elf::FileHeader32<Endianness>, _>(&cache)?,
        _ => return None,
    };
    version_find(data)
}

fn read_only_data<'data, Elf, R>(data: R) -> Option<&'data [u8]>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let (_, section) = sections.section_by_name(endian, b".rodata")?;
    section.data(endian, data).ok()
}

fn version_find(data: &[u8]) -> Option<String> {
    let mut versions = BTreeSet::new();
    for text in data.split(|byte| *byte == 0) {
        // The linker may have merged the version with the end of a longer text: "hakmem 0.1.0".
        let tail = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let parts: Vec<&[u8]> = tail.split(|byte| *byte == b'.').collect();
        let numbers =
            parts.iter().all(|part| matches!(part.len(), 1..=4) && part.iter().all(u8::is_ascii_digit));
        if parts.len() == 3 && numbers {
            versions.insert(String::from_utf8_lossy(tail).into_owned());
        }
    }
    if versions.len() == 1 { versions.pop_first() } else { None }
}

fn reason(error: &std::io::Error) -> String {
    crate::system::error_text(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(line: &str) -> (String, Option<String>) {
        match script_read(line.as_bytes()) {
            File::Script { interpreter, argument } => (interpreter, argument),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_script_names_its_interpreter_and_one_argument() {
        assert_eq!(script("/bin/sh\necho"), ("/bin/sh".to_owned(), None));
        assert_eq!(
            script(" /usr/bin/env python3 -u \n"),
            ("/usr/bin/env".to_owned(), Some("python3 -u".to_owned()))
        );
        assert_eq!(script("/bin/sh\r\necho"), ("/bin/sh\r".to_owned(), None));
    }

    #[test]
    fn the_version_is_the_only_text_that_looks_like_one() {
        assert_eq!(version_find(b"a\x000.1.0\0b"), Some("0.1.0".to_owned()));
        assert_eq!(version_find(b"hakmem library 0.1.0\x000.1.0\0"), Some("0.1.0".to_owned()));
        assert_eq!(version_find(b"0.1.0\x001.2.3\0"), None);
        assert_eq!(version_find(b"1.2\x00a.b.c\x001.2.3.4\x00"), None);
    }

    #[test]
    fn this_test_is_a_dynamic_program_of_this_machine() {
        let path = std::env::current_exe().unwrap();
        let File::Elf(headers) = open(&path).unwrap() else { panic!("not ELF") };
        assert!(headers.is_program && headers.is_64 == cfg!(target_pointer_width = "64"));
        assert_eq!(headers.machine, machine_here());
        assert!(
            headers.interpreter.is_some() && headers.needed.iter().any(|name| name.starts_with("libc.so"))
        );
        let found = symbols(&path, &|name| name == "malloc").unwrap();
        assert!(found.imported.contains("malloc") && found.exported.is_empty());
    }
}
