//! Prints the assumptions of the software driver about the real one: a question and its answer on each line.
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
