//! A type of your own that travels by handle, inside other types, without a copy.
//!
//! `cargo run -p tensorferry-reduce --example by_handle`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_reduce::{HandleIndex, Parcel, bytes_copied, give_frozen, take_frozen};
use tensorferry_storage::{FrozenBlock, Heap};

/// A picture in shared memory.
struct Picture(FrozenBlock);

impl Serialize for Picture {
    /// Puts a handle into the message, and its index into the payload.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        give_frozen(&self.0).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Picture {
    /// Takes the handle with that index out of the message.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        take_frozen(HandleIndex::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct Sample {
    label: String,
    picture: Picture,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let heap = Heap::current()?;
    let mut block = heap.allocate(1 << 20)?;
    block.bytes_mut().fill(200);
    let sample = Sample { label: "a grey square".to_owned(), picture: Picture(block.freeze()) };

    // A queue does this inside `put` and `get`. A parcel does it for one value, without a queue.
    let parcel = Parcel::pack(heap, &sample)?;
    let received: Sample = Parcel::open(heap, parcel.id())?;
    let bytes = received.picture.0.bytes();
    println!("{}: {} bytes, the first is {}", received.label, bytes.len(), bytes[0]);
    println!("the same memory: {}", received.picture.0.id() == sample.picture.0.id());
    println!("bytes copied on the way: {}", bytes_copied());

    // Outside a message nothing would keep the memory of a handle alive.
    if let Err(error) = give_frozen(&sample.picture.0) {
        println!("elsewhere: {error}");
    }
    Ok(())
}
