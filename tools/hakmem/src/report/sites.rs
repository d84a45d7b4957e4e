//! sites.rs - the places of a program that asked for memory: stacks with the same innermost frame of the program's own.
//!
//! Owns:      the sums over a site's stacks. Which frame names a stack is profile/site.rs's to say.
//! Invariant: every stack belongs to exactly one site, so that the sites' sums are the profile's.
//! Estimates: a site's interval is that of independent estimates: the distances to the ends add as squares.

use crate::profile::model::{Amount, Frame, Profile};
use crate::profile::site;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct Site {
    pub function: Option<u32>, // in Profile.functions; None: a stack without frames
    pub place: String,
    pub caller: Option<u32>,
    pub stacks: Vec<u32>,
    pub live: Amount,
    pub allocated: Amount,
    pub freed: Amount,
    pub temporary: Amount,
    pub pinned_bytes: u64,
    pub pinned_pages: u64,
    /// Live bytes that hold these pages.
    pub pinning_bytes: u64,
    pub pinning_count: u64,
    pub lifetimes: Vec<u64>,
    pub ages: Vec<u64>,
    pub threads: Vec<u32>,
    /// Live bytes that the sizes of the classes add to what was asked for.
    pub slack_bytes: u64,
}

/// By live bytes, largest first.
pub fn sites(profile: &Profile) -> Vec<Site> {
    let mut places: HashMap<(Option<u32>, u32), usize> = HashMap::new();
    let mut sites: Vec<(Site, [Spread; 4])> = Vec::new();
    let mut owners = vec![0; profile.stacks.len()];
    for (index, stack) in profile.stacks.iter().enumerate() {
        let frames: Vec<(u32, Frame)> = functions(profile, index).zip(profile.frames(stack)).collect();
        let at = site::own_frame(profile, stack).unwrap_or(0);
        let named = frames.get(at);
        let key = named.map_or((None, 0), |(function, frame)| (Some(*function), frame.line));
        let place = *places.entry(key).or_insert_with(|| {
            let site = Site {
                function: key.0,
                place: named.map(|(_, frame)| frame.place()).unwrap_or_default(),
                caller: frames.get(at + 1).map(|(function, _)| *function),
                ..Site::default()
            };
            sites.push((site, Default::default()));
            sites.len() - 1
        });
        owners[index] = place;
        let (site, spreads) = &mut sites[place];
        site.stacks.push(index as u32);
        let sums = [&mut site.live, &mut site.allocated, &mut site.freed, &mut site.temporary];
        let parts = [&stack.live, &stack.allocated, &stack.freed, &stack.temporary];
        for ((sum, part), spread) in sums.into_iter().zip(parts).zip(spreads) {
            spread.add(sum, part);
        }
        add_all(&mut site.lifetimes, &stack.lifetimes);
        add_all(&mut site.ages, &stack.ages);
        site.threads.extend(stack.threads.iter().map(|share| share.thread));
        for share in &stack.classes {
            let block_bytes = profile.classes[share.class as usize].bytes;
            let taken = block_bytes.saturating_mul(share.live_count);
            site.slack_bytes = site.slack_bytes.saturating_add(taken.saturating_sub(share.live_bytes));
        }
    }
    for pin in &profile.pins {
        let site = &mut sites[owners[pin.stack as usize]].0;
        site.pinned_bytes = site.pinned_bytes.saturating_add(pin.pinned_bytes);
        site.pinned_pages = site.pinned_pages.saturating_add(pin.page_count);
        site.pinning_bytes = site.pinning_bytes.saturating_add(pin.held_bytes);
        site.pinning_count = site.pinning_count.saturating_add(pin.held_count);
    }
    let mut sites: Vec<Site> = sites.into_iter().map(|(site, _)| site).collect();
    for site in &mut sites {
        site.threads.sort_unstable();
        site.threads.dedup();
    }
    sites.sort_by_key(|site| std::cmp::Reverse((site.live.bytes, site.allocated.bytes)));
    sites
}

/// The function of each frame, innermost first, as an index; as long as Profile::frames.
pub fn functions(profile: &Profile, stack: usize) -> impl Iterator<Item = u32> + '_ {
    let locations = profile.stacks[stack].locations.iter().map(|at| &profile.locations[*at as usize]);
    locations.flat_map(|location| location.lines.iter().map(|line| line.function))
}

fn add_all(sums: &mut Vec<u64>, parts: &[u64]) {
    if sums.len() < parts.len() {
        sums.resize(parts.len(), 0);
    }
    sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum = sum.saturating_add(*part));
}

/// Squares of the distances to the ends of an interval.
#[derive(Default)]
struct Spread {
    low: f64,
    high: f64,
}

impl Spread {
    fn add(&mut self, sum: &mut Amount, part: &Amount) {
        sum.count = sum.count.saturating_add(part.count);
        sum.bytes = sum.bytes.saturating_add(part.bytes);
        sum.samples = sum.samples.saturating_add(part.samples);
        self.low += (part.bytes.saturating_sub(part.bytes_low) as f64).powi(2);
        self.high += (part.bytes_high.saturating_sub(part.bytes) as f64).powi(2);
        sum.bytes_low = sum.bytes.saturating_sub(self.low.sqrt() as u64);
        sum.bytes_high = sum.bytes.saturating_add(self.high.sqrt() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::{SCHEMA, Stack, Thread, ThreadShare};
    use crate::report::sample;
    use std::time::{Duration, Instant};

    #[test]
    fn sites_hold_what_their_stacks_hold() {
        let profile = sample::profile();
        let sites = sites(&profile);
        let live: u64 = profile.stacks.iter().map(|stack| stack.live.bytes).sum();
        let pinned: u64 = profile.pins.iter().map(|pin| pin.pinned_bytes).sum();
        assert_eq!(sites.iter().map(|site| site.live.bytes).sum::<u64>(), live);
        assert_eq!(sites.iter().map(|site| site.pinned_bytes).sum::<u64>(), pinned);
        assert_eq!(sites.iter().map(|site| site.stacks.len()).sum::<usize>(), profile.stacks.len());
        assert!(sites.is_sorted_by_key(|site| std::cmp::Reverse(site.live.bytes)));
    }

    #[test]
    fn intervals_add_as_squares() {
        let part = Amount { count: 1, bytes: 100, bytes_low: 70, bytes_high: 140, samples: 9 };
        let (mut sum, mut spread) = (Amount::default(), Spread::default());
        for _ in 0..4 {
            spread.add(&mut sum, &part);
        }
        assert_eq!((sum.bytes_low, sum.bytes, sum.bytes_high, sum.samples), (340, 400, 480, 36));
    }
    /// As a made-up file of some KB has them; by searching what is known of them it took minutes.
    #[test]
    fn threads_of_a_site_are_gathered_once() {
        const THREADS: u32 = 4096;
        let share = |thread| ThreadShare { thread, live_bytes: 1 };
        let stack = Stack { threads: (0..THREADS).map(share).collect(), ..Stack::default() };
        let profile = Profile {
            schema: SCHEMA,
            stacks: vec![stack; 1000],
            threads: vec![Thread::default(); THREADS as usize],
            ..Profile::default()
        };
        assert_eq!(profile.check(), Ok(()));
        let start = Instant::now();
        let sites = sites(&profile);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(sites.len() == 1 && sites[0].threads.len() == THREADS as usize);
    }
}
