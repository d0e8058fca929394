//! The parameters of a small network as one message: a thousand messages with all of them, and how many
//! handles that takes.
//!
//! `cargo run -p tensorferry-state --example parameters`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use tensorferry_reduce::{Parcel, bytes_copied};
use tensorferry_state::Bundle;
use tensorferry_storage::Heap;
use tensorferry_tensor::{Tensor, TensorMut};

const N_LAYERS: usize = 48;
const WIDTH: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Bundle::builder();
    for layer in 0..N_LAYERS {
        let weight = TensorMut::full([WIDTH, WIDTH], 1.0 / WIDTH as f32)?.freeze();
        let bias = TensorMut::full([WIDTH], layer as f32)?.freeze();
        builder = builder.add(format!("{layer}.weight"), weight).add(format!("{layer}.bias"), bias);
    }
    // Nothing is copied. The bundle holds the tensors from here on.
    let parameters = builder.build()?;
    println!("{} tensors, the first of them {:?}", parameters.len(), parameters.entry("0.weight")?);

    let heap = Heap::current()?;
    let mut total = 0.0;
    for round in 0..1_000_u64 {
        // As `put` and `get` of a queue.
        let parcel = Parcel::pack(heap, &(round, &parameters))?;
        let (_, parameters): (u64, Bundle) = Parcel::open(heap, parcel.id())?;
        parcel.take_back();
        // Read where they lie; no tensor is made for that.
        for entry in &parameters {
            total += entry.as_slice::<f32>()?[0];
        }
    }
    println!("the first elements of all tensors of all messages: {total}");

    // One that is taken out lives without the bundle.
    let last: Tensor<f32> = parameters.tensor(&format!("{}.bias", N_LAYERS - 1))?;
    drop(parameters);
    println!("the last bias is {}", last.get([0])?);
    println!("bytes copied: {}", bytes_copied());
    Ok(())
}
