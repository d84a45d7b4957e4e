//! locate.rs - where in a process the library publishes: the symbol `hakmem_published`.
//!
//! The loaded image itself is asked, not the file: files are replaced by upgrades while processes run, and a
//! container's lie elsewhere. Its dynamic section names the symbols, a hash table finds ours.

use super::memory::{Mapping, Memory, Process};
use crate::library;
use crate::text::{self, Failure};
use object::Endianness::Little;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The address of the published struct, or one line that says why there is none.
pub fn published_address(process: &Process) -> Result<u64, Failure> {
    symbol_address(process, b"hakmem_published")
}

/// The address of something that the library exports, or one line that says why there is none.
pub fn symbol_address(process: &Process, name: &[u8]) -> Result<u64, Failure> {
    let mappings = process.mappings()?;
    let exe = std::fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
    let exe = undeleted(exe);
    let rank = |mapping: &Mapping| match () {
        () if library::is_ours(&mapping.path) => 0,
        () if mapping.path == exe => 1,
        () => 2,
    };
    let mut images: Vec<&Mapping> =
        mappings.iter().filter(|mapping| mapping.offset == 0 && mapping.path.is_absolute()).collect();
    images.sort_by_key(|mapping| rank(mapping));
    // Linked from libhakmem.a it is in the program itself, whose malloc wins over any library's.
    let own = images.iter().find(|image| rank(image) == 1);
    let in_program = own.and_then(|image| {
        symbol_find(process, image.start, name).or_else(|| symbol_in_file(process, image.start, name))
    });
    if let Some(address) =
        in_program.or_else(|| images.iter().find_map(|image| symbol_find(process, image.start, name)))
    {
        return Ok(address);
    }
    let pid = process.pid;
    Err(Failure::usage(match images.first() {
        Some(image) if rank(image) == 0 => {
            let path = text::quote(&image.path);
            format!("process {pid} has a hakmem that does not record ({path}): restart it with this one")
        }
        // Without its table of symbols a program that was linked with the library does not say where it is.
        _ if crate::elf::symbols(&exe, &|name| name == "malloc")
            .is_ok_and(|symbols| !symbols.defined.is_empty()) =>
        {
            format!(
                "process {pid} has a malloc of its own: another allocator's, or hakmem's in a stripped program (link that with -rdynamic)"
            )
        }
        _ => format!("process {pid} runs without hakmem; start it with `hakmem run -- PROGRAM`"),
    }))
}

/// As the mappings have it, where the file was replaced since.
fn undeleted(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(name) => PathBuf::from(OsStr::from_bytes(name)),
        None => path,
    }
}

fn read<const N: usize>(memory: &dyn Memory, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read(address, &mut bytes).ok()?;
    Some(bytes)
}

fn word(memory: &dyn Memory, address: u64) -> Option<u32> {
    read(memory, address).map(u32::from_le_bytes)
}

fn word_64(memory: &dyn Memory, address: u64) -> Option<u64> {
    read(memory, address).map(u64::from_le_bytes)
}

/// A symbol of the program that it does not export: from its file, if that was not stripped.
fn symbol_in_file(process: &Process, start: u64, name: &[u8]) -> Option<u64> {
    let file = std::fs::File::open(format!("/proc/{}/exe", process.pid)).ok()?;
    let data = object::ReadCache::new(file);
    let header = elf::FileHeader64::<object::Endianness>::parse(&data).ok()?;
    if !header.is_supported() || !header.is_little_endian() {
        return None;
    }
    let segments = header.program_headers(Little, &data).ok()?;
    let first = segments
        .iter()
        .find(|segment| segment.p_type(Little) == elf::PT_LOAD && segment.p_offset(Little) == 0)?;
    let symbols = header.sections(Little, &data).ok()?.symbols(Little, &data, elf::SHT_SYMTAB).ok()?;
    let symbol = symbols.iter().find(|symbol| {
        symbol.st_shndx(Little) != elf::SHN_UNDEF
            && symbols.symbol_name(Little, symbol).is_ok_and(|found| found == name)
    })?;
    Some(start.wrapping_sub(first.p_vaddr(Little)).wrapping_add(symbol.st_value(Little)))
}

