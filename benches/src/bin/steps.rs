//! Runs one operation so often: `steps OPERATION N`. For counting instructions, which the load of the machine does not
//! change.

use anyhow::{Context as _, bail};
use tensorferry::queue::{SoleReceiver, SoleSender, spsc};
use tensorferry::{Tensor, TensorMut};

const FRESH_ELEMENTS: usize = 1024;
const MANY: usize = 100;

fn existing() -> anyhow::Result<Tensor<f32>> {
    Ok(TensorMut::full([1], 1.0)?.freeze())
}

fn ends<T>() -> anyhow::Result<(SoleSender<T>, SoleReceiver<T>)> {
    Ok(spsc(16)?)
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let operation = arguments.next().context("the first argument is an operation")?;
    let times: usize = arguments.next().context("the second argument is a number")?.parse()?;
    match operation.as_str() {
        "number" => {
            let (mut sender, mut receiver) = ends()?;
            for number in 0..times as u64 {
                sender.put(number)?;
                receiver.get()?;
            }
        }
        "one" => {
            let (mut sender, mut receiver) = ends()?;
            let tensor = existing()?;
            for _ in 0..times {
                sender.put(tensor.clone())?;
                receiver.get()?;
            }
        }
        "hundred" => {
            let (mut sender, mut receiver) = ends()?;
            let tensors: Vec<_> = (0..MANY).map(|_| existing()).collect::<anyhow::Result<_>>()?;
            for _ in 0..times {
                sender.put(tensors.clone())?;
                receiver.get()?;
            }
        }
        "fresh" => {
            let (mut sender, mut receiver) = ends()?;
            for _ in 0..times {
                sender.put(TensorMut::<f32>::empty([FRESH_ELEMENTS])?.freeze())?;
                receiver.get()?;
            }
        }
        "allocate" => {
            for _ in 0..times {
                drop(TensorMut::<f32>::empty([FRESH_ELEMENTS])?);
            }
        }
        "clone" => {
            let tensor = existing()?;
            for _ in 0..times {
                drop(std::hint::black_box(tensor.clone()));
            }
        }
        other => bail!("no operation is called {other}"),
    }
    Ok(())
}
