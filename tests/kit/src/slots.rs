//! That a queue is as good as new.

use tensorferry::Queue;
use tensorferry::queue::PutErrorKind;

use crate::{Family, Item};

/// Checks that every slot of an empty queue can be used.
#[track_caller]
pub fn assert_all_slots_work(family: &Family, queue: &Queue<Item>) {
    for lap in 0..2 {
        for sequence in 0..queue.capacity_items() as u64 {
            queue.put_nowait(Item::new(family.heap(), lap, sequence, &[2])).unwrap();
        }
        let one_more = || queue.put_nowait(Item::new(family.heap(), lap, 99, &[])).unwrap_err().kind;
        // That the others are gone is told once.
        let told = one_more();
        assert!(
            matches!(told, PutErrorKind::Full | PutErrorKind::PeerDied | PutErrorKind::Disconnected),
            "{told}"
        );
        assert!(matches!(one_more(), PutErrorKind::Full));
        for sequence in 0..queue.capacity_items() as u64 {
            let item = queue.get_nowait().unwrap();
            item.check();
            assert_eq!((item.sender, item.sequence), (lap, sequence));
        }
        assert!(queue.is_empty());
    }
}
