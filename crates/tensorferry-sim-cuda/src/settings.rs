//! The settings of the simulated machine.

use crate::Status;
use crate::device::FIRST_VERSION;
use crate::fault::Fault;

/// The environment variable that `cuInit` reads.
pub const SETTINGS_VARIABLE: &str = "TENSORFERRY_SIM_CUDA";

/// The settings of the simulated machine. The text form is a list of words separated by commas:
///
/// | word | meaning | default |
/// | --- | --- | --- |
/// | `devices=2` | the number of devices of the machine | 1 |
/// | `visible=1+0` | which of them this process sees, in which order | all |
/// | `version=11.8` | the driver's version of CUDA, 11.4 or later | 13.0 |
/// | `memory_mib=64` | the memory of each device; allocations beyond it fail | no limit, 4096 shown |
/// | `context_mib=500` | the device memory that each retained primary context takes | 0 |
/// | `pools_keep` | exportable pools keep memory until they are destroyed | off |
/// | `world=NAME` | the machine: memory of other worlds is not counted and cannot be imported | `default` |
/// | `delay_us=200` | the least time that each operation of a stream takes | 0 |
/// | `staged_copies` | functions without `Async` may return before their work is done | off |
/// | `held` | streams do nothing until told `running` | running |
/// | `disable=vmm+pool+ipc+legacy+peer+words` | features that the devices do not support | nothing |
/// | `fail=cuMemMap:2` | the next call of the function returns this code, once | nothing |
/// | `kill=cuMemMap` | the next call of the function kills the process | nothing |
/// | `lose=cuMemFree_v2` | the next call of the function does nothing and reports success | nothing |
/// | `lost=0` | this device has fallen off the bus | none |
/// | `teardown` | calls return CUDA_ERROR_DEINITIALIZED once the process exits | on |
/// | `strict` | a broken rule aborts the process | reported only |
///
/// A word without a value may also be written `WORD=1`, and `WORD=0` turns it off.
///
/// - `version` sets the number, and which device attributes the driver knows.
/// - `pools_keep`: the high-water mark of such a pool counts as used device memory.
/// - `world`: with a world of its own, each test has a machine of its own.
/// - `staged_copies`: [`crate::Driver`] says what the functions still wait for.
/// - `disable`: `legacy` means handles of memory; `ipc` means those and handles of events; `words` means the
///   64-bit memory operations of streams.
/// - `fail`, `kill`, `lose`: `*` in the place of a function means any function. A last `:5` lets five calls
///   work first, as in `fail=cuMemMap:2:5` and `kill=cuMemMap:5`.
/// - `teardown`: calls fail from the exit handler on that `cuInit` registers.
///
/// [`crate::Driver::control`] takes `held`, `running`, `fail`, `kill`, `lose`, `lost` and `no-faults` while
/// the driver runs. `no-faults` cancels the faults that have not happened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) n_devices: usize,
    pub(crate) visible: Option<Vec<usize>>,
    /// In the format of `cuDriverGetVersion`: 11080 for 11.8.
    pub(crate) version: i32,
    pub(crate) memory_bytes: Option<usize>,
    pub(crate) context_bytes: usize,
    pub(crate) pools_keep: bool,
    pub(crate) world: String,
    pub(crate) delay_us: u64,
    pub(crate) staged_copies: bool,
    pub(crate) held: bool,
    pub(crate) has_vmm: bool,
    pub(crate) has_pools: bool,
    pub(crate) has_ipc: bool,
    pub(crate) has_legacy: bool,
    pub(crate) has_peers: bool,
    pub(crate) has_words: bool,
    pub(crate) faults: Vec<Fault>,
    pub(crate) lost: Vec<usize>,
    pub(crate) teardown: bool,
    pub(crate) strict: bool,
}

/// A word of the settings that has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no setting of the software driver")]
pub struct SettingsError {
    word: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            n_devices: 1,
            visible: None,
            version: 13_000,
            memory_bytes: None,
            context_bytes: 0,
            pools_keep: false,
            world: "default".to_owned(),
            delay_us: 0,
            staged_copies: false,
            held: false,
            has_vmm: true,
            has_pools: true,
            has_ipc: true,
            has_legacy: true,
            has_peers: true,
            has_words: true,
            faults: Vec::new(),
            lost: Vec::new(),
            teardown: true,
            strict: false,
        }
    }
}

