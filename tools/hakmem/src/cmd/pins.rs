//! `hakmem pins`: which code keeps sparse pages from going back to the kernel, and what it holds there.

use super::PlacesArguments;
use crate::profile::file;
use crate::profile::model::{Pin, Profile};
use crate::profile::site;
use crate::text::{self, Failure};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

pub fn run(arguments: &PlacesArguments) -> Result<u8, Failure> {
    let profile = file::read(&arguments.file)?;
    let places = by_place(&profile);
    for (at, (name, pin)) in places.iter().take(arguments.top).enumerate() {
        let sizes: Vec<String> = pin
            .classes
            .iter()
            .map(|class| profile.classes[*class as usize].bytes)
            .map(|bytes| if bytes == 0 { "large".to_owned() } else { bytes.to_string() })
            .collect();
        println!(
            "{:>3}  {name}  pins {} on {} with {} in {} of {} bytes, {} old",
            at + 1,
            text::bytes(pin.pinned_bytes),
            text::counted(pin.page_count, "page", "pages"),
            text::bytes(pin.held_bytes),
            text::counted(pin.held_count, "block", "blocks"),
            sizes_short(&sizes),
            age(pin.age_us_median),
        );
    }
    if !places.is_empty() {
        println!();
    }
    for (at, (_, pin)) in places.iter().take(arguments.top).enumerate() {
        let callers = site::callers(&profile, &profile.stacks[pin.stack as usize], 3);
        if !callers.is_empty() {
            println!("{:>3}  called by {}", at + 1, callers.join(" < "));
        }
    }
    summary_print(&profile, &places);
    Ok(0)
}

fn summary_print(profile: &Profile, places: &[(String, Pin)]) {
    let slabs: u64 =
        profile.classes.iter().filter(|class| class.bytes > 0).map(|class| class.resident_bytes).sum();
    let pages: u64 = profile.classes.iter().map(|class| class.sparse_page_count).sum();
    let told: u64 = places.iter().map(|(_, pin)| pin.pinned_bytes).sum();
    let all = profile.totals.sparse_bytes;
    println!(
        "{} of the {} resident in slabs is pinned: {}, less than a quarter of each in use",
        text::bytes(all),
        text::bytes(slabs),
        text::counted(pages, "page", "pages"),
    );
    if all > 0 {
        let part = told as f64 / all as f64 * 100.0;
        println!("{} of it is told above by place", text::percent(part));
    }
    if profile.recording.is_attached {
        println!("what was allocated before the recording began is counted, but belongs to no place here");
    }
}

/// Stacks of one place together; its largest stack stands for it.
fn by_place(profile: &Profile) -> Vec<(String, Pin)> {
    let mut places: Vec<(String, Pin)> = Vec::new();
    let mut classes: Vec<BTreeSet<u32>> = Vec::new(); // by place
    let mut known: HashMap<String, usize> = HashMap::new();
    for pin in &profile.pins {
        let name = site::place(profile, &profile.stacks[pin.stack as usize]);
        let at = *known.entry(name).or_insert_with_key(|name| {
            places.push((
                name.clone(),
                Pin { stack: pin.stack, age_us_median: pin.age_us_median, ..Pin::default() },
            ));
            classes.push(BTreeSet::new());
            places.len() - 1
        });
        let sum = &mut places[at].1;
        sum.pinned_bytes = sum.pinned_bytes.saturating_add(pin.pinned_bytes);
        sum.page_count = sum.page_count.saturating_add(pin.page_count);
        sum.held_bytes = sum.held_bytes.saturating_add(pin.held_bytes);
        sum.held_count = sum.held_count.saturating_add(pin.held_count);
        sum.old_bytes = sum.old_bytes.saturating_add(pin.old_bytes);
        classes[at].extend(&pin.classes);
    }
    for ((_, pin), classes) in places.iter_mut().zip(classes) {
        pin.classes = classes.into_iter().collect();
    }
    places.sort_by_key(|(_, pin)| std::cmp::Reverse(pin.pinned_bytes));
    places
}

fn sizes_short(sizes: &[String]) -> String {
    match (sizes.first(), sizes.last()) {
        (Some(first), Some(last)) if sizes.len() > 4 => format!("{first} to {last}"),
        _ => sizes.join(", "),
    }
}

fn age(us: u64) -> String {
    match us {
        0..1_000_000 => "less than a second".to_owned(),
        1_000_000..600_000_000 => format!("{} s", us / 1_000_000),
        _ => format!("{} min", Duration::from_micros(us).as_secs() / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::{Class, SCHEMA, Stack};
    use std::time::Instant;

    /// As a made-up file of some KB has them; by searching what is known of them it took minutes.
    #[test]
    fn classes_of_a_place_are_gathered_once() {
        const CLASSES: u32 = 4096;
        const PINS: usize = 1000;
        let pin = Pin { pinned_bytes: 1, classes: (0..CLASSES).rev().collect(), ..Pin::default() };
        let profile = Profile {
            schema: SCHEMA,
            stacks: vec![Stack::default()],
            classes: vec![Class::default(); CLASSES as usize],
            pins: vec![pin; PINS],
            ..Profile::default()
        };
        assert_eq!(profile.check(), Ok(()));
        let start = Instant::now();
        let places = by_place(&profile);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(places.len() == 1 && places[0].1.classes.iter().copied().eq(0..CLASSES));
    }
}
