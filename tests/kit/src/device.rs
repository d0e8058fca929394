//! Simulated machines with GPUs, and the processes on them.

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU32, Ordering};

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_sim_cuda::SETTINGS_VARIABLE;

use crate::hardware::{driver_variable, is_real, needs_devices, needs_software_driver, not_here};
use crate::tasks::{CommandLine, DeviceMember, DeviceParent, DeviceUser, Host, RawDeviceUser, Respondent};
use crate::{Child, Family, Limit, Loner, RootTask, Task};

/// A machine with GPUs. Where they are simulated, its memory is counted by itself: tests run side by side.
/// Where they are real it is this machine, and a test that wants it to be another one ends with
/// [`crate::not_here`].
#[derive(Debug)]
pub struct Machine {
    settings: String,
}

/// A process on a machine.
pub type Process = Child;

/// The settings of the software driver that `TENSORFERRY_TEST_CUDA` adds in this run. A real driver has none.
fn settings_of_run() -> String {
    match is_real() {
        true => String::new(),
        false => std::env::var("TENSORFERRY_TEST_CUDA").unwrap_or_default(),
    }
}

/// Whether the driver of this run says of a device that it has no events between processes, if it has none:
/// those before CUDA 12 do not.
#[must_use]
pub fn may_lack_events() -> bool {
    !settings_of_run().contains("version=11")
}

/// Whether streams of this run have memory operations. Those of a real driver are expected to have them.
#[must_use]
pub fn has_semaphores() -> bool {
    let run = settings_of_run();
    !run.contains("words") && !run.contains("version=11.6")
}

/// Ends the test where devices must not finish reading the memory of a process that was killed meanwhile.
/// Memory that ends with its maker is still there while somebody has it open, but NVIDIA does not promise
/// that, and the software driver may be told to be strict.
pub fn needs_memory_of_the_killed() {
    let lives_on = strategies_of_run().first().is_some_and(|strategy| strategy.outlives_maker());
    if settings_of_run().contains("strict") && !lives_on {
        not_here("memory that outlives its maker, or a driver that is not strict");
    }
}

/// The strategies that work in this run, which `TENSORFERRY_TEST_CUDA` may switch off. A real driver is
/// expected to have all.
#[must_use]
pub fn strategies_of_run() -> Vec<CudaStrategy> {
    let run = settings_of_run();
    let disabled: Vec<&str> = run
        .split(',')
        .filter_map(|word| word.strip_prefix("disable="))
        .flat_map(|list| list.split('+'))
        .collect();
    let all = [CudaStrategy::Vmm, CudaStrategy::Legacy, CudaStrategy::Pool];
    all.into_iter().filter(|strategy| !disabled.contains(&&*strategy.to_string())).collect()
}

impl Machine {
    /// A machine with these settings of the software driver. A real one can have `devices=N`, and ignores
    /// `delay_us=N`: it takes its time by itself.
    #[must_use]
    pub fn new(settings: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        refuse_where_real(settings);
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

    /// A process that is asked what the driver says: see [`Respondent`].
    #[must_use]
    pub fn respondent(&self, variables: &[(&str, &str)]) -> Process {
        self.start(&Respondent, "", variables)
    }

    /// A process that starts others: see [`DeviceParent`].
    #[must_use]
    pub fn parent(&self) -> Process {
        self.start(&DeviceParent, "", &[])
    }

    /// Starts a member of a family on this machine. Its driver has the settings that `TENSORFERRY_TEST_CUDA`
    /// names, too.
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
        let more = format!("{},{more}", settings_of_run());
        self.start_by(&more, variables, |all| family.start_with(task, limits, all))
    }

    /// What a process needs in its environment to be on this machine, without the settings of the run.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let to_owned = |all: &[(&str, &OsStr)]| {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        self.with_variables("", &[], to_owned)
    }

    /// A process that makes a domain and keeps its descriptors, under these limits: [`Machine::member_of`]
    /// has its members.
    #[track_caller]
    #[must_use]
    pub fn host(&self, limits: &[(Limit, u64)]) -> Process {
        Loner::start(&Host::Devices, limits)
    }

    /// A [`DeviceMember`] in the domain of a [`Machine::host`].
    #[track_caller]
    #[must_use]
    pub fn member_of(&self, host: &Process) -> Process {
        let start = |all: &[(&str, &OsStr)]| Loner::start_in_with_fds::<DeviceMember>(host, all).0;
        self.start_by(&settings_of_run(), &[], start)
    }

    /// A process that runs `tensorferry` with these arguments.
    #[must_use]
    pub fn command_line(&self, arguments: &[&str]) -> Process {
        self.start(&CommandLine::new(arguments), "", &[])
    }

    fn start<T: RootTask>(&self, task: &T, more: &str, variables: &[(&str, &str)]) -> Process {
        self.start_by(more, variables, |all| Loner::start_with(task, &[], all))
    }

    fn start_by(
        &self,
        more: &str,
        variables: &[(&str, &str)],
        start: impl FnOnce(&[(&str, &OsStr)]) -> Child,
    ) -> Child {
        let mut child = self.with_variables(more, variables, start);
        child.may_spin = is_real();
        child
    }

    /// Fails unless the process says that so many MiB are in use on its device. Not asked of a real one: see
    /// [`is_real`].
    #[track_caller]
    pub fn assert_used(&self, process: &Process, mib: usize) {
        if !is_real() {
            process.say("used");
            process.expect(&mib.to_string());
        }
    }

    fn with_variables<R>(
        &self,
        more: &str,
        variables: &[(&str, &str)],
        use_them: impl FnOnce(&[(&str, &OsStr)]) -> R,
    ) -> R {
        refuse_where_real(more);
        let driver = driver_variable();
        let settings = OsString::from(format!("{},{more}", self.settings));
        let mut all: Vec<(&str, &OsStr)> = Vec::new();
        all.extend(driver.as_ref().map(|(name, value)| (*name, value.as_os_str())));
        if !is_real() {
            all.push((SETTINGS_VARIABLE, &settings));
        }
        all.extend(variables.iter().map(|(name, value)| (*name, value.as_ref())));
        use_them(&all)
    }
}

/// Ends the test where the settings ask for what a real machine is not.
fn refuse_where_real(settings: &str) {
    let words = || settings.split(',').filter(|word| !word.is_empty()).map(|word| word.split_once('='));
    if words().any(|word| !matches!(word, Some(("devices" | "delay_us", _)))) {
        needs_software_driver();
    }
    for (_, n) in words().flatten().filter(|(name, _)| *name == "devices") {
        needs_devices(n.parse().expect("a number of devices"));
    }
}
