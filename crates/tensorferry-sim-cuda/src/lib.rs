//! A software CUDA driver, for tests on machines without a GPU.
//!
//! Built as a shared library it has the C functions of `libcuda.so` that matter between processes: contexts, streams,
//! events, copies, legacy IPC, virtual memory management, exportable pools, and kernels in a small part of PTX. Device
//! memory is memory files, so it is really shared by real processes, and the kernel of the system counts who holds it.
//! The rules of the real driver are enforced; breaking one is an error and a report ([`Driver::violations`]).
//!
//! Linked as a Rust library the same code is a value, [`Driver`]: several of them in one process are as strange to each
//! other as several processes, so that most rules are tested without starting any.
//!
//! What is assumed about the real driver is a table of questions and answers ([`QUESTIONS`]).
//!
//! # How it is found
//!
//! A package whose tests need the driver has this crate among its dev-dependencies. Cargo then builds the shared library
//! beside the test binaries, [`library_path`] finds it there, and whoever starts a test process hands it the path in the
//! variable that the loader of `tensorferry-cuda-ipc` reads. Nothing has to be installed or set by hand. The library's
//! SONAME is `libcuda.so`, so everything else in the process that asks for a driver by that name gets this one too.
//!
//! # Settings
//!
//! One environment variable, [`SETTINGS_VARIABLE`], read by `cuInit`; [`Settings`] has the grammar. `CUDA_VISIBLE_DEVICES`
//! with ordinals is honoured. While it runs the driver is told more with [`Driver::control`], or from C with
//! `tensorferry_sim_cuda_control(const char *)`.
//!
//! # What is not modelled
//!
//! The implicit waiting between the null stream and blocking streams, per-thread default streams (they are the null
//! stream), graphs, two-dimensional copies, texture and array memory, MIG. Times mean nothing. `/proc/PID/fd` of the
//! other processes must be readable, which it is for processes of one user. A descriptor that is on its way through a
//! socket is not counted by `cuMemGetInfo`.

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

pub use driver::Driver;
pub use library::{environment, library_path};
pub use memory::{AddressRange, PointerAttribute};
pub use questions::{QUESTIONS, Question};
pub use settings::{SETTINGS_VARIABLE, Settings, SettingsError};
pub use status::{Answer, Status};
pub use vmm::AccessFlags;
