//! The driver of one process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::address_space::{self, AddressSpace, Ordinal, Reports, Shared};
use crate::arena::Arena;
use crate::capture::Captures;
use crate::context::Context;
use crate::event::Event;
use crate::fault::Faults;
use crate::handles::Handles;
use crate::host::Pinned;
use crate::identity::Identity;
use crate::mapping::Mapping;
use crate::module::Module;
use crate::pool::Pool;
use crate::ptx::Kernel;
use crate::settings::Control;
use crate::stream::Pace;
use crate::vmm::Physical;
use crate::{Answer, Settings, Status};

/// The driver of one process, as `cuInit` makes it. Several drivers in one process share nothing, like
/// drivers of several processes.
///
/// The C functions of the shared library are its methods, without the C types.
///
/// # What a copy without `Async` waits for
///
/// Normally, for the copy itself. With the setting `staged_copies` the driver waits only for what NVIDIA
/// promises ("API synchronization behavior" in the documentation of the driver):
///
/// - A copy from pageable memory waits for earlier work of the null stream, and returns once the bytes are
///   staged.
/// - Copies on the device and fills return at once.
/// - Copies to the host, and copies from page-locked memory, are done when they return.
#[derive(Debug)]
pub struct Driver {
    pub(crate) settings: Settings,
    pub(crate) identity: Identity,
    /// By ordinal: the device's number in the machine.
    pub(crate) devices: Vec<usize>,
    pub(crate) contexts: Vec<Context>,
    pub(crate) space: Shared,
    pub(crate) reports: Arc<Reports>,
    pub(crate) faults: Faults,
    pub(crate) captures: Captures,
    pub(crate) pace: Arc<Pace>,
    pub(crate) stream_handles: Handles,
    pub(crate) event_handles: Handles,
    /// Whether the process has begun to exit.
    is_down: AtomicBool,
    tables: Mutex<Tables>,
}

/// The objects that handles stand for.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) arenas: BTreeMap<Ordinal, Arc<Arena>>,
    pub(crate) physical: BTreeMap<u64, Physical>,
    pub(crate) reservations: BTreeMap<u64, Arc<Mapping>>,
    pub(crate) pools: BTreeMap<usize, Pool>,
    pub(crate) default_pools: BTreeMap<Ordinal, usize>,
    pub(crate) current_pools: BTreeMap<Ordinal, usize>,
    pub(crate) events: BTreeMap<usize, Arc<Event>>,
    pub(crate) pinned: BTreeMap<u64, Pinned>,
    pub(crate) modules: BTreeMap<usize, Module>,
    pub(crate) functions: BTreeMap<usize, Arc<Kernel>>,
}

/// A handle that no other object of this process has.
pub(crate) fn next_id() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5000_0000_0000);
    NEXT.fetch_add(64, Ordering::Relaxed)
}

impl Driver {
    /// A driver on a machine with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let pace = Arc::new(Pace::new(settings.held, Duration::from_micros(settings.delay_us)));
        let devices = settings.visible_devices();
        let contexts: Vec<Context> = (0..devices.len()).map(|ordinal| Context::new(ordinal, &pace)).collect();
        for context in contexts.iter().filter(|context| settings.lost.contains(&devices[context.device])) {
            context.lose();
        }
        let reports = Arc::new(Reports::new(settings.strict));
        Self {
            identity: Identity::begin(),
            devices,
            contexts,
            space: Arc::new(Mutex::new(AddressSpace::new(Arc::clone(&reports)))),
            reports,
            faults: Faults::new(settings.faults.clone()),
            captures: Captures::default(),
            pace,
            stream_handles: Handles::default(),
            event_handles: Handles::default(),
            is_down: AtomicBool::new(false),
            tables: Mutex::default(),
            settings,
        }
    }

    /// Changes a running driver. The words are `held`, `running`, `fail=FUNCTION:CODE[:N]`,
    /// `kill=FUNCTION[:N]`, `lose=FUNCTION[:N]`, `no-faults` and `lost=DEVICE`; [`Settings`] explains them.
    ///
    /// # Errors
    /// INVALID_VALUE if the word has no meaning.
    pub fn control(&self, word: &str) -> Answer {
        match Control::parse(word)? {
            Control::Held => self.pace.set_held(true),
            Control::Running => self.pace.set_held(false),
            Control::Fail(fault) => self.faults.order(fault),
            Control::NoFaults => self.faults.clear(),
            Control::Lost(device) => {
                for context in self.contexts.iter().filter(|context| self.devices[context.device] == device) {
                    context.lose();
                }
            }
        }
        Ok(())
    }

    /// The rules that were broken so far, in words.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.reports.all()
    }

    /// # Errors
    /// NOT_INITIALIZED in a process that was forked from the one that made the driver; DEINITIALIZED after
    /// [`Driver::tear_down`].
    pub(crate) fn check_process(&self) -> Answer {
        if self.identity.pid != std::process::id() {
            return Err(Status::NOT_INITIALIZED);
        }
        self.check_up()
    }

    /// # Errors
    /// DEINITIALIZED after [`Driver::tear_down`].
    pub(crate) fn check_up(&self) -> Answer {
        if self.is_down.load(Ordering::SeqCst) { Err(Status::DEINITIALIZED) } else { Ok(()) }
    }

    /// Called when the process begins to exit. Queued work is not done any more, and every later call returns
    /// DEINITIALIZED.
    pub(crate) fn tear_down(&self) {
        // A forked process has none of the threads, and its locks may be held for good.
        if self.check_process().is_ok() {
            self.is_down.store(true, Ordering::SeqCst);
            self.contexts.iter().for_each(|context| context.end_streams(&self.stream_handles));
        }
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, AddressSpace> {
        address_space::lock(&self.space)
    }

    /// The machine's number of the device with this ordinal.
    pub(crate) fn physical(&self, ordinal: Ordinal) -> usize {
        self.devices.get(ordinal).copied().unwrap_or(usize::MAX)
    }

    /// The ordinal of a device of the machine.
    ///
    /// # Errors
    /// INVALID_DEVICE if this process does not see it.
    pub(crate) fn ordinal_of(&self, physical: usize) -> Answer<Ordinal> {
        self.devices.iter().position(|&device| device == physical).ok_or(Status::INVALID_DEVICE)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.contexts.iter().for_each(|context| context.end_streams(&self.stream_handles));
        self.identity.end();
    }
}
