//! Samples that are structs of samples.

use serde::{Deserialize, Serialize};
use tensorferry::data::{Batch, Collate, CollateError, Dataset, SampleRng, dataset};
use tensorferry::storage::Heap;
use tensorferry::{BoxedError, DataLoader, Tensor};

use crate::{all, start};

/// Where something is in a photo.
#[derive(Collate)]
#[collate(batch = Boxes, derive(Debug))]
struct BoundingBox {
    corner: [f32; 2],
    size: [f32; 2],
}

#[derive(Collate)]
#[collate(batch = Photos, derive(Debug))]
struct Photo {
    pixels: Vec<u8>,
    label: i64,
    name: String,
    place: BoundingBox,
}

fn photo(index: u8) -> Photo {
    let place = BoundingBox { corner: [f32::from(index), 0.0], size: [1.0, 2.0] };
    Photo { pixels: vec![index; 3], label: -i64::from(index), name: format!("{index}.png"), place }
}

#[derive(Serialize, Deserialize)]
struct Album;

#[dataset]
impl Dataset for Album {
    type Sample = Photo;

    fn len(&self) -> usize {
        5
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<Photo, BoxedError> {
        Ok(photo(u8::try_from(index)?))
    }
}

#[test]
fn a_batch_of_structs_is_a_struct_of_batches_made_by_a_worker_or_here() {
    for n_workers in 0..2 {
        let batches: Vec<Batch<Album>> =
            all(&start(DataLoader::builder(Album).batch_size(3).workers(n_workers)), 0);
        let [Photos { pixels, label, name, place }, last] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!((pixels.shape(), pixels.to_vec()), (&[3, 3].into(), vec![0, 0, 0, 1, 1, 1, 2, 2, 2]));
        assert_eq!((label.to_vec(), name.join(" ")), (vec![0, -1, -2], "0.png 1.png 2.png".to_owned()));
        assert_eq!(place.corner.to_vec(), [0.0, 0.0, 1.0, 0.0, 2.0, 0.0]);
        assert_eq!(place.size.shape(), &[3, 2]);
        assert_eq!((last.label.to_vec(), last.name.len()), (vec![-3, -4], 2));
    }
}

/// Its batch has the name that it has by itself.
#[derive(Collate)]
struct Word {
    letters: Tensor<u8>,
}

#[test]
fn a_field_that_does_not_fit_is_named() {
    let heap = Heap::current().unwrap();
    let word = |text: &str| Word { letters: Tensor::from_vec(text.bytes().collect(), [text.len()]).unwrap() };
    let mut rows = Word::begin(&word("two"), 2, heap).unwrap();
    Word::push(&mut rows, word("two")).unwrap();
    let error = Word::push(&mut rows, word("four")).unwrap_err();
    let CollateError::Field { field, error: inner } = &error else { panic!("{error}") };
    assert_eq!(*field, "letters");
    assert!(matches!(**inner, CollateError::Shape { .. }), "{inner}");
    assert!(error.to_string().starts_with("`letters`: the shape [4] differs"), "{error}");
    let WordBatch { letters } = Word::finish(rows).unwrap();
    assert_eq!(letters.to_vec(), b"two", "the one that fits");
}
