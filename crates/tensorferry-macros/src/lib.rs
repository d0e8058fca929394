//! The attributes of `tensorferry-spawn` and `tensorferry-data`. Use them from those crates, or from the
//! facade: `tensorferry_spawn::func`, `tensorferry::func`, `tensorferry_data::dataset`,
//! `tensorferry::data::dataset` and so on.

mod collate;
mod dataset;
mod func;
mod path;

use proc_macro::TokenStream;

/// Registers a function, so that `spawn` can run it in another process. The function can still be called
/// directly.
///
/// The first argument is the index of the process, a `usize`. Up to eight more arguments follow. They have
/// owned types that serde can read and write, such as tensors and queues. The function returns `()`, or a
/// `Result` whose value serde can read and write and whose error can be boxed: an error type, a text, or
/// `Box<dyn Error + Send + Sync>`, but not `Box<dyn Error>`.
///
/// ```text
/// #[tensorferry::func]
/// fn train(rank: usize, rate: f32) -> Result<f64, String> {
///     if rate > 0.0 { Ok(f64::from(rate) * rank as f64) } else { Err(format!("rate {rate} is not positive")) }
/// }
/// ```
///
/// These functions cannot be registered:
///
/// - generic functions, because each of their instances is another function;
/// - `async`, `unsafe` and `extern` functions;
/// - functions inside an `impl`, with `self` or without: call them from a function outside it;
/// - functions that borrow their arguments.
///
/// `#[func(crate = path)]` names the module where `tensorferry-spawn` is found. Without it, the attribute
/// looks in the package's manifest for `tensorferry-spawn`, then for `tensorferry`, under any name that they
/// have there.
#[proc_macro_attribute]
pub fn func(attribute: TokenStream, item: TokenStream) -> TokenStream {
    func::expand(attribute.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Registers a dataset, so that the workers of a `DataLoader` or an `IterableLoader` can be told to load it.
///
/// It stands on the `impl Dataset` or `impl IterableDataset`, or on a type alias for a dataset of another
/// crate:
///
/// ```text
/// #[tensorferry::data::dataset]
/// impl Dataset for Images { .. }
///
/// #[tensorferry::data::dataset]
/// type Digits = TensorDataset<(Tensor<f32>, Tensor<u8>)>;
///
/// #[tensorferry::data::dataset(iterable)]
/// type Lines = LinesOf<Utf8>;
/// ```
///
/// A generic type cannot be registered, because each of its instances is another dataset: an alias names one.
///
/// `#[dataset(crate = path)]`, or `#[dataset(iterable, crate = path)]`, names the module where
/// `tensorferry-data` is found. Without it, the attribute looks in the package's manifest for
/// `tensorferry-data`, then for `tensorferry`, under any name that they have there.
#[proc_macro_attribute]
pub fn dataset(attribute: TokenStream, item: TokenStream) -> TokenStream {
    dataset::expand(attribute.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct of samples a sample: its batch is a struct with the same fields, each of which is the batch
/// of what the samples have there.
///
/// ```text
/// #[derive(tensorferry::data::Collate)]
/// #[collate(batch = Photos, derive(Debug))]
/// struct Photo {
///     pixels: Vec<f32>, // `Tensor<f32>` in `Photos`, with one more dimension in front
///     label: i64,       // `Tensor<i64>`
///     name: String,     // `Vec<String>`
/// }
/// ```
///
/// The batch is called after the sample, with `Batch` behind it, unless `#[collate(batch = Name)]` says
/// otherwise. It has serde's `Serialize` and `Deserialize`, and what `#[collate(derive(..))]` names. Generic
/// structs, tuple structs and enums are refused: for them the trait is implemented by hand.
///
/// `#[collate(crate = path)]` names the module where `tensorferry-data` is found. Without it, the macro looks
/// in the package's manifest for `tensorferry-data`, then for `tensorferry`, under any name that they have
/// there.
#[proc_macro_derive(Collate, attributes(collate))]
pub fn derive_collate(item: TokenStream) -> TokenStream {
    collate::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
