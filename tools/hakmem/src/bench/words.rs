//! words.rs - the numbers of measurements, for people: three digits are as many as a measurement has.

use super::results::{Ratio, Time};
use crate::text::count;

/// Stands where there is no number.
pub const NONE: &str = "–";

/// 0.000123, 1.23, 12.3, 123, 1,230, 12,300.
pub fn digits(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let size = value.abs();
    if size >= 999.5 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(size.round() as u64));
    }
    let decimals = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.0995 => 3,
        _ if size >= 0.0005 => 4,
        _ => return format!("{value:.1e}"),
    };
    format!("{value:.decimals$}")
}

/// 1.08, 12.3, 123: ratios are compared with 1, so they have two decimals even below it.
pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => NONE.to_owned(),
        _ if value < 9.995 => format!("{value:.2}"),
        _ => digits(value),
    }
}

/// "1.44 to 1.53".
pub fn interval(ratio: &Ratio) -> String {
    format!("{} to {}", self::ratio(ratio.low), self::ratio(ratio.high))
}

/// 1.302 is +30.2%; from 2 on "3.4 times" says more.
pub fn change(ratio: f64) -> String {
    match ratio {
        _ if !ratio.is_finite() || ratio <= 0.0 => NONE.to_owned(),
        _ if ratio >= 2.0 => format!("{} times", self::ratio(ratio)),
        _ => format!("{:+.1}%", (ratio - 1.0) * 100.0),
    }
}

pub fn probability(p: f64) -> String {
    match p {
        _ if !p.is_finite() => NONE.to_owned(),
        _ if p < 0.0001 => "< 0.0001".to_owned(),
        _ => format!("{p:.4}"),
    }
}

/// A unit that all numbers of one table share: each is easier to compare with its neighbour than to read alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub name: &'static str,
    size: f64,
}

impl Unit {
    fn of(units: &[(&'static str, f64)], smallest: f64) -> Unit {
        let fits = units.iter().rev().find(|(_, size)| smallest >= *size);
        let (name, size) = *fits.unwrap_or(&units[0]);
        Unit { name, size }
    }

    /// For times in nanoseconds of which this is the smallest.
    pub fn of_ns(smallest: f64) -> Unit {
        Unit::of(&[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)], smallest)
    }

    /// For memory in KiB of which this is the smallest. MiB from 1 MiB on, as the kernel's numbers are.
    pub fn of_kb(smallest: f64) -> Unit {
        Unit::of(&[("KiB", 1.0), ("MiB", 1024.0), ("GiB", 1024.0 * 1024.0)], smallest)
    }

    pub fn number(&self, value: f64) -> String {
        digits(value / self.size)
    }

    pub fn text(&self, value: f64) -> String {
        format!("{} {}", self.number(value), self.name)
    }
}

pub fn time(ns: f64) -> String {
    Unit::of_ns(ns).text(ns)
}

pub fn memory(kb: f64) -> String {
    Unit::of_kb(kb).text(kb)
}

/// Of operations a second: "4.19 M/s".
pub fn rate(per_s: f64) -> String {
    match per_s {
        _ if per_s >= 999_500.0 => format!("{} M/s", digits(per_s / 1e6)),
        _ if per_s >= 9995.0 => format!("{} k/s", digits(per_s / 1e3)),
        _ => format!("{}/s", digits(per_s)),
    }
}

pub fn clock(time: Time) -> &'static str {
    match time {
        Time::Cpu => "processor time",
        Time::Wall => "wall time",
    }
}

/// How the project writes its own name.
pub fn allocator(name: &str) -> &str {
    if name == "hakmem" { "HAKMEM" } else { name }
}

/// "a", "a and b", "a, b and c".
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The same, of many: "a; b; c and 4 more".
pub fn list_some(items: &[String], shown: usize) -> String {
    let (first, rest) = items.split_at(shown.min(items.len()));
    match rest.len() {
        0 => first.join("; "),
        more => format!("{} and {more} more", first.join("; ")),
    }
}

/// The first 12 digits of a checksum are enough to tell two files apart by eye.
pub fn checksum(sha256: Option<&str>) -> String {
    sha256.map_or("unknown".to_owned(), |sum| sum.chars().take(12).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown_at_any_size() {
        for (value, text) in [
            (0.0, "0"),
            (0.001234, "0.0012"),
            (0.12345, "0.123"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1,000"),
            (12345.6, "12,346"),
            (-1500.0, "-1,500"),
            (0.0000012, "1.2e-6"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn ratios_and_changes_read_as_people_say_them() {
        assert_eq!(ratio(1.0), "1.00");
        assert_eq!(ratio(0.5), "0.50");
        assert_eq!(ratio(9.996), "10.0");
        assert_eq!(ratio(f64::NAN), "–");
        assert_eq!(interval(&Ratio { median: 1.5, low: 1.44, high: 1.531 }), "1.44 to 1.53");
        for (ratio, text) in
            [(1.302, "+30.2%"), (0.9, "-10.0%"), (3.4, "3.40 times"), (0.0, "–"), (f64::NAN, "–")]
        {
            assert_eq!(change(ratio), text);
        }
        assert_eq!(probability(0.00001), "< 0.0001");
    }

    #[test]
    fn units_fit_the_smallest_number_of_a_table() {
        assert_eq!(Unit::of_ns(999.0).text(45000.0), "45,000 ns");
        assert_eq!(time(2_500_000.0), "2.50 ms");
        assert_eq!(memory(1023.0), "1,023 KiB");
        assert_eq!(memory(12.5 * 1024.0), "12.5 MiB");
        assert_eq!(memory(f64::NAN), "– KiB");
        assert_eq!(
            (rate(4.19e6), rate(12_500.0), rate(90.0)),
            ("4.19 M/s".into(), "12.5 k/s".into(), "90.0/s".into())
        );
    }

    #[test]
    fn lists_are_said_with_an_and() {
        let items = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert_eq!(
            (list(&items[..1]), list(&items[..2]), list(&items)),
            ("a".into(), "a and b".into(), "a, b and c".into())
        );
        assert_eq!((list_some(&items, 3), list_some(&items, 1)), ("a; b; c".into(), "a and 2 more".into()));
        assert_eq!(checksum(Some("0123456789abcdef")), "0123456789ab");
        assert_eq!(checksum(None), "unknown");
    }
}
