//! names.rs - the tables of modules, functions and locations of a profile, filled address by address.

use super::convert::Subject;
use super::memory::Mapping;
use crate::profile::file::name_clean;
use crate::profile::model::{Function, Line, Location, Module, Profile};
use crate::symbols::{Mapped, Named, Symbols, perf_map::PerfMap};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub struct Names<'a> {
    subject: &'a Subject,
    symbols: Symbols,
    generated: Option<PerfMap>, // None: not asked for yet
    locations: HashMap<u64, u32>,
    functions: HashMap<(String, String, Option<u32>), u32>,
    modules: HashMap<u64, u32>, // by the mapping's start
    location_rows: Vec<Location>,
    function_rows: Vec<Function>,
    module_rows: Vec<(Module, Mapped)>,
}

impl<'a> Names<'a> {
    pub fn new(subject: &'a Subject) -> Names<'a> {
        Names {
            subject,
            symbols: Symbols::new(),
            generated: None,
            locations: HashMap::new(),
            functions: HashMap::new(),
            modules: HashMap::new(),
            location_rows: Vec::new(),
            function_rows: Vec::new(),
            module_rows: Vec::new(),
        }
    }

    pub fn location(&mut self, address: u64) -> u32 {
        if let Some(known) = self.locations.get(&address) {
            return *known;
        }
        let module = self.module(address);
        let mut named = match module {
            Some(module) => self.symbols.names(&self.module_rows[module as usize].1, address),
            None => self.generated(address).into_iter().collect(),
        };
        if named.is_empty() {
            named.push(Named { name: self.unnamed(module, address), ..Named::default() });
        }
        let lines = named.into_iter().map(|named| self.line(named, module)).collect();
        let place = self.location_rows.len() as u32;
        self.location_rows.push(Location { module, address, lines });
        self.locations.insert(address, place);
        place
    }

    /// Of code that lies in no file.
    fn generated(&mut self, address: u64) -> Option<Named> {
        let Subject { program, root, author, .. } = self.subject;
        let map = self.generated.get_or_insert_with(|| PerfMap::of_process(program.pid, root, author));
        map.name(address).map(|name| Named { name: name.to_owned(), ..Named::default() })
    }

    fn line(&mut self, mut named: Named, module: Option<u32>) -> Line {
        [&mut named.name, &mut named.symbol, &mut named.file].into_iter().for_each(name_clean);
        let line = named.line;
        let key = (named.name.clone(), named.file.clone(), module);
        let next = self.function_rows.len() as u32;
        let function = *self.functions.entry(key).or_insert(next);
        if function == next {
            let symbol = if named.symbol == named.name { String::new() } else { named.symbol };
            self.function_rows.push(Function { name: named.name, symbol, file: named.file, module });
        }
        Line { function, line }
    }

    /// The same for the same code in every run, so that profiles can be compared.
    fn unnamed(&self, module: Option<u32>, address: u64) -> String {
        match module.map(|module| &self.module_rows[module as usize].0) {
            Some(module) => {
                let name = module.path.rsplit('/').next().unwrap_or_default();
                format!("{name}+{:#x}", (address - 1).wrapping_sub(module.start).wrapping_add(module.offset))
            }
            None => "code without a file".to_owned(),
        }
    }

    fn module(&mut self, address: u64) -> Option<u32> {
        let mappings = &self.subject.mappings;
        let after = mappings.partition_point(|mapping| mapping.start < address);
        let mapping = mappings[..after].last().filter(|mapping| address <= mapping.end)?;
        if !mapping.path.is_absolute()
            || mapping.path.starts_with("/dev")
            || mapping.path.starts_with("/memfd:")
        {
            return None;
        }
        if let Some(known) = self.modules.get(&mapping.start) {
            return Some(*known);
        }
        let file = self.file_of(mapping);
        let mut path = mapping.path.to_string_lossy().into_owned();
        name_clean(&mut path);
        let build_id = mapping.build_id.clone();
        let mapped = Mapped {
            path: path.clone(),
            file,
            build_id,
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
        };
        let module = Module {
            path,
            build_id: String::new(),
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            ..Module::default()
        };
        let place = self.module_rows.len() as u32;
        self.module_rows.push((module, mapped));
        self.modules.insert(mapping.start, place);
        Some(place)
    }

    /// Where the mapped file can be read: in the process's root; or, where it was replaced since, through the kernel.
    fn file_of(&self, mapping: &Mapping) -> PathBuf {
        let pid = self.subject.program.pid;
        if !mapping.is_deleted {
            let inside = self.subject.root.join(mapping.path.strip_prefix("/").unwrap_or(&mapping.path));
            return if inside.is_file() { inside } else { mapping.path.clone() };
        }
        let is_exe = mapping.path == Path::new(&self.subject.program.path);
        let kernels = match is_exe {
            true => PathBuf::from(format!("/proc/{pid}/exe")),
            false => PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end)),
        };
        if std::fs::File::open(&kernels).is_ok() { kernels } else { PathBuf::new() }
    }

    pub fn into_profile(mut self, profile: &mut Profile) {
        for (module, mapped) in &mut self.module_rows {
            let quality = self.symbols.quality(mapped);
            module.build_id = quality.build_id;
            module.has_symbols = quality.has_symbols;
            module.has_lines = quality.has_lines;
            module.debug_file = quality.debug_file;
        }
        profile.modules = self.module_rows.into_iter().map(|(module, _)| module).collect();
        profile.functions = self.function_rows;
        profile.locations = self.location_rows;
    }
}
