//! The data: 1,797 images of handwritten digits, built into the program, a fifth of them held out.

use std::io::Read as _;

use anyhow::{Context as _, ensure};
use flate2::read::GzDecoder;
use tensorferry::{Tensor, TensorMut};

use crate::random::Random;

/// The pixels of one image, 8 rows of 8.
pub(crate) const N_PIXELS: usize = 64;
/// The digits.
pub(crate) const N_CLASSES: usize = 10;

const PACKED: &[u8] = include_bytes!("../data/digits.csv.gz");
/// The largest value of a pixel.
const WHITE: f32 = 16.0;
/// Which images are held out does not depend on the run, so that the accuracies of all runs can be compared.
const SPLIT_SEED: u64 = 1998;

/// Images and what they show, in shared memory: all workers read the same bytes.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Examples {
    /// `[n, N_PIXELS]`, each pixel from 0 to 1.
    pub(crate) images: Tensor<f32>,
    /// `[n]`, each from 0 to 9.
    pub(crate) labels: Tensor<u8>,
}

/// What is learned from, and what is kept to examine the result with.
#[derive(Clone, Debug)]
pub(crate) struct Digits {
    pub(crate) training: Examples,
    pub(crate) held_out: Examples,
}

impl Examples {
    pub(crate) fn len(&self) -> usize {
        self.labels.n_elements()
    }

    /// Writes the chosen images straight into shared memory: nothing has to be copied when they are sent.
    fn of(all: &[([f32; N_PIXELS], u8)], chosen: &[usize]) -> anyhow::Result<Self> {
        let mut images = TensorMut::empty([chosen.len(), N_PIXELS])?;
        let mut labels = TensorMut::empty([chosen.len()])?;
        let places = images.as_mut_slice().chunks_exact_mut(N_PIXELS).zip(labels.as_mut_slice());
        for ((image, label), &index) in places.zip(chosen) {
            image.copy_from_slice(&all[index].0);
            *label = all[index].1;
        }
        Ok(Self { images: images.freeze(), labels: labels.freeze() })
    }
}

impl Digits {
    /// Unpacks the images and holds out a fifth of every digit's.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let mut csv = String::new();
        GzDecoder::new(PACKED).read_to_string(&mut csv).context("the data set does not unpack")?;
        let all = csv.lines().map(parse).collect::<anyhow::Result<Vec<_>>>()?;

        let mut random = Random::new(SPLIT_SEED, 0);
        let (mut training, mut held_out) = (Vec::new(), Vec::new());
        for digit in 0..N_CLASSES {
            let mut indices: Vec<_> = (0..all.len()).filter(|&i| usize::from(all[i].1) == digit).collect();
            random.shuffle(&mut indices);
            let (fifth, rest) = indices.split_at((indices.len() + 2) / 5);
            held_out.extend_from_slice(fifth);
            training.extend_from_slice(rest);
        }
        Ok(Self { training: Examples::of(&all, &training)?, held_out: Examples::of(&all, &held_out)? })
    }
}

fn parse(line: &str) -> anyhow::Result<([f32; N_PIXELS], u8)> {
    let numbers: Vec<u8> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let (&label, pixels) = numbers.split_last().context("an empty line in the data set")?;
    ensure!(pixels.len() == N_PIXELS && usize::from(label) < N_CLASSES, "not an image: {line}");
    let mut image = [0.0; N_PIXELS];
    for (place, &pixel) in image.iter_mut().zip(pixels) {
        *place = f32::from(pixel) / WHITE;
    }
    Ok((image, label))
}
