//! The attributes of `tensorferry-spawn`. Use them from there, or from the facade: `tensorferry_spawn::func`,
//! `tensorferry::func`.

mod func;
mod path;

use proc_macro::TokenStream;

/// Registers a function, so that `spawn` can run it in another process. The function stays callable as it is.
///
/// The first argument is the index of the process, `usize`; up to eight more follow, owned types that serde can read
/// and write (tensors and queues among them). It returns `()` or a `Result` whose value serde can read and write
/// and whose error can be boxed.
///
/// ```text
/// #[tensorferry::func]
/// fn train(rank: usize, rate: f32) -> Result<f64, String> {
///     if rate > 0.0 { Ok(f64::from(rate) * rank as f64) } else { Err(format!("rate {rate} is not positive")) }
/// }
/// ```
///
/// Generic functions cannot be registered (each of their instances is another function), nor can `async`, `unsafe` and
/// `extern` functions, functions inside of an `impl` (with `self` or without: call them from one beside it), and functions that
/// borrow their arguments.
///
/// `#[func(crate = path)]` names the module that `tensorferry-spawn` is found at. Without it, the attribute looks into
/// the package's manifest for `tensorferry-spawn` or `tensorferry`, under whatever name they have there.
#[proc_macro_attribute]
pub fn func(attribute: TokenStream, item: TokenStream) -> TokenStream {
    func::expand(attribute.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
