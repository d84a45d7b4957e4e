//! text.rs - how the tool speaks: one-line failures, numbers for people, colours where they are welcome.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Why a command could not do its work: one line, and the exit status that goes with it.
#[derive(Debug, PartialEq)]
pub struct Failure {
    pub status: u8,
    pub line: String,
}

impl Failure {
    /// The command was used wrongly, or asked for something that is not there.
    pub fn usage(line: impl Into<String>) -> Failure {
        Failure { status: 2, line: line.into() }
    }

    /// `hakmem run` itself could not go on: 125, as env, nohup and timeout have it.
    pub fn start(line: impl Into<String>) -> Failure {
        Failure { status: 125, line: line.into() }
    }

    pub fn not_executable(line: impl Into<String>) -> Failure {
        Failure { status: 126, line: line.into() }
    }

    pub fn not_found(line: impl Into<String>) -> Failure {
        Failure { status: 127, line: line.into() }
    }
}

/// Standard output that took not all of what we have to say.
pub fn output_failure(error: &io::Error) -> Failure {
    Failure::usage(format!("standard output: {}", crate::system::error_text(error)))
}

/// The same from the words with which println! panics.
pub fn output_refused(panic: &str) -> Option<Failure> {
    let reason = panic.strip_prefix("failed printing to stdout: ")?;
    Some(output_failure(&io::Error::other(reason)))
}

/// One line on standard error; a closed one is no reason to fail.
pub fn line_to_stderr(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// A name or path as it is if it can stand in a sentence, otherwise quoted with its odd characters escaped: a
/// line stays one line whatever a file is called.
pub fn quote<S: AsRef<OsStr> + ?Sized>(name: &S) -> String {
    let lossy = name.as_ref().to_string_lossy();
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"'\"\\".contains(c);
    if !lossy.is_empty() && lossy.chars().all(plain) { lossy.into_owned() } else { format!("{lossy:?}") }
}

/// Which of `names` a wrong one may mean; None: it is like none of them.
pub fn nearest<'a>(names: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    const SIMILARITY_MIN: f64 = 0.5;
    let near = names.min_by_key(|known| strsim::damerau_levenshtein(known, name))?;
    (strsim::normalized_damerau_levenshtein(near, name) >= SIMILARITY_MIN).then_some(near)
}

/// 1234567 as 1,234,567.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 block", "2 blocks".
pub fn counted(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", count(number), if number == 1 { singular } else { plural })
}

pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} bytes");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 is where one decimal would show 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.95 { format!("{share:.1}%") } else { format!("{share:.0}%") }
}

pub fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

/// 213 us, 4.07 ms, 1.250 s.
pub fn nanoseconds(number: u64) -> String {
    match number {
        0..1_000_000 => format!("{} us", number / 1000),
        1_000_000..1_000_000_000 => format!("{:.2} ms", number as f64 / 1e6),
        _ => seconds(Duration::from_nanos(number)),
    }
}

/// `items` joined by commas, on lines of at most `width` columns, each but the first after `indent` blanks.
pub fn wrapped(items: &[String], indent: usize, width: usize) -> String {
    let mut text = String::new();
    let mut column = indent;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(',');
            if column + item.chars().count() + 2 > width {
                text.push('\n');
                text.push_str(&" ".repeat(indent));
                column = indent;
            } else {
                text.push(' ');
                column += 2;
            }
        }
        text.push_str(item);
        column += item.chars().count();
    }
    text
}

#[derive(Clone, Copy)]
pub enum Colour {
    Red,
    Yellow,
    Green,
    Bold,
}

/// Colours only on a terminal, and never where NO_COLOR is set (no-color.org) or the terminal is dumb.
pub fn colours_welcome(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub fn paint(text: &str, colour: Colour, welcome: bool) -> String {
    if !welcome {
        return text.to_owned();
    }
    let code = match colour {
        Colour::Red => "1;31",
        Colour::Yellow => "33",
        Colour::Green => "32",
        Colour::Bold => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_output_is_one_line() {
        let failure =
            output_refused("failed printing to stdout: No space left on device (os error 28)").unwrap();
        assert_eq!((failure.status, failure.line.as_str()), (2, "standard output: no space left on device"));
        assert_eq!(output_refused("index out of bounds"), None);
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "block", "blocks"), "1 block");
        assert_eq!(counted(0, "block", "blocks"), "0 blocks");
    }

    #[test]
    fn bytes_are_shown_in_the_largest_fitting_unit() {
        for (number, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn odd_names_are_quoted_and_stay_on_one_line() {
        assert_eq!(quote("/usr/bin/true"), "/usr/bin/true");
        assert_eq!(quote(""), "\"\"");
        assert_eq!(quote("a b\n"), "\"a b\\n\"");
    }

    #[test]
    fn long_lists_are_wrapped_with_an_indent() {
        let items = ["aaaa".to_owned(), "bbbb".to_owned(), "cccc".to_owned()];
        assert_eq!(wrapped(&items, 2, 14), "aaaa, bbbb,\n  cccc");
        assert_eq!(wrapped(&items, 2, 80), "aaaa, bbbb, cccc");
        assert_eq!(wrapped(&[], 2, 80), "");
    }
}
