//! Lists the CUDA devices of this machine, or says that there are none.
//!
//! ```text
//! cargo run -p tensorferry-cuda-ipc --example devices
//! ```
//!
//! With `-- --require`, it fails if there are none.

#![expect(clippy::print_stdout, reason = "an example shows something")]

use std::process::ExitCode;

use tensorferry_cuda_ipc::{CudaError, Driver};

fn main() -> Result<ExitCode, CudaError> {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => {
            println!("no CUDA here: {error}");
            let is_required = std::env::args().any(|argument| argument == "--require");
            return Ok(if is_required { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    };
    let version = driver.version()?;
    println!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    for device in driver.devices()? {
        println!("{}: {}, {}", device.ordinal(), device.name()?, device.uuid()?);
        println!("   memory: {} MiB", device.total_bytes()? >> 20);
        println!("   shareable by descriptor: {}", device.has_shareable_memory()?);
        println!("   memory pools: {}", device.has_memory_pools()?);
        println!("   interprocess events: {}", device.has_interprocess_events()?);
    }
    Ok(ExitCode::SUCCESS)
}
