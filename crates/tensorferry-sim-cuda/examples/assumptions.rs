//! Prints what the software driver assumes about the real one: question and answer, a line for each.
//!
//! ```text
//! cargo run -p tensorferry-sim-cuda --example assumptions
//! ```

#![expect(clippy::print_stdout, reason = "an example shows something")]

use tensorferry_sim_cuda::{QUESTIONS, library_path};

fn main() {
    for question in QUESTIONS {
        println!("{}: {}? {}", question.id, question.asks, question.answer);
    }
    println!("{} questions", QUESTIONS.len());
    match library_path() {
        Some(path) => println!("the driver: {}", path.display()),
        None => println!("the driver was not built"),
    }
}
