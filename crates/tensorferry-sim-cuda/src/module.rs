//! Modules, functions and launches.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::address_space;
use crate::driver::{Driver, next_id};
use crate::ptx::{Grid, Kernel};
use crate::stream::Stream;
use crate::{Answer, Status};

const MAX_THREADS_OF_A_BLOCK: u32 = 1024;

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    kernels: BTreeMap<String, Arc<Kernel>>,
}

impl Driver {
    /// `cuModuleLoadData`, of PTX text.
    pub(crate) fn module_load(&self, text: &str) -> Answer<usize> {
        self.current()?;
        let kernels =
            Kernel::all_of(text)?.into_iter().map(|(name, kernel)| (name, Arc::new(kernel))).collect();
        let id = next_id();
        self.tables().modules.insert(id, Module { kernels });
        Ok(id)
    }

    /// `cuModuleUnload`.
    pub(crate) fn module_unload(&self, module: usize) -> Answer {
        self.current()?;
        self.tables().modules.remove(&module).map(|_| ()).ok_or(Status::INVALID_HANDLE)
    }

    /// `cuModuleGetFunction`.
    pub(crate) fn module_function(&self, module: usize, name: &str) -> Answer<usize> {
        self.current()?;
        let mut tables = self.tables();
        let module = tables.modules.get(&module).ok_or(Status::INVALID_HANDLE)?;
        let kernel = Arc::clone(module.kernels.get(name).ok_or(Status::NOT_FOUND)?);
        let id = next_id();
        tables.functions.insert(id, kernel);
        Ok(id)
    }

    /// The kernel behind a function.
    pub(crate) fn kernel(&self, function: usize) -> Answer<Arc<Kernel>> {
        self.tables().functions.get(&function).cloned().ok_or(Status::INVALID_HANDLE)
    }

    /// `cuLaunchKernel`. The arguments were copied at the call. Unlike a copy, it requires a stream of the
    /// current context.
    pub(crate) fn launch(
        &self,
        kernel: Arc<Kernel>,
        arguments: Vec<u64>,
        grid: Grid,
        stream: usize,
    ) -> Answer {
        let n_threads = grid.threads.iter().try_fold(1_u32, |n, &axis| n.checked_mul(axis));
        let is_possible = n_threads.is_some_and(|n| (1..=MAX_THREADS_OF_A_BLOCK).contains(&n));
        if !is_possible || grid.blocks.contains(&0) {
            return Err(Status::INVALID_VALUE);
        }
        let space = Arc::clone(&self.space);
        self.stream_of_current(stream)?.push(move |stream: &Stream| {
            kernel.run(&arguments, grid, &address_space::lock(&space), stream.device)
        })
    }
}
