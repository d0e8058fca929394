//! The path to `tensorferry-spawn` in the output of the attribute.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Path, Token};

/// The options in the parentheses of the attribute: nothing, or `crate = path`.
pub(crate) struct Options {
    path: Option<Path>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Self { path: None });
        }
        if !input.peek(Token![crate]) {
            return Err(input.error("the only option is `crate = path`, where `tensorferry_spawn` is found"));
        }
        input.parse::<Token![crate]>()?;
        input.parse::<Token![=]>()?;
        let path = input.call(Path::parse_mod_style)?;
        if !input.is_empty() {
            return Err(input.error("expected nothing after `crate = path`"));
        }
        Ok(Self { path: Some(path) })
    }
}

impl Options {
    /// The path of the module that contains `hidden`.
    pub(crate) fn module(&self) -> TokenStream {
        if let Some(path) = &self.path {
            return quote!(#path);
        }
        let named = |found: &FoundCrate, own_name: &str| {
            // A package's own examples and tests see the package under its own name.
            let name = match found {
                FoundCrate::Itself => own_name,
                FoundCrate::Name(name) => name,
            };
            Ident::new(name, Span::call_site())
        };
        if let Ok(found) = crate_name("tensorferry-spawn") {
            let name = named(&found, "tensorferry_spawn");
            quote!(::#name)
        } else if let Ok(found) = crate_name("tensorferry") {
            let name = named(&found, "tensorferry");
            quote!(::#name::spawn)
        } else {
            quote!(::tensorferry_spawn)
        }
    }
}
