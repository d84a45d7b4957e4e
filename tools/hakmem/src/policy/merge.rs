//! merge.rs - policies of several runs or machines, one policy: docs/policy.md, "Merging".

use super::file::{COUNT_MAX, SAMPLES_MAX, key};
use super::{Filled, Kind, Policy, ROWS_MAX, Rating, SITES_MAX, Site, Stage, Standing};
use std::collections::BTreeMap;

/// From so many thousandths on a site is long-lived: what is called short-lived by mistake pins pages.
const LONG_LIVED_SHARE: u64 = 100;

/// One policy, or why these cannot be one. `names` are for that line.
pub fn merge(policies: &[Policy], names: &[String]) -> Result<Policy, String> {
    let [first, ..] = policies else { return Err("nothing to merge".to_owned()) };
    if let Some(at) = policies.iter().position(|other| other.build_id != first.build_id) {
        let other = &policies[at];
        return Err(format!(
            "{} is of another program than {}: {} {}, {} {}",
            names[at], names[0], other.program, other.build_id, first.program, first.build_id
        ));
    }
    let ratings = ratings_merge(policies);
    let chosen = chosen(policies, &ratings);
    // Every duel is in a gain only once, so the file with the most is the one that knows its gain best.
    let duels = |policy: &&Policy| policy.gain.map_or(0, |gain| gain.duels);
    let longest = policies.iter().rev().max_by_key(duels).unwrap_or(first);
    let is_frozen = policies.iter().any(|policy| policy.stage == Stage::Frozen);
    Ok(Policy {
        build_id: first.build_id.clone(),
        program: first.program.clone(),
        library: policies
            .iter()
            .map(|p| &p.library)
            .max_by_key(|text| version_of(text))
            .cloned()
            .unwrap_or_default(),
        runs: policies.iter().map(|policy| policy.runs).sum::<u64>().min(COUNT_MAX),
        stage: if is_frozen { Stage::Frozen } else { Stage::Learn },
        strategy: chosen.strategy.clone(),
        gain: chosen.gain,
        noise: policies.iter().filter_map(|policy| policy.noise).max_by_key(|(_, duels)| *duels),
        // Who needs more free memory is right: what is too little costs time.
        spare: policies.iter().filter_map(|policy| policy.spare).min_by_key(|(halvings, _)| *halvings),
        fell: policies.iter().map(|policy| policy.fell).max().unwrap_or(0),
        dear: policies.iter().map(|policy| policy.dear).max().unwrap_or(0),
        filled: filled_merge(policies),
        knobs: chosen.knobs.clone(),
        history: longest.history.clone(),
        sites: sites_merge(policies),
        ratings,
    })
}

/// What all of them fill.
fn filled_merge(policies: &[Policy]) -> Vec<Filled> {
    let least = |row: &Filled| {
        let same = |policy: &Policy| {
            policy.filled.iter().find(|other| other.block_bytes == row.block_bytes).copied()
        };
        let rows: Option<Vec<Filled>> = policies.iter().map(same).collect();
        let rows = rows?;
        Some(Filled {
            block_bytes: row.block_bytes,
            slabs: rows.iter().map(|row| row.slabs).min().unwrap_or(0),
            last: rows.iter().map(|row| row.last).min().unwrap_or(0),
        })
    };
    policies[0].filled.iter().filter_map(least).collect()
}

fn version_of(text: &str) -> Vec<u64> {
    text.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// Of the frozen ones the one whose strategy stands highest; where none is frozen, the one that knows most.
fn chosen<'a>(policies: &'a [Policy], ratings: &[Rating]) -> &'a Policy {
    let rating = |policy: &Policy| ratings.iter().find(|rating| rating.strategy == policy.strategy);
    let duels = |policy: &Policy| policy.ratings.iter().map(|rating| rating.duels).sum::<u64>();
    let frozen = || policies.iter().filter(|policy| policy.stage == Stage::Frozen);
    let is_out = |policy: &&Policy| rating(policy).is_some_and(|rating| rating.standing == Standing::Out);
    let rank = |policy: &&Policy| {
        (rating(policy).map_or(0, |rating| rating.elo), policy.gain.map_or(0, |gain| gain.duels))
    };
    let best = frozen().filter(|policy| !is_out(policy)).max_by_key(rank);
    best.or_else(|| frozen().max_by_key(rank))
        .or_else(|| policies.iter().max_by_key(|policy| duels(policy)))
        .unwrap_or(&policies[0])
}

