//! What a batch is: its tensors, where they are, and how samples become one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tensorferry::data::{
    Collate, CollateError, ColumnsError, Dataset, SampleRng, TensorDataset, dataset, worker_info,
};
use tensorferry::sync::RawArray;
use tensorferry::tensor::Bool;
use tensorferry::{BoxedError, DataLoader, Heap, Queue, Tensor, TensorMut, bytes_copied, func};

use crate::{Noisy, all, leaving_nothing, start};

/// Samples of every kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Mixed;

type Named = BTreeMap<String, Vec<i16>>;

#[dataset]
impl Dataset for Mixed {
    type Sample = (bool, [f32; 2], Tensor<u8>, TensorMut<i32>, String, Named, (f64,));

    fn len(&self) -> usize {
        5
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        let n = u8::try_from(index)?;
        // Not in order in memory.
        let columns =
            Tensor::from_vec(vec![n, n + 1, n + 2, n + 3, n + 4, n + 5], [2, 3])?.transpose(0, 1)?;
        let zeros = TensorMut::full([2, 1], i32::from(n))?;
        let named = [("a", i16::from(n)), ("b", -i16::from(n))];
        let named = named.into_iter().map(|(name, number)| (name.to_owned(), vec![number])).collect();
        Ok((n.is_multiple_of(2), [f32::from(n); 2], columns, zeros, n.to_string(), named, (f64::from(n),)))
    }
}

#[test]
fn samples_of_every_kind_become_a_batch_and_arrive() {
    for n_workers in [0, 2] {
        let loader = start(DataLoader::builder(Mixed).batch_size(3).workers(n_workers));
        let batches = all(&loader, 0);
        let [first, (even, pairs, columns, zeros, texts, named, (last,))] = batches.try_into().unwrap();
        assert_eq!((first.0.shape(), first.2.shape()), (&[3].into(), &[3, 3, 2].into()));
        assert_eq!(even.to_vec(), [Bool::from(false), Bool::from(true)]);
        assert_eq!((pairs.shape(), pairs.to_vec()), (&[2, 2].into(), vec![3.0, 3.0, 4.0, 4.0]));
        assert_eq!(columns.to_vec(), [3, 6, 4, 7, 5, 8, 4, 7, 5, 8, 6, 9]);
        assert_eq!((zeros.shape(), zeros.to_vec()), (&[2, 2, 1].into(), vec![3, 3, 4, 4]));
        assert_eq!(texts, ["3", "4"]);
        assert_eq!(named.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((named["b"].shape(), named["b"].to_vec()), (&[2, 1].into(), vec![-3, -4]));
        assert_eq!(last.to_vec(), [3.0, 4.0]);
        for tensor in [columns, first.2] {
            assert!(tensor.is_shared() && tensor.is_contiguous());
        }
    }
}

#[dataset]
type Rows = TensorDataset<(Tensor<f32>, Tensor<i64>)>;

fn rows(n_rows: usize) -> Rows {
    let pixels = (0..n_rows * 6).map(|n| n as f32).collect();
    let labels = (0..n_rows).map(|n| i64::try_from(n).unwrap()).collect();
    let pixels = Tensor::from_vec(pixels, [n_rows, 2, 3]).unwrap();
    Rows::new((pixels, Tensor::from_vec(labels, [n_rows]).unwrap())).unwrap()
}

#[test]
fn the_rows_of_tensors_come_in_batches_and_nothing_is_copied_here() {
    for n_workers in [0, 2] {
        let loader = start(DataLoader::builder(rows(25)).batch_size(10).shuffle().workers(n_workers));
        let n_copied = bytes_copied();
        let mut seen = Vec::new();
        for (pixels, labels) in all(&loader, 0) {
            assert_eq!(pixels.shape(), &[labels.n_elements(), 2, 3]);
            for (row, &label) in labels.iter().enumerate() {
                let row = pixels.select(0, row).unwrap().to_vec();
                assert_eq!(row, (0..6).map(|n| (label * 6 + n) as f32).collect::<Vec<_>>());
                seen.push(label);
            }
        }
        assert_eq!(bytes_copied(), n_copied);
        assert_ne!(seen, (0..25).collect::<Vec<_>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..25).collect::<Vec<_>>());
    }
}

#[test]
fn rows_one_by_one_are_those_of_the_batch() {
    let dataset = rows(4);
    let key = tensorferry::data::EpochKey { seed: 0, epoch: 0 };
    let (row, label) = dataset.get(2, &mut key.sample_rng(2)).unwrap();
    assert_eq!((row.to_vec(), label.item().unwrap()), (vec![12.0, 13.0, 14.0, 15.0, 16.0, 17.0], 2));
    assert!(dataset.get(4, &mut key.sample_rng(4)).is_err());
    assert!(row.shares_storage_with(&dataset.columns().0));
}

