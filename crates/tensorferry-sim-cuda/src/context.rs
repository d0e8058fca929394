//! Primary contexts, the current context of a thread, streams and peers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address_space::{Kind, Ordinal};
use crate::driver::{Driver, next_id};
use crate::handles::Handles;
use crate::memory_file::{Label, MemoryFile, Purpose};
use crate::stream::{Pace, Stream};
use crate::{Answer, Status};

/// The null, legacy and per-thread streams, which are one stream here.
pub(crate) const LAST_SPECIAL_STREAM: usize = 2;

/// The primary context of a device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: usize,
    pub(crate) device: Ordinal,
    n_retained: AtomicU32,
    broken: Arc<AtomicU32>,
    is_lost: AtomicBool,
    /// The device memory that the context takes while it is retained, if the settings say so. It is also
    /// freed when the process ends.
    own_memory: Mutex<Option<MemoryFile>>,
    pace: Arc<Pace>,
    /// By handle; the null stream is 0.
    streams: Mutex<BTreeMap<usize, Arc<Stream>>>,
}

thread_local! {
    /// Driver and context, the current one last. Never dropped, because handlers of exit(3) may still call
    /// the driver after thread-local variables are dropped.
    static CURRENT: ManuallyDrop<RefCell<Vec<(u32, usize)>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

impl Context {
    pub(crate) fn new(device: Ordinal, pace: &Arc<Pace>) -> Self {
        Self {
            id: next_id(),
            device,
            n_retained: AtomicU32::new(0),
            broken: Arc::default(),
            is_lost: AtomicBool::new(false),
            own_memory: Mutex::default(),
            pace: Arc::clone(pace),
            streams: Mutex::default(),
        }
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> Answer {
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(Status::DEVICE_UNAVAILABLE);
        }
        if self.n_retained.load(Ordering::SeqCst) == 0 {
            return Err(Status::CONTEXT_IS_DESTROYED);
        }
        // After an error broke the context, every call returns that error.
        Status::from_code(self.broken.load(Ordering::SeqCst)).map_or(Ok(()), Err)
    }

    /// Breaks the context, as an illegal access does.
    fn break_with(&self, status: Status) {
        let _ = self.broken.compare_exchange(0, status.code(), Ordering::SeqCst, Ordering::SeqCst);
    }

    fn own_memory(&self) -> MutexGuard<'_, Option<MemoryFile>> {
        self.own_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self, id: usize) -> Answer<Arc<Stream>> {
        let mut streams = self.streams();
        let id = if id <= LAST_SPECIAL_STREAM { 0 } else { id };
        if let Some(stream) = streams.get(&id) {
            return Ok(Arc::clone(stream));
        }
        if id != 0 {
            return Err(Status::INVALID_HANDLE);
        }
        let stream = Stream::start(self.device, Arc::clone(&self.pace), Arc::clone(&self.broken))?;
        streams.insert(0, Arc::clone(&stream));
        Ok(stream)
    }

    /// Ends all streams, even in the middle of an operation, and frees their handles.
    pub(crate) fn end_streams(&self, handles: &Handles) {
        for (id, stream) in std::mem::take(&mut *self.streams()) {
            stream.end();
            if id != 0 {
                handles.give_back(id);
            }
        }
    }
}

impl Driver {
    fn context_of(&self, device: i32) -> Answer<&Context> {
        self.check_process()?;
        let ordinal = usize::try_from(device).map_err(|_| Status::INVALID_DEVICE)?;
        self.contexts.get(ordinal).ok_or(Status::INVALID_DEVICE)
    }

    fn context_with(&self, id: usize) -> Answer<&Context> {
        self.contexts.iter().find(|context| context.id == id).ok_or(Status::INVALID_CONTEXT)
    }

    /// The context that is current on this thread, if it can be used.
    pub(crate) fn current(&self) -> Answer<&Context> {
        let id = self.ctx_get_current()?;
        let context = self.context_with(id)?;
        context.check()?;
        Ok(context)
    }

    /// The stream with this handle.
    pub(crate) fn stream(&self, id: usize) -> Answer<Arc<Stream>> {
        let current = self.current()?;
        if id <= LAST_SPECIAL_STREAM {
            return current.stream(id);
        }
        self.contexts.iter().find_map(|context| context.stream(id).ok()).ok_or(Status::INVALID_HANDLE)
    }

    /// The stream with this handle, if it belongs to the current context.
    pub(crate) fn stream_of_current(&self, id: usize) -> Answer<Arc<Stream>> {
        self.current()?.stream(id)
    }

