//! machine.rs - what a reader of the results needs to know of this machine.

use super::results::Machine;
use crate::system;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn describe() -> Machine {
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    Machine {
        processor: or_unknown(
            field("/proc/cpuinfo", "model name", ':')
                .or_else(|| field("/proc/cpuinfo", "CPU implementer", ':')),
        ),
        processors: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(1)),
        memory_bytes: field("/proc/meminfo", "MemTotal", ':')
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kb| kb * 1024),
        kernel: or_unknown(system::kernel_release()),
        system: or_unknown(
            field("/etc/os-release", "PRETTY_NAME", '=').map(|name| name.trim_matches('"').to_owned()),
        ),
        architecture: std::env::consts::ARCH.to_owned(),
        huge_pages: or_unknown(system::huge_page_setting()),
        load_before: load(),
        load_after: 0.0,
    }
}

/// The load average of one minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn field(path: &str, name: &str, mark: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(mark));
    line.map(|value| value.trim().to_owned())
}

/// Now, in UTC: 2026-11-20T13:04:05Z.
pub fn now_text() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_text(seconds)
}

pub fn date_text(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days, with years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(date_text(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date_text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date_text(1_795_179_845), "2026-11-20T13:04:05Z");
    }

    #[test]
    fn this_machine_can_be_described() {
        let machine = describe();
        assert!(machine.memory_bytes > 1 << 20 && machine.processors > 0, "{machine:?}");
        assert_ne!(machine.kernel, "unknown");
    }
}
