//! The expansion of `#[func]`: the function, and an entry in the table of functions.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, ItemFn, Result, Safety, Signature, Type};

use crate::path::Options;

/// The most arguments after the index. `tensorferry-spawn` implements its trait for up to this number.
const MAX_ARGUMENTS: usize = 8;

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(attribute)?;
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), format!("`#[func]` is for functions that stand by themselves: {error}"))
    })?;
    let arguments = arguments(&function.sig)?;
    let spawn = options.module();
    let name = &function.sig.ident;
    // A `cfg` that removes the function must remove its entry too.
    let conditions = function.attrs.iter().filter(|a: &&Attribute| a.path().is_ident("cfg"));
    let tuple = quote!((#(#arguments,)*));
    Ok(quote! {
        #function

        #(#conditions)*
        const _: () = {
            #[#spawn::hidden::linkme::distributed_slice(#spawn::hidden::FUNCTIONS)]
            #[linkme(crate = #spawn::hidden::linkme)]
            static FUNCTION: #spawn::hidden::Registered = #spawn::hidden::Registered::new(
                || #spawn::hidden::Signature::of::<_, #tuple>(&#name),
                |call| #spawn::hidden::Call::run::<_, #tuple>(call, #name),
            );
        };
    })
}

/// The types of the arguments after the index.
fn arguments(signature: &Signature) -> Result<Vec<&Type>> {
    refuse_qualifiers(signature)?;
    let mut types = Vec::new();
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                let text = "`#[func]` cannot register a method: make it a function and pass the value as an argument";
                return Err(Error::new(receiver.span(), text));
            }
            FnArg::Typed(argument) => types.push(&*argument.ty),
        }
    }
    if types.is_empty() {
        let text = "the first argument of a spawned function is the index of its process: add `rank: usize`";
        return Err(Error::new(signature.paren_token.span.join(), text));
    }
    if types.len() - 1 > MAX_ARGUMENTS {
        let text = format!(
            "a spawned function has at most {MAX_ARGUMENTS} arguments after its index, this one has {}: put some into \
             a struct",
            types.len() - 1
        );
        return Err(Error::new(signature.inputs.span(), text));
    }
    for ty in &types {
        refuse_type(ty)?;
    }
    types.remove(0);
    Ok(types)
}

fn refuse_qualifiers(signature: &Signature) -> Result<()> {
    let refuse = |span, text: &str| Err(Error::new(span, text));
    if let Some(parameter) = signature.generics.params.first() {
        let text = "`#[func]` cannot register a generic function, because each of its instances is another function: \
                    register a function that is not generic and calls it";
        return refuse(parameter.span(), text);
    }
    if let Some(asyncness) = &signature.asyncness {
        let text = "`#[func]` cannot register an async function: register a function that starts a runtime and \
                    blocks on it";
        return refuse(asyncness.span(), text);
    }
    if let Safety::Unsafe(unsafety) = &signature.safety {
        return refuse(
            unsafety.span(),
            "`#[func]` cannot register an unsafe function: register a safe one that calls it",
        );
    }
    if let Some(abi) = &signature.abi {
        return refuse(
            abi.span(),
            "`#[func]` cannot register an extern function: register a Rust function that calls it",
        );
    }
    Ok(())
}

fn refuse_type(ty: &Type) -> Result<()> {
    match ty {
        Type::Reference(reference) => {
            let text =
                "arguments of a spawned function travel to another process by value: use an owned type";
            Err(Error::new(reference.span(), text))
        }
        Type::ImplTrait(generic) => {
            let text = "`impl Trait` makes the function generic, and `#[func]` cannot register generic functions: \
                        name the type";
            Err(Error::new(generic.span(), text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(attribute: TokenStream, item: TokenStream) -> String {
        expand(attribute, item).unwrap_err().to_string()
    }

    #[test]
    fn the_function_stays_and_an_entry_is_added() {
        let function = quote!(
            fn work(rank: usize, a: Vec<u8>, b: f32) -> Result<(), String> {
                Ok(())
            }
        );
        let output = expand(quote!(crate = here::there), function.clone()).unwrap().to_string();
        assert!(output.starts_with(&function.to_string()), "{output}");
        assert!(output.contains(&quote!(here::there::hidden::FUNCTIONS).to_string()), "{output}");
        assert!(output.contains(&quote!((Vec<u8>, f32,)).to_string()), "{output}");
    }

    #[test]
    fn an_entry_is_configured_away_with_its_function() {
        let output = expand(
            quote!(crate = x),
            quote!(
                #[cfg(test)]
                fn work(rank: usize) {}
            ),
        )
        .unwrap()
        .to_string();
        assert_eq!(output.matches(&quote!(#[cfg(test)]).to_string()).count(), 2, "{output}");
    }

    #[test]
    fn what_cannot_be_registered_is_refused_with_what_to_do() {
        let cases = [
            ("fn f<T>(rank: usize, a: T) {}", "generic function"),
            ("fn f<const N: usize>(rank: usize) {}", "generic function"),
            ("fn f<'a>(rank: usize, a: &'a str) {}", "generic function"),
            ("fn f(rank: usize, a: impl Copy) {}", "name the type"),
            ("fn f(rank: usize, a: &str) {}", "use an owned type"),
            ("async fn f(rank: usize) {}", "async function"),
            ("unsafe fn f(rank: usize) {}", "unsafe function"),
            ("extern \"C\" fn f(rank: usize) {}", "extern function"),
            ("fn f(&self, rank: usize) {}", "cannot register a method"),
            ("fn f() {}", "add `rank: usize`"),
            ("fn f(r: usize, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8) {}", "at most 8"),
            ("struct S;", "functions that stand by themselves"),
        ];
        for (item, part) in cases {
            let text = refusal(quote!(), item.parse().unwrap());
            assert!(text.contains(part), "{item}: {text}");
        }
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_known_one() {
        let text = refusal(
            quote!(name = "x"),
            quote!(
                fn f(rank: usize) {}
            ),
        );
        assert!(text.contains("`crate = path`"), "{text}");
        assert!(
            !refusal(
                quote!(crate = a, b),
                quote!(
                    fn f(rank: usize) {}
                )
            )
            .is_empty()
        );
    }
}
