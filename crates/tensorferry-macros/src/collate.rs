//! The expansion of `#[derive(Collate)]`: a struct of the batches of the fields, and the trait's `impl`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Path, Result, Token, punctuated::Punctuated};

use crate::path::{DATA, Options};

/// What stands in `#[collate(..)]` on the struct.
#[derive(Default)]
struct Settings {
    path: Option<Path>,
    batch: Option<Ident>,
    derives: Vec<Path>,
}

impl Settings {
    fn parse(input: &DeriveInput) -> Result<Self> {
        let mut settings = Self::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("collate")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    settings.path = Some(meta.value()?.call(Path::parse_mod_style)?);
                } else if meta.path.is_ident("batch") {
                    settings.batch = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("derive") {
                    let list;
                    syn::parenthesized!(list in meta.input);
                    settings.derives.extend(Punctuated::<Path, Token![,]>::parse_terminated(&list)?);
                } else {
                    return Err(meta.error(
                        "the options are `batch = Name`, the name of the batch, `derive(..)`, what is derived for it, \
                         and `crate = path`, where tensorferry-data is found",
                    ));
                }
                Ok(())
            })?;
        }
        Ok(settings)
    }
}

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let settings = Settings::parse(&input)?;
    let fields = fields(&input)?;
    let data = Options { path: settings.path }.module(&DATA);
    let serde_path = quote!(#data::hidden::serde).to_string();
    let (name, visibility, derives) = (&input.ident, &input.vis, &settings.derives);
    let batch = settings.batch.unwrap_or_else(|| format_ident!("{name}Batch"));
    let document = format!("A batch of [`{name}`]s.");
    let names: Vec<_> = fields.iter().filter_map(|field| field.ident.as_ref()).collect();
    let texts: Vec<_> = names.iter().map(|name| name.unraw().to_string()).collect();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let visibilities = fields.iter().map(|field| &field.vis);
    let documents = texts.iter().map(|text| format!("What the samples have as `{text}`."));
    // First of all and where the type stands, so that this is the error that is read of a type that has no
    // batch.
    let checks = types.iter().map(|field| quote_spanned!(field.span()=> is_known::<#field>();));
    Ok(quote! {
        const _: fn() = || {
            fn is_known<T: #data::Collate>() {}
            #(#checks)*
        };

        #[doc = #document]
        #[derive(#data::hidden::serde::Serialize, #data::hidden::serde::Deserialize, #(#derives),*)]
        #[serde(crate = #serde_path)]
        #visibility struct #batch {
            #(
                #[doc = #documents]
                #visibilities #names: <#types as #data::Collate>::Batch,
            )*
        }

        const _: () = {
            /// A batch in the making. Not a tuple: a field may have a type that others do not see.
            #visibility struct __Rows {
                #(#names: <#types as #data::Collate>::Rows,)*
            }

            impl #data::Collate for #name {
                type Batch = #batch;
                type Rows = __Rows;

                fn begin(
                    first: &Self,
                    n_samples: usize,
                    heap: &#data::hidden::Heap,
                ) -> ::core::result::Result<__Rows, #data::CollateError> {
                    ::core::result::Result::Ok(__Rows {#(
                        #names: <#types as #data::Collate>::begin(&first.#names, n_samples, heap)
                            .map_err(|error| #data::hidden::of_field(#texts, error))?,
                    )*})
                }

                fn push(
                    rows: &mut __Rows,
                    sample: Self,
                ) -> ::core::result::Result<(), #data::CollateError> {
                    #(
                        <#types as #data::Collate>::push(&mut rows.#names, sample.#names)
                            .map_err(|error| #data::hidden::of_field(#texts, error))?;
                    )*
                    ::core::result::Result::Ok(())
                }

                fn finish(rows: __Rows) -> ::core::result::Result<#batch, #data::CollateError> {
                    ::core::result::Result::Ok(#batch {#(
                        #names: <#types as #data::Collate>::finish(rows.#names)
                            .map_err(|error| #data::hidden::of_field(#texts, error))?,
                    )*})
                }
            }
        };
    })
}

/// The fields of a struct that has some, with names, and is not generic.
fn fields(input: &DeriveInput) -> Result<&Punctuated<Field, Token![,]>> {
    let Data::Struct(data) = &input.data else {
        let text = "`#[derive(Collate)]` is for structs: samples of several kinds do not become one batch, so \
                    implement `Collate` to say what they become";
        return Err(Error::new(input.ident.span(), text));
    };
    if let Some(parameter) = input.generics.params.first() {
        let text = "`#[derive(Collate)]` is not for generic structs: implement `Collate`, with a batch that is generic \
                    too";
        return Err(Error::new(parameter.span(), text));
    }
    let mut attributes = data.fields.iter().flat_map(|field| &field.attrs);
    if let Some(attribute) = attributes.find(|attribute| attribute.path().is_ident("collate")) {
        let text = "`#[collate(..)]` is for the struct: each field becomes what its type says";
        return Err(Error::new(attribute.span(), text));
    }
    match &data.fields {
        Fields::Named(fields) if !fields.named.is_empty() => Ok(&fields.named),
        _ => {
            let text =
                "`#[derive(Collate)]` is for structs with named fields, which are those of the batch too";
            Err(Error::new(input.ident.span(), text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(item: &str) -> String {
        expand(item.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn a_batch_has_the_fields_and_the_visibility_of_its_samples() {
        let output = expand(quote! {
            #[collate(crate = here::there, batch = Photos, derive(Clone, some::Debug))]
            pub(crate) struct Photo { pub pixels: Vec<f32>, label: i64 }
        });
        let output = output.unwrap().to_string();
        for part in [
            quote!(pub(crate) struct Photos),
            quote!(pub pixels: <Vec<f32> as here::there::Collate>::Batch,),
            quote!(label: <i64 as here::there::Collate>::Batch,),
            quote!(Clone, some::Debug),
            quote!(impl here::there::Collate for Photo),
        ] {
            assert!(output.contains(&part.to_string()), "{part} in {output}");
        }
        let output = expand(quote! { struct Photo { label: i64 } }).unwrap().to_string();
        assert!(output.contains("struct PhotoBatch"), "{output}");
    }

    #[test]
    fn what_has_no_batch_by_itself_is_refused_with_what_to_do() {
        for item in ["enum Photo { Small }", "union Photo { a: u8 }"] {
            assert!(refusal(item).contains("is for structs: "), "{item}");
        }
        for item in ["struct Photo;", "struct Photo(u8);", "struct Photo {}"] {
            assert!(refusal(item).contains("named fields"), "{item}");
        }
        assert!(refusal("struct Photo<T> { label: T }").contains("not for generic structs"));
        assert!(refusal("struct Photo { #[collate(skip)] label: u8 }").contains("is for the struct"));
        assert!(refusal("#[collate(name = B)] struct Photo { label: u8 }").contains("the options are"));
    }
}
