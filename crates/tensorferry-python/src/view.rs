//! The memory of a tensor, as other libraries want it described.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tensorferry_storage::Heap;
use tensorferry_tensor::{AnySharedTensor, AnyTensor, DType, Layout};

use crate::tensor::Mutable;

/// What keeps memory where it is while a view of it exists.
#[derive(Clone)]
pub(crate) enum Hold {
    Frozen(#[expect(dead_code, reason = "it is held")] Arc<AnyTensor>),
    Exclusive(#[expect(dead_code, reason = "it is held")] Arc<Mutable>),
    Shared(#[expect(dead_code, reason = "it is held")] Arc<AnySharedTensor>),
}

/// The memory of a tensor, as other libraries want it described.
pub(crate) struct View {
    pub(crate) hold: Hold,
    /// The address of the storage. `hold` keeps at least `offset + end of the layout` elements there.
    pub(crate) storage: *const u8,
    pub(crate) dtype: DType,
    /// Of the first element, in elements.
    pub(crate) offset: usize,
    pub(crate) shape: Vec<isize>,
    /// In elements.
    pub(crate) strides: Vec<isize>,
    pub(crate) n_elements: usize,
    pub(crate) is_contiguous: bool,
    pub(crate) is_read_only: bool,
}

impl View {
    pub(crate) fn of(
        hold: Hold,
        (storage, len_bytes): (*const u8, usize),
        dtype: DType,
        layout: &Layout,
        is_read_only: bool,
    ) -> PyResult<Self> {
        if layout.check_fits(len_bytes / dtype.size_bytes()).is_err() {
            return Err(forked());
        }
        // Lengths and strides are below 2^60.
        let numbers = |dims: &[usize]| dims.iter().map(|dim| dim.cast_signed()).collect();
        Ok(Self {
            hold,
            storage,
            dtype,
            offset: layout.offset(),
            shape: numbers(layout.shape()),
            strides: numbers(layout.strides()),
            n_elements: layout.n_elements(),
            is_contiguous: layout.is_contiguous(),
            is_read_only,
        })
    }

    /// The address of the first element. Inside of the storage, or at its end if there are no elements.
    pub(crate) fn first(&self) -> *const u8 {
        self.storage.wrapping_add(self.offset * self.dtype.size_bytes())
    }
}

/// Whether this process was forked from a member, and is none itself.
pub(crate) fn is_forked() -> bool {
    Heap::current_if_any().is_some_and(|heap| !heap.domain().is_owning_process())
}

/// In a process that was forked from a member, which shares nothing with it any more.
pub(crate) fn forked() -> PyErr {
    PyRuntimeError::new_err(
        "this process was forked and has no access to the memory of tensorferry: start processes with the method \
         `spawn` or `forkserver` of multiprocessing, whose server must not make tensors or queues either (it imports \
         the main module)",
    )
}
