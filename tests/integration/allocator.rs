//! The allocator that weir runs with gives blocks of the alignment that is asked for, whatever their size, and keeps their bytes
//! when they grow.

use std::mem::align_of;

/// The allocator of weir, for these tests too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The sizes of blocks up to which each is tried: beyond this mimalloc gives whole pages.
const SIZE_MAX: usize = 4096;

/// Values of an alignment, as many as fill blocks of each size up to [`SIZE_MAX`], which then grow twice.
fn check<T: Copy + PartialEq + std::fmt::Debug + Default>(value: T) {
    let mut blocks = Vec::new();
    for count in 1..=SIZE_MAX / size_of::<T>() {
        let mut block: Vec<T> = Vec::with_capacity(count);
        block.resize(count, value);
        assert_eq!(block.as_ptr().addr() % align_of::<T>(), 0, "{count}");
        blocks.push(block);
    }
    for block in &mut blocks {
        let before = block.len();
        block.reserve_exact(2 * before);
        assert_eq!(block.as_ptr().addr() % align_of::<T>(), 0, "{before}, grown");
        assert!(
            block.len() == before && block.iter().all(|kept| *kept == value),
            "{before}, grown"
        );
        let zeroed = vec![T::default(); before];
        assert_eq!(zeroed.as_ptr().addr() % align_of::<T>(), 0, "{before}, zeroed");
        assert!(zeroed.iter().all(|zero| *zero == T::default()), "{before}, zeroed");
    }
}

/// A value of the alignment of a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(align(64))]
struct Line([u8; 32]);

#[test]
fn blocks_have_the_alignment_that_is_asked_for_and_keep_their_bytes() {
    check(7_u8);
    check(7_u32);
    check(7_u64);
    check([7_u64; 3]);
    check([7_u64; 5]);
    check(7_u128);
    check([7_u128; 3]);
    check(Line([7; 32]));
}
