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
fn middling_blocks_are_reused_first_freed_first_and_huge_ones_last_freed_first() {
    let heap = heap();
    let order = |len: usize, n: usize| {
        let blocks: Vec<_> = (0..n).map(|_| heap.allocate(len).unwrap()).collect();
        let ids: Vec<_> = blocks.iter().map(|block| block.id()).collect();
        drop(blocks);
        let next = heap.allocate(len).unwrap();
        ids.iter().position(|&id| id == next.id()).unwrap()
    };
    assert_eq!(order(1 << 20, 8), 0, "the oldest of eight");
    assert_eq!(order(16 << 20, 4), 3, "the youngest: anything older is out of the cache");
}