    /// Passes on the answer of an operation. An illegal access breaks the current context.
    pub(crate) fn breaking<T>(&self, answer: Answer<T>) -> Answer<T> {
        if let (Err(Status::ILLEGAL_ADDRESS), Ok(context)) = (&answer, self.current()) {
            context.break_with(Status::ILLEGAL_ADDRESS);
        }
        answer
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub(crate) fn primary_ctx_retain(&self, device: i32) -> Answer<usize> {
        let context = self.context_of(device)?;
        if context.is_lost.load(Ordering::SeqCst) {
            return Err(Status::DEVICE_UNAVAILABLE);
        }
        let mut own_memory = context.own_memory();
        let len_bytes = self.settings.context_bytes;
        if own_memory.is_none() && len_bytes > 0 {
            self.check_limit(context.device, len_bytes)?;
            let (world, device) = (self.settings.world.clone(), self.physical(context.device));
            let label = Label { world, purpose: Purpose::Context, device, len_bytes };
            *own_memory = Some(MemoryFile::create(label, 0)?);
        }
        context.n_retained.fetch_add(1, Ordering::SeqCst);
        Ok(context.id)
    }

    /// `cuDevicePrimaryCtxRelease`. The last release frees all that belongs to the context.
    pub(crate) fn primary_ctx_release(&self, device: i32) -> Answer {
        let context = self.context_of(device)?;
        let mut own_memory = context.own_memory();
        let one_less = |n: u32| n.checked_sub(1);
        let before = context.n_retained.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        if before.map_err(|_| Status::INVALID_CONTEXT)? > 1 {
            return Ok(());
        }
        *own_memory = None;
        drop(own_memory);
        context.end_streams(&self.stream_handles);
        context.broken.store(0, Ordering::SeqCst);
        let gone = self.space().remove_of_context(context.device);
        for region in gone {
            if let Kind::Malloc { arena, slot } = region.kind {
                self.free_in(&arena, slot)?;
            }
        }
        self.space().peers.retain(|(who, whose)| *who != context.device && *whose != context.device);
        Ok(())
    }

    /// `cuDevicePrimaryCtxGetState`: whether it is active.
    pub(crate) fn primary_ctx_is_active(&self, device: i32) -> Answer<bool> {
        Ok(self.context_of(device)?.n_retained.load(Ordering::SeqCst) > 0)
    }

    /// `cuCtxGetCurrent`; 0 if there is none.
    pub(crate) fn ctx_get_current(&self) -> Answer<usize> {
        self.check_process()?;
        let mine = self.identity.instance;
        let found = CURRENT
            .with(|stack| stack.borrow().iter().rev().find(|(driver, _)| *driver == mine).map(|(_, id)| *id));
        Ok(found.unwrap_or(0))
    }

    /// `cuCtxSetCurrent`: replaces the top of the stack; 0 removes it.
    pub(crate) fn ctx_set_current(&self, id: usize) -> Answer {
        if id != 0 {
            self.context_with(id)?;
        }
        // An empty stack has nothing to replace.
        let _ = self.ctx_pop();
        if id == 0 { Ok(()) } else { self.ctx_push(id) }
    }

    /// `cuCtxPushCurrent`.
    pub(crate) fn ctx_push(&self, id: usize) -> Answer {
        self.check_process()?;
        self.context_with(id)?;
        CURRENT.with(|stack| stack.borrow_mut().push((self.identity.instance, id)));
        Ok(())
    }

    /// `cuCtxPopCurrent`.
    pub(crate) fn ctx_pop(&self) -> Answer<usize> {
        self.check_process()?;
        let mine = self.identity.instance;
        let popped = CURRENT.with(|stack| {
            let mut stack = stack.borrow_mut();
            let at = stack.iter().rposition(|(driver, _)| *driver == mine)?;
            Some(stack.remove(at).1)
        });
        popped.ok_or(Status::INVALID_CONTEXT)
    }

    /// `cuCtxSynchronize`: waits for all streams of the current context.
    pub(crate) fn ctx_synchronize(&self) -> Answer {
        let streams: Vec<Arc<Stream>> = self.current()?.streams().values().cloned().collect();
        streams.iter().try_for_each(|stream| stream.synchronize())
    }

    /// `cuCtxEnablePeerAccess`: lets the current context access memory of `peer`.
    pub(crate) fn ctx_enable_peer_access(&self, peer: usize) -> Answer {
        let (me, peer) = (self.current()?.device, self.context_with(peer)?.device);
        if me == peer {
            return Err(Status::INVALID_DEVICE);
        }
        if !self.settings.has_peers {
            return Err(Status::PEER_ACCESS_UNSUPPORTED);
        }
        let is_new = self.space().peers.insert((me, peer));
        if is_new { Ok(()) } else { Err(Status::PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// `cuCtxDisablePeerAccess`.
    pub(crate) fn ctx_disable_peer_access(&self, peer: usize) -> Answer {
        let (me, peer) = (self.current()?.device, self.context_with(peer)?.device);
        let was = self.space().peers.remove(&(me, peer));
        if was { Ok(()) } else { Err(Status::PEER_ACCESS_NOT_ENABLED) }
    }

    /// `cuStreamCreate`.
    pub(crate) fn stream_create(&self, flags: u32) -> Answer<usize> {
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        let context = self.current()?;
        let stream = Stream::start(context.device, Arc::clone(&context.pace), Arc::clone(&context.broken))?;
        let id = self.stream_handles.take();
        context.streams().insert(id, stream);
        Ok(id)
    }

    /// `cuStreamDestroy`. Work that is queued is still done.
    pub(crate) fn stream_destroy(&self, id: usize) -> Answer {
        self.check_process()?;
        if id <= LAST_SPECIAL_STREAM {
            return Err(Status::INVALID_HANDLE);
        }
        let removed = self.contexts.iter().find_map(|context| context.streams().remove(&id));
        removed.ok_or(Status::INVALID_HANDLE)?.push_always(|stream: &Stream| {
            stream.end();
            Ok(())
        })?;
        self.stream_handles.give_back(id);
        Ok(())
    }

    /// `cuStreamIsCapturing`.
    pub(crate) fn stream_is_capturing(&self, id: usize) -> Answer<bool> {
        Ok(self.stream(id)?.is_capturing())
    }
}
