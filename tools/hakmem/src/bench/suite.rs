//! suite.rs - the rows of bench/suite.toml: what can be measured, and which of it was asked for.
//!
//! Owns:  the table's grammar, names and profiles. bench/suite.toml itself says what its fields mean.
//! Names: a row ("larson/one"), a workload ("larson": all its rows) or a profile ("threads"); "full" is every row.
//! Files: the table is part of this command; HAKMEM_BENCH_SUITE names another one.

use super::results::{Size, Time};
use crate::system::error_text;
use crate::text::{self, Failure};
use serde::Deserialize;
use std::{env, fs};

const TABLE: &str = include_str!("../../../../bench/suite.toml");
pub const VARIABLE: &str = "HAKMEM_BENCH_SUITE";
/// Every row.
pub const PROFILE_ALL: &str = "full";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<SuiteRow>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteRow {
    pub name: String,
    pub about: String,
    program: Option<String>,
    real: Option<String>,
    quick: Vec<String>,
    full: Vec<String>,
    pub time: Time,
    pub profiles: Vec<String>,
    #[serde(default)]
    pub rate: bool,
    #[serde(default)]
    pub per_operation: bool,
    #[serde(default)]
    pub count: Vec<String>,
    #[serde(default)]
    pub count_less: Vec<String>,
    #[serde(default)]
    pub resident_after: bool,
    #[serde(default)]
    pub shows: Vec<String>,
    /// Seconds slept, quick and full.
    #[serde(default)]
    sleeps: [f64; 2],
}

impl SuiteRow {
    pub fn is_real(&self) -> bool {
        self.real.is_some()
    }

    /// The workload's or the real program's name.
    pub fn program(&self) -> &str {
        self.program.as_deref().or(self.real.as_deref()).unwrap_or_default()
    }

    pub fn arguments(&self, size: Size) -> &[String] {
        match size {
            Size::Quick => &self.quick,
            Size::Full => &self.full,
        }
    }

    pub fn sleeps_s(&self, size: Size) -> f64 {
        self.sleeps[usize::from(size == Size::Full)]
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name
            || self.program() == name
            || self.workload() == name
            || self.profiles.iter().any(|profile| profile == name)
            || name == PROFILE_ALL
    }

    /// "larson" of "larson/one".
    fn workload(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("row {}: {what}", text::quote(&self.name)));
        match (&self.program, &self.real) {
            (Some(_), Some(_)) | (None, None) => return wrong("needs either program or real"),
            _ => {}
        }
        if self.name.is_empty() || self.name.contains(char::is_whitespace) || self.name.contains(',') {
            return wrong("is no name");
        }
        if self.per_operation && (self.count.is_empty() || self.count_less.is_empty()) {
            return wrong("is counted per operation and needs count and count_less");
        }
        if self.program().contains('/') || self.program().is_empty() {
            return wrong("its program is a name, not a path");
        }
        Ok(())
    }
}

/// All rows, in the table's order.
pub fn rows() -> Result<Vec<SuiteRow>, Failure> {
    match env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        None => parse(TABLE).map_err(|reason| Failure::usage(format!("the suite is broken: {reason}"))),
        Some(path) => fs::read_to_string(&path)
            .map_err(|error| error_text(&error))
            .and_then(|text| parse(&text))
            .map_err(|reason| Failure::usage(format!("{VARIABLE}={}: {reason}", text::quote(&path)))),
    }
}

fn parse(table: &str) -> Result<Vec<SuiteRow>, String> {
    let rows = toml::from_str::<Table>(table)
        .map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))?
        .row;
    for (at, row) in rows.iter().enumerate() {
        row.check()?;
        if rows[..at].iter().any(|before| before.name == row.name) {
            return Err(format!("row {} is there twice", row.name));
        }
    }
    Ok(rows)
}

/// The rows of the names that were given, in the table's order; one line with the known ones if one is unknown.
pub fn select(rows: &[SuiteRow], names: &[String]) -> Result<Vec<SuiteRow>, Failure> {
    for name in names {
        if !rows.iter().any(|row| row.is_called(name)) {
            return Err(unknown(rows, name));
        }
    }
    let is_wanted = |row: &&SuiteRow| names.iter().any(|name| row.is_called(name));
    Ok(rows.iter().filter(is_wanted).cloned().collect())
}

