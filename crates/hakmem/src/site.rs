//! Allocation under the name of a place of the program.

use alloc::vec;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use crate::sys;

/// A place of the program that blocks are counted for: any number but 0. [`site!`](crate::site!) makes one for where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Site(NonZeroUsize);

impl Site {
    /// The site of that number; `None` for 0.
    pub const fn new(number: usize) -> Option<Site> {
        match NonZeroUsize::new(number) {
            Some(number) => Some(Site(number)),
            None => None,
        }
    }

    /// The site whose number is the address of a static, by whose name a debugger and the `hakmem` command know it.
    pub fn of<T>(place: &'static T) -> Site {
        Site(NonNull::from(place).addr())
    }

    /// Its number.
    pub const fn get(self) -> usize {
        self.0.get()
    }
}

/// A [`Site`](crate::Site) of its own for each place where it stands.
///
/// ```
/// fn parser() -> hakmem::Site {
///     hakmem::site!()
/// }
/// assert_eq!(parser(), parser());
/// assert_ne!(parser(), hakmem::site!());
/// ```
#[macro_export]
macro_rules! site {
    () => {{
        static SITE: u8 = 0;
        $crate::Site::of(&SITE)
    }};
}

/// What one site has allocated and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct SiteStats {
    /// The number of the site ([`Site::get`]); 0 for what sites beyond 4,096 have allocated together.
    pub site: usize,
    /// Blocks handed out.
    pub alloc_count: u64,
    /// Usable bytes of these blocks.
    pub alloc_bytes: u64,
    /// Blocks freed.
    pub free_count: u64,
    /// Usable bytes of these blocks.
    pub free_bytes: u64,
}

// As in hakmem.h; src/layout.c says the same to the C compiler.
const _: () = {
    assert!(size_of::<SiteStats>() == 40);
    assert!(offset_of!(SiteStats, free_bytes) == 32);
};

/// As C's malloc, counted for a site: `size` bytes, not initialised, aligned to 16. `None` when memory is short or the size is above
/// `isize::MAX`. At most 4,096 sites are counted; what further ones allocate is counted together.
///
/// ```
/// let site = hakmem::site!();
/// let block = hakmem::alloc_at(1000, site).expect("memory");
/// let rows = hakmem::site_stats();
/// let row = rows.iter().find(|row| row.site == site.get()).unwrap();
/// assert_eq!((row.alloc_count, row.free_count), (1, 0));
/// unsafe { hakmem::free_at(block, site) };
/// ```
pub fn alloc_at(size: usize, site: Site) -> Option<NonNull<u8>> {
    // SAFETY: any size and any site will do.
    NonNull::new(unsafe { sys::hak_alloc_at(size, site.get()) }.cast())
}

/// As C's free, counted for a site.
///
/// # Safety
///
/// The block is a live one of this allocator, and nobody uses it from here on. `site` is the one that it was allocated at, or the
/// counts are wrong.
pub unsafe fn free_at(block: NonNull<u8>, site: Site) {
    // SAFETY: the caller's.
    unsafe { sys::hak_free_at(block.as_ptr().cast(), site.get()) };
}

/// One row per site that [`alloc_at`] has seen, as it stands.
pub fn site_stats() -> Vec<SiteStats> {
    let none = SiteStats { site: 0, alloc_count: 0, alloc_bytes: 0, free_count: 0, free_bytes: 0 };
    let mut rows = Vec::new();
    loop {
        // SAFETY: fills as many rows as there are.
        let count = unsafe { sys::hak_site_stats(rows.as_mut_ptr(), rows.len()) };
        if count <= rows.len() {
            rows.truncate(count);
            return rows;
        }
        rows = vec![none; count + 16]; // others may come in between
    }
}
