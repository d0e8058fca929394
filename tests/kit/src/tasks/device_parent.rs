//! Processes that use a device and start others, and one that waits for an event that it was started with.

use serde::{Deserialize, Serialize};
use tensorferry::spawn::{StartMethod, func, get_context};
use tensorferry_cuda_ipc::{CudaTensor, Driver, IpcEvent, Stream};

use crate::raw_driver::allow_fork;
use crate::{Context, Link, RootTask, Task};

/// Does one thing for each line:
///
/// | line | does |
/// | --- | --- |
/// | `load` | loads the driver |
/// | `fork` | answers why the start method fork is refused, or `started` |
/// | `bad-call` | answers the error of a process that it starts, and which asks for what cannot be |
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DeviceParent;

#[func]
fn nothing(_rank: usize) {}

#[func]
fn bad_call(_rank: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stream = Stream::create(&Driver::load()?.device(0)?.retain_primary_context()?)?;
    let (three, four) = (CudaTensor::<f32>::zeros(&stream, [3])?, CudaTensor::zeros(&stream, [4])?);
    three.copy_from(&stream, &four)?;
    Ok(())
}

impl RootTask for DeviceParent {
    const NAME: &'static str = "device-parent";

    fn run(self, link: &Link) {
        while let Ok(Some(line)) = link.hear_until(None) {
            let answer = match line.as_str() {
                "load" => {
                    let _ = Driver::load().unwrap();
                    "ok".to_owned()
                }
                "fork" => {
                    allow_fork();
                    let outcome = get_context(StartMethod::Fork).spawn(nothing, (), 1);
                    outcome.map_or_else(|error| error.to_string(), |_| "started".to_owned())
                }
                "bad-call" => {
                    let outcome = get_context(StartMethod::Spawn).spawn(bad_call, (), 1);
                    outcome.map_or_else(|error| error.to_string(), |_| "no error".to_owned())
                }
                other => panic!("no command is called {other:?}"),
            };
            link.say(&answer.replace('\n', " "));
        }
    }
}

/// Says whether its event is done at the line `done`, and waits for it at `synchronize`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Synchronizer {
    /// From whoever starts it.
    pub event: IpcEvent,
}

impl Task for Synchronizer {
    const NAME: &'static str = "synchronizer";

    fn run(self, context: &Context) {
        let device = Driver::load().and_then(|driver| driver.device(0)).unwrap();
        let device = device.retain_primary_context().unwrap();
        while let Some(line) = context.hear() {
            match line.as_str() {
                "done" => context.say(self.event.is_done(&device).unwrap().to_string()),
                _ => {
                    self.event.synchronize(&device).unwrap();
                    context.say("ok");
                }
            }
        }
    }
}