pub fn profiles(rows: &[SuiteRow]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for profile in rows.iter().flat_map(|row| &row.profiles).map(String::as_str).chain([PROFILE_ALL]) {
        if !all.contains(&profile) {
            all.push(profile);
        }
    }
    all
}

fn unknown(rows: &[SuiteRow], name: &str) -> Failure {
    let profiles = profiles(rows);
    let mut workloads: Vec<&str> = rows.iter().map(SuiteRow::workload).collect();
    workloads.dedup();
    let all = profiles.iter().chain(&workloads).copied().chain(rows.iter().map(|row| row.name.as_str()));
    let near = text::nearest(all, name).map_or(".".to_owned(), |near| format!("; did you mean {near}?"));
    Failure::usage(format!(
        "there is no workload, row or profile {}{near} Profiles: {}; workloads: {}; rows: \
         hakmem bench --list",
        text::quote(name),
        profiles.join(", "),
        workloads.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn own() -> Vec<SuiteRow> {
        parse(TABLE).unwrap()
    }

    #[test]
    fn the_suite_is_in_order() {
        let rows = own();
        assert!(rows.len() > 20, "{}", rows.len());
        let known = ["quick", "tiny", "mid", "large", "threads", "server", "memory", "seeds", "real"];
        for row in &rows {
            assert!(row.about.len() > 10 && !row.about.contains('\n'), "{}", row.name);
            for profile in &row.profiles {
                assert!(known.contains(&profile.as_str()), "{}: {profile}", row.name);
            }
        }
        for profile in known.iter().filter(|profile| **profile != "real") {
            assert!(!select(&rows, &[(*profile).to_owned()]).unwrap().is_empty(), "{profile}");
        }
    }

    #[test]
    fn every_row_has_its_program_in_the_source_tree() {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
        for row in own() {
            let name = row.program();
            let places = match row.is_real() {
                true => vec![format!("real/{name}")],
                false => vec![format!("workloads/{name}.c"), format!("workloads/{name}.cc")],
            };
            assert!(places.iter().any(|place| bench.join(place).is_file()), "{}: {places:?}", row.name);
        }
    }

    #[test]
    fn names_are_rows_workloads_and_profiles() {
        let rows = own();
        let names = |asked: &str| -> Vec<String> {
            select(&rows, &[asked.to_owned()]).unwrap().into_iter().map(|row| row.name).collect()
        };
        assert_eq!(names("larson/one"), ["larson/one"]);
        assert!(names("random_mixed").len() > 2);
        assert!(names("seeds").contains(&"larson".to_owned()));
        assert_eq!(names("full").len(), rows.len());
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest_and_all() {
        let line = select(&own(), &["lrson/one".to_owned()]).unwrap_err().line;
        assert!(line.contains("did you mean larson/one?"), "{line}");
        assert!(line.contains("Profiles: quick") && line.contains("tiny_hot"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn a_broken_table_is_refused_in_one_line() {
        const ROW: &str =
            "[[row]]\nname = \"a\"\nabout = \"b\"\nquick = []\nfull = []\ntime = \"cpu\"\nprofiles = []\n";
        assert!(parse(&format!("{ROW}program = \"p\"\n")).is_ok());
        for (more, part) in [
            ("", "either program or real"),
            ("program = \"p\"\nreal = \"r\"\n", "either program or real"),
            ("program = \"../p\"\n", "not a path"),
            ("program = \"p\"\ncolour = 1\n", "colour"),
            ("program = \"p\"\nper_operation = true\n", "count_less"),
        ] {
            let reason = parse(&format!("{ROW}{more}")).unwrap_err();
            assert!(reason.contains(part) && reason.lines().count() == 1, "{reason}");
        }
        let twice = format!("{ROW}program = \"p\"\n{ROW}program = \"p\"\n");
        assert_eq!(parse(&twice).unwrap_err(), "row a is there twice");
    }
}
