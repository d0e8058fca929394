//! A software CUDA driver, for tests on machines without a GPU.
//!
//! As a shared library it exports the C functions of `libcuda.so` that matter between processes: contexts,
//! streams, events, copies, legacy IPC, virtual memory management, exportable pools, and kernels in a small
//! part of PTX. Device memory is memory files, so real processes really share it, and the operating system
//! counts which of them hold it. The driver enforces the rules of the real driver. Breaking a rule is an
//! error and a report ([`Driver::violations`]).
//!
//! As a Rust library the same code is a value, [`Driver`]. Several drivers in one process are as separate as
//! several processes, so most rules are tested without starting any process.
//!
//! A table of questions and answers ([`QUESTIONS`]) lists what is assumed about the real driver.
//!
//! # How it is found
//!
//! A package whose tests need the driver has this crate among its dev-dependencies. Cargo then builds the
//! shared library next to the test binaries, and [`library_path`] finds it there. The test passes the path to
//! each process that it starts, in the variable that the loader of `tensorferry-cuda-ipc` reads. Nothing has
//! to be installed or set by hand. The library's SONAME is `libcuda.so`, so all other code in the process
//! that loads a driver by that name gets this one too.
//!
//! # Settings
//!
//! `cuInit` reads one environment variable, [`SETTINGS_VARIABLE`]; [`Settings`] has the grammar.
//! `CUDA_VISIBLE_DEVICES` with ordinals is honoured. [`Driver::control`] changes some settings of a running
//! driver; from C it is `tensorferry_sim_cuda_control(const char *)`.
//!
//! # What is not modelled
//!
//! - The implicit waiting between the null stream and blocking streams.
//! - Per-thread default streams: they are the null stream.
//! - Graphs, two-dimensional copies, texture and array memory, MIG.
//! - Time: timings mean nothing.
//!
//! `/proc/PID/fd` of the other processes must be readable, which it is for processes of one user.
//! `cuMemGetInfo` does not count a descriptor that is in flight through a socket.

mod abi;
mod access;
mod address_space;
mod arena;
mod capture;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod exit;
mod exports;
mod fault;
mod handles;
mod host;
mod identity;
mod legacy;
mod library;
mod mapping;
mod memory;
mod memory_file;
mod module;
mod pool;
mod ptx;
mod questions;
#[cfg(test)]
mod rules;
mod settings;
mod status;
mod stream;
mod token;
mod vmm;
mod word;

pub use driver::Driver;
pub use library::{environment, library_path};
pub use memory::{AddressRange, PointerAttribute};
pub use questions::{QUESTIONS, Question};
pub use settings::{SETTINGS_VARIABLE, Settings, SettingsError};
pub use status::{Answer, Status};
pub use vmm::AccessFlags;
