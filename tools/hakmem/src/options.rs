//! options.rs - the library's options, as rows made from its own table at build time.
//!
//! Owns:      names in all their spellings, the check of a value before a program is started with it.
//! Invariant: what passes here, the library takes without a word (its parser is made from the same rows).

use crate::text::{self, Failure};

pub struct OptionRow {
    pub name: &'static str,
    pub flag: &'static str, // the name with dashes
    pub value: Value,
    pub when: When,
    pub text: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Value {
    Number { default: u64, min: u64, max: u64 },
    Text,
}

#[derive(Clone, Copy, PartialEq)]
pub enum When {
    Start,
    Any,
}

pub struct CounterRow {
    pub name: &'static str,
    pub unit: &'static str,
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

impl OptionRow {
    pub fn variable(&self) -> String {
        format!("HAKMEM_{}", self.name.to_ascii_uppercase())
    }

    /// On or off: its flag needs no value.
    pub fn is_switch(&self) -> bool {
        matches!(self.value, Value::Number { min: 0, max: 1, .. })
    }

    pub fn default_text(&self) -> String {
        match self.value {
            Value::Number { default, .. } => default.to_string(),
            Value::Text => "none".to_owned(),
        }
    }

    pub fn range_text(&self) -> String {
        match self.value {
            Value::Number { min, max, .. } => format!("{min} to {max}"),
            Value::Text => "text".to_owned(),
        }
    }

    /// Why the library would not take `value`, if so: rules/options.c, number_parse and text_set; learn/learn.c, policy_wanted.
    pub fn value_refused(&self, value: &str) -> Option<String> {
        match self.value {
            Value::Text if value.is_empty() => Some(format!("{} is empty", self.name)),
            Value::Text if value.len() > TEXT_BYTES_MAX => {
                Some(format!("{} is longer than {TEXT_BYTES_MAX} bytes", self.name))
            }
            Value::Text if self.name == "evo_policy" => {
                let is_stage = STAGES.iter().any(|stage| stage.eq_ignore_ascii_case(value));
                let shown = text::quote(value);
                (!is_stage).then(|| format!("{}={shown} is none of {}", self.name, STAGES.join(", ")))
            }
            Value::Text => None,
            Value::Number { min, max, .. } => {
                let is_word =
                    self.is_switch() && SWITCH_WORDS.iter().any(|word| word.eq_ignore_ascii_case(value));
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let in_range =
                    digits && value.parse::<u64>().is_ok_and(|number| (min..=max).contains(&number));
                let shown = text::quote(value);
                (!is_word && !in_range)
                    .then(|| format!("{}={shown} is not a number from {min} to {max}", self.name))
            }
        }
    }
}

const SWITCH_WORDS: [&str; 6] = ["off", "false", "no", "on", "true", "yes"];
const STAGES: [&str; 5] = ["auto", "learn", "canary", "frozen", "off"];
pub const TEXT_BYTES_MAX: usize = 255; // rules/options.h, HAK_OPTION_TEXT_BYTES with its zero

/// The row that `name` means: with or without HAKMEM_ or dashes, in either case.
pub fn find(name: &str) -> Result<&'static OptionRow, Failure> {
    let plain = plain_name(name);
    OPTIONS.iter().find(|row| row.name == plain).ok_or_else(|| {
        let nearest = nearest(&plain).map_or(String::new(), |row| format!("; the nearest is {}", row.name));
        Failure::usage(format!("there is no option {}{nearest}", text::quote(name)))
    })
}

fn plain_name(name: &str) -> String {
    let lower = name.trim_start_matches("--").to_ascii_lowercase().replace('-', "_");
    lower.strip_prefix("hakmem_").unwrap_or(&lower).to_owned()
}

/// What a wrong name may mean; None: it is like no other.
fn nearest(name: &str) -> Option<&'static OptionRow> {
    let near = text::nearest(OPTIONS.iter().map(|row| row.name), name)?;
    OPTIONS.iter().find(|row| row.name == near)
}

