//! marks.rs - how each allocator looks: a colour of its family, a shape of its own, so that colours alone never matter.

use crate::bench::results::{Allocator, Results};
use crate::bench::words;
use serde::Serialize;

/// HAKMEM's name in result files, and that of its marks.
pub const FOCUS: &str = "hakmem";

#[derive(Debug, Serialize)]
pub struct Mark {
    /// Its place in `Results::allocators`: classes and ids are made from it, never from a name.
    pub index: usize,
    pub name: String,
    pub version: String,
    /// Of page.css.
    pub colour: usize,
    /// Of SHAPES.
    pub shape: usize,
    pub is_focus: bool,
}

/// A mark's outline around the origin; `is_open` ones are drawn by their line alone.
#[derive(Debug, Serialize)]
pub struct Shape {
    pub path: &'static str,
    pub is_open: bool,
}

const fn filled(path: &'static str) -> Shape {
    Shape { path, is_open: false }
}

const fn open(path: &'static str) -> Shape {
    Shape { path, is_open: true }
}

/// The first is the focus's and larger than the rest.
pub const SHAPES: [Shape; 13] = [
    filled("M-7 0A7 7 0 1 0 7 0A7 7 0 1 0-7 0z"),
    filled("M-4.2-4.2h8.4v8.4h-8.4z"),
    filled("M0-5.8L5.2 3.6H-5.2z"),
    filled("M0-6L5 0L0 6L-5 0z"),
    filled("M0 5.8L5.2-3.6H-5.2z"),
    open("M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0z"),
    open("M-4-4L4 4M-4 4L4-4"),
    filled("M-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z"),
    open("M-4-4h8v8h-8z"),
    open("M0-5L4.6 3.2H-4.6z"),
    open("M0-5.4L4.4 0L0 5.4L-4.4 0z"),
    open("M0 5L4.6-3.2H-4.6z"),
    filled("M0-5.6L1.5-1.9L5.3-1.7L2.4.8L3.3 4.6L0 2.5L-3.3 4.6L-2.4.8L-5.3-1.7L-1.5-1.9z"),
];

/// One colour a family, in every page: 0 is the focus's, 1 to FAMILIES the known ones', the others follow.
const FAMILIES: [&str; 7] =
    ["glibc", "mimalloc", "jemalloc", "tcmalloc", "snmalloc", "rpmalloc", "tbbmalloc"];
pub const COLOUR_COUNT: usize = 10;

pub fn marks(results: &Results) -> Vec<Mark> {
    let (mut peers, mut strangers) = (0, 0);
    let mark = |(index, allocator): (usize, &Allocator)| {
        let is_focus = allocator.name == FOCUS;
        let (colour, shape) = if is_focus {
            (0, 0)
        } else {
            peers += 1;
            let colour = family(&allocator.name).unwrap_or_else(|| {
                strangers += 1;
                FAMILIES.len() + 1 + (strangers - 1) % (COLOUR_COUNT - FAMILIES.len() - 1)
            });
            (colour, 1 + (peers - 1) % (SHAPES.len() - 1))
        };
        let name = words::allocator(&allocator.name).to_owned();
        Mark { index, name, version: allocator.version.clone(), colour, shape, is_focus }
    };
    results.allocators.iter().enumerate().map(mark).collect()
}

fn family(name: &str) -> Option<usize> {
    FAMILIES.iter().position(|family| name.starts_with(family)).map(|at| at + 1)
}