/// An exported symbol of the image loaded at `start`.
fn symbol_find(memory: &dyn Memory, start: u64, name: &[u8]) -> Option<u64> {
    const SEGMENTS_MAX: usize = 64;
    const DYNAMIC_MAX: usize = 512;
    let header_bytes: [u8; size_of::<elf::FileHeader64<object::Endianness>>()] = read(memory, start)?;
    let (header, _) = object::from_bytes::<elf::FileHeader64<object::Endianness>>(&header_bytes).ok()?;
    if !header.is_supported() || !header.is_little_endian() {
        return None;
    }
    let count = usize::from(header.e_phnum(Little)).min(SEGMENTS_MAX);
    let mut segments = vec![0; count * size_of::<elf::ProgramHeader64<object::Endianness>>()];
    memory.read(start.checked_add(header.e_phoff(Little))?, &mut segments).ok()?;
    let (segments, _) =
        object::slice_from_bytes::<elf::ProgramHeader64<object::Endianness>>(&segments, count).ok()?;
    let of_kind = |kind| segments.iter().filter(move |segment| segment.p_type(Little) == kind);
    let first = of_kind(elf::PT_LOAD).find(|segment| segment.p_offset(Little) == 0)?;
    let bias = start.wrapping_sub(first.p_vaddr(Little));
    let dynamic = of_kind(elf::PT_DYNAMIC).next()?;

    let rows =
        (dynamic.p_memsz(Little) as usize / size_of::<elf::Dyn64<object::Endianness>>()).min(DYNAMIC_MAX);
    let mut bytes = vec![0; rows * size_of::<elf::Dyn64<object::Endianness>>()];
    memory.read(bias.wrapping_add(dynamic.p_vaddr(Little)), &mut bytes).ok()?;
    let (rows, _) = object::slice_from_bytes::<elf::Dyn64<object::Endianness>>(&bytes, rows).ok()?;
    let value = |tag| rows.iter().find(|row| row.tag(Little) == tag).map(|row| row.val(Little));
    // glibc writes addresses there, musl leaves what the file has.
    let pointer = |tag| value(tag).map(|at| if at < start { bias.wrapping_add(at) } else { at });
    let (symbols, strings) = (pointer(elf::DT_SYMTAB)?, pointer(elf::DT_STRTAB)?);

    let is_named = |at: u64| {
        let mut found = vec![0; name.len() + 1];
        memory.read(at, &mut found).is_ok() && found[..name.len()] == *name && found[name.len()] == 0
    };
    let symbol_at = |index: u32| {
        let at = symbols + u64::from(index) * size_of::<elf::Sym64<object::Endianness>>() as u64;
        let bytes: [u8; size_of::<elf::Sym64<object::Endianness>>()] = read(memory, at)?;
        let (symbol, _) = object::from_bytes::<elf::Sym64<object::Endianness>>(&bytes).ok()?;
        let is_ours = symbol.st_shndx(Little) != elf::SHN_UNDEF
            && is_named(strings.wrapping_add(u64::from(symbol.st_name(Little))));
        is_ours.then(|| bias.wrapping_add(symbol.st_value(Little)))
    };
    match pointer(elf::DT_GNU_HASH) {
        Some(table) => gnu_hash_indices(memory, table, name)?.into_iter().find_map(symbol_at),
        None => {
            const COUNT_MAX: u32 = 100_000;
            let table = pointer(elf::DT_HASH)?;
            (1..word(memory, table + 4)?.min(COUNT_MAX)).find_map(symbol_at)
        }
    }
}

/// The symbols of the name's bucket in a DT_GNU_HASH table, those that may be it.
fn gnu_hash_indices(memory: &dyn Memory, table: u64, name: &[u8]) -> Option<Vec<u32>> {
    const CHAIN_MAX: u32 = 10_000;
    let hash = name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    let (buckets, base) = (word(memory, table)?, word(memory, table + 4)?);
    let (bloom_words, bloom_shift) = (word(memory, table + 8)?, word(memory, table + 12)?);
    if buckets == 0 || bloom_words == 0 {
        return None;
    }
    let bloom = word_64(memory, table + 16 + u64::from(hash / 64 % bloom_words) * 8)?;
    let bit = |hash: u32| bloom >> (hash % 64) & 1;
    if bit(hash) & bit(hash.checked_shr(bloom_shift).unwrap_or(0)) == 0 {
        return None; // most images end here
    }
    let bucket_table = table + 16 + u64::from(bloom_words) * 8;
    let chain_table = bucket_table + u64::from(buckets) * 4;
    let first = word(memory, bucket_table + u64::from(hash % buckets) * 4)?;
    let mut indices = Vec::new();
    for index in first..first.saturating_add(CHAIN_MAX) {
        let entry = word(memory, chain_table + u64::from(index.checked_sub(base)?) * 4)?;
        if entry | 1 == hash | 1 {
            indices.push(index);
        }
        if entry & 1 == 1 {
            break;
        }
    }
    Some(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_symbol_of_a_loaded_library_is_found() {
        let process = Process::open(std::process::id()).unwrap();
        let mappings = process.mappings().unwrap();
        let libc =
            mappings.iter().find(|m| m.offset == 0 && m.path.to_string_lossy().contains("libc.so")).unwrap();
        assert_eq!(symbol_find(&process, libc.start, b"getppid"), Some(libc::getppid as *const () as u64));
        assert_eq!(symbol_find(&process, libc.start, b"no_such_symbol_here"), None);
        assert_eq!(symbol_find(&process, 64, b"getppid"), None);
        let failure = published_address(&process).unwrap_err();
        assert!(failure.line.contains("runs without hakmem"), "{}", failure.line);
    }
}
