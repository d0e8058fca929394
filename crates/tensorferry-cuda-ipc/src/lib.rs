//! CUDA device memory between processes.
//!
//! [`CudaTensor`] is a tensor in the memory of a device. It is made on a stream, used on streams, and travels through
//! queues and spawn arguments as a handle, beside tensors of the host. Nothing of CUDA is needed to build. **All of it was shown
//! on a software driver only: no real GPU has run it yet.** A machine without a driver or a device is no reason to panic:
//! [`Driver::load`] answers an error for which [`CudaError::is_no_device`] is true.
//!
//! ```
//! use tensorferry_cuda_ipc::{CudaTensor, Driver, Stream};
//!
//! let driver = match Driver::load() {
//!     Ok(driver) => driver,
//!     Err(error) if error.is_no_device() => {
//!         println!("no CUDA here: {error}");
//!         return Ok(());
//!     }
//!     Err(error) => return Err(error.into()),
//! };
//! let stream = Stream::create(&driver.device(0)?.retain_primary_context()?)?;
//! let columns = CudaTensor::<f32>::zeros(&stream, [1024, 3])?;
//! columns.write_from(&stream, &vec![1.0; 3072])?;
//! let column = columns.select(1, 0)?;
//! println!("device address {:#x}", column.on(&stream)?.address());
//! assert_eq!(column.to_vec(&stream)?, vec![1.0; 1024]);
//! // Or into memory that is there.
//! let mut row = [0.0; 3];
//! columns.select(0, 7)?.read_into(&stream, &mut row)?;
//! assert_eq!(row, [1.0; 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Send and receive
//!
//! A tensor is a serde value that can be in any message which carries handles: in a queue (`tensorferry-queue`), among the arguments
//! of a process (`tensorferry-spawn`), or in a [`Parcel`](tensorferry_reduce::Parcel), which needs no other crate. The number
//! of a parcel is all that has to get to the other process, a member of the same domain.
//!
//! ```
//! use std::error::Error;
//!
//! use tensorferry_cuda_ipc::{CudaTensor, Driver, Stream};
//! use tensorferry_reduce::Parcel;
//! use tensorferry_storage::Heap;
//!
//! fn send(heap: &Heap, stream: &Stream) -> Result<Parcel, Box<dyn Error>> {
//!     let tensor = CudaTensor::from_slice_in(heap, stream, &[1.0_f32, 2.0, 3.0], [3])?;
//!     // Behind all that was queued for it. The tensor may go then; the parcel stays until it was opened.
//!     Ok(Parcel::pack(heap, &tensor)?)
//! }
//!
//! fn receive(heap: &Heap, stream: &Stream, id: u64) -> Result<Vec<f32>, Box<dyn Error>> {
//!     // Asks the driver for nothing.
//!     let tensor: CudaTensor<f32> = Parcel::open(heap, id)?;
//!     // Maps the memory, and has the stream wait for the sender's.
//!     Ok(tensor.to_vec(stream)?)
//! }
//!
//! # let driver = match Driver::load() {
//! #     Err(error) if error.is_no_device() => return Ok(()),
//! #     answer => answer?,
//! # };
//! # let stream = Stream::create(&driver.device(0)?.retain_primary_context()?)?;
//! # let heap = Heap::current()?;
//! let parcel = send(heap, &stream)?;
//! assert_eq!(receive(heap, &stream, parcel.id())?, [1.0, 2.0, 3.0]);
//! # Ok::<(), Box<dyn Error>>(())
//! ```
//!
//! (Where there is a driver this runs; `cargo xtask test` has it run on the software driver.)
//!
//! - **Who has to live until when.** The *memory* of a tensor by the strategy vmm, or of a staged one, outlives its maker. By the
//!   others, and so of one that was shared from cudarc without a copy, the maker has to live until everybody is done with it
//!   (else [`CudaTensorError::MemoryGone`]); how they tell each other is the program's business. Whether it has to stay,
//!   [`CudaTensor::outlives_maker`] tells.
//! - **The contents need the sender** until its stream has written them. A process that ends normally waits for that, for 10 s at
//!   most. One that is killed, or calls `_exit`, does not, and the receiver gets [`CudaTensorError::ProducerGone`].
//!   `stream.synchronize()` before `put` excludes it.
//! - **Who made the domain**, usually the process that called `start_processes`, has to live until each receiver has used
//!   something of the tensor's slab once, on each device: it hands over the descriptor. Else the receiver gets
//!   [`CudaTensorError::FdStore`] (`Gone`). A slab that was dropped since ([`CacheLimits::idle_slabs`]) is asked for again.
//! - **Both can write it afterwards.** Before the sender overwrites what it has sent, it gets the tensor back from the
//!   receiver, or an [`IpcEvent`], and brings it on its stream: `back.get()?.on(&stream)?`. The example `cuda_columns` does that.
//! - **A message orders what it carries.** The tensor that comes out of it waits for the sender. Another handle on the same memory
//!   that the receiver already holds does not: what the sender has queued since is not waited for on that one. Use the
//!   tensor that came last, or an [`IpcEvent`].
//! - **A device that cannot reach another** gets [`CudaError::NoPeerAccess`], when it uses a tensor, not when it receives it.
//!   [`Device::can_access`] tells before, for the device of [`CudaTensor::device_uuid`]. The sender's way out is
//!   [`CudaTensor::to_staged`]; a receiver that sees the tensor's device ([`Driver::device_by_uuid`]) can do the same on a stream
//!   of that device.
//!
//! # CUDA graphs
//!
//! No tensor is made, brought on a stream or sent while that stream captures ([`CudaError::Capturing`]). The address of a tensor
//! on a device does not change as long as this process has the tensor. So call [`CudaTensor::on`] and take the address first,
//! then capture with it; keep the tensor as long as the graph; and call `tensor.on(&stream)?` again before each launch of
//! the graph, so that the stream waits for the sender, and others for the graph. `put` fails while any stream that the
//! tensor was used on here captures. The software driver begins and ends captures and refuses what they forbid; it makes no graph.
//!
//! # How it works
//!
//! - **Memory** is made in *slabs*, by `cuMemCreate`. Small tensors share one; a slab crosses into another process once, as a
//!   descriptor, and whatever lies in it is an offset from then on. A receiver can reach the neighbours of a tensor in its slab, too:
//!   handles are for processes that trust each other. The descriptor is *stored* in the process that made the domain, its
//!   *descriptor store*, before the first message names the slab, so a maker may end at any time.
//! - **Other strategies** ([`CudaStrategy`]) serve devices without that, and memory that another library allocated: *legacy*, handles
//!   of `cuIpcGetMemHandle`, and pools that can be exported. Such memory goes with the process that made it. *Lent* is memory of
//!   another library that is shared as it is, without a copy.
//! - **Who holds what** is said by holder bits in the domain, as for memory of the host: each slab and each storage has a
//!   block there. Memory that a killed process held comes back. Where it also *used* it the slab is *poisoned*: a device may still be at
//!   it, so no tensor is made in that slab any more, and it goes back to the driver once the rest of it is free
//!   ([`DeviceStats::slabs_poisoned`]). A slab that is given up is *dying* until no device is at it, and no other process has it
//!   open where that matters.
//! - **Order.** Sending makes a *point* on the stream, which is an event that is recorded there, and receiving waits for it, whether
//!   the memory is mapped already or not. A process that lets go of a tensor keeps its holder bit until its own streams are done
//!   with it.
//! - [`IpcEvent`] is an event that travels by itself, for an order that goes beyond one tensor.
//! - **Below** are [`Driver`], [`Device`] (known by [`Uuid`], whatever number a process gives it), [`PrimaryContext`],
//!   [`Stream`], and [`DeviceMemory`] with its [`DeviceMapping`].
//!
//! # Features
//!
//! - `cudarc`: a [`Stream`] from an `Arc<CudaStream>`, a tensor on a stream as a `CudaSlice`, a tensor with a copy of a
//!   `CudaSlice`, or over the very memory of one (`CudaTensor::share`). Needs no CUDA to build either, unless something else in the build asks cudarc to link.
//!
//! # What it needs
//!
//! - Linux and a driver of CUDA 11.4 or later ([`Driver::version`] of 11040): the newest function without which nothing works is
//!   `cuDeviceGetUuid_v2`. That is by NVIDIA's reference; no such driver was tried. An older one is
//!   [`CudaError::MissingSymbol`].
//! - With the feature `cudarc`: cudarc 0.19, which is re-exported. Its `load_module` wants cudarc's own feature `nvrtc`, which the
//!   program turns on; NVRTC itself is not needed for kernels in PTX.
//!
//! # Which driver
//!
//! [`DRIVER_VARIABLE`] names a library and nothing else is tried; without it `libcuda.so.1` and `libcuda.so` are. cudarc
//! looks for `libcuda.so` by itself; that the two have found the same driver is checked where a stream comes from it. The
//! software driver answers to that name once it is loaded, so call [`Driver::load`] before the first call of cudarc.
//!
//! # To test a program without a GPU
//!
//! The software driver is the crate `tensorferry-sim-cuda`, which is not published: make it a dev-dependency by its path, and cargo
//! builds the library. `tensorferry_sim_cuda::environment(DRIVER_VARIABLE, "devices=2")` is the two variables with which a process
//! finds it and has two devices; hand them to the processes that the test starts (`Options::env` of `tensorferry-spawn`), as
//! `cuda_ranks` does for `--simulate`. It runs a small part of PTX, and times mean nothing. What else it does not model stands in
//! its documentation.

