//! words.rs - what the page says first: what the program holds, who holds it, what could be done about it.
//!
//! Rule: a sentence states what was counted or estimated, and an action what it would give back; nothing is advised
//!       on less than a fiftieth of the memory, or on an estimate of fewer than four samples.

use super::sites::Site;
use crate::profile::leaks::{Leak, leaks};
use crate::profile::model::Profile;
use crate::profile::site;
use crate::text::{bytes, count, counted};
use serde::Serialize;

/// Below this share of what the process holds nothing is worth a word.
const WORTH_PART: u64 = 50;
const WORTH_BYTES_MIN: u64 = 256 << 10;
const SAMPLES_MIN: u64 = 4;
const ACTIONS_MAX: usize = 5;
/// A site whose blocks are nearly all temporary, with at least this share of all allocations.
const TEMPORARY_SHARE: f64 = 0.8;
const TEMPORARY_CALLS_SHARE: f64 = 0.1;

#[derive(Debug, Serialize)]
pub struct Card {
    pub title: &'static str,
    pub number: String,
    pub words: String,
}

/// One line of a bar that is divided: the process's memory.
#[derive(Debug, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub class: &'static str,
    pub bytes: String,
    pub x: f64, // percent
    pub width: f64,
}

#[derive(Debug, Serialize)]
pub struct Holder {
    pub site: usize,
    pub name: String,
    pub place: String,
    pub bytes: String,
    pub share: String,
    pub width: f64, // percent of the largest
}

#[derive(Debug, Serialize)]
pub struct Action {
    pub title: String,
    pub words: String,
    pub gain: String,
    /// What the number is.
    pub what: &'static str,
    pub site: Option<usize>,
}

pub fn name(profile: &Profile, site: &Site) -> String {
    let name = site.function.map(|function| profile.functions[function as usize].name.as_str());
    name.filter(|name| !name.is_empty()).unwrap_or("(code without a name)").to_owned()
}

/// 12.3%, <0.1%.
pub fn share(part: u64, whole: u64) -> String {
    let percent = percent(part, whole);
    match percent {
        _ if whole == 0 || part == 0 => "0%".to_owned(),
        _ if percent < 0.1 => "<0.1%".to_owned(),
        _ if percent < 9.95 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 100.0).min(100.0) }
}

/// 8 µs, 16 ms, 2.5 s, 3 min, 2 h.
pub fn duration_us(us: u64) -> String {
    let short = |value: f64, unit: &str| match value < 9.95 && value.fract() > 0.05 {
        true => format!("{value:.1} {unit}"),
        false => format!("{value:.0} {unit}"),
    };
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => short(us as f64 / 1e3, "ms"),
        1_000_000..120_000_000 => short(us as f64 / 1e6, "s"),
        120_000_000..7_200_000_000 => short(us as f64 / 60e6, "min"),
        _ => short(us as f64 / 3600e6, "h"),
    }
}

/// 1,234; 56,700; 1.23 million: three digits say enough of an estimate.
pub fn rounded(number: u64) -> String {
    match number {
        0..100_000 => count(number),
        100_000..1_000_000 => count(number / 1000 * 1000),
        1_000_000..1_000_000_000 => format!("{:.2} million", number as f64 / 1e6),
        _ => format!("{:.2} billion", number as f64 / 1e9),
    }
}

fn seconds(profile: &Profile) -> f64 {
    profile.recording.duration_ms as f64 / 1000.0
}

/// Live bytes: exact if the allocator said so, else by samples.
pub fn live_bytes(profile: &Profile) -> u64 {
    if profile.totals.live_bytes > 0 { profile.totals.live_bytes } else { profile.totals.live.bytes }
}

/// Resident bytes that the heap needs not, but for a few live blocks.
fn held_bytes(profile: &Profile) -> u64 {
    profile.totals.resident_bytes.max(live_bytes(profile))
}

