//! The path to the crate that an attribute belongs to, in its output.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Path, Token};

/// The options in the parentheses of the attribute: nothing, or `crate = path`.
pub(crate) struct Options {
    pub(crate) path: Option<Path>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Self { path: None });
        }
        if !input.peek(Token![crate]) {
            return Err(
                input.error("the only option is `crate = path`, where the crate of the attribute is found")
            );
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

/// Where an attribute's crate is found.
pub(crate) struct Home {
    /// The package.
    package: &'static str,
    /// What it is called in code.
    name: &'static str,
    /// Its module in the facade.
    module: &'static str,
}

/// That of `#[func]`.
pub(crate) const SPAWN: Home =
    Home { package: "tensorferry-spawn", name: "tensorferry_spawn", module: "spawn" };

/// That of `#[dataset]`.
pub(crate) const DATA: Home = Home { package: "tensorferry-data", name: "tensorferry_data", module: "data" };

impl Options {
    /// The path of the module that contains `hidden`.
    pub(crate) fn module(&self, home: &Home) -> TokenStream {
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
        if let Ok(found) = crate_name(home.package) {
            let name = named(&found, home.name);
            quote!(::#name)
        } else if let Ok(found) = crate_name("tensorferry") {
            let (name, module) = (named(&found, "tensorferry"), Ident::new(home.module, Span::call_site()));
            quote!(::#name::#module)
        } else {
            let name = Ident::new(home.name, Span::call_site());
            quote!(::#name)
        }
    }
}
