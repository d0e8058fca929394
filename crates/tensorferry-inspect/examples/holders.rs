//! Who holds what, of all processes of this user: start it while a program runs, or alone to see itself.

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;

use tensorferry_inspect::{command_line, find};
use tensorferry_storage::Heap;

fn main() -> Result<(), Box<dyn Error>> {
    let _mine = Heap::current()?.allocate(3 << 20)?;
    for domain in find()?.domains {
        let snapshot = domain.snapshot()?;
        println!("domain {:x}: {} bytes populated", snapshot.domain_id, snapshot.populated_bytes);
        for member in snapshot.members {
            let command = member.pid.and_then(|pid| command_line(pid).ok()).unwrap_or_default();
            let (blocks, bytes) = (member.holds.blocks, member.holds.bytes);
            println!("  {:?} holds {bytes} bytes in {blocks} blocks: {command}", member.pid);
        }
        for queue in snapshot.queues {
            println!("  a queue has {} of {} messages", queue.waiting_items, queue.capacity_items);
        }
    }
    Ok(())
}
