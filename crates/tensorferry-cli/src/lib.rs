//! What works on a machine, and which processes share what: the program `tensorferry`, as a library.
//!
//! ```text
//! $ tensorferry doctor
//! works    kernel          Linux 6.18.5
//! works    memory file     sealed, by file_descriptor
//! limited  address space   16.0 GiB for each domain, 1.00 TiB where nothing limits it
//!                          -> raise the limits of address space and of a file's size (ulimit -v, ulimit -f)
//! ...
//! $ tensorferry top
//! domain 1000fa3c1: 1.21 GiB of 20.3 GiB, 0 deaths
//! held: 1,204 tensors and other data (1.14 GiB), 2 queues (6.50 KiB)
//!
//!  SLOT   PID  STATE  HOLDS     BYTES     ALONE      OWNS    CACHED  COMMAND
//!     0  4711  live   1,206  1.14 GiB  1.02 GiB  1.21 GiB  70.1 MiB  ./train
//!     1  4712  live      12  12.0 MiB       0 B       0 B       0 B  ./train
//!
//!  QUEUE  ITEMS  LEASED    PUT  PER S  SENDERS  RECEIVERS  STATE
//!  84040    8/8          9,120    420  0        1          full
//! ```
//!
//! Both have `--json`, for programs. What `top` shows, a program has from `tensorferry-inspect`.
//!
//! ```
//! use tensorferry_cli::{Outcome, run};
//!
//! let mut text = Vec::new();
//! assert_eq!(run(["top", "--once"], &mut text, || None)?, Outcome::Well);
//! assert!(!text.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bytes;
mod doctor;
mod options;
mod run;
mod top;

pub use run::{Outcome, run};
