//! The expansion of `#[dataset]`: the item, and two entries in the table of functions.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Generics, Item, Result};

use crate::path::{DATA, Options};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(attribute)?;
    let item: Item = syn::parse2(item)?;
    let (dataset, attributes) = dataset(&item)?;
    let data = options.module(&DATA);
    // A `cfg` that removes the dataset must remove its entries too.
    let conditions: Vec<_> = attributes.iter().filter(|a| a.path().is_ident("cfg")).collect();
    Ok(quote! {
        #item

        #(#conditions)*
        const _: () = {
            #[#data::hidden::linkme::distributed_slice(#data::hidden::FUNCTIONS)]
            #[linkme(crate = #data::hidden::linkme)]
            static OPEN: #data::hidden::Registered = #data::hidden::registered_open::<#dataset>();

            #[#data::hidden::linkme::distributed_slice(#data::hidden::FUNCTIONS)]
            #[linkme(crate = #data::hidden::linkme)]
            static FETCH: #data::hidden::Registered = #data::hidden::registered_fetch::<#dataset>();
        };
    })
}

/// The type that the item makes a dataset, or gives a name.
fn dataset(item: &Item) -> Result<(TokenStream, &[Attribute])> {
    match item {
        Item::Impl(item) => {
            refuse_generics(&item.generics)?;
            let is_dataset = item
                .trait_
                .as_ref()
                .is_some_and(|(path, _)| path.segments.last().is_some_and(|last| last.ident == "Dataset"));
            if !is_dataset {
                let text = "`#[dataset]` is for `impl Dataset for ..`, or for a type alias of a dataset";
                return Err(Error::new(item.self_ty.span(), text));
            }
            Ok((item.self_ty.to_token_stream(), &item.attrs))
        }
        Item::Type(alias) => {
            refuse_generics(&alias.generics)?;
            Ok((alias.ident.to_token_stream(), &alias.attrs))
        }
        other => {
            let text = "`#[dataset]` is for `impl Dataset for ..`, or for a type alias of a dataset";
            Err(Error::new(other.span(), text))
        }
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
        for (item, dataset) in [
            (quote!(impl data::Dataset for some::Images<u8> { type Sample = u8; }), quote!(some::Images<u8>)),
            (
                quote!(
                    type Digits = TensorDataset<Tensor<u8>>;
                ),
                quote!(Digits),
            ),
        ] {
            let without_spaces = |text: String| text.replace(' ', "");
            let output = expand(quote!(crate = here::there), item.clone()).unwrap();
            let output = without_spaces(output.to_string());
            assert!(output.starts_with(&without_spaces(item.to_string())), "{output}");
            for entry in ["registered_open", "registered_fetch"] {
                let entry = without_spaces(format!("here::there::hidden::{entry}::<{dataset}>()"));
                assert!(output.contains(&entry), "{output}");
            }
        }
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
    }
}