fn ratings_merge(policies: &[Policy]) -> Vec<Rating> {
    let mut names: Vec<&String> = Vec::new();
    for rating in policies.iter().flat_map(|policy| &policy.ratings) {
        if !names.contains(&&rating.strategy) {
            names.push(&rating.strategy);
        }
    }
    names.truncate(ROWS_MAX);
    names.into_iter().map(|name| rating_merge(name, policies)).collect()
}

fn rating_merge(name: &str, policies: &[Policy]) -> Rating {
    let all = || policies.iter().flat_map(|policy| &policy.ratings).filter(|rating| rating.strategy == name);
    let known: Vec<&Rating> = all().filter(|rating| rating.duels > 0).collect();
    let duels = known.iter().map(|rating| rating.duels).sum::<u64>().min(COUNT_MAX);
    // The baseline's own row has no error: it is the point that all others are measured from.
    let weights = || known.iter().map(|rating| 1.0 / (rating.error.max(1) as f64).powi(2));
    let weight: f64 = weights().sum();
    let is_point = known.iter().all(|rating| rating.error == 0);
    let (elo, error) = match () {
        () if known.is_empty() => all().next().map_or((0, 0), |rating| (rating.elo, rating.error)),
        () if is_point => (known[0].elo, 0),
        () => {
            let mean = known.iter().zip(weights()).map(|(r, w)| r.elo as f64 * w).sum::<f64>() / weight;
            ((mean.round() as i64).max(-i64::MAX), (1.0 / weight.sqrt()).round().max(1.0) as u64)
        }
    };
    let standing = match () {
        () if !known.is_empty() && known.iter().all(|rating| rating.standing == Standing::Out) => {
            Standing::Out
        }
        () if known.is_empty() => all().next().map_or(Standing::In, |rating| rating.standing),
        () => Standing::In,
    };
    Rating { strategy: name.to_owned(), elo, error, duels, standing }
}

/// In the place of a site's pool, between two of which one says 0 and one 1.
const THEY_DIFFER: u64 = 2;

fn sites_merge(policies: &[Policy]) -> Vec<Site> {
    let mut merged: BTreeMap<(u64, u64, u64, u64, Kind), Site> = BTreeMap::new();
    for site in policies.iter().flat_map(|policy| &policy.sites) {
        merged
            .entry(key(site))
            .and_modify(|before| before.numbers = site_merge(site.kind, before.numbers, site.numbers))
            .or_insert_with(|| site.clone());
    }
    let mut sites: Vec<Site> = merged.into_values().collect();
    // What all say stands: the library wants a number of samples, too, before it calls a site long-lived. Where they differ the share of
    // all files together decides, in whatever order they came.
    for site in sites.iter_mut().filter(|site| site.kind == Kind::Pool && site.numbers[0] == THEY_DIFFER) {
        site.numbers[0] = u64::from(site.numbers[1] >= LONG_LIVED_SHARE);
    }
    // More than fit: what fewest samples or bytes stand behind goes first.
    sites.sort_by_key(|site| std::cmp::Reverse(site.numbers[2]));
    sites.truncate(SITES_MAX);
    sites.sort_by_key(key);
    sites
}

fn site_merge(kind: Kind, a: [u64; 3], b: [u64; 3]) -> [u64; 3] {
    match kind {
        Kind::Keep => [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2])],
        Kind::Pool => {
            let samples = u128::from(a[2]) + u128::from(b[2]);
            let sum = u128::from(a[1]) * u128::from(a[2]) + u128::from(b[1]) * u128::from(b[2]);
            // Without samples neither counts more.
            let share = match samples {
                0 => (a[1] + b[1]) / 2,
                _ => u64::try_from((sum + samples / 2) / samples).unwrap_or(1000),
            };
            let samples = u64::try_from(samples).unwrap_or(SAMPLES_MAX).min(SAMPLES_MAX);
            [if a[0] == b[0] { a[0] } else { THEY_DIFFER }, share, samples]
        }
    }
}
