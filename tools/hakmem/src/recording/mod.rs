//! recording/ - what the library recorded, from a live process (attach.rs) or its dump (dump.rs), and how it
//! becomes a profile (convert.rs).
//!
//! memory.rs reads other processes, locate.rs finds what is published there, rows.rs knows the tables, raw.rs
//! reads them, pages.rs counts what lives on each page, pins.rs shares sparse pages out over call sites.

pub mod attach;
pub mod convert;
pub mod dump;
pub mod guards;
pub mod locate;
pub mod memory;
mod names;
pub mod pages;
pub mod pins;
pub mod raw;
mod rows;
pub mod subject;
