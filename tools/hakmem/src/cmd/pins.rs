//! `hakmem pins`: which code keeps sparse pages from going back to the kernel, and what it holds there.

use super::PlacesArguments;
use crate::profile::file;
use crate::profile::model::{Pin, Profile};
use crate::profile::site;
use crate::text::{self, Failure};
use std::collections::HashMap;
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
    let mut known: HashMap<String, usize> = HashMap::new();
    for pin in &profile.pins {
        let name = site::place(profile, &profile.stacks[pin.stack as usize]);
        match known.get(&name) {
            Some(at) => {
                let sum = &mut places[*at].1;
                sum.pinned_bytes += pin.pinned_bytes;
                sum.page_count += pin.page_count;
                sum.held_bytes += pin.held_bytes;
                sum.held_count += pin.held_count;
                sum.old_bytes += pin.old_bytes;
                sum.classes.extend(
                    pin.classes
                        .iter()
                        .filter(|class| !sum.classes.contains(class))
                        .copied()
                        .collect::<Vec<_>>(),
                );
                sum.classes.sort_unstable();
            }
            None => {
                known.insert(name.clone(), places.len());
                places.push((name, pin.clone()));
            }
        }
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
