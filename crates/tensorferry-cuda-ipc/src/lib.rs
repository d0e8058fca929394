//! CUDA device memory between processes.
//!
//! The lowest room of the crate: a driver that is found at run time, its devices, and memory that outlives whoever made
//! it. Nothing of CUDA is needed to build. A machine without a driver is no reason to panic: [`Driver::load`] answers
//! [`CudaError::DriverNotFound`].
//!
//! ```
//! use tensorferry_cuda_ipc::{CudaError, Driver};
//!
//! match Driver::load() {
//!     Ok(driver) => println!("{} devices", driver.devices()?.len()),
//!     Err(error @ CudaError::DriverNotFound { .. }) => println!("no CUDA here: {error}"),
//!     Err(error) => return Err(error),
//! }
//! # Ok::<(), CudaError>(())
//! ```
//!
//! - [`Driver`] is the library, loaded; [`Device`] one of its devices, known by [`Uuid`] whatever number a process gives it;
//!   [`PrimaryContext`] holds the context that every library in a process shares.
//! - [`DeviceMemory`] is memory of a device, by `cuMemCreate`. It leaves the process as a descriptor
//!   ([`DeviceMemory::export`]) and comes into another one ([`DeviceMemory::import`]). It lives as long as anybody has a
//!   handle, a mapping or a descriptor.
//! - [`DeviceMapping`] is its place among the addresses of this process.
//!
//! # Which driver
//!
//! [`DRIVER_VARIABLE`] names a library and nothing else is tried; without it `libcuda.so.1` and `libcuda.so` are. Tests
//! without a GPU name the software driver of `tensorferry-sim-cuda` there.
//!
//! # Where this goes
//!
//! The surface of later versions is `CudaTensor`, made on a stream of the program, `Arc<CudaStream>` of cudarc, from and
//! into its `CudaSlice` and views. This room stays below it, with its own table of functions and its own structures: a
//! missing function is an error here, a code that is new in the driver is a number, and no version of cudarc's bindings
//! is part of the contract. Both use the same primary context, so they are the same driver to each other.

mod context;
mod device;
mod driver;
mod error;
mod mapping;
mod memory;
mod raw;
mod table;

pub use context::{CurrentContext, PrimaryContext};
pub use device::{Device, Uuid};
pub use driver::Driver;
pub use error::{CudaError, Result};
pub use mapping::DeviceMapping;
pub use memory::DeviceMemory;
pub use table::DRIVER_VARIABLE;
