//! A program that only names the crate: malloc is HAKMEM's all the same, for Rust's System allocator and for libc.

use std::ffi::CStr;

use hakmem as _;

unsafe extern "C" {
    fn hak_usable_size(block: *const u8) -> usize; // aborts if the block is not HAKMEM's
}

#[test]
fn system_allocator_is_ours() {
    let list: Vec<u64> = (0..1000).collect();
    let copy = unsafe { libc::strdup(c"a string of C's".as_ptr()) };
    unsafe {
        assert!(hak_usable_size(list.as_ptr().cast()) >= 8000);
        assert!(hak_usable_size(copy.cast()) >= 16);
        assert_eq!(CStr::from_ptr(copy), c"a string of C's");
        libc::free(copy.cast());
    }
}