pub fn cards(profile: &Profile) -> Vec<Card> {
    let totals = &profile.totals;
    let mut cards = vec![Card {
        title: "Live",
        number: bytes(live_bytes(profile)),
        words: match totals.live_count.max(totals.live.count) {
            0 => "no blocks".to_owned(),
            blocks => format!("in {} blocks", rounded(blocks)),
        },
    }];
    if totals.resident_bytes > 0 {
        let peak = match totals.resident_peak_bytes > totals.resident_bytes {
            true => format!("{} at the peak", bytes(totals.resident_peak_bytes)),
            false => "of the whole process".to_owned(),
        };
        cards.push(Card { title: "Resident", number: bytes(totals.resident_bytes), words: peak });
        cards.push(Card {
            title: "Pinned",
            number: bytes(totals.sparse_bytes),
            words: "empty space on pages that few blocks hold".to_owned(),
        });
        cards.push(Card {
            title: "Free",
            number: bytes(totals.free_bytes),
            words: "pages kept for the next allocations".to_owned(),
        });
    }
    if totals.allocated.bytes > 0 && seconds(profile) > 0.0 {
        let per_second = |number: u64| (number as f64 / seconds(profile)) as u64;
        cards.push(Card {
            title: "Allocated per second",
            number: bytes(per_second(totals.allocated.bytes)),
            words: format!(
                "in {} calls, {} of them temporary",
                rounded(per_second(totals.allocated.count)),
                share(totals.temporary.count, totals.allocated.count)
            ),
        });
    }
    cards
}

/// What the resident memory is made of, as shares of it.
pub fn parts(profile: &Profile) -> Vec<Part> {
    let totals = &profile.totals;
    let whole = totals.resident_bytes;
    if whole == 0 || totals.live_bytes > whole {
        return Vec::new();
    }
    // Free pages are counted whole; what stands empty beside live blocks is not among them.
    let pinned = totals.sparse_bytes.min(whole - totals.live_bytes);
    let free = totals.free_bytes.min(whole - totals.live_bytes - pinned);
    let all = [
        ("live blocks", "live", totals.live_bytes),
        ("empty, pinned by few blocks", "pinned", pinned),
        ("free pages", "free", free),
        ("all else: code, stacks, files, denser pages", "other", whole - totals.live_bytes - pinned - free),
    ];
    let mut x = 0.0;
    all.into_iter()
        .map(|(name, class, part)| {
            let part = Part { name, class, bytes: bytes(part), x, width: percent(part, whole) };
            x += part.width;
            part
        })
        .collect()
}

pub fn sentences(profile: &Profile, sites: &[Site]) -> Vec<String> {
    let totals = &profile.totals;
    let mut sentences = Vec::new();
    let program = if profile.program.name.is_empty() { "The program" } else { &profile.program.name };
    let live = live_bytes(profile);
    let mut first = format!(
        "{program} holds {} in {} blocks",
        bytes(live),
        rounded(totals.live_count.max(totals.live.count))
    );
    if totals.resident_bytes > 0 {
        first += &format!("; its process occupies {} of memory", bytes(totals.resident_bytes));
    }
    sentences.push(first + ".");
    let known: u64 = sites.iter().map(|site| site.live.bytes).sum();
    let mut sum = 0;
    let half = sites.iter().position(|site| {
        sum += site.live.bytes;
        sum * 2 >= known
    });
    if let (Some(at), true) = (half, known > 0) {
        let verb = if at == 0 { "holds" } else { "hold" };
        sentences.push(format!(
            "{} of {} {verb} {} of what was sampled.",
            counted(at as u64 + 1, "place", "places"),
            count(sites.iter().filter(|site| site.live.bytes > 0).count() as u64),
            share(sum, known)
        ));
    }
    if totals.sparse_bytes > held_bytes(profile) / WORTH_PART {
        sentences.push(format!(
            "{} ({} of the process) cannot go back to the system because a few live blocks stand on these pages.",
            bytes(totals.sparse_bytes),
            share(totals.sparse_bytes, held_bytes(profile))
        ));
    }
    sentences
}

pub fn holders(profile: &Profile, sites: &[Site]) -> Vec<Holder> {
    let whole: u64 = sites.iter().map(|site| site.live.bytes).sum();
    let largest = sites.first().map_or(0, |site| site.live.bytes);
    let shown = sites.iter().enumerate().take(8).filter(|(_, site)| site.live.bytes > 0);
    shown
        .map(|(index, site)| Holder {
            site: index,
            name: name(profile, site),
            place: site.place.clone(),
            bytes: bytes(site.live.bytes),
            share: share(site.live.bytes, whole),
            width: percent(site.live.bytes, largest),
        })
        .collect()
}

