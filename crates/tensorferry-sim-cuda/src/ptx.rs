//! Kernels: an interpreter for a small part of PTX, so that the text that a real driver compiles runs here
//! too.
//!
//! It covers integer and 32-bit floating-point arithmetic, comparisons, branches, loads, stores and atomic
//! additions in global memory, parameters, and the special registers of the grid. There is no shared memory
//! and no barrier: threads run one after the other. A module that uses any other instruction is refused when
//! it is loaded.

mod parse;
mod run;

pub(crate) use parse::Kernel;
pub(crate) use run::Grid;
