//! Move tensors between processes without copying them.
//!
//! tensorferry is what `torch.multiprocessing` is for PyTorch, as a Rust library: queues that carry a handle
//! instead of the bytes, tensors that several processes see, and process start-up that reports errors.
//! `docs/FROM_TORCH.md` of the repository says for each function of `torch.multiprocessing` and Python's
//! `multiprocessing` what to write here.
//!
//! ```
//! use tensorferry::{Queue, Tensor, TensorMut};
//!
//! /// Runs in a process of its own. The tensors arrive as handles; nothing is copied.
//! #[tensorferry::func]
//! fn sum(rank: usize, work: Queue<Tensor<f32>>) -> Result<f32, String> {
//!     Ok(work.iter().map(|tensor| tensor.iter().sum::<f32>()).sum())
//! }
//!
//! let work = Queue::new(8)?;
//! let workers = tensorferry::start_processes(sum, (work.clone(),), 2)?;
//! for step in 0..4_u8 {
//!     let mut tensor = TensorMut::zeros([32, 32])?; // in shared memory from the start
//!     tensor.as_mut_slice().fill(f32::from(step));
//!     work.put(tensor.freeze())?;
//! }
//! work.close();
//! let sums = workers.into_values()?; // or why they failed
//! assert_eq!(sums.iter().sum::<f32>(), 6.0 * 1024.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`tensor`] | [`TensorMut`] (mine alone), [`Tensor`] (frozen), [`SharedTensor`] (several write on purpose), [`SealedTensor`] (nobody can write), [`AnyTensor`] |
//! | [`state`] | [`Bundle`]: named tensors that travel as one handle |
//! | [`queue`] | [`Queue`], [`channel`], [`pipe`](queue::pipe), sole ends, [`wait`](queue::wait) for several |
//! | [`listen`] | [`Listener`](listen::Listener) and [`connect`](listen::connect): processes that something else has started, Python programs among them; [`publish`](listen::publish()) and [`attach`](listen::attach()): values with a name; [`offer`](listen::offer()) and [`take`](listen::take()): values for one process, by a text |
//! | [`spawn`](mod@spawn) | [`func`], [`spawn`](fn@spawn), [`start_processes`], [`ProcessContext`], [`Process`], [`current_process`], [`active_children`], [`rank_seed`] |
//! | [`pool`] | [`Pool`]: worker processes that call functions |
//! | [`data`] | [`DataLoader`]: batches of samples, made by worker processes; datasets and samplers |
//! | [`sync`] | locks, events, semaphores, barriers, values and arrays in shared memory |
//! | [`storage`] | [`Heap`]: allocation, limits, statistics, `trim` |
//! | [`manager`] | [`Manager`](manager::Manager), [`serve`](manager::serve): dictionaries, lists and objects of your own that one process has and others call |
//! | [`inspect`] | who shares what, read from outside: [`find`](inspect::find), [`Snapshot`](inspect::Snapshot) |
//! | [`domain`] | the one file descriptor behind it all |
//! | [`sharing`] | [`get_all_sharing_strategies`], [`get_sharing_strategy`], [`set_sharing_strategy`] |
//! | `cuda` | with the feature `cuda`: `CudaTensor`, streams and devices; with `cudarc` its types too. Run on an H200; several devices on a software driver only |
//! | `remote` | with the feature `remote`: connections to other machines, and queues that are forwarded there |
//! | [`reduce`] | how a type of your own travels by handle; [`bytes_copied`] |

#![forbid(unsafe_code)]

pub mod domain;
pub mod reduce;
pub mod sharing;
pub mod storage;

#[cfg(feature = "cuda")]
#[doc(inline)]
pub use tensorferry_cuda_ipc as cuda;
#[doc(inline)]
pub use tensorferry_data as data;
#[doc(inline)]
pub use tensorferry_inspect as inspect;
#[doc(inline)]
pub use tensorferry_listen as listen;
#[doc(inline)]
pub use tensorferry_manager as manager;
#[doc(inline)]
pub use tensorferry_pool as pool;
#[doc(inline)]
pub use tensorferry_queue as queue;
#[cfg(feature = "remote")]
#[doc(inline)]
pub use tensorferry_remote as remote;
#[doc(inline)]
pub use tensorferry_spawn as spawn;
#[doc(inline)]
pub use tensorferry_state as state;
#[doc(inline)]
pub use tensorferry_sync as sync;
#[doc(inline)]
pub use tensorferry_tensor as tensor;

#[cfg(feature = "cuda")]
#[doc(inline)]
pub use cuda::CudaTensor;
#[doc(inline)]
pub use data::DataLoader;
#[doc(inline)]
pub use domain::Domain;
#[doc(inline)]
pub use pool::Pool;
#[doc(inline)]
pub use queue::{GetError, PutError, Queue, Receiver, Sender, channel};
#[doc(inline)]
pub use reduce::bytes_copied;
#[doc(inline)]
pub use sharing::{SharingStrategy, get_all_sharing_strategies, get_sharing_strategy, set_sharing_strategy};
#[doc(inline)]
pub use spawn::{
    BoxedError, Process, ProcessContext, ProcessErrors, SpawnError, active_children, cpu_count,
    current_process, func, init, parent_process, rank_seed, spawn, start_processes,
};
#[doc(inline)]
pub use state::Bundle;
#[doc(inline)]
pub use storage::Heap;
#[doc(inline)]
pub use tensor::{AnyTensor, DType, SealedTensor, SharedTensor, Tensor, TensorMut};

/// The page's programs, compiled with the docs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/FROM_TORCH.md")]
mod from_torch {}

/// The page's programs, compiled with the docs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/GUIDE.md")]
mod guide {}

/// The README's example, compiled with the docs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
