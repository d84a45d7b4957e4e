//! pins.rs - which call sites keep sparse pages from going back to the kernel.
//!
//! A sampled block stands for `weight` others, made by the same code under the same conditions; `place` is where it
//! would lie among them. The page there says what its kind does: on a sparse page, a block's share of what the page
//! pins is (page - live) * block / live. Summed with the weights that estimates, without bias, each site's part of the
//! pinned bytes; the class's exact sum (pages.rs) then scales the parts, so that only the split is an estimate.
//! Blocks that were made a moment ago do not pin: the next free takes them away. Old ones are looked at alone, as
//! long as a class has any.
//! Rejected: sharing a class's sparse bytes out by live bytes alone: a site whose blocks stand together then pays for
//!           those whose blocks stand apart.

use super::pages::Census;
use crate::profile::model::Pin;
use std::collections::HashMap;

/// A live sample, as this room needs it.
pub struct Block {
    pub stack: u32,
    pub class: u32,       // in the profile
    pub class_index: u32, // the library's
    pub place: u64,
    pub block_bytes: u64,
    pub requested_bytes: f64,
    pub weight: f64,
    pub age_us: u64,
}

#[derive(Default)]
struct Share {
    pinned: f64,
    pages: f64,
    held_bytes: f64,
    held_count: f64,
    old_bytes: f64,
    ages: Vec<(u64, f64)>,
    classes: Vec<u32>,
}

/// By pinned bytes. `is_whole`: every live block had its chance to be sampled, so that the parts make up the whole.
pub fn pins(census: &Census, blocks: &[Block], old_us: u64, is_whole: bool) -> Vec<Pin> {
    let mut shares: HashMap<u32, Share> = HashMap::new();
    for (index, class) in census.classes.iter().enumerate().filter(|(_, class)| class.sparse_bytes > 0) {
        let all: Vec<&Block> = blocks.iter().filter(|block| block.class_index as usize == index).collect();
        let has_old = all.iter().any(|block| block.age_us >= old_us);
        let of_class = all.iter().filter(|block| !has_old || block.age_us >= old_us);
        let pinned: Vec<(&Block, f64)> =
            of_class.filter_map(|block| Some((*block, pinned_by(census, block)? * block.weight))).collect();
        let estimate: f64 = pinned.iter().map(|(_, bytes)| bytes).sum();
        if estimate <= 0.0 {
            continue;
        }
        let exact = class.sparse_bytes as f64;
        let scale = if is_whole || estimate > exact { exact / estimate } else { 1.0 };
        let pages_each = class.sparse_page_count as f64 / exact;
        // What a site holds in the class: its part of what is known exactly to live there.
        let sampled: f64 = all.iter().map(|block| block.weight).sum();
        let held_scale = if is_whole && sampled > 0.0 { class.live_count as f64 / sampled } else { 1.0 };
        for (block, bytes) in &pinned {
            let share = shares.entry(block.stack).or_default();
            share.pinned += bytes * scale;
            share.pages += bytes * scale * pages_each;
            if !share.classes.contains(&block.class) {
                share.classes.push(block.class);
            }
        }
        for block in &all {
            let Some(share) = shares.get_mut(&block.stack) else { continue };
            let count = block.weight * held_scale;
            share.held_count += count;
            share.held_bytes += count * block.requested_bytes;
            if block.age_us >= old_us {
                share.old_bytes += count * block.requested_bytes;
            }
            share.ages.push((block.age_us, count));
        }
    }
    let mut pins: Vec<Pin> = shares.into_iter().map(|(stack, share)| pin(stack, share)).collect();
    pins.retain(|pin| pin.pinned_bytes > 0);
    pins.sort_by_key(|pin| (std::cmp::Reverse(pin.pinned_bytes), pin.stack));
    pins
}

/// What one block of the sample's kind pins; None: its page is well used.
fn pinned_by(census: &Census, block: &Block) -> Option<f64> {
    let page = census.page_bytes();
    // A page that holds nothing now would hold the block.
    let live = census.page_live_bytes(block.place).unwrap_or(0).max(block.block_bytes.min(page));
    census.is_sparse(live).then(|| (page - live) as f64 * block.block_bytes as f64 / live as f64)
}

fn pin(stack: u32, mut share: Share) -> Pin {
    share.ages.sort_by_key(|(age, _)| *age);
    let half = share.ages.iter().map(|(_, count)| count).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let median = share.ages.iter().find(|(_, count)| {
        below += count;
        below >= half
    });
    share.classes.sort_unstable();
    Pin {
        stack,
        pinned_bytes: share.pinned.round() as u64,
        page_count: share.pages.round() as u64,
        held_bytes: share.held_bytes.round() as u64,
        held_count: share.held_count.round() as u64,
        old_bytes: share.old_bytes.round() as u64,
        age_us_median: median.map_or(0, |(age, _)| *age),
        classes: share.classes,
    }
}
