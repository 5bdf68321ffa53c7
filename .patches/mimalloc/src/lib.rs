//! Stands in for the crate `mimalloc` 0.1.52, with the same type and one difference: a block whose alignment every block has is
//! asked for with `mi_malloc`.
//!
//! That crate asks for every block with `mi_malloc_aligned`. Version 3 of mimalloc takes a slow way there for a size that is no
//! power of two: it asks for a larger block and places the result inside (`src/alloc-aligned.c`, `mi_malloc_is_naturally_aligned`).
//! A block took 72 instructions on average in a request of weir. All sizes of mimalloc's blocks are multiples of a pointer's, and so
//! are the places at which they begin (`src/page-queue.c`, `mi_bin`), so that a smaller alignment needs no such care.
//!
//! `[patch.crates-io]` puts this crate in the place of that one. It can go when the published one does the same;
//! `tests/integration/allocator.rs` holds what a program relies on.

#![no_std]

use core::{
    alloc::{GlobalAlloc, Layout},
    ffi::c_void,
};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// The alignment of every block.
const ALIGNMENT: usize = size_of::<*mut c_void>();

/// mimalloc as the allocator of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct MiMalloc;

// SAFETY: each call is passed on to mimalloc with the size and alignment that it is made with, and all of mimalloc's blocks may be
// given to `mi_free` and to either `mi_realloc`. A block of `mi_malloc` is aligned to `ALIGNMENT`.
unsafe impl GlobalAlloc for MiMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if layout.align() <= ALIGNMENT {
            unsafe { mi_malloc(layout.size()) }
        } else {
            unsafe { mi_malloc_aligned(layout.size(), layout.align()) }
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = if layout.align() <= ALIGNMENT {
            unsafe { mi_zalloc(layout.size()) }
        } else {
            unsafe { mi_zalloc_aligned(layout.size(), layout.align()) }
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        unsafe { mi_free(block.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let block = block.cast::<c_void>();
        let larger = if layout.align() <= ALIGNMENT {
            unsafe { mi_realloc(block, size) }
        } else {
            unsafe { mi_realloc_aligned(block, size, layout.align()) }
        };
        larger.cast()
    }
}
