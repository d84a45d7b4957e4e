//! The HAKMEM allocator, linked into the program.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
//!
//! fn main() {
//!     let text = String::from("in a block of HAKMEM's");
//!     assert!(unsafe { hakmem::usable_size(text.as_ptr()) } >= text.len());
//! }
//! ```
//!
//! `malloc`, the rest of its family and every C++ `operator new` and `delete` of the program are then HAKMEM's, so C libraries
//! that the program uses take their memory from it, too; blocks may be freed by either side. No shared library is needed.
//! That much holds as soon as the crate is linked (`use hakmem as _;`); [`Hakmem`] adds to it that what Rust code states about
//! its blocks, size and alignment, is checked when they are freed.
//!
//! The allocator is compiled optimised in debug builds, too. It reads its options (`HAKMEM_STATS=1` and others) from the
//! environment, as the preloaded library does.
//!
//! # Units, threads, errors
//!
//! Sizes are bytes. Every function here may be called from any thread at any time, thread-local destructors included; none of
//! them is async-signal-safe. A pointer that HAKMEM did not hand out, or that was freed already, is reported on one line of
//! standard error and the process aborts.
//!
//! # Limits
//!
//! - Linux with glibc, on x86-64 and aarch64. Elsewhere the crate does not build.
//! - The crate is for programs. A `cdylib` that has it would keep an allocator of its own beside that of the program, and
//!   could free nothing that the program's libc has allocated. Plugins leave the choice to the program.
//! - It is linked where it is named: a dependency in `Cargo.toml` that no source names is left out by rustc.
#![no_std]
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

extern crate alloc;

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod global;
mod options;
mod site;
mod stats;
mod sys;
mod walk;

use core::ffi::CStr;

pub use global::Hakmem;
pub use options::{Error, option_get, option_set};
pub use site::{Site, SiteStats, alloc_at, free_at, site_stats};
pub use stats::{ClassStats, Stats, stats, stats_json, stats_prometheus};
pub use walk::{Held, walk};

/// The version of the library that was linked, `MAJOR.MINOR.PATCH`.
///
/// ```
/// assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
/// ```
pub fn version() -> &'static str {
    // SAFETY: a constant of the library, in ASCII.
    unsafe { CStr::from_ptr(sys::hak_version()) }.to_str().unwrap_or_default()
}

/// Gives every page that holds no live block back to the kernel: of the calling thread's heap, of heaps whose threads have
/// ended, and (pages only) of all other threads' heaps. Returns the bytes given back.
///
/// It is not needed for free memory to go back, which it does while the program allocates; it is for a program that has just
/// freed much and is about to wait.
///
/// ```
/// drop(vec![1_u8; 64 << 20]);
/// assert!(hakmem::collect() > 1 << 20);
/// ```
pub fn collect() -> usize {
    // SAFETY: touches pages without live blocks only.
    unsafe { sys::hak_collect() }
}

/// How many bytes of a block may be used, from its start: what was asked for or more. 0 for null.
///
/// # Safety
///
/// `block` is null, or the start of a live block of this allocator, and stays one during the call. Where it is not, and no other
/// thread is at work there, the process aborts with a line that says so.
///
/// ```
/// let block = Box::new([0_u8; 100]);
/// assert!(unsafe { hakmem::usable_size(block.as_ptr()) } >= 100);
/// assert_eq!(unsafe { hakmem::usable_size(std::ptr::null()) }, 0);
/// ```
pub unsafe fn usable_size(block: *const u8) -> usize {
    // SAFETY: the caller's.
    unsafe { sys::hak_usable_size(block.cast()) }
}

/// The size to ask for in the place of `size`: a block of it takes no more memory than one of `size` does. A collection that grows to it
/// wastes nothing. What a block that was asked for with less may be written to is [`usable_size`]'s to say: a large one begins behind the
/// start of its first page.
///
/// ```
/// assert_eq!(hakmem::good_size(100), 112);
/// ```
pub fn good_size(size: usize) -> usize {
    // SAFETY: arithmetic.
    unsafe { sys::hak_good_size(size) }
}
