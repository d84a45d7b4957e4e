//! The library's functions, as include/hakmem/hakmem.h and C have them.

use core::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    pub fn malloc(size: usize) -> *mut c_void;
    pub fn calloc(count: usize, size: usize) -> *mut c_void;
    pub fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    pub fn free(block: *mut c_void);
    pub fn free_sized(block: *mut c_void, size: usize);
    pub fn free_aligned_sized(block: *mut c_void, align: usize, size: usize);

    pub fn hak_version() -> *const c_char;
    pub fn hak_alloc_at(size: usize, site: usize) -> *mut c_void;
    pub fn hak_free_at(block: *mut c_void, site: usize);
    pub fn hak_site_stats(rows: *mut crate::SiteStats, count_max: usize) -> usize;
    pub fn hak_expand(block: *mut c_void, size: usize) -> usize;
    pub fn hak_usable_size(block: *const c_void) -> usize;
    pub fn hak_good_size(size: usize) -> usize;
    pub fn hak_collect() -> usize;
    pub fn hak_walk(
        each: unsafe extern "C" fn(*const crate::Held, *mut c_void) -> c_int,
        context: *mut c_void,
    ) -> c_int;
    pub fn hak_stats_get(stats: *mut crate::Stats, bytes: usize);
    pub fn hak_stats_json(text: *mut c_char, bytes: usize) -> usize;
    pub fn hak_stats_prometheus(text: *mut c_char, bytes: usize) -> usize;
    pub fn hak_option_set(name: *const c_char, value: *const c_char) -> c_int;
    pub fn hak_option_get(name: *const c_char, text: *mut c_char, bytes: usize) -> usize;
}
