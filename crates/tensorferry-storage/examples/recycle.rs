//! A block through a ring and back, and memory that is used again instead of being allocated.
//!
//! `cargo run -p tensorferry-storage --example recycle`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use tensorferry_domain::Domain;
use tensorferry_storage::{Consumers, Deadline, Heap, OutgoingHandle, Ring};

const LEN_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let heap = Heap::create(Domain::builder().limit_bytes(64 << 20))?;
    let ring = Ring::create(&heap, 4, 0)?;

    for round in 0..100_u8 {
        // Exclusive: bytes to write. Frozen: bytes to read, for any number of readers.
        let mut block = heap.allocate(LEN_BYTES)?;
        block.bytes_mut().fill(round);
        let frozen = block.freeze();
        // The message is a handle of 8 bytes beside a payload; the megabyte stays where it is.
        let handles = OutgoingHandle::frozen(&frozen).into_iter().collect();
        ring.put(&[round], handles, Deadline::Now)?;

        let mut message = ring.take(Consumers::Multi, Deadline::Now)?;
        let received =
            message.handles.first_mut().and_then(|handle| handle.take_frozen()).ok_or("no block")?;
        if received.id() != frozen.id() || received.bytes()[LEN_BYTES - 1] != message.payload[0] {
            return Err("another block arrived".into());
        }
        if round == 0 || round == 99 {
            let own = heap.stats().own;
            println!("round {round}: memory was populated {} times so far", own.populate_calls);
        }
    }

    heap.collect();
    let own = heap.stats().own;
    println!("live: {} bytes, kept for the next: {} bytes", own.live_bytes, own.cached_bytes());
    println!("given back to the system: {} bytes", heap.trim());
    if let Err(error) = heap.allocate(1 << 30) {
        println!("a gigabyte: {error}");
    }
    Ok(())
}