/// What could be done, what gives most first.
pub fn actions(profile: &Profile, sites: &[Site]) -> Vec<Action> {
    let totals = &profile.totals;
    let worth = WORTH_BYTES_MIN.max(held_bytes(profile) / WORTH_PART);
    let mut leaks = leaks(profile);
    leaks.retain(|leak| leak.live_bytes >= worth);
    let mut actions: Vec<(u64, Action)> = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        let name = name(profile, site);
        if site.pinned_bytes >= worth {
            actions.push((
                site.pinned_bytes,
                Action {
                    title: format!("Keep the blocks of {name} apart, or free them"),
                    words: format!(
                        "{} of its blocks, {}, stand on {} that hold little else. In pages of their own they would \
                         give back {}; freed, {}.",
                        rounded(site.pinning_count),
                        bytes(site.pinning_bytes),
                        counted(site.pinned_pages, "page", "pages"),
                        bytes(site.pinned_bytes),
                        bytes(site.pinned_bytes + site.pinning_bytes)
                    ),
                    gain: bytes(site.pinned_bytes),
                    what: "come back",
                    site: Some(index),
                },
            ));
        }
        let leak = growing(profile, site, &leaks).filter(|_| site.live.samples >= SAMPLES_MIN);
        let grown = leak.map_or(0, |leak| (leak.bytes_per_second * seconds(profile)) as u64);
        if grown >= worth && grown >= site.live.bytes / 2 {
            actions.push((
                grown,
                Action {
                    title: format!("See whether {name} should free what it keeps"),
                    words: format!(
                        "It grew all through the recording, by {} a second: of {} that it allocated it freed {}.",
                        bytes(leak.map_or(0, |leak| leak.bytes_per_second as u64)),
                        bytes(site.allocated.bytes),
                        bytes(site.freed.bytes)
                    ),
                    gain: bytes(grown),
                    what: "held, growing",
                    site: Some(index),
                },
            ));
        }
        if site.slack_bytes >= worth {
            actions.push((
                site.slack_bytes,
                Action {
                    title: format!("Ask for sizes that fill their blocks in {name}"),
                    words: format!(
                        "What it asks for is rounded up to the next class of blocks; that is {} of the {} that its \
                         live blocks take.",
                        share(site.slack_bytes, site.live.bytes + site.slack_bytes),
                        bytes(site.live.bytes + site.slack_bytes)
                    ),
                    gain: bytes(site.slack_bytes),
                    what: "lost to rounding",
                    site: Some(index),
                },
            ));
        }
        let calls = site.allocated.count as f64;
        let is_much = calls >= TEMPORARY_CALLS_SHARE * totals.allocated.count as f64;
        let is_temporary = site.temporary.count as f64 >= TEMPORARY_SHARE * calls;
        if calls > 0.0 && is_much && is_temporary && site.temporary.samples >= SAMPLES_MIN {
            actions.push((
                0,
                Action {
                    title: format!("Reuse a buffer in {name}"),
                    words: format!(
                        "{} of its {} blocks were freed within {}. It costs no memory to speak of, but calls.",
                        share(site.temporary.count, site.allocated.count),
                        rounded(site.allocated.count),
                        duration_us(profile.recording.temporary_us_max)
                    ),
                    gain: share(site.temporary.count, totals.allocated.count),
                    what: "of all allocations",
                    site: Some(index),
                },
            ));
        }
    }
    let loose = totals.free_bytes;
    if loose >= worth {
        actions.push((
            loose,
            Action {
                title: "Give back what is free".to_owned(),
                words: "It is kept for the next allocations. malloc_trim(0) or hak_collect() returns it at once; \
                        HAKMEM_FREE_MAX_MB sets how much may stay."
                    .to_owned(),
                gain: bytes(loose),
                what: "come back",
                site: None,
            },
        ));
    }
    actions.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
    // What gives no memory back comes last, and is not crowded out by what gives little.
    let (memory, calls): (Vec<_>, Vec<_>) = actions.into_iter().partition(|(gain, _)| *gain > 0);
    memory.into_iter().take(ACTIONS_MAX).chain(calls.into_iter().take(2)).map(|(_, action)| action).collect()
}

/// Of a site, what grows steadily: profile/leaks.rs says how that is told from what was made once or for a while.
fn growing<'a>(profile: &Profile, site: &Site, leaks: &'a [Leak]) -> Option<&'a Leak> {
    let name = site::place(profile, profile.stacks.get(*site.stacks.first()? as usize)?);
    leaks.iter().find(|leak| leak.name == name)
}