/// What is wrong with a HAKMEM_* variable that stands in an environment, if anything is.
pub fn variable_refused(variable: &str, value: &str) -> Option<String> {
    let name = variable.strip_prefix("HAKMEM_")?;
    let Some(row) = OPTIONS.iter().find(|row| row.variable() == variable) else {
        let nearest = nearest(&name.to_ascii_lowercase());
        let nearest = nearest.map_or(String::new(), |row| format!("; the nearest is {}", row.variable()));
        return Some(format!("{variable} is no option{nearest}"));
    };
    match row.value_refused(value)? {
        _ if row.value == Value::Text && value.is_empty() => None, // as if it were not set
        _ if row.value == Value::Text && value.len() > TEXT_BYTES_MAX => {
            Some(format!("{variable} is longer than {TEXT_BYTES_MAX} bytes: it is ignored"))
        }
        _ if row.value == Value::Text => Some(format!(
            "{variable}={} is none of {}: the default is used",
            text::quote(value),
            STAGES.join(", ")
        )),
        _ => Some(format!(
            "{variable}={} is not a number from {}: the default {} is used",
            text::quote(value),
            row.range_text(),
            row.default_text()
        )),
    }
}

#[cfg(test)]
#[path = "../tables/rows.rs"]
#[allow(dead_code)] // what tables/main.rs alone uses
mod rows;

#[cfg(test)]
mod tests {
    use super::rows::{Argument, rows_parse};
    use super::*;

    #[test]
    fn rows_are_read_with_comments_suffixes_and_joined_strings() {
        let rows =
            rows_parse("/* A(x) */ // B(y)\nA(name, 0x10u, \"one \\\"two\\\" \"\n  \"three, (four)\")\n")
                .unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].macro_name, "A");
        let text = Argument::Text("one \"two\" three, (four)".to_owned());
        assert_eq!(rows[0].arguments, [Argument::Word("name".to_owned()), Argument::Number(16), text]);
    }

    #[test]
    fn a_broken_row_is_an_error_and_never_skipped() {
        for source in ["A(", "A(x", "A(x,)", "A x)", "A(\"x)", "A(x) ;", "A(99999999999999999999)", "/* A(x)"]
        {
            assert!(rows_parse(source).is_err(), "{source}");
        }
    }

    #[test]
    fn every_row_has_a_default_that_it_takes_itself() {
        for row in OPTIONS {
            if let Value::Number { default, .. } = row.value {
                assert_eq!(row.value_refused(&default.to_string()), None, "{}", row.name);
            }
            assert!(!row.text.is_empty() && find(row.name).is_ok());
        }
    }

    #[test]
    fn an_option_is_found_in_every_spelling() {
        for name in ["purge_delay_ms", "HAKMEM_PURGE_DELAY_MS", "--purge-delay-ms", "Purge-Delay-MS"] {
            assert_eq!(find(name).map(|row| row.name).unwrap_or("none"), "purge_delay_ms", "{name}");
        }
    }

    #[test]
    fn an_unknown_option_names_the_nearest_on_one_line() {
        let failure = find("HAKMEM_STATZ").err().unwrap();
        assert_eq!(failure.line, "there is no option HAKMEM_STATZ; the nearest is stats");
        assert_eq!(failure.status, 2);
        assert_eq!(find("nope").err().unwrap().line, "there is no option nope");
    }

    #[test]
    fn values_outside_the_range_are_refused() {
        let row = find("stats").ok().unwrap();
        assert_eq!(row.value_refused("1"), None);
        assert_eq!(row.value_refused("Yes"), None);
        assert!(find("word_bytes").ok().unwrap().value_refused("yes").is_some());
        for value in ["2", "-1", "", " 1", "1 ", "0x1", "banana", "18446744073709551616"] {
            assert!(row.value_refused(value).is_some(), "{value}");
        }
    }

    #[test]
    fn variables_are_judged_as_the_library_does() {
        assert_eq!(variable_refused("HAKMEM_STATS", "1"), None);
        assert_eq!(variable_refused("PATH", "1"), None);
        let line = variable_refused("HAKMEM_STATS", "banana").unwrap();
        assert_eq!(line, "HAKMEM_STATS=banana is not a number from 0 to 1: the default 0 is used");
        let line = variable_refused("HAKMEM_STATZ", "1").unwrap();
        assert_eq!(line, "HAKMEM_STATZ is no option; the nearest is HAKMEM_STATS");
        assert!(variable_refused("HAKMEM_stats", "1").is_some());
        assert_eq!(variable_refused("HAKMEM_REPORT", ""), None);
        assert!(variable_refused("HAKMEM_REPORT", &"x".repeat(256)).unwrap().contains("longer"));
        assert_eq!(variable_refused("HAKMEM_EVO_POLICY", "FROZEN"), None);
        let line = variable_refused("HAKMEM_EVO_POLICY", "hot").unwrap();
        assert_eq!(
            line,
            "HAKMEM_EVO_POLICY=hot is none of auto, learn, canary, frozen, off: the default is used"
        );
    }
}
