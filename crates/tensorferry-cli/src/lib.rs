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
//! domain 4296117046: 1.21 GiB of 20.3 GiB; 1 member has ended
//! held: 1,204 tensors and other data (1.14 GiB), 1 queue (6.50 KiB)
//!
//!  SLOT   PID  NAME    STATE    HOLDS     BYTES     ALONE      OWNS    CACHED  COMMAND
//!     0  4711  train   live     1,205  1.14 GiB  1.02 GiB  1.21 GiB  70.1 MiB  ./train
//!     1  4712  loader  stopped     12  12.0 MiB       0 B       0 B       0 B  ./train
//!
//!  QUEUE   ITEMS     BYTES  LEASED    PUT  PER S  SENDERS  RECEIVERS  STATE
//!  524352    8/8  96.0 MiB          9,120      0  0        1          full
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