#[cfg(feature = "cudarc")]
mod lent_slice;
#[cfg(feature = "cudarc")]
mod share;

mod capture;
mod context;
mod device;
mod driver;
mod event;
mod mapping;
mod memory;
mod raw;
mod refused;
mod stream;
mod table;

mod allocation;
#[cfg_attr(
    not(feature = "cudarc"),
    expect(dead_code, reason = "cudarc is the one library whose memory is shared")
)]
mod backing;
mod control;
mod exportable_pool;
mod opened;
mod pinning;
mod pool;
#[cfg_attr(
    not(feature = "cudarc"),
    expect(dead_code, reason = "cudarc is the one library whose memory is shared")
)]
mod registry;
#[cfg_attr(
    not(feature = "cudarc"),
    expect(dead_code, reason = "cudarc is the one library whose memory is shared")
)]
mod slab;
mod stats;
mod storage;
mod stored_pool;
mod strategy;
mod tick;
mod timeline;

mod ipc_event;
mod tensor;
mod wire;

mod error;
mod tensor_error;

pub use context::{CurrentContext, MemoryInfo, PrimaryContext};
/// The version of cudarc whose types are at the surface.
#[cfg(feature = "cudarc")]
#[doc(no_inline)]
pub use cudarc;
pub use device::{Device, Uuid};
pub use driver::Driver;
pub use error::{CudaError, Result};
pub use exportable_pool::use_exportable_pool;
pub use ipc_event::IpcEvent;
#[cfg(feature = "cudarc")]
pub use lent_slice::LentSlice;
pub use mapping::DeviceMapping;
pub use memory::DeviceMemory;
#[cfg(feature = "cudarc")]
pub use share::{ShareError, ShareOptions};
pub use stats::{
    CacheLimits, DeviceStats, DeviceUsage, device_stats, empty_cache, ipc_collect, set_cache_limits,
};
pub use strategy::{
    CudaStrategy, ParseCudaStrategyError, get_all_cuda_strategies, get_cuda_strategy, set_cuda_strategy,
};
pub use stream::Stream;
pub use table::DRIVER_VARIABLE;
pub use tensor::{CudaTensor, OnStream};
pub use tensor_error::CudaTensorError;
