//! The expansion of `#[dataset]`: the item, and two entries in the table of functions.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Generics, Ident, Item, Result, Token};

use crate::path::{DATA, Options};

/// What the attribute is for.
const FOR: &str = "`#[dataset]` is for `impl Dataset for ..`, `impl IterableDataset for ..`, or for a type alias of a \
                   dataset";

/// What stands in the parentheses of the attribute.
struct Settings {
    /// A type alias is of an iterable dataset.
    is_iterable: bool,
    options: Options,
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut is_iterable = false;
        if input.peek(Ident) && input.fork().parse::<Ident>().is_ok_and(|name| name == "iterable") {
            input.parse::<Ident>()?;
            is_iterable = true;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self { is_iterable, options: input.parse()? })
    }
}

/// A type that is to be registered.
struct Registration<'a> {
    dataset: TokenStream,
    attributes: &'a [Attribute],
    is_iterable: bool,
}

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let settings: Settings = syn::parse2(attribute)?;
    let item: Item = syn::parse2(item)?;
    let Registration { dataset, attributes, is_iterable } = registration(&item, settings.is_iterable)?;
    let data = settings.options.module(&DATA);
    // A `cfg` that removes the dataset must remove its entries too.
    let conditions: Vec<_> = attributes.iter().filter(|a| a.path().is_ident("cfg")).collect();
    let (open, fetch) = if is_iterable {
        (quote!(registered_iterable_open), quote!(registered_iterable_fetch))
    } else {
        (quote!(registered_open), quote!(registered_fetch))
    };
    Ok(quote! {
        #item

        #(#conditions)*
        const _: () = {
            #[#data::hidden::linkme::distributed_slice(#data::hidden::FUNCTIONS)]
            #[linkme(crate = #data::hidden::linkme)]
            static OPEN: #data::hidden::Registered = #data::hidden::#open::<#dataset>();

            #[#data::hidden::linkme::distributed_slice(#data::hidden::FUNCTIONS)]
            #[linkme(crate = #data::hidden::linkme)]
            static FETCH: #data::hidden::Registered = #data::hidden::#fetch::<#dataset>();
        };
    })
}

/// The type that the item makes a dataset, or gives a name.
fn registration(item: &Item, is_iterable: bool) -> Result<Registration<'_>> {
    match item {
        Item::Impl(item) => {
            refuse_generics(&item.generics)?;
            let path = item.trait_.as_ref().map(|(path, _)| path);
            let name = path.and_then(|path| path.segments.last()).map(|last| last.ident.to_string());
            let is_iterable = match name.as_deref() {
                Some("Dataset") if !is_iterable => false,
                Some("IterableDataset") => true,
                Some("Dataset") => {
                    let text = "`iterable` is for `IterableDataset`, and this is `Dataset`";
                    return Err(Error::new(path.span(), text));
                }
                _ => return Err(Error::new(item.self_ty.span(), FOR)),
            };
            Ok(Registration { dataset: item.self_ty.to_token_stream(), attributes: &item.attrs, is_iterable })
        }
        Item::Type(alias) => {
            refuse_generics(&alias.generics)?;
            Ok(Registration { dataset: alias.ident.to_token_stream(), attributes: &alias.attrs, is_iterable })
        }
        other => Err(Error::new(other.span(), FOR)),
    }
}

fn refuse_generics(generics: &Generics) -> Result<()> {
    let Some(parameter) = generics.params.first() else { return Ok(()) };
    let text = "`#[dataset]` cannot register a generic type, because each of its instances is another dataset: \
                put it on a type alias for each instance that is loaded";
    Err(Error::new(parameter.span(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(item: &str) -> String {
        expand(quote!(), item.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn the_item_stays_and_two_entries_are_added() {
        let images = quote!(impl data::Dataset for some::Images<u8> { type Sample = u8; });
        let lines = quote!(impl IterableDataset for Lines { type Sample = u8; });
        let digits = quote!(
            type Digits = TensorDataset<Tensor<u8>>;
        );
        for (options, item, dataset, entries) in [
            (quote!(), &images, "some::Images<u8>", ["registered_open", "registered_fetch"]),
            (quote!(), &digits, "Digits", ["registered_open", "registered_fetch"]),
            (quote!(), &lines, "Lines", ["registered_iterable_open", "registered_iterable_fetch"]),
            (quote!(iterable,), &digits, "Digits", ["registered_iterable_open", "registered_iterable_fetch"]),
        ] {
            let without_spaces = |text: String| text.replace(' ', "");
            let output = expand(quote!(#options crate = here::there), item.clone()).unwrap();
            let output = without_spaces(output.to_string());
            assert!(output.starts_with(&without_spaces(item.to_string())), "{output}");
            for entry in entries {
                assert!(output.contains(&format!("here::there::hidden::{entry}::<{dataset}>()")), "{output}");
            }
        }
        assert!(expand(quote!(iterable), lines).is_ok());
    }

    #[test]
    fn entries_are_configured_away_with_their_dataset() {
        let item = quote!(
            #[cfg(test)]
            type Digits = TensorDataset<Tensor<u8>>;
        );
        let output = expand(quote!(crate = x), item).unwrap().to_string();
        assert_eq!(output.matches(&quote!(#[cfg(test)]).to_string()).count(), 2, "{output}");
    }

    #[test]
    fn what_cannot_be_registered_is_refused_with_what_to_do() {
        for item in ["impl<T> Dataset for Rows<T> {}", "type Rows<T> = TensorDataset<Tensor<T>>;"] {
            assert!(refusal(item).contains("type alias for each instance"), "{item}");
        }
        for item in ["impl Images {}", "impl Sampler for Images {}", "struct Images;", "fn images() {}"] {
            assert!(refusal(item).contains("is for `impl Dataset for ..`"), "{item}");
        }
        let images = "impl Dataset for Images {}".parse().unwrap();
        let refused = expand(quote!(iterable), images).unwrap_err().to_string();
        assert!(refused.contains("and this is `Dataset`"), "{refused}");
    }
}