impl Settings {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`SettingsError`] with the first word that has no meaning.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            settings.take(word).ok_or_else(|| SettingsError { word: word.to_owned() })?;
        }
        Ok(settings)
    }

    /// Reads [`SETTINGS_VARIABLE`] and `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// [`SettingsError`] with the first word that has no meaning.
    pub(crate) fn from_environment() -> Result<Self, SettingsError> {
        let mut settings = Self::parse(&std::env::var(SETTINGS_VARIABLE).unwrap_or_default())?;
        if let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") {
            // As in the real driver, the list ends at the first entry that is no device.
            let ordinals = list.split(',').map_while(|word| word.trim().parse().ok());
            settings.visible = Some(ordinals.take_while(|&ordinal| ordinal < settings.n_devices).collect());
        }
        Ok(settings)
    }

    fn take(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "devices" => self.n_devices = value.parse().ok()?,
            "visible" => {
                let ordinals: Result<Vec<usize>, _> = value.split('+').map(str::parse).collect();
                self.visible = Some(ordinals.ok()?);
            }
            "version" => self.version = version(value)?,
            "context_mib" => self.context_bytes = value.parse::<usize>().ok()? << 20,
            "pools_keep" => self.pools_keep = flag(value)?,
            "staged_copies" => self.staged_copies = flag(value)?,
            "memory_mib" => self.memory_bytes = Some(value.parse::<usize>().ok()? << 20),
            "world" if !value.contains(':') => value.clone_into(&mut self.world),
            "delay_us" => self.delay_us = value.parse().ok()?,
            "held" => self.held = flag(value)?,
            "teardown" => self.teardown = flag(value)?,
            "strict" => self.strict = flag(value)?,
            "lost" => self.lost.push(value.parse().ok()?),
            "fail" => self.faults.push(Fault::parse(value)?),
            "kill" => self.faults.push(Fault::parse_kill(value)?),
            "lose" => self.faults.push(Fault::parse_lose(value)?),
            "disable" => {
                for what in value.split('+') {
                    match what {
                        "vmm" => self.has_vmm = false,
                        "pool" => self.has_pools = false,
                        "ipc" => self.has_ipc = false,
                        "legacy" => self.has_legacy = false,
                        "peer" => self.has_peers = false,
                        "words" => self.has_words = false,
                        _ => return None,
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The devices of the machine that this process sees, in the order of their ordinals.
    pub(crate) fn visible_devices(&self) -> Vec<usize> {
        let all = || (0..self.n_devices).collect();
        self.visible.clone().unwrap_or_else(all).into_iter().filter(|&n| n < self.n_devices).collect()
    }
}

/// The value of a word: none, 1 or 0.
fn flag(value: &str) -> Option<bool> {
    match value {
        "" | "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

/// `11.8` as 11080.
fn version(value: &str) -> Option<i32> {
    let (major, minor) = value.split_once('.')?;
    let (major, minor): (i32, i32) = (major.parse().ok()?, minor.parse().ok()?);
    let version = major.checked_mul(1000)?.checked_add(minor.checked_mul(10)?)?;
    ((0..100).contains(&minor) && version >= FIRST_VERSION).then_some(version)
}

/// A word that changes a running driver.
pub(crate) enum Control {
    Held,
    Running,
    Fail(Fault),
    NoFaults,
    Lost(usize),
}

impl Control {
    pub(crate) fn parse(word: &str) -> Result<Self, Status> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let control = match key {
            "held" => Some(Self::Held),
            "running" => Some(Self::Running),
            "fail" => Fault::parse(value).map(Self::Fail),
            "kill" => Fault::parse_kill(value).map(Self::Fail),
            "lose" => Fault::parse_lose(value).map(Self::Fail),
            "no-faults" => Some(Self::NoFaults),
            "lost" => value.parse().ok().map(Self::Lost),
            _ => None,
        };
        control.ok_or(Status::INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_an_unknown_one_is_refused() {
        let text = "devices=3,visible=2+0,memory_mib=64,world=w,delay_us=7,held,strict=1,lost=1,disable=vmm+ipc,\
                    version=12.4,context_mib=3,pools_keep,staged_copies=1,teardown=0";
        let settings = Settings::parse(text).unwrap();
        assert_eq!((settings.n_devices, settings.visible_devices()), (3, vec![2, 0]));
        assert_eq!(
            (settings.memory_bytes, settings.world.as_str(), settings.delay_us),
            (Some(64 << 20), "w", 7)
        );
        assert!(
            settings.held && settings.strict && !settings.has_vmm && !settings.has_ipc && settings.has_pools
        );
        assert_eq!(settings.lost, [1]);
        assert_eq!((settings.version, settings.context_bytes), (12_040, 3 << 20));
        assert!(settings.pools_keep && settings.staged_copies && !settings.teardown);
        assert_eq!(Settings::parse("held=0,pools_keep=0"), Ok(Settings::default()));
        for bad in ["devices=many", "gpu", "disable=all", "fail=cuInit", "fail=cuInit:12345", "world=a:b"] {
            assert_eq!(Settings::parse(bad), Err(SettingsError { word: bad.to_owned() }), "{bad}");
        }
        for bad in ["held=yes", "version=12", "version=11.3", "version=12.100", "lose=memory"] {
            assert_eq!(Settings::parse(bad), Err(SettingsError { word: bad.to_owned() }), "{bad}");
        }
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
    }
}
