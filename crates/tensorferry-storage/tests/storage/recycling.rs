//! A steady stream allocates nothing.

use crate::heap;

#[test]
fn what_is_freed_is_used_again_without_populating() {
    let heap = heap();
    for len in [64, 4096, 1 << 20, 16 << 20] {
        for _ in 0..20 {
            drop(heap.allocate(len).unwrap());
        }
        let before = heap.stats().own;
        for _ in 0..100 {
            drop(heap.allocate(len).unwrap());
        }
        assert_eq!(heap.stats().own.populate_calls, before.populate_calls, "blocks of {len} bytes");
    }
}

#[test]
fn what_nobody_else_had_is_used_again_last_freed_first() {
    let heap = heap();
    for len in [64, 4096, 1 << 20, 16 << 20] {
        let blocks: Vec<_> = (0..4).map(|_| heap.allocate(len).unwrap()).collect();
        let ids: Vec<_> = blocks.iter().map(|block| block.id()).collect();
        drop(blocks);
        assert_eq!(heap.allocate(len).unwrap().id(), ids[3], "blocks of {len} bytes");
    }
}
