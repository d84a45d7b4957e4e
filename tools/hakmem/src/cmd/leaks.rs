//! `hakmem leaks`: what grows, the surest first; one line a place, and the places that called it below.

use super::PlacesArguments;
use crate::profile::{file, leaks};
use crate::text::{self, Failure};

pub fn run(arguments: &PlacesArguments) -> Result<u8, Failure> {
    let profile = file::read(&arguments.file)?;
    if profile.recording.sample_count == 0 {
        return Err(Failure::usage(format!("{}: nothing was recorded", text::quote(&arguments.file))));
    }
    let found = leaks::leaks(&profile);
    for (at, leak) in found.iter().take(arguments.top).enumerate() {
        let kept = leak.kept.map(|part| format!(", {} of what it asked for", text::percent(part * 100.0)));
        println!(
            "{:>3}  {}  +{}/s, {} live ({} to {}), {}{}",
            at + 1,
            leak.name,
            text::bytes(leak.bytes_per_second as u64),
            text::bytes(leak.live_bytes),
            text::bytes(leak.live_low),
            text::bytes(leak.live_high),
            text::counted(leak.live_count, "block", "blocks"),
            kept.unwrap_or_default(),
        );
    }
    if !found.is_empty() {
        println!();
    }
    for (at, leak) in
        found.iter().take(arguments.top).enumerate().filter(|(_, leak)| !leak.callers.is_empty())
    {
        println!("{:>3}  called by {}", at + 1, leak.callers.join(" < "));
    }
    let recording = &profile.recording;
    let seconds = std::time::Duration::from_millis(recording.duration_ms);
    println!(
        "{} of {} ({}), {}: {}. Growth is live memory that every part of the recording left behind;\n\
         a cache that is still filling grows, too: record longer to tell.",
        text::seconds(seconds),
        text::quote(&profile.program.name),
        profile.program.pid,
        text::counted(recording.sample_count, "sample", "samples"),
        match found.len() {
            0 => "nothing grows".to_owned(),
            number => text::counted(number as u64, "place that may grow", "places that may grow"),
        },
    );
    Ok(0)
}