#[test]
fn tensors_without_rows_in_common_are_refused() {
    let tensor = |shape: &[usize]| Tensor::from_vec(vec![0_u8; shape.iter().product()], shape).unwrap();
    let error = TensorDataset::new((tensor(&[3]), tensor(&[4, 2]))).map(drop).unwrap_err();
    assert!(matches!(error, ColumnsError::Lengths(3, 4)), "{error}");
    let error = TensorDataset::new((tensor(&[3]), tensor(&[]))).map(drop).unwrap_err();
    assert!(matches!(error, ColumnsError::Scalar), "{error}");
    let columns = tensor(&[2, 3]).transpose(0, 1).unwrap();
    assert!(TensorDataset::new(columns).unwrap().columns().is_contiguous(), "brought into order once");
}

#[func]
fn note_itself(worker: usize, seen: RawArray<u64>) -> Result<(), BoxedError> {
    let info = worker_info().ok_or("no worker")?;
    assert_eq!((info.id, info.n_workers, info.seed), (worker, 2, 9));
    assert_eq!(std::env::var("LOADER_TEST")?, "set");
    seen.set(worker, 1 + info.id as u64)?;
    Ok(())
}

#[test]
fn workers_know_themselves_before_they_get_the_dataset_and_stay_from_epoch_to_epoch() {
    assert_eq!(worker_info(), None);
    let seen = RawArray::full(2, 0).unwrap();
    let builder = DataLoader::builder(Noisy { n_samples: 50 }).workers(2).seed(9).env("LOADER_TEST", "set");
    let loader = start(builder.worker_init(note_itself, (seen.clone(),)));
    let pids = || loader.processes().iter().map(|process| process.pid()).collect::<Vec<_>>();
    let before = pids();
    assert_eq!(before.len(), 2);
    for epoch in 0..3 {
        assert_eq!(all(&loader, epoch).len(), 50);
    }
    assert_eq!(pids(), before);
    loader.join().unwrap();
    assert_eq!(seen.to_vec(), [1, 2]);
}

#[func]
fn train(_rank: usize, batches: Queue<(Tensor<f32>, Tensor<i64>)>) -> Result<(i64, usize), String> {
    let sums = batches.iter().map(|(_, labels)| (labels.iter().sum::<i64>(), labels.n_elements()));
    Ok(sums.fold((0, 0), |(sum, n), (more, n_more)| (sum + more, n + n_more)))
}

#[test]
fn one_loader_feeds_several_trainers_and_nothing_is_left() {
    leaving_nothing(|| {
        let batches = Queue::new(4).unwrap();
        let trainers = tensorferry::start_processes(train, (batches.clone(),), 2).unwrap();
        let loader = start(DataLoader::builder(rows(100)).batch_size(9).shuffle().workers(2));
        for epoch in 0..2 {
            for batch in loader.epoch(epoch) {
                batches.put(batch.unwrap()).unwrap();
            }
        }
        batches.close();
        let results = trainers.into_values().unwrap();
        assert_eq!(results.iter().map(|(sum, _)| sum).sum::<i64>(), 2 * 4_950);
        assert_eq!(results.iter().map(|(_, n)| n).sum::<usize>(), 200);
        loader.join().unwrap();
    });
}

#[test]
fn memory_of_batches_that_were_dropped_is_used_again() {
    let loader = start(DataLoader::builder(rows(4_000)).batch_size(1_000).workers(2));
    let populated_bytes = || Heap::current().unwrap().stats().populated_bytes;
    assert_eq!(all(&loader, 0).len(), 4);
    let before = populated_bytes();
    for epoch in 1..100 {
        loader.epoch(epoch).for_each(|batch| drop(batch.unwrap()));
    }
    // 32 kB for each of 396 batches came and went.
    assert!(populated_bytes() < before + (3 << 20), "{before} {}", populated_bytes());
}

/// A sample with names, and its batch.
struct Photo {
    pixels: Vec<u8>,
    label: i64,
}

impl Collate for Photo {
    type Batch = (Tensor<u8>, Tensor<i64>);
    type Rows = <(Vec<u8>, i64) as Collate>::Rows;

    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        Ok((Vec::begin(&first.pixels, n_samples, heap)?, i64::begin(&first.label, n_samples, heap)?))
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        <(Vec<u8>, i64)>::push(rows, (sample.pixels, sample.label))
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        <(Vec<u8>, i64)>::finish(rows)
    }
}

#[test]
fn vectors_and_texts_can_still_be_pushed_to_beside_the_trait() {
    let (mut pixels, mut text) = (Vec::new(), String::new());
    pixels.push(1);
    text.push('a');
    let samples = [(pixels, 7), (vec![2], 8)].map(|(pixels, label)| Photo { pixels, label });
    let mut rows = Photo::begin(&samples[0], 3, Heap::current().unwrap()).unwrap();
    samples.into_iter().for_each(|sample| Photo::push(&mut rows, sample).unwrap());
    let (pixels, labels) = Photo::finish(rows).unwrap();
    assert_eq!(
        (pixels.shape(), pixels.to_vec()),
        (&[2, 1].into(), vec![1, 2]),
        "of three that could have come"
    );
    assert_eq!((labels.to_vec(), text), (vec![7, 8], "a".to_owned()));
}
