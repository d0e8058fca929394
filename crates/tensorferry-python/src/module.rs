//! What `import tensorferry` finds.

use pyo3::prelude::*;

use crate::connection::{Connection, Listener, connect};
use crate::error::{Closed, PeerDied};
use crate::queue::Queue;
use crate::tensor::{SharedTensor, Tensor, TensorMut, bytes_copied, empty, tensor, zeros};

/// Tensors and queues shared between processes, without copies.
#[pymodule]
fn tensorferry(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Tensor>()?;
    module.add_class::<TensorMut>()?;
    module.add_class::<SharedTensor>()?;
    module.add_class::<Queue>()?;
    module.add_class::<Connection>()?;
    module.add_class::<Listener>()?;
    module.add("Closed", py.get_type::<Closed>())?;
    module.add("PeerDied", py.get_type::<PeerDied>())?;
    for function in [
        wrap_pyfunction!(connect, module)?,
        wrap_pyfunction!(zeros, module)?,
        wrap_pyfunction!(empty, module)?,
        wrap_pyfunction!(tensor, module)?,
        wrap_pyfunction!(bytes_copied, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
