//! CUDA: the driver, each device, and a tensor of each that another process reads.

use std::time::Duration;

use anyhow::ensure;
use tensorferry_cuda_ipc::{CudaTensor, Device, Driver, Stream, get_all_cuda_strategies};
use tensorferry_spawn::{BoxedError, StartMethod, func, get_context};

use super::finding::Finding;
use super::remedy;

/// To make a context takes a second where nobody has one.
const PATIENCE: Duration = Duration::from_secs(60);
const N_ELEMENTS: usize = 1024;

pub(super) fn check() -> Vec<Finding> {
    let check = "CUDA";
    let load = || {
        let driver = Driver::load()?;
        let (version, devices) = (driver.version()?, driver.devices()?);
        Ok((version, devices))
    };
    match load() {
        Ok((version, devices)) => {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            let driver = Finding::works(check, format!("a driver for {major}.{minor}"));
            let none = devices.is_empty().then(|| Finding::absent("CUDA devices", "the driver has none"));
            std::iter::once(driver).chain(none).chain(devices.iter().map(of_device)).collect()
        }
        Err(error) => {
            let error: tensorferry_cuda_ipc::CudaError = error;
            if error.is_no_device() {
                return vec![Finding::absent(check, error.to_string())];
            }
            vec![Finding::missing(check, error.to_string(), "look at what nvidia-smi says")]
        }
    }
}

fn of_device(device: &Device) -> Finding {
    let check = match (device.name(), device.uuid()) {
        (Ok(name), Ok(uuid)) => format!("{name} ({uuid})"),
        (Err(error), _) | (_, Err(error)) => {
            return Finding::missing("a device", error.to_string(), "reset it");
        }
    };
    match hand_over(device) {
        Ok(strategies) => Finding::works(&check, format!("another process has read a tensor; {strategies}")),
        Err(error) => {
            let text = format!("{error:#}");
            let otherwise = "look at the device's compute mode (nvidia-smi -q -d COMPUTE), and give containers /dev/nvidia*";
            let fix = remedy::of(&text, otherwise);
            Finding::missing(&check, text, fix)
        }
    }
}

#[func]
fn sum(_rank: usize, tensor: CudaTensor<f32>) -> Result<f32, BoxedError> {
    let uuid = tensor.device_uuid().ok_or("the tensor has no device")?;
    let stream = Stream::create(&Driver::load()?.device_by_uuid(uuid)?.retain_primary_context()?)?;
    Ok(tensor.to_vec(&stream)?.iter().sum())
}

/// Has another process read a tensor of the device. Returns the strategies that work on it.
fn hand_over(device: &Device) -> anyhow::Result<String> {
    let context = device.retain_primary_context()?;
    let strategies = get_all_cuda_strategies(&context)?;
    let stream = Stream::create(&context)?;
    let tensor = CudaTensor::from_slice(&stream, &[0.5_f32; N_ELEMENTS], [N_ELEMENTS])?;
    // The CUDA of this process is nothing that a child could go on with.
    let mut child = get_context(StartMethod::Spawn).start_processes(sum, (tensor,), 1)?;
    ensure!(child.join_timeout(PATIENCE)?, "a process did not read a tensor of it in {PATIENCE:?}");
    let sums = child.take_values()?;
    ensure!(sums == [512.0], "the sum of 1024 halves was {sums:?} in another process");
    let names = strategies.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(format!("strategies: {names}"))
}
