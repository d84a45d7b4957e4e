//! pprof.rs - a profile as `go tool pprof` and the systems that collect its files read it.
//!
//! Source:  github.com/google/pprof, proto/profile.proto, and its rules: strings[0] is empty, ids begin at 1, the
//!          innermost of inlined lines comes first, an address is that of the call and not of the return.
//! Lost:    intervals, lifetimes, timeline, classes and pins have no place in it.

use super::model::{Amount, Profile};
use prost::Message;
use std::collections::HashMap;

#[derive(Clone, PartialEq, Message)]
pub struct Pprof {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

/// The strings of a profile, each once.
#[derive(Default)]
struct Strings {
    table: Vec<String>,
    places: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Strings {
        let mut strings = Strings::default();
        strings.place("");
        strings
    }

    fn place(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

pub fn encoded(profile: &Profile) -> Vec<u8> {
    converted(profile).encode_to_vec()
}

fn converted(profile: &Profile) -> Pprof {
    let mut strings = Strings::new();
    let mut value_type =
        |kind: &str, unit: &str| ValueType { kind: strings.place(kind), unit: strings.place(unit) };
    let sample_type = vec![
        value_type("alloc_objects", "count"),
        value_type("alloc_space", "bytes"),
        value_type("inuse_objects", "count"),
        value_type("inuse_space", "bytes"),
    ];
    let period_type = Some(value_type("space", "bytes"));
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let pair = |amount: &Amount| [number(amount.count), number(amount.bytes)];
    let sample = profile
        .stacks
        .iter()
        .map(|stack| Sample {
            location_id: stack.locations.iter().map(|at| u64::from(*at) + 1).collect(),
            value: [pair(&stack.allocated), pair(&stack.live)].concat(),
        })
        .collect();
    let mut has_inlined = vec![false; profile.modules.len()];
    let inlined = profile.locations.iter().filter(|location| location.lines.len() > 1);
    inlined.filter_map(|location| location.module).for_each(|module| has_inlined[module as usize] = true);
    let mapping = profile.modules.iter().zip(1..).map(|(module, id)| Mapping {
        id,
        memory_start: module.start,
        memory_limit: module.end,
        file_offset: module.offset,
        filename: strings.place(&module.path),
        build_id: strings.place(&module.build_id),
        // What we did not find, pprof may look for where the file is read.
        has_functions: module.has_symbols,
        has_filenames: module.has_lines,
        has_line_numbers: module.has_lines,
        has_inline_frames: module.has_lines || has_inlined[id as usize - 1],
    });
    let mapping = mapping.collect();
    let location = profile.locations.iter().zip(1..).map(|(location, id)| Location {
        id,
        mapping_id: location.module.map_or(0, |module| u64::from(module) + 1),
        address: location.address.saturating_sub(1),
        line: location
            .lines
            .iter()
            .map(|line| Line { function_id: u64::from(line.function) + 1, line: i64::from(line.line) })
            .collect(),
    });
    let location = location.collect();
    let function = profile.functions.iter().zip(1..).map(|(function, id)| Function {
        id,
        name: strings.place(&function.name),
        system_name: strings.place(if function.symbol.is_empty() {
            &function.name
        } else {
            &function.symbol
        }),
        filename: strings.place(&function.file),
    });
    let function = function.collect();
    let recording = &profile.recording;
    let comment = format!("hakmem {}: {} pid {}", profile.tool, profile.program.name, profile.program.pid);
    let comment = vec![strings.place(&comment)];
    let default_sample_type = strings.place("inuse_space");
    Pprof {
        sample_type,
        sample,
        mapping,
        location,
        function,
        time_nanos: number(recording.started_unix_ms.saturating_mul(1_000_000)),
        duration_nanos: number(recording.duration_ms.saturating_mul(1_000_000)),
        period_type,
        period: number(recording.rate_bytes),
        comment,
        default_sample_type,
        string_table: strings.table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{model, sample};
    use std::time::{Duration, Instant};

    #[test]
    fn a_profile_keeps_its_frames_and_figures_in_pprofs_format() {
        let profile = sample::profile();
        let read = Pprof::decode(encoded(&profile).as_slice()).unwrap();
        let text = |place: i64| read.string_table[place as usize].as_str();
        let types: Vec<&str> = read.sample_type.iter().map(|kind| text(kind.kind)).collect();
        assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
        assert_eq!(text(read.default_sample_type), "inuse_space");
        assert_eq!(read.string_table[0], "");
        assert_eq!(read.sample.len(), profile.stacks.len());
        let sample = &read.sample[0];
        assert_eq!(sample.value[3], profile.stacks[0].live.bytes as i64);
        // Parser::parse with Node::make inlined into it.
        let location = &read.location[sample.location_id[0] as usize - 1];
        let names: Vec<&str> = location
            .line
            .iter()
            .map(|line| text(read.function[line.function_id as usize - 1].name))
            .collect();
        assert_eq!(names, ["Node::make", "Parser::parse(std::string const&)"]);
        let mapping = &read.mapping[location.mapping_id as usize - 1];
        assert_eq!(text(mapping.build_id), profile.modules[0].build_id);
        assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
    }
    /// As of a made-up file of 30 KB. Each with each they were 40 thousand million.
    #[test]
    fn modules_and_locations_are_gone_through_once() {
        const COUNT: usize = 200_000;
        let location = |at: usize| model::Location {
            module: Some((COUNT - 1 - at) as u32),
            lines: vec![model::Line::default(); 1 + at % 2],
            ..model::Location::default()
        };
        let profile = Profile {
            schema: model::SCHEMA,
            modules: vec![model::Module::default(); COUNT],
            functions: vec![model::Function::default()],
            locations: (0..COUNT).map(location).collect(),
            ..Profile::default()
        };
        assert_eq!(profile.check(), Ok(()));
        let start = Instant::now();
        let mappings = converted(&profile).mapping;
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(mappings[0].has_inline_frames && !mappings[1].has_inline_frames);
    }
}
