//! Kernels: an interpreter for a small part of PTX, so that the text which a real driver compiles runs here too.
//!
//! Covered are integer and 32-bit floating-point arithmetic, comparisons, branches, loads, stores and atomic additions
//! in global memory, parameters, and the special registers of the grid. There is no shared memory and no barrier: threads
//! run one after the other. An instruction that is not covered is refused when the module is loaded.

mod parse;
mod run;

pub(crate) use parse::Kernel;
pub(crate) use run::Grid;
