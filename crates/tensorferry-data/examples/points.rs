//! Loads points of two classes, with noise, in two worker processes. One of them is killed meanwhile, and its
//! batch is made again: the points are the same.

use std::io::Write as _;

use serde::{Deserialize, Serialize};
use tensorferry_data::rand_core::Rng as _;
use tensorferry_data::{BoxedError, DataLoader, Dataset, SampleRng, dataset};

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Points {
    n_points: usize,
}

#[dataset]
impl Dataset for Points {
    type Sample = ([f32; 2], i64);

    fn len(&self) -> usize {
        self.n_points
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        let class = i64::try_from(index % 2)?;
        let mut noise = || rng.next_u32() as f32 / u32::MAX as f32;
        Ok(([class as f32 + noise(), noise()], class))
    }
}

fn main() -> Result<(), BoxedError> {
    let points = Points { n_points: 10_000 };
    let builder = || DataLoader::builder(points).batch_size(64).shuffle().seed(7);
    let mut means = Vec::new();
    for loader in [builder().start()?, builder().workers(2).max_tries(2).start()?] {
        let mut sum = 0.0;
        for (step, batch) in loader.epoch(0).enumerate() {
            let (points, _classes) = batch?;
            sum += points.iter().map(|number| f64::from(*number)).sum::<f64>();
            if step == 20
                && let Some(worker) = loader.processes().first()
            {
                worker.kill()?;
            }
        }
        means.push(sum / (2 * loader.n_samples()) as f64);
        loader.join()?;
    }
    if means[0].to_bits() != means[1].to_bits() {
        return Err(format!("the points differ: {means:?}").into());
    }
    writeln!(std::io::stdout(), "mean coordinate {:.4}, with a worker killed and without", means[0])?;
    Ok(())
}
