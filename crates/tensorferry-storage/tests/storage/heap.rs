//! Allocation, limits and statistics.

use proptest::prelude::*;
use tensorferry_domain::{Domain, DomainError};
use tensorferry_storage::{ExclusiveBlock, Heap, StorageError};

use crate::heap;

#[test]
fn zero_bytes_need_no_block() {
    let heap = heap();
    let mut block = heap.allocate(0).unwrap();
    assert_eq!((block.len_bytes(), block.bytes().len()), (0, 0));
    assert_eq!(heap.stats().own.live_blocks, 0);
    assert_eq!(block.freeze().bytes(), &[] as &[u8]);
}

#[test]
fn blocks_are_aligned_and_apart() {
    let heap = heap();
    let mut blocks: Vec<_> =
        [1, 63, 64, 65, 512, 513, 4096, 32 << 10, (32 << 10) + 1, 1 << 20, 3 << 20, 70 << 20]
            .into_iter()
            .map(|len| heap.allocate(len).unwrap())
            .collect();
    for (index, block) in blocks.iter_mut().enumerate() {
        assert_eq!(block.bytes().as_ptr().align_offset(64), 0);
        block.bytes_mut().fill(u8::try_from(index).unwrap());
    }
    for (index, block) in blocks.iter_mut().enumerate() {
        assert!(block.bytes().iter().all(|&byte| usize::from(byte) == index));
    }
    let usage = heap.stats().own;
    assert_eq!(usage.live_blocks, 12);
    assert_eq!(usage.live_bytes, blocks.iter().map(|b| b.len_bytes() as u64).sum::<u64>());
    drop(blocks);
    assert_eq!((heap.stats().own.live_blocks, heap.stats().own.live_bytes), (0, 0));
}

#[test]
fn the_limit_is_an_error_with_numbers_and_freeing_helps() {
    let heap = Heap::create(Domain::builder().address_space_bytes(1 << 30).limit_bytes(8 << 20)).unwrap();
    let first = heap.allocate(6 << 20).unwrap();
    let error = heap.allocate(6 << 20).unwrap_err();
    assert!(
        matches!(error, StorageError::Domain(DomainError::Limit { limit_bytes: 8_388_608, .. })),
        "{error}"
    );
    assert!(error.to_string().contains("8388608"), "{error}");
    drop(first);
    // Another class: the free block must go back to the system first.
    let second = heap.allocate(3 << 20).unwrap();
    assert!(heap.stats().populated_bytes <= 8 << 20);
    drop(second);
}

#[test]
fn a_free_block_for_which_there_is_no_memory_now_stays_free() {
    let heap = Heap::create(Domain::builder().address_space_bytes(1 << 30).limit_bytes(10 << 20)).unwrap();
    let (one, other) = (heap.allocate(4 << 20).unwrap(), heap.allocate(4 << 20).unwrap());
    let ids = [one.id(), other.id()];
    drop(other);
    drop(one);
    // It gets the memory of the first block, which is the one that was freed last.
    let filling = heap.allocate(3 << 20).unwrap();
    let second = heap.allocate(4 << 20).unwrap();
    assert_eq!(second.id(), ids[1], "the first one is passed by");
    for _ in 0..3 {
        assert!(heap.allocate(4 << 20).is_err(), "there is memory for three megabytes");
    }
    drop(filling);
    assert_eq!(heap.allocate(4 << 20).unwrap().id(), ids[0]);
}

#[test]
fn a_block_larger_than_the_domain_is_refused() {
    let heap = Heap::create(Domain::builder().address_space_bytes(16 << 20)).unwrap();
    assert!(matches!(heap.allocate(1 << 30), Err(StorageError::TooLarge { len_bytes: 1_073_741_824, .. })));
    assert!(heap.allocate(usize::MAX).is_err());
    let error = heap.allocate(16 << 20).unwrap_err();
    assert!(matches!(error, StorageError::Domain(DomainError::NoExtents { .. })), "{error}");
}

#[test]
fn used_up_address_space_still_serves_from_larger_blocks() {
    let heap = Heap::create(Domain::builder().address_space_bytes(16 << 20)).unwrap();
    let mut large: Vec<ExclusiveBlock> = std::iter::from_fn(|| heap.allocate(900 << 10).ok()).collect();
    assert!(large.len() >= 12, "{}", large.len());
    large.pop();
    let smaller = heap.allocate(100 << 10).unwrap();
    assert_eq!(smaller.len_bytes(), 100 << 10);
}

#[test]
fn trim_gives_memory_back_and_the_next_block_is_whole() {
    let heap = heap();
    let before = heap.domain().allocated_bytes().unwrap();
    let mut blocks: Vec<_> = (0..8).map(|_| heap.allocate(4 << 20).unwrap()).collect();
    blocks.iter_mut().for_each(|block| block.bytes_mut().fill(1));
    let small: Vec<_> = (0..1000).map(|_| heap.allocate(256).unwrap()).collect();
    assert!(heap.domain().allocated_bytes().unwrap() - before >= 32 << 20);
    drop((blocks, small));
    assert!(heap.trim() >= 32 << 20);
    assert!(heap.domain().allocated_bytes().unwrap() - before < 1 << 20);
    let mut again = heap.allocate(4 << 20).unwrap();
    assert!(again.bytes().iter().all(|&byte| byte == 0), "trimmed pages read as zero");
}

#[test]
fn many_small_blocks_cost_little_beside_their_bytes() {
    let heap = heap();
    let blocks: Vec<_> = (0..20_000).map(|_| heap.allocate(64).unwrap()).collect();
    let per_block = heap.stats().own.populated_bytes / blocks.len() as u64;
    assert!(per_block <= 160, "{per_block} bytes for a block of 64");
}

#[test]
fn a_heap_that_is_dropped_leaves_nothing() {
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:tensorferry").count();
    let heap = heap();
    let block = heap.allocate(1 << 20).unwrap();
    assert!(maps() > 0);
    drop(heap);
    let mut block = block;
    block.bytes_mut()[0] = 1;
    drop(block);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// In every order of allocations and frees, live blocks keep their contents, and nothing is left at the
    /// end.
    #[test]
    fn blocks_never_overlap(steps in proptest::collection::vec((0_usize..200_000, any::<bool>(), any::<u8>()), 1..120)) {
        let heap = heap();
        let mut live: Vec<(ExclusiveBlock, u8)> = Vec::new();
        for (len, free, tag) in steps {
            if free && !live.is_empty() {
                let (mut block, tag) = live.swap_remove(len % live.len());
                prop_assert!(block.bytes().iter().all(|&byte| byte == tag));
            } else {
                let mut block = heap.allocate(len).unwrap();
                block.bytes_mut().fill(tag);
                live.push((block, tag));
            }
        }
        for (block, tag) in &mut live {
            prop_assert!(block.bytes().iter().all(|byte| byte == tag));
        }
        live.clear();
        prop_assert_eq!(heap.stats().own.live_blocks, 0);
    }
}
