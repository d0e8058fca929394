//! Simulated machines with GPUs, and the processes on them.

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU32, Ordering};

use tensorferry_cuda_ipc::{CudaStrategy, DRIVER_VARIABLE};
use tensorferry_sim_cuda::{SETTINGS_VARIABLE, library_path};

use crate::tasks::{DeviceMember, DeviceUser, Host, RawDeviceUser};
use crate::{Child, Family, Limit, Loner, RootTask, Task};

/// A machine with simulated GPUs. Its memory is counted by itself: tests run side by side.
#[derive(Debug)]
pub struct Machine {
    settings: String,
}

/// A process on a machine.
pub type Process = Child;

/// The strategies that work in this run, which `TENSORFERRY_TEST_CUDA` may switch off.
#[must_use]
pub fn strategies_of_run() -> Vec<CudaStrategy> {
    let run = std::env::var("TENSORFERRY_TEST_CUDA").unwrap_or_default();
    let disabled: Vec<&str> = run
        .split(',')
        .filter_map(|word| word.strip_prefix("disable="))
        .flat_map(|list| list.split('+'))
        .collect();
    let all = [CudaStrategy::Vmm, CudaStrategy::Legacy, CudaStrategy::Pool];
    all.into_iter().filter(|strategy| !disabled.contains(&&*strategy.to_string())).collect()
}

impl Machine {
    /// A machine with these settings of the software driver.
    #[must_use]
    pub fn new(settings: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let world = format!("tests-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { settings: format!("world={world},{settings}") }
    }

    /// A process that does what a [`DeviceUser`] is told.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process_with("", &[])
    }

    /// As [`Machine::process`], with more settings and variables.
    #[must_use]
    pub fn process_with(&self, more: &str, variables: &[(&str, &str)]) -> Process {
        self.start(&DeviceUser, more, variables)
    }

    /// A process that calls the driver itself, as a [`RawDeviceUser`] is told.
    #[must_use]
    pub fn raw_process(&self, more: &str) -> Process {
        self.start(&RawDeviceUser, more, &[])
    }

    /// Starts a member of a family on this machine. Its driver has the settings that `TENSORFERRY_TEST_CUDA` names, too.
    #[track_caller]
    #[must_use]
    pub fn member<T: Task>(&self, family: &Family, task: T) -> Process {
        self.member_with(family, task, "", &[])
    }

    /// As [`Machine::member`], with more settings and variables.
    #[track_caller]
    #[must_use]
    pub fn member_with<T: Task>(
        &self,
        family: &Family,
        task: T,
        more: &str,
        variables: &[(&str, &str)],
    ) -> Process {
        self.member_limited(family, task, more, variables, &[])
    }

    /// As [`Machine::member_with`], under limits.
    #[track_caller]
    #[must_use]
    pub fn member_limited<T: Task>(
        &self,
        family: &Family,
        task: T,
        more: &str,
        variables: &[(&str, &str)],
        limits: &[(Limit, u64)],
    ) -> Process {
        let run = std::env::var("TENSORFERRY_TEST_CUDA").unwrap_or_default();
        let more = format!("{run},{more}");
        self.with_variables(&more, variables, |all| family.start_with(task, limits, all))
    }

    /// What a process needs in its environment to be on this machine, without the settings of the run.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let to_owned = |all: &[(&str, &OsStr)]| {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        self.with_variables("", &[], to_owned)
    }

    /// A process that makes a domain and keeps its descriptors, under these limits: [`Machine::member_of`] has its members.
    #[track_caller]
    #[must_use]
    pub fn host(&self, limits: &[(Limit, u64)]) -> Process {
        Loner::start(&Host::Devices, limits)
    }

    /// A [`DeviceMember`] in the domain of a [`Machine::host`].
    #[track_caller]
    #[must_use]
    pub fn member_of(&self, host: &Process) -> Process {
        let run = std::env::var("TENSORFERRY_TEST_CUDA").unwrap_or_default();
        self.with_variables(&run, &[], |all| Loner::start_in_with_fds::<DeviceMember>(host, all).0)
    }

    fn start<T: RootTask>(&self, task: &T, more: &str, variables: &[(&str, &str)]) -> Process {
        self.with_variables(more, variables, |all| Loner::start_with(task, &[], all))
    }

    fn with_variables<R>(
        &self,
        more: &str,
        variables: &[(&str, &str)],
        start: impl FnOnce(&[(&str, &OsStr)]) -> R,
    ) -> R {
        let driver = library_path().expect("cargo builds the software driver beside the tests");
        let settings = OsString::from(format!("{},{more}", self.settings));
        let mut all = vec![(DRIVER_VARIABLE, driver.as_os_str()), (SETTINGS_VARIABLE, settings.as_os_str())];
        all.extend(variables.iter().map(|(name, value)| (*name, value.as_ref())));
        start(&all)
    }
}
