//! The expansion of `#[func]`: the function, and an entry in the table of functions.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, ItemFn, PathArguments, Result, ReturnType, Safety, Signature,
    Type, TypeParamBound,
};

use crate::path::{Options, SPAWN};

/// The most arguments after the index. `tensorferry-spawn` implements its trait for up to this number.
const MAX_ARGUMENTS: usize = 8;

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(attribute)?;
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), format!("`#[func]` is for functions that stand by themselves: {error}"))
    })?;
    let arguments = arguments(&function.sig)?;
    let spawn = options.module(&SPAWN);
    let name = &function.sig.ident;
    // A `cfg` that removes the function must remove its entry too.
    let conditions = function.attrs.iter().filter(|a: &&Attribute| a.path().is_ident("cfg"));
    let tuple = quote!((#(#arguments,)*));
    Ok(quote! {
        #function

        #(#conditions)*
        #spawn::hidden::a_registered_function_is_a_free_function_not_in_an_impl! {
            #[#spawn::hidden::linkme::distributed_slice(#spawn::hidden::FUNCTIONS)]
            #[linkme(crate = #spawn::hidden::linkme)]
            static FUNCTION: #spawn::hidden::Registered = #spawn::hidden::Registered::new(
                || #spawn::hidden::Signature::of::<_, #tuple>(&#name),
                |__call| #spawn::hidden::Call::run::<_, #tuple>(__call, #name),
                |__task| #spawn::hidden::Task::run::<_, #tuple>(__task, #name),
            );
        }
    })
}

/// The types of the arguments after the index.
fn arguments(signature: &Signature) -> Result<Vec<&Type>> {
    refuse_qualifiers(signature)?;
    if let Some(span) = self_type(signature.to_token_stream()) {
        let text = "a registered function is a free function, not in an `impl`: move it out, and name the type instead \
                    of `Self`";
        return Err(Error::new(span, text));
    }
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
    refuse_error(&signature.output)?;
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

/// Where the type `Self` is written.
fn self_type(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) => (ident == "Self").then(|| ident.span()),
        TokenTree::Group(group) => self_type(group.stream()),
        _ => None,
    })
}

/// Refuses `Box<dyn Error>`, which no other thread may have. The compiler would refuse it too, in two long
/// errors.
fn refuse_error(output: &ReturnType) -> Result<()> {
    let ReturnType::Type(_, output) = output else { return Ok(()) };
    let error = last_argument(output, "Result").and_then(|error| last_argument(error, "Box"));
    let Some(Type::TraitObject(error)) = error else { return Ok(()) };
    let has = |name: &str| {
        let mut bounds = error.bounds.iter();
        bounds.any(|bound| match bound {
            TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == name),
            _ => false,
        })
    };
    if has("Error") && !(has("Send") && has("Sync")) {
        let text = "the error of a spawned function must be `Send` and `Sync`: write `Box<dyn Error + Send + Sync>`, or \
                    its short name `BoxedError` (`tensorferry::BoxedError`, `tensorferry_spawn::BoxedError`)";
        return Err(Error::new(error.span(), text));
    }
    Ok(())
}

/// The last type argument of a type that is called `name`, in any module.
fn last_argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.last()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
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
            ("fn f(rank: usize, a: Vec<Self>) {}", "not in an `impl`"),
            ("fn f(rank: usize) -> Result<Self, String> {}", "not in an `impl`"),
            ("fn f(rank: usize) -> Result<(), Box<dyn Error>> {}", "write `Box<dyn Error + Send + Sync>`"),
            (
                "fn f(rank: usize) -> std::result::Result<u8, Box<dyn std::error::Error + Send>> {}",
                "BoxedError",
            ),
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
    fn errors_that_can_be_boxed_are_left_to_the_compiler() {
        for error in
            ["Box<dyn Error + Send + Sync>", "Box<dyn Send + Sync + std::error::Error>", "Box<MyError>", "E"]
        {
            let item = format!("fn f(rank: usize) -> Result<(), {error}> {{}}");
            assert!(expand(quote!(crate = x), item.parse().unwrap()).is_ok(), "{item}");
        }
        // An error is the last argument of a `Result`, and nowhere else.
        let item = "fn f(rank: usize) -> Vec<Box<dyn Error>> {}";
        assert!(expand(quote!(crate = x), item.parse().unwrap()).is_ok());
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
