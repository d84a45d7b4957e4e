//! What stands behind `Box`, `Vec` and the others.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

use crate::sys;

/// HAKMEM as the program's global allocator.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
/// # fn main() {}
/// ```
///
/// Blocks whose alignment is 16 or less, nearly all, go the way of `malloc` and come back by `free_sized`; others by
/// `aligned_alloc` and `free_aligned_sized`. A layout that is not the block's ends the process with a line:
///
/// ```text
/// hakmem: free_sized: 0x7c5582810000 is a block of 128 bytes, but the caller says 500
/// ```
///
/// The check is free where a block is freed by its own thread, and takes 5 ns where another thread frees it.
/// `HAKMEM_SIZE_CHECK=0` lets a program run that states wrong sizes and gets away with it elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

/// What every block is aligned to.
const ALIGN: usize = 16;
/// Above it, new memory is zero without being touched, and a block of whole pages starts where its memory does, at a multiple of `GRANULE`.
const SMALL_MAX: usize = 33 << 10;
const GRANULE: usize = 64 << 10;

// SAFETY: the functions are those of a malloc: a block is the caller's alone until it frees it, has the size and the alignment
// asked for, and none of them unwinds.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: a layout's alignment is a power of two.
        unsafe {
            if layout.align() <= ALIGN {
                sys::malloc(layout.size())
            } else {
                sys::aligned_alloc(layout.align(), layout.size())
            }
            .cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller states the layout it allocated the block with.
        unsafe {
            if layout.align() <= ALIGN {
                sys::free_sized(block.cast(), layout.size());
            } else {
                sys::free_aligned_sized(block.cast(), layout.align(), layout.size());
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as alloc.
        unsafe {
            if layout.align() <= ALIGN {
                sys::calloc(1, layout.size()).cast()
            } else {
                aligned_zeroed(layout)
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as alloc and dealloc.
        unsafe {
            if layout.align() <= ALIGN {
                sys::realloc(block.cast(), new_size).cast()
            } else {
                aligned_realloc(block, layout, new_size)
            }
        }
    }
}

/// calloc knows which memory is zero already; of whole pages its large blocks are as aligned as they come.
#[inline(never)]
unsafe fn aligned_zeroed(layout: Layout) -> *mut u8 {
    // SAFETY: the second block has `size` bytes, and the first one is nobody else's.
    unsafe {
        if layout.size() > SMALL_MAX && layout.align() <= GRANULE {
            let pages = sys::hak_good_size(layout.size());
            let block: *mut u8 = sys::calloc(1, pages).cast();
            if block.is_null() || block.addr() % layout.align() == 0 {
                return block;
            }
            sys::free(block.cast()); // one outside the window, or one that is watched
        }
        let block: *mut u8 = sys::aligned_alloc(layout.align(), layout.size()).cast();
        if !block.is_null() {
            ptr::write_bytes(block, 0, layout.size());
        }
        block
    }
}

/// As C's realloc, which keeps no alignment above 16: the block stays where it can, and while more than half of it is used, and
/// where there is no memory for a smaller one. Under the secure level and with guards a block has the very bytes that were asked
/// for, and is told so when it is freed: one that shrinks is a new one there.
#[inline(never)]
unsafe fn aligned_realloc(block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: the old block has layout.size() bytes; the new one, another, has new_size.
    unsafe {
        let usable = sys::hak_usable_size(block.cast());
        let is_exact = || sys::hak_good_size(1) == 1;
        let stays = if new_size > usable {
            sys::hak_expand(block.cast(), new_size) >= new_size
        } else {
            new_size == usable || (new_size > usable / 2 && !is_exact())
        };
        if stays {
            return block;
        }
        let moved: *mut u8 = sys::aligned_alloc(layout.align(), new_size).cast();
        if !moved.is_null() {
            ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
            sys::free_aligned_sized(block.cast(), layout.align(), layout.size());
        } else if new_size <= usable && !is_exact() {
            return block;
        }
        moved
    }
}
