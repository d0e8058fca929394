//! A process that uses device memory through the library.

use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use tensorferry_cuda_ipc::{CudaError, Device, DeviceMapping, DeviceMemory, Driver, PrimaryContext, Uuid};

use crate::raw_driver::in_fork;
use crate::{Link, RootTask};

/// Does one thing for each line, and answers `ok`, what was asked for, or `error: ` and the error:
///
/// | line | does |
/// | --- | --- |
/// | `load` | loads the driver and retains the context of device 0 |
/// | `uuids` | answers the identities of all devices |
/// | `by-uuid` | answers the ordinals of the devices that have them, and what comes of an identity of none |
/// | `peers` | answers for each device which ones it can reach: 1 or 0 for each |
/// | `shareable` | answers whether memory of the pools of device 0 can leave the process |
/// | `create LEN`, `import LEN` | allocates; takes the descriptor beside the line |
/// | `export` | answers with a descriptor beside the line |
/// | `map`, `unmap`, `release` | |
/// | `write WORD`, `read LEN` | at the beginning of the mapping |
/// | `forked` | answers 1 if a fork of this process is refused for that reason |
/// | `used` | answers the memory in use on device 0, in MiB |
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DeviceUser;

#[derive(Default)]
struct State {
    driver: Option<Driver>,
    context: Option<PrimaryContext>,
    memory: Option<DeviceMemory>,
    mapping: Option<DeviceMapping>,
}

enum Reply {
    Line(String),
    Fd(OwnedFd),
}

impl RootTask for DeviceUser {
    const NAME: &'static str = "device-user";

    fn run(self, link: &Link) {
        let mut state = State::default();
        while let Ok(Some(line)) = link.hear_until(None) {
            match state.obey(&line, link) {
                Ok(Reply::Line(answer)) => link.say(&answer),
                Ok(Reply::Fd(fd)) => link.say_with("ok", &[fd.as_fd()]),
                Err(error) => link.say(&format!("error: {error}")),
            }
        }
        // Nothing is lost silently on the way out either.
        if let Some(mapping) = state.mapping.take() {
            mapping.close().unwrap();
        }
        if let Some(memory) = state.memory.take() {
            memory.release().unwrap();
        }
    }
}

impl State {
    fn device(&self) -> &Device {
        self.context().device()
    }

    fn context(&self) -> &PrimaryContext {
        self.context.as_ref().expect("`load` comes first")
    }

    fn memory(&self) -> &DeviceMemory {
        self.memory.as_ref().expect("there is memory")
    }

    fn mapping(&self) -> &DeviceMapping {
        self.mapping.as_ref().expect("the memory is mapped")
    }

    fn obey(&mut self, line: &str, link: &Link) -> Result<Reply, CudaError> {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        let len = || argument.parse().unwrap();
        match command {
            "load" => {
                let driver = Driver::load()?;
                self.context = Some(driver.device(0)?.retain_primary_context()?);
                self.driver = Some(driver);
            }
            "uuids" => {
                let driver = self.driver.as_ref().expect("`load` comes first");
                let uuids: Result<Vec<_>, _> =
                    driver.devices()?.iter().map(|device| Ok(device.uuid()?.to_string())).collect();
                return Ok(Reply::Line(uuids?.join(" ")));
            }
            "by-uuid" => {
                let driver = self.driver.as_ref().expect("`load` comes first");
                let ordinal = |device: &Device| -> Result<String, CudaError> {
                    Ok(driver.device_by_uuid(device.uuid()?)?.ordinal().to_string())
                };
                let ordinals: Result<Vec<_>, _> = driver.devices()?.iter().map(ordinal).collect();
                let of_none = driver.device_by_uuid(Uuid::from_bytes([7; 16]));
                let is_refused = matches!(of_none, Err(CudaError::DeviceNotVisible { .. }));
                return Ok(Reply::Line(format!("{} {is_refused}", ordinals?.join(" "))));
            }
            "peers" => {
                let devices = self.driver.as_ref().expect("`load` comes first").devices()?;
                let digit = |device: &Device, peer| Ok(if device.can_access(peer)? { '1' } else { '0' });
                let row = |device| devices.iter().map(|peer| digit(device, peer)).collect();
                let rows: Result<Vec<String>, CudaError> = devices.iter().map(row).collect();
                return Ok(Reply::Line(rows?.join(" ")));
            }
            "shareable" => return Ok(Reply::Line(self.device().has_shareable_pools()?.to_string())),
            "create" => self.memory = Some(DeviceMemory::create(self.device(), len())?),
            "import" => {
                let fd = link.take_fd().expect("a descriptor came");
                self.memory = Some(DeviceMemory::import(self.device(), fd, len())?);
            }
            "export" => return self.memory().export().map(Reply::Fd),
            "map" => self.mapping = Some(DeviceMapping::map(self.memory(), self.context())?),
            "unmap" => self.mapping.take().expect("the memory is mapped").close()?,
            "release" => self.memory.take().expect("there is memory").release()?,
            "write" => self.mapping().write(0, argument.as_bytes())?,
            "read" => {
                let mut bytes = vec![0; len()];
                self.mapping().read(0, &mut bytes)?;
                return Ok(Reply::Line(String::from_utf8_lossy(&bytes).into_owned()));
            }
            "used" => {
                let info = self.context().memory_info()?;
                return Ok(Reply::Line(((info.total_bytes - info.free_bytes) >> 20).to_string()));
            }
            "forked" => {
                let device = self.device();
                let is_refused = || matches!(device.name(), Err(CudaError::ForkedAfterInit { .. }));
                let answer = in_fork(|| is_refused().into());
                return Ok(Reply::Line(answer.to_string()));
            }
            _ => panic!("no command is called {line:?}"),
        }
        Ok(Reply::Line("ok".to_owned()))
    }
}
