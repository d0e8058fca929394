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

/// A module's own type, in what others see.
mod documents {
    use tensorferry::data::Collate;

    #[derive(Collate)]
    struct Span {
        end: u32,
    }

    /// A field may also have the name of a keyword, or one that the derive uses.
    #[derive(Collate)]
    pub(super) struct Document {
        pub(super) r#type: Vec<u8>,
        pub(super) rows: u8,
        span: Span,
    }

    impl Document {
        pub(super) fn new(r#type: &[u8], rows: u8) -> Self {
            Self { r#type: r#type.to_vec(), rows, span: Span { end: 5 } }
        }
    }

    impl DocumentBatch {
        pub(super) fn ends(&self) -> Vec<u32> {
            self.span.end.to_vec()
        }
    }
}

#[test]
fn a_struct_may_have_private_fields_of_private_types_and_any_names() {
    use documents::Document;

    let heap = Heap::current().unwrap();
    let mut rows = Document::begin(&Document::new(&[1], 0), 2, heap).unwrap();
    Document::push(&mut rows, Document::new(&[1], 3)).unwrap();
    let error = Document::push(&mut rows, Document::new(&[1, 2], 4)).unwrap_err();
    assert!(error.to_string().starts_with("`type`: "), "{error}");
    let batch = Document::finish(rows).unwrap();
    assert_eq!((batch.r#type.to_vec(), batch.rows.to_vec(), batch.ends()), (vec![1], vec![3], vec![5]));
}
