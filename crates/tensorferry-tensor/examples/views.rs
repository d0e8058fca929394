//! Views of one storage: the memory that they share, and how to free the rest.
//!
//! `cargo run -p tensorferry-tensor --example views`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use tensorferry_tensor::{DimSlice, SharedTensor, Tensor, TensorMut};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A batch of two 4x6 images, filled in place in shared memory.
    let mut batch = TensorMut::<f32>::zeros([2, 4, 6])?;
    for (value, element) in (0_u8..).zip(batch.as_mut_slice()) {
        *element = f32::from(value);
    }
    let batch: Tensor<f32> = batch.freeze();
    describe("batch", &batch);

    // Each of these is a few numbers over the same memory.
    describe("second image", &batch.select(0, 1)?);
    describe("its middle", &batch.select(0, 1)?.narrow(0, 1, 2)?.narrow(1, 2, 2)?);
    describe("every other column", &batch.slice(&[(..).into(), (..).into(), DimSlice::from(..).step(2)])?);
    describe("channels last", &batch.unsqueeze(1)?.permute(&[0, 2, 3, 1])?);
    let corner = batch.select(0, 0)?.narrow(0, 0, 1)?.narrow(1, 0, 1)?;
    describe("one pixel, repeated", &corner.expand([4, 6])?);

    // Not every reshape is a view. The error says what to do.
    let columns = batch.transpose(1, 2)?;
    match columns.flatten() {
        Ok(flat) => describe("flat", &flat),
        Err(error) => println!("{error}"),
    }
    describe("flat after a copy", &columns.contiguous()?.flatten()?);

    // A view keeps the whole storage alive. compact() copies the part that it covers, so that the rest can be
    // freed.
    let image = batch.select(0, 1)?.compact()?;
    println!("compact: its own storage: {}", !image.shares_storage_with(&batch));

    // Views of shared tensors write through.
    let table = SharedTensor::<i32>::zeros([3, 3])?;
    table.select(1, 1)?.fill(7);
    table.select(0, 2)?.add_from(&[1, 2, 3])?;
    println!("shared table: {:?}", table.to_vec());
    Ok(())
}

fn describe(name: &str, tensor: &Tensor<f32>) {
    let first: Vec<f32> = tensor.iter().copied().take(6).collect();
    println!("{name}: shape {} strides {:?} begins {first:?}", tensor.shape(), tensor.strides());
}