pub fn warnings(profile: &Profile, sites: &[Site]) -> Vec<String> {
    let (recording, totals) = (&profile.recording, &profile.totals);
    let mut warnings = Vec::new();
    let sampled: u64 = sites.iter().map(|site| site.live.bytes).sum();
    // What the allocator counts are blocks, what was sampled are sizes as asked for.
    let slack: u64 = sites.iter().map(|site| site.slack_bytes).sum();
    let sampled = sampled.saturating_add(slack);
    if recording.is_attached && totals.live_bytes > sampled.saturating_add(totals.live_bytes / 20) {
        warnings.push(format!(
            "The recording began while the program ran: {} of the {} live bytes are older, and no place is known for \
             them.",
            bytes(totals.live_bytes - sampled),
            bytes(totals.live_bytes)
        ));
    }
    if recording.dropped_count > 0 {
        warnings.push(format!(
            "{} of {} samples found no room in the library's tables: what is shown is too small by so much.",
            count(recording.dropped_count),
            count(recording.dropped_count + recording.sample_count)
        ));
    }
    if recording.threadless_count > 0 {
        warnings.push(format!(
            "{} of {} samples are of threads that found no room in the library's table of threads: they stand together \
             as \"others\".",
            count(recording.threadless_count),
            count(recording.sample_count)
        ));
    }
    if recording.sample_count < 100 {
        let flag = if recording.is_attached { "--rate" } else { "HAKMEM_SAMPLE_BYTES" };
        warnings.push(format!(
            "There are only {}: a lower rate ({flag}) or a longer recording narrows the intervals.",
            counted(recording.sample_count, "sample", "samples")
        ));
    }
    let used = profile.locations.iter().filter_map(|location| location.module);
    let mut nameless: Vec<&str> = used
        .map(|module| &profile.modules[module as usize])
        .filter(|module| !module.has_symbols)
        .map(|module| super::graph::file_name(&module.path))
        .collect();
    nameless.sort_unstable();
    nameless.dedup();
    if !nameless.is_empty() {
        let more = nameless.len().saturating_sub(3);
        let shown = nameless[..nameless.len() - more].join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        warnings.push(format!("No symbols were found for {shown}{rest}: its code is shown by address."));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{sample, sites};

    #[test]
    fn numbers_are_said_shortly() {
        for (us, text) in [
            (8, "8 µs"),
            (1_500, "1.5 ms"),
            (16_000, "16 ms"),
            (2_000_000, "2 s"),
            (180_000_000, "3 min"),
            (7_200_000_000, "2 h"),
        ] {
            assert_eq!(duration_us(us), text);
        }
        for (part, text) in [(0, "0%"), (1, "<0.1%"), (123, "1.2%"), (1234, "12%"), (10_000, "100%")] {
            assert_eq!(share(part, 10_000), text);
        }
        for (number, text) in [
            (1234, "1,234"),
            (123_456, "123,000"),
            (1_234_567, "1.23 million"),
            (2_500_000_000, "2.50 billion"),
        ] {
            assert_eq!(rounded(number), text);
        }
    }

    #[test]
    fn the_parts_of_the_memory_are_all_of_it() {
        let mut profile = sample::profile();
        let parts = parts(&profile);
        assert!((parts.iter().map(|part| part.width).sum::<f64>() - 100.0).abs() < 1e-6);
        profile.totals.live_bytes = profile.totals.resident_bytes + 1; // never touched, so not resident
        assert!(super::parts(&profile).is_empty());
    }

    #[test]
    fn what_gives_most_is_advised_first() {
        let profile = sample::profile();
        let sites = sites::sites(&profile);
        let actions = actions(&profile, &sites);
        assert!(actions[0].title.contains("session_open"), "{actions:#?}");
        assert!(actions.iter().any(|action| action.title.starts_with("Reuse a buffer in parse_line")));
        assert!(
            actions
                .iter()
                .any(|action| action.title.starts_with("See whether") && action.title.contains("leak"))
        );
    }

    #[test]
    fn nothing_is_advised_to_a_program_that_does_nothing() {
        let mut profile = Profile::default();
        assert!(actions(&profile, &[]).is_empty() && holders(&profile, &[]).is_empty());
        assert_eq!(sentences(&profile, &[]), ["The program holds 0 bytes in 0 blocks."]);
        profile.recording.sample_count = 3;
        assert!(
            warnings(&profile, &[])[0]
                .starts_with("There are only 3 samples: a lower rate (HAKMEM_SAMPLE_BYTES)")
        );
        profile.recording.is_attached = true;
        let of_few = |line: &String| line.contains("There are only 3 samples: a lower rate (--rate)");
        assert!(warnings(&profile, &[]).iter().any(of_few));
    }
}
