//! profile/ - what was seen of a program, as data: the model (model.rs), its file (file.rs) and what may be in it
//! (bounds.rs), what an estimate from samples is worth (interval.rs).
//!
//! A profile holds everything that is shown of it, names included, so that it opens on any machine.

pub mod bounds;
pub mod file;
pub mod interval;
pub mod leaks;
pub mod model;
pub mod pprof;
#[cfg(test)]
pub mod sample;
pub mod site;
