//! What `import tensorferry` finds.

use pyo3::prelude::*;

use crate::connection::{Connection, Listener, connect};
use crate::cuda::CudaTensor;
use crate::error::{Closed, PeerDied};
use crate::lease::Lease;
use crate::lost::Lost;
use crate::multiprocessing;
use crate::offer::{offer, take};
use crate::publication::{Publication, attach, publish};
use crate::queue::{Queue, channel, channel_with_leases};
use crate::tensor::{SharedTensor, Tensor, TensorMut, bytes_copied, empty, tensor, trim, zeros};
use crate::waker;

/// Tensors and queues shared between processes, without copies.
///
/// Programs meet at an address, a path or a name after `@`: `Listener(address).accept()` and
/// `connect(address)` give each a `Connection` (`send`, `recv`, `for value in connection`). The other one
/// may be a program in Rust. A value that any number of programs are to have is published at an address,
/// `with publish(address, value):`, and `attach(address)` takes it there.
///
/// A value is `None`, a bool, an int of at most 64 bits, a float, a str, bytes, a tensor, a queue, an array
/// with `__dlpack__` (which is copied), or a list, tuple or dict of those, at most 64 deep. Tuples arrive as
/// lists, bytearrays as bytes, structs of Rust as dicts, and its enums as `"Name"` or `{"Name": what it
/// holds}`.
///
/// Tensors are made by `zeros` and `empty`, filled through an array (`numpy.asarray(tensor)`,
/// `torch.from_dlpack(tensor)`), and then frozen (`tensor.freeze()`), shared (`tensor.share()`), or sent as
/// they are. With `device="cuda"` they are in the memory of a device, and sent as they are.
///
/// Tensors and queues can also be arguments of processes that `multiprocessing` starts by `spawn` or
/// `forkserver`, and go through its queues, pipes and pools. Such a process has its parent's memory as its
/// own.
#[pymodule]
fn tensorferry(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Tensor>()?;
    module.add_class::<TensorMut>()?;
    module.add_class::<SharedTensor>()?;
    module.add_class::<CudaTensor>()?;
    module.add_class::<Queue>()?;
    module.add_class::<Lease>()?;
    module.add_class::<Lost>()?;
    module.add_class::<Connection>()?;
    module.add_class::<Listener>()?;
    module.add_class::<Publication>()?;
    module.add("Closed", py.get_type::<Closed>())?;
    module.add("PeerDied", py.get_type::<PeerDied>())?;
    for function in [
        wrap_pyfunction!(connect, module)?,
        wrap_pyfunction!(publish, module)?,
        wrap_pyfunction!(attach, module)?,
        wrap_pyfunction!(offer, module)?,
        wrap_pyfunction!(take, module)?,
        wrap_pyfunction!(channel, module)?,
        wrap_pyfunction!(channel_with_leases, module)?,
        wrap_pyfunction!(trim, module)?,
        wrap_pyfunction!(zeros, module)?,
        wrap_pyfunction!(empty, module)?,
        wrap_pyfunction!(tensor, module)?,
        wrap_pyfunction!(bytes_copied, module)?,
    ] {
        module.add_function(function)?;
    }
    multiprocessing::register(module)?;
    waker::register(module)
}
