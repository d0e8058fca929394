//! CUDA device memory shared between processes.
//!
//! A [`CudaTensor`] is a tensor in the memory of a device. It is made on a stream and used on streams. It
//! travels through queues and spawn arguments as a handle, next to tensors of the host.
//!
//! All of this runs in tests on a software driver, and was run on an NVIDIA H200 with a driver of CUDA 13.0
//! (`docs/gpu` has the record). What takes several devices has run on the software driver only.
//!
//! Building needs nothing of CUDA. A machine without a driver or a device is an error, not a panic:
//! [`Driver::load`] returns an error for which [`CudaError::is_no_device`] is true.
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
//! A tensor is a serde value. It can be part of any message that carries handles: an item of a queue
//! (`tensorferry-queue`), an argument of a process (`tensorferry-spawn`), or a
//! [`Parcel`](tensorferry_reduce::Parcel), which needs no other crate. Only the number of a parcel has to
//! reach the other process, which must be a member of the same domain.
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
//! (This example runs where there is a driver; `cargo xtask test` runs it on the software driver.)
//!
//! ## Batches for a device
//!
//! A loader makes batches in memory of the host. [`CudaTensor::from_tensor_non_blocking`] copies one into
//! page-locked memory and returns; the device takes it from there while the program does something else. The
//! batch may be dropped at once, so that its memory is used for the next one.
//!
//! ## Which processes must stay alive
//!
//! - **The maker of the memory.** Memory of the strategy vmm, and of a staged tensor, outlives its maker.
//!   With the other strategies the maker must live until every user is done, or the users get
//!   [`CudaTensorError::MemoryGone`]. This includes a tensor that was shared from cudarc without a copy. How
//!   the users report that they are done is up to the program. [`CudaTensor::outlives_maker`] tells whether
//!   the maker must stay.
//! - **The sender**, until its stream has written the contents. A process that ends normally waits for its
//!   stream, for at most 10 s. A process that is killed or calls `_exit` does not wait, and the receiver gets
//!   [`CudaTensorError::ProducerGone`]. A stream of the receiver that waits for the sender by then goes on
//!   without it, and calls that wait for the stream say so ([`CudaError::WaitCutShort`],
//!   [`CudaTensor::is_written`]). Calling `stream.synchronize()` before `put` excludes this.
//! - **The process that made the domain**, usually the caller of `start_processes`. It hands over the
//!   descriptor of each slab. It must live until each receiver has used some tensor of the slab once, on each
//!   device, or the receiver gets [`CudaTensorError::FdStore`] (`Gone`). A receiver that has dropped a slab
//!   since ([`CacheLimits::idle_slabs`]) asks for its descriptor again.
//!
//! ## Order of reads and writes
//!
//! - **After a send, both processes can write the tensor.** Before the sender overwrites it, the sender gets
//!   the tensor back from the receiver, or an [`IpcEvent`], and makes its stream wait for that:
//!   `back.get()?.on(&stream)?`. The example `cuda_columns` does this.
//! - **A message orders only what it carries.** The tensor that comes out of a message waits for the sender's
//!   work. Another handle on the same memory, which the receiver already holds, does not wait for work that
//!   the sender has queued since. Use the tensor that came last, or an [`IpcEvent`].
//!
//! ## Devices that cannot reach each other
//!
//! A receiver whose device cannot reach the tensor's device gets [`CudaError::NoPeerAccess`] when it uses the
//! tensor, not when it receives it. [`Device::can_access`] tells this beforehand, for the device of
//! [`CudaTensor::device_uuid`].
//!
//! The sender can send a [`CudaTensor::to_staged`] copy instead. A receiver that sees the tensor's device
//! ([`Driver::device_by_uuid`]) can make such a copy on a stream of that device.
//!
//! # CUDA graphs
//!
//! While a stream captures, no tensor can be made, used or sent on it ([`CudaError::Capturing`]). `put` fails
//! while any stream captures on which this process has used the tensor. No thread may copy between a tensor
//! and the host by a stream that another thread begins to capture meanwhile: the copy would be part of the
//! graph, and the host's memory may be gone when it is launched.
//!
//! The address of a tensor on a device does not change while this process has the tensor. To use a tensor in
//! a graph:
//!
//! 1. Call [`CudaTensor::on`] and take the address, then capture with it.
//! 2. Keep the tensor as long as the graph.
//! 3. Call `tensor.on(&stream)?` again before each launch. The stream then waits for the sender, and other
//!    processes wait for the graph.
//!
//! The software driver begins and ends captures and refuses the calls that they forbid. It makes no graph.
//!
//! # How it works
//!
//! - **Slabs.** Memory is made in *slabs*, with `cuMemCreate`. Small tensors share a slab. A slab crosses
//!   into another process once, as a descriptor; each tensor in it is an offset from then on. A receiver can
//!   also reach the neighbours of a tensor in its slab, so handles are for processes that trust each other.
//! - **Descriptor store.** Before the first message that names a slab, its maker *stores* the descriptor in
//!   the process that made the domain, the *descriptor store*. So the maker may end at any time.
//! - **Other strategies** ([`CudaStrategy`]) serve devices without `cuMemCreate`, and memory that another
//!   library allocated: *legacy*, with handles of `cuIpcGetMemHandle`, and *pool*, with pools that can be
//!   exported. Such memory ends with the process that made it. *Lent* memory is memory of another library
//!   that is shared as it is, without a copy.
//! - **Holder bits.** Each slab and each storage has a block in the domain. The holder bits of the block say
//!   which processes hold the memory, as for memory of the host. Memory that a killed process held comes
//!   back.
//! - **Poisoned slabs.** If a killed process also *used* the memory, a device may still access it, so the
//!   slab is *poisoned*. No tensor is made in a poisoned slab. It goes back to the driver once the rest of it
//!   is free ([`DeviceStats::slabs_poisoned`]).
//! - **Dying slabs.** A slab that its owner gives up is *dying* until no device uses it and, where that
//!   matters, no other process has it open.
//! - **Points.** Sending makes a *point*: the stream is to write a number into a word of shared memory, a
//!   *semaphore*. A receiver's stream waits for that number, whether or not the memory is mapped already.
//!   Where streams have no memory operations (before CUDA 11.7), points are interprocess events of the
//!   driver; then a stream that waits for a process that is killed waits for ever. A process that lets go of
//!   a tensor keeps its holder bit until its own streams are done with the tensor.
//! - **Events.** An [`IpcEvent`] is an event that travels by itself, to order more than one tensor. It is
//!   made of semaphores, too.
//! - **The driver below.** [`Driver`], [`Device`] (identified by a [`Uuid`], whatever ordinal a process gives
//!   it), [`PrimaryContext`], [`Stream`], and [`DeviceMemory`] with its [`DeviceMapping`].
//!
//! # Features
//!
//! - `cudarc`: a [`Stream`] from an `Arc<CudaStream>`; a tensor on a stream as a `CudaSlice`; a tensor with a
//!   copy of a `CudaSlice`; a tensor over the memory of a `CudaSlice` itself (`CudaTensor::share`). It needs
//!   no CUDA to build either, unless something else in the build asks cudarc to link.
//!
//! # Requirements
//!
//! - Linux, and a driver of CUDA 11.4 or later ([`Driver::version`] of 11040 or more). `cuDeviceGetUuid_v2`
//!   is the newest function that everything needs. This follows NVIDIA's reference; no such driver was tried.
//!   An older driver is [`CudaError::MissingSymbol`].
//! - With the feature `cudarc`: cudarc 0.19, which is re-exported. Its `load_module` needs cudarc's own
//!   feature `nvrtc`, which the program turns on. Kernels in PTX do not need NVRTC itself.
//!
//! # Which driver is loaded
//!
//! If [`DRIVER_VARIABLE`] is set, only the library that it names is tried. Otherwise `libcuda.so.1` is tried,
//! then `libcuda.so`.
//!
//! cudarc looks for `libcuda.so` by itself. When a stream comes from cudarc, this crate checks that both have
//! loaded the same driver. The software driver answers to the name `libcuda.so` once it is loaded, so call
//! [`Driver::load`] before the first call of cudarc.
//!
//! # Testing without a GPU
//!
//! The software driver is the crate `tensorferry-sim-cuda`, which is not published. Make it a dev-dependency
//! by its path; cargo then builds the library.
//!
//! `tensorferry_sim_cuda::environment(DRIVER_VARIABLE, "devices=2")` returns two environment variables, with
//! which a process finds the software driver and has two devices. Pass them to the processes that the test
//! starts (`Options::env` of `tensorferry-spawn`), as `cuda_ranks` does for `--simulate`.
//!
//! The software driver runs a small part of PTX, and its timings mean nothing. Its documentation lists what
//! else it does not model.

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
mod page_locked;
mod pinning;
mod pool;
#[cfg_attr(
    not(feature = "cudarc"),
    expect(dead_code, reason = "cudarc is the one library whose memory is shared")
)]
mod registry;
mod semaphore;
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
mod upload;
mod watch;

mod any;
mod foreign;
mod ipc_event;
mod tensor;
mod wire;

mod error;
mod tensor_error;

pub use any::AnyCudaTensor;
pub use context::{CurrentContext, MemoryInfo, PrimaryContext};
/// The version of cudarc whose types are in the public interface.
#[cfg(feature = "cudarc")]
#[doc(no_inline)]
pub use cudarc;
pub use device::{Device, Uuid};
pub use driver::Driver;
pub use error::{CudaError, Result};
pub use exportable_pool::use_exportable_pool;
pub use ipc_event::IpcEvent;
#[cfg(feature = "cudarc")]
pub use lent_slice::{CudarcMemory, LentSlice};
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
