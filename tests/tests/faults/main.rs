//! Bad input: descriptors that are no domains, admissions that are not valid, memory that somebody scribbled
//! over.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod corpora;
mod joining;
mod payloads;
mod scribbled;
mod vandals;
