//! A member of a domain that makes, sends, receives and uses device tensors.

mod comings;

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::sync::{Arc, Barrier, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::queue::Queue;
use tensorferry::tensor::Tensor;
use tensorferry_cuda_ipc::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use tensorferry_cuda_ipc::cudarc::driver::{CudaContext, CudaStream, DevicePtr};
use tensorferry_cuda_ipc::{
    CacheLimits, CudaStrategy, CudaTensor, CudaTensorError, DeviceMapping, DeviceMemory, Driver, IpcEvent,
    PrimaryContext, ShareError, ShareOptions, Stream, device_stats, empty_cache, get_all_cuda_strategies,
    ipc_collect, set_cache_limits, set_cuda_strategy, use_exportable_pool,
};

use crate::hardware::is_real;
use crate::raw_driver::{RawDriver, slice_at, track_nothing};
use crate::{Context, Task, gate};

/// What the members send each other.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Cargo {
    /// In the memory of devices.
    pub device: Vec<CudaTensor<u32>>,
    /// In the memory of the host.
    pub host: Option<Tensor<u32>>,
    /// Points of streams.
    pub events: Vec<IpcEvent>,
    /// Tensors of other types.
    pub mixed: Vec<Mixed>,
}

/// A tensor of one type or another.
#[derive(Debug, Serialize, Deserialize)]
pub enum Mixed {
    /// 32-bit floating-point numbers.
    Floats(CudaTensor<f32>),
    /// Bytes.
    Bytes(CudaTensor<u8>),
    /// 64-bit whole numbers.
    Wholes(CudaTensor<i64>),
}

/// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
const INTERNAL_DEPENDENCIES: i32 = 3;

/// The lengths of the tensors of one `put-states`.
const STATE_LENS: [usize; 5] = [1, 64, 1000, 64 * 64, 300_000];

/// Does one thing for each line, and answers `ok`, what was asked for, or `error: ` and the error. Tensors
/// and streams have names; a stream is made when it is first named.
///
/// | line | does |
/// | --- | --- |
/// | `load DEVICE` | loads the driver; streams are of this device from now on |
/// | `make NAME STREAM LEN VALUE` | `VALUE`, `VALUE + 1`, and so on |
/// | `zeros NAME STREAM LEN` | |
/// | `copy TO STREAM FROM` | queues a copy |
/// | `read NAME STREAM` | the first and the last element and the sum |
/// | `read-into NAME STREAM LEN` | the same, into memory of that length |
/// | `begin-reading NAME STREAM`, `end-reading STREAM` | the same in a thread of its own, called `reading-STREAM` |
/// | `begin-putting QUEUE NAME`, `end-putting` | as `put`, in a thread of its own, called `putting` |
/// | `read-by-many NAME` | the same in eight threads at once, each with a stream of its own |
/// | `fill-descriptors`, `drain-descriptors` | takes all descriptors that it may have, and gives them back |
/// | `ready NAME STREAM` | has the stream wait for the tensor |
/// | `written NAME`, `wait-stream STREAM` | whether the sender's device is done; waits for the stream |
/// | `behind STREAM OTHER` | the stream waits for what is queued on the other one |
/// | `narrow NEW NAME START LEN`, `same A B`, `drop NAME` | |
/// | `put QUEUE NAME...`, `get QUEUE NAME...` | one message with device tensors and a host tensor |
/// | `collect`, `empty`, `stats`, `used` | `used` is the memory in use on the device, in MiB |
/// | `control WORD` | tells the software driver something; `held` and `running` work with every driver |
/// | `poll QUEUE NAME` | as `get`, for a tensor alone; answers `empty` instead of waiting |
/// | `limits FREE_MIB IDLE_SLABS` | how much is kept for later |
/// | `full-device-timeout SECONDS` | how long is waited for a full device |
/// | `produce QUEUE STREAM N` | sends tensors of one element: 0, 1, and so on |
/// | `relay FROM TO STREAM N` | sends a copy of each, made on the device |
/// | `consume QUEUE STREAM N` | the sum of their elements |
/// | `descriptors` | how many are open |
/// | `event NAME`, `record NAME STREAM`, `wait NAME STREAM`, `done NAME`, `synchronize NAME`, `drop-event NAME` | |
/// | `put-event QUEUE NAME`, `get-event QUEUE NAME` | |
/// | `cudarc STREAM` | makes this stream by cudarc |
/// | `forget STREAM`, `streams-of-cudarc`, `threads` | the stream is the program's no more; how many there are of those made by cudarc, and threads |
/// | `capture STREAM MODE`, `end-capture STREAM` | captures what it is given, in the mode `global` or `relaxed` |
/// | `map NAME`, `unmap NAME` | makes memory and maps it; drops both |
/// | `slice NAME STREAM LEN VALUE [on=STREAM]` | as `make`, from a slice of cudarc |
/// | `read-slice NAME STREAM [OTHER]`, `clear-slice NAME STREAM` | as `read`, and all zeros, by cudarc, perhaps on another of its streams |
/// | `strategies`, `strategy NAME`, `strategy-of NAME` | those that work; sets the one of the process (`any` for none); of a tensor |
/// | `make-by STRATEGY NAME STREAM LEN VALUE` | as `make` |
/// | `stage NEW NAME STREAM` | a copy on the host |
/// | `from-host NAME STREAM LEN VALUE`, `to-host NAME STREAM` | as `make` and `read`, from and to a tensor of the host |
/// | `exportable-pool` | what cudarc allocates can be exported from now on |
/// | `internal-dependencies` | whether the current pool makes streams wait for each other to use memory again: 0 or 1 |
/// | `share NAME STREAM LEN VALUE [strict] [STRATEGY] [on=STREAM] [capturing]` | as `slice`; on another stream; once the first one captures; answers `as it is` or `copied` |
/// | `track-nothing STREAM` | cudarc does not track slices that it makes from now on |
/// | `share-mapped STREAM` | the same with memory of `cuMemCreate`, which is given back and copied |
/// | `device NAME`, `uuid` | on which device a tensor lies; which one is loaded |
/// | `put-mixed QUEUE STREAM`, `get-mixed QUEUE STREAM` | six tensors of three types, half of them without elements |
/// | `put-states QUEUE STREAM N`, `get-states QUEUE STREAM N` | messages with five tensors each; checks them |
/// | `argument NAME` | takes the next tensor of the task's arguments |
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DeviceMember {
    /// For messages.
    pub queues: Vec<Queue<Cargo>>,
    /// Spawn arguments.
    pub tensors: Vec<CudaTensor<u32>>,
}

struct State {
    task: DeviceMember,
    device: Option<PrimaryContext>,
    streams: HashMap<String, Stream>,
    of_cudarc: HashMap<String, Arc<CudaStream>>,
    /// All that there were.
    made_by_cudarc: Vec<Weak<CudaStream>>,
    mappings: HashMap<String, (DeviceMapping, DeviceMemory)>,
    events: HashMap<String, IpcEvent>,
    tensors: HashMap<String, CudaTensor<u32>>,
    descriptors: Vec<File>,
    /// By their streams.
    reading: HashMap<String, JoinHandle<Result<Vec<u32>, CudaTensorError>>>,
    putting: Option<JoinHandle<bool>>,
}

type Answer = Result<String, Box<dyn std::error::Error>>;

impl Task for DeviceMember {
    const NAME: &'static str = "device-member";

    fn run(self, context: &Context) {
        let mut state = State {
            task: self,
            device: None,
            streams: HashMap::new(),
            of_cudarc: HashMap::new(),
            made_by_cudarc: Vec::new(),
            mappings: HashMap::new(),
            events: HashMap::new(),
            tensors: HashMap::new(),
            descriptors: Vec::new(),
            reading: HashMap::new(),
            putting: None,
        };
        while let Some(line) = context.hear() {
            let words: Vec<&str> = line.split(' ').collect();
            context.say(state.obey(&words).unwrap_or_else(|error| format!("error: {error}")));
        }
    }
}

/// Holds a stream that was made, or was there, while streams are held.
fn hold_if_closed(stream: &Stream) -> Result<(), Box<dyn std::error::Error>> {
    if is_real() {
        let _current = stream.context().make_current()?;
        gate::hold_if_closed(&RawDriver::load(), stream.handle());
    }
    Ok(())
}

/// Ends the capture, and throws the graph away.
fn end_capture(stream: &Arc<CudaStream>) -> Result<(), Box<dyn std::error::Error>> {
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    drop(stream.end_capture(flags)?);
    Ok(())
}

/// The first and the last element and the sum.
fn shown(values: &[u32]) -> String {
    let sum: u64 = values.iter().copied().map(u64::from).sum();
    let ends = values.first().zip(values.last());
    ends.map_or_else(|| "nothing".to_owned(), |(a, b)| format!("{a} {b} {sum}"))
}

impl State {
    fn stream(&mut self, name: &str) -> Result<Stream, Box<dyn std::error::Error>> {
        if let Some(stream) = self.streams.get(name) {
            return Ok(stream.clone());
        }
        let stream = Stream::create(self.context())?;
        hold_if_closed(&stream)?;
        self.streams.insert(name.to_owned(), stream.clone());
        Ok(stream)
    }

    fn context(&self) -> &PrimaryContext {
        self.device.as_ref().expect("`load` comes first")
    }

    fn tensor(&self, name: &str) -> &CudaTensor<u32> {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor is called {name}"))
    }

    fn keep(&mut self, name: &str, tensor: CudaTensor<u32>) {
        self.tensors.insert(name.to_owned(), tensor);
    }

    fn obey(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["load", device] => {
                self.device = Some(Driver::load()?.device(device.parse()?)?.retain_primary_context()?);
            }
            ["make", name, stream, len, value] => {
                let first: u32 = value.parse()?;
                let values: Vec<u32> = (first..).take(len.parse()?).collect();
                let tensor = CudaTensor::from_slice(&self.stream(stream)?, &values, [values.len()])?;
                self.keep(name, tensor);
            }
            ["zeros" | "unwritten", name, stream, len] => {
                let (stream, shape) = (self.stream(stream)?, [len.parse()?]);
                let make = if words[0] == "zeros" { CudaTensor::zeros } else { CudaTensor::empty };
                self.keep(name, make(&stream, shape)?);
            }
            ["copy", to, stream, from] => {
                let stream = self.stream(stream)?;
                self.tensor(to).copy_from(&stream, self.tensor(from))?;
            }
            ["ready", name, stream] => {
                let stream = self.stream(stream)?;
                let _ = self.tensor(name).on(&stream)?;
            }
            ["read", name, stream] => {
                let stream = self.stream(stream)?;
                return Ok(shown(&self.tensor(name).to_vec(&stream)?));
            }
            ["read-into", name, stream, len] => {
                let (stream, mut values) = (self.stream(stream)?, vec![0; len.parse()?]);
                self.tensor(name).read_into(&stream, &mut values)?;
                return Ok(shown(&values));
            }
            ["narrow", new, name, start, len] => {
                let view = self.tensor(name).narrow(0, start.parse()?, len.parse()?)?;
                self.keep(new, view);
            }
            ["same", a, b] => return Ok(self.tensor(a).shares_storage_with(self.tensor(b)).to_string()),
            ["drop", name] => drop(self.tensors.remove(name).expect("there is such a tensor")),
            ["put", queue, ref names @ ..] => {
                let device = names.iter().map(|name| self.tensor(name).clone()).collect();
                let host = Some(Tensor::from_vec(vec![7; 100], [100])?);
                self.task.queues[queue.parse::<usize>()?].put(Cargo { device, host, ..Cargo::default() })?;
            }
            ["get", queue, ref names @ ..] => {
                let cargo = self.task.queues[queue.parse::<usize>()?].get()?;
                assert!(cargo.host.is_some_and(|host| host.to_vec() == [7; 100]));
                assert_eq!(cargo.device.len(), names.len());
                for (name, tensor) in names.iter().zip(cargo.device) {
                    self.keep(name, tensor);
                }
            }
            ["argument", name] => {
                let tensor = self.task.tensors.remove(0);
                self.keep(name, tensor);
            }
            ["collect"] => ipc_collect(),
            ["empty"] => empty_cache(),
            ["stats"] => return Ok(format!("{:?}", device_stats())),
            ["used"] => {
                let info = self.context().memory_info()?;
                return Ok(((info.total_bytes - info.free_bytes) >> 20).to_string());
            }
            ["control", "held"] if is_real() => {
                gate::close();
                self.streams.values().try_for_each(hold_if_closed)?;
            }
            ["control", "running"] if is_real() => gate::open(),
            ["control", word] => {
                let driver = RawDriver::load();
                assert_eq!(driver.control(CString::new(word)?.as_ptr()), 0);
            }
            ["device", name] => {
                let uuid = self.tensor(name).device_uuid();
                return Ok(uuid.map_or_else(|| "nowhere".to_owned(), |uuid| uuid.to_string()));
            }
            ["uuid"] => return Ok(self.context().device().uuid()?.to_string()),
            ["descriptors"] => return Ok(std::fs::read_dir("/proc/self/fd")?.count().to_string()),
            _ => return self.obey_with_uploads(words),
        }
        Ok("ok".to_owned())
    }

    fn obey_with_uploads(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["upload", name, stream, len, value] => {
                let values = (value.parse()?..).take(len.parse()?).collect::<Vec<u32>>();
                let values = Tensor::from_vec(values, [len.parse()?])?;
                let tensor = CudaTensor::from_tensor_non_blocking(&self.stream(stream)?, &values)?;
                self.keep(name, tensor);
            }
            ["upload-into", name, stream, value] => {
                let stream = self.stream(stream)?;
                let tensor = self.tensor(name);
                let values: Vec<u32> = (value.parse()?..).take(tensor.n_elements()).collect();
                tensor.write_from_non_blocking(&stream, &values)?;
            }
            ["upload-column", name, stream, len] => {
                let values = Tensor::from_vec((0..2 * len.parse::<u32>()?).collect(), [len.parse()?, 2])?;
                let column = values.select(1, 1)?;
                let tensor = CudaTensor::from_tensor_non_blocking(&self.stream(stream)?, &column)?;
                self.keep(name, tensor);
            }
            _ => return self.obey_with_threads(words),
        }
        Ok("ok".to_owned())
    }

    fn queue(&self, index: &str) -> Result<Queue<Cargo>, Box<dyn std::error::Error>> {
        Ok(self.task.queues[index.parse::<usize>()?].clone())
    }

    fn obey_with_threads(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["written", name] => return Ok(self.tensor(name).is_written()?.to_string()),
            ["wait-stream", stream] => self.stream(stream)?.synchronize()?,
            ["behind", stream, other] => {
                let (stream, other) = (self.stream(stream)?, self.stream(other)?);
                stream.wait_stream(&other)?;
            }
            ["begin-reading", name, stream_name] => {
                let (stream, tensor) = (self.stream(stream_name)?, self.tensor(name).clone());
                let thread = std::thread::Builder::new().name(format!("reading-{stream_name}"));
                self.reading.insert(stream_name.to_owned(), thread.spawn(move || tensor.to_vec(&stream))?);
            }
            ["end-reading", stream] => {
                let reading = self.reading.remove(stream).expect("`begin-reading` comes first");
                return Ok(shown(&reading.join().expect("it does not panic")?));
            }
            ["begin-putting", queue, name] => {
                let cargo = Cargo { device: vec![self.tensor(name).clone()], ..Cargo::default() };
                let queue = self.queue(queue)?;
                let thread = std::thread::Builder::new().name("putting".to_owned());
                self.putting = Some(thread.spawn(move || queue.put(cargo).is_ok())?);
            }
            ["end-putting"] => {
                let putting = self.putting.take().expect("`begin-putting` comes first");
                assert!(putting.join().expect("it does not panic"));
            }
            ["read-by-many", name] => {
                let (context, tensor) = (self.context().clone(), self.tensor(name).clone());
                let n_threads = 8;
                let start = Barrier::new(n_threads);
                let read = || -> Result<String, CudaTensorError> {
                    let stream = Stream::create(&context)?;
                    start.wait();
                    Ok(shown(&tensor.to_vec(&stream)?))
                };
                let all = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(read)).collect();
                    let joined = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
                    joined.collect::<Result<Vec<String>, CudaTensorError>>()
                });
                let mut all = all?;
                all.dedup();
                return Ok(all.join(", "));
            }
            ["fill-descriptors"] => {
                self.descriptors.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            }
            ["drain-descriptors"] => self.descriptors.clear(),
            _ => return self.obey_in_bulk(words),
        }
        Ok("ok".to_owned())
    }

    fn obey_in_bulk(&mut self, words: &[&str]) -> Answer {
        let cargo = |tensor| Cargo { device: vec![tensor], ..Cargo::default() };
        let tensor_of = |mut cargo: Cargo| cargo.device.pop().expect("a tensor in each message");
        match *words {
            ["poll", queue, name] => match self.queue(queue)?.get_nowait() {
                Ok(message) => self.keep(name, tensor_of(message)),
                Err(_) => return Ok("empty".to_owned()),
            },
            ["limits", free_mib, idle_slabs] => {
                let free_bytes = free_mib.parse::<usize>()? << 20;
                let idle_slabs = idle_slabs.parse()?;
                set_cache_limits(CacheLimits::new().free_bytes(free_bytes).idle_slabs(idle_slabs));
            }
            ["full-device-timeout", seconds] => {
                let timeout = Duration::from_secs(seconds.parse()?);
                set_cache_limits(CacheLimits::new().full_device_timeout(timeout));
            }
            ["produce", queue, stream, n] => {
                let (queue, stream) = (self.queue(queue)?, self.stream(stream)?);
                for i in 0..n.parse()? {
                    queue.put(cargo(CudaTensor::from_slice(&stream, &[i], [1])?))?;
                }
            }
            ["relay", from, to, stream, n] => {
                let (from, to, stream) = (self.queue(from)?, self.queue(to)?, self.stream(stream)?);
                for _ in 0..n.parse()? {
                    let copy = CudaTensor::empty(&stream, [1])?;
                    copy.copy_from(&stream, &tensor_of(from.get()?))?;
                    to.put(cargo(copy))?;
                }
            }
            ["consume", queue, stream, n] => {
                let (queue, stream) = (self.queue(queue)?, self.stream(stream)?);
                let mut sum = 0;
                for _ in 0..n.parse()? {
                    sum += u64::from(tensor_of(queue.get()?).to_vec(&stream)?[0]);
                }
                return Ok(sum.to_string());
            }
            ["put-states", queue, stream, n] => {
                let (queue, stream) = (self.queue(queue)?, self.stream(stream)?);
                for i in 0..n.parse()? {
                    let of_length = |len| CudaTensor::from_slice(&stream, &vec![i; len], [len]);
                    let device = STATE_LENS.into_iter().map(of_length).collect::<Result<_, _>>()?;
                    queue.put(Cargo { device, ..Cargo::default() })?;
                }
            }
            ["get-states", queue, stream, n] => {
                let (queue, stream) = (self.queue(queue)?, self.stream(stream)?);
                for i in 0..n.parse()? {
                    for (len, tensor) in STATE_LENS.into_iter().zip(queue.get()?.device) {
                        assert_eq!(tensor.to_vec(&stream)?, vec![i; len]);
                    }
                }
            }
            ["put-mixed", queue, stream] => {
                let (queue, stream) = (self.queue(queue)?, self.stream(stream)?);
                let mixed = vec![
                    Mixed::Floats(CudaTensor::from_slice(&stream, &[0.5; 30], [5, 6])?),
                    Mixed::Bytes(CudaTensor::from_slice(&stream, &[200; 30], [30])?),
                    Mixed::Wholes(CudaTensor::from_slice(&stream, &[-7; 30], [30])?),
                    Mixed::Floats(CudaTensor::zeros(&stream, [0])?),
                    Mixed::Bytes(CudaTensor::zeros(&stream, [3, 0])?),
                    Mixed::Wholes(CudaTensor::zeros(&stream, [0, 2])?),
                ];
                queue.put(Cargo { mixed, ..Cargo::default() })?;
            }
            ["get-mixed", queue, stream] => {
                let (queue, stream) = (self.queue(queue)?, self.stream(stream)?);
                let shown = |mixed| match mixed {
                    Mixed::Floats(tensor) => Ok(format!("{:?}{:?}", tensor.shape(), tensor.to_vec(&stream)?)),
                    Mixed::Bytes(tensor) => Ok(format!("{:?}{:?}", tensor.shape(), tensor.to_vec(&stream)?)),
                    Mixed::Wholes(tensor) => Ok(format!("{:?}{:?}", tensor.shape(), tensor.to_vec(&stream)?)),
                };
                let all =
                    queue.get()?.mixed.into_iter().map(shown).collect::<Result<Vec<_>, CudaTensorError>>();
                return Ok(all?.join(" "));
            }
            _ => return self.obey_with_strategies(words),
        }
        Ok("ok".to_owned())
    }

    fn obey_with_strategies(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["strategies"] => {
                let all = get_all_cuda_strategies(self.context())?;
                return Ok(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            }
            ["strategy", "any"] => set_cuda_strategy(None),
            ["strategy", name] => set_cuda_strategy(name.parse::<CudaStrategy>()?),
            ["strategy-of", name] => return Ok(self.tensor(name).strategy().expect("elements").to_string()),
            ["make-by", strategy, name, stream, len, value] => {
                let stream = self.stream(stream)?;
                let strategy: CudaStrategy = strategy.parse()?;
                let values: Vec<u32> = (value.parse()?..).take(len.parse()?).collect();
                let tensor = CudaTensor::empty_by(&stream, [values.len()], strategy)?;
                tensor.write_from(&stream, &values)?;
                self.keep(name, tensor);
            }
            ["from-host", name, stream, len, value] => {
                let first: u32 = value.parse()?;
                let values: Vec<u32> = (first..).take(len.parse()?).collect();
                let n_rows = values.len() / 2;
                let host = Tensor::from_vec(values, [n_rows, 2])?;
                // Column by column, so that a copy of the bytes as they lie would be noticed.
                let tensor = CudaTensor::from_tensor(&self.stream(stream)?, &host.transpose(0, 1)?)?;
                self.keep(name, tensor);
            }
            ["to-host", name, stream] => {
                let stream = self.stream(stream)?;
                let host = self.tensor(name).to_tensor(&stream)?;
                assert_eq!(host.shape(), self.tensor(name).shape());
                return Ok(shown(&host.to_vec()));
            }
            ["stage", new, name, stream] => {
                let stream = self.stream(stream)?;
                let staged = self.tensor(name).to_staged(&stream)?;
                self.keep(new, staged);
            }
            ["exportable-pool"] => use_exportable_pool(self.context())?,
            ["internal-dependencies"] => {
                let (driver, mut pool, mut value) = (RawDriver::load(), 0, -1);
                assert_eq!(driver.current_pool(&mut pool, self.context().device().ordinal()), 0);
                assert_eq!(driver.pool_attribute(pool, INTERNAL_DEPENDENCIES, &mut value), 0);
                return Ok(value.to_string());
            }
            ["share", name, stream, len, value, ref options @ ..] => {
                let (mut share, mut on) = (ShareOptions::new(), stream);
                let values: Vec<u32> = (value.parse()?..).take(len.parse()?).collect();
                let slice = self.of_cudarc[stream].clone_htod(&values)?;
                let address = slice.device_ptr(&self.of_cudarc[stream]).0;
                for option in options {
                    match option.split_once('=') {
                        Some(("on", other)) => on = other,
                        _ if *option == "strict" => share = share.strict(),
                        _ if *option == "capturing" => drop(self.obey(&["capture", stream, "relaxed"])?),
                        _ => share = share.strategy(option.parse()?),
                    }
                }
                let on = self.stream(on)?;
                let tensor = CudaTensor::share_with(&on, slice, [values.len()], share)?;
                let is_same = tensor.on(&on)?.address() == address;
                assert_eq!(tensor.is_lent(), is_same);
                self.keep(name, tensor);
                return Ok(if is_same { "as it is" } else { "copied" }.to_owned());
            }
            ["share-mapped", stream] => {
                let len_bytes = self.context().device().granularity_bytes()?;
                let memory = DeviceMemory::create(self.context().device(), len_bytes)?;
                let mapping = DeviceMapping::map(&memory, self.context())?;
                let slice = slice_at(&self.of_cudarc[stream], mapping.address(), 10);
                let on = self.stream(stream)?;
                let shared = CudaTensor::<u32>::share(&on, slice, [10]);
                let ShareError { slice, error } = shared.expect_err("it is no memory of cudarc");
                CudaTensor::from_cuda_slice(&on, &slice, [10])?.to_vec(&on)?;
                slice.leak();
                return Err(error.into());
            }
            _ => return self.obey_with_events(words),
        }
        Ok("ok".to_owned())
    }

    fn obey_with_events(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["event", name] => {
                self.events.insert(name.to_owned(), IpcEvent::create(self.context())?);
            }
            ["record", name, stream] => {
                let stream = self.stream(stream)?;
                self.events[name].record(&stream)?;
            }
            ["wait", name, stream] => {
                let stream = self.stream(stream)?;
                self.events[name].wait(&stream)?;
            }
            ["done", name] => return Ok(self.events[name].is_done(self.context())?.to_string()),
            ["synchronize", name] => self.events[name].synchronize(self.context())?,
            ["drop-event", name] => drop(self.events.remove(name).expect("there is such an event")),
            ["put-event", queue, name] => {
                let events = vec![self.events[name].clone()];
                self.queue(queue)?.put(Cargo { events, ..Cargo::default() })?;
            }
            ["get-event", queue, name] => {
                let mut cargo = self.queue(queue)?.get()?;
                self.events.insert(name.to_owned(), cargo.events.pop().expect("an event in the message"));
            }
            _ => return self.obey_with_cudarc(words),
        }
        Ok("ok".to_owned())
    }

    fn obey_with_cudarc(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["cudarc", name] => {
                let ordinal = usize::try_from(self.context().device().ordinal())?;
                let theirs = CudaContext::new(ordinal)?.new_stream()?;
                self.streams.insert(name.to_owned(), Stream::try_from(&theirs)?);
                self.made_by_cudarc.push(Arc::downgrade(&theirs));
                self.of_cudarc.insert(name.to_owned(), theirs);
            }
            ["capture", stream, mode] => {
                let mode = match mode {
                    "global" => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
                    _ => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
                };
                self.of_cudarc[stream].begin_capture(mode)?;
            }
            ["end-capture", stream] => end_capture(&self.of_cudarc[stream])?,
            // What is on a stream before it captures is asked for as a slice while it does.
            ["slice-in-capture", name, stream] => {
                let on = self.stream(stream)?;
                let on = self.tensor(name).on(&on)?;
                let theirs = &self.of_cudarc[stream];
                theirs.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
                let slice = on.as_cuda_slice().map(drop);
                end_capture(theirs)?;
                slice?;
            }
            // Another stream clears the slice, which is dropped while its own captures.
            ["slice-until-capture", name, stream, other] => {
                let on = self.stream(stream)?;
                let on = self.tensor(name).on(&on)?;
                let mut slice = on.as_cuda_slice()?;
                self.of_cudarc[other].memset_zeros(&mut slice.view_mut())?;
                let theirs = &self.of_cudarc[stream];
                theirs.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
                drop(slice);
                end_capture(theirs)?;
            }
            ["per-thread"] => {
                Stream::try_from(&CudaContext::new(0)?.per_thread_stream())?;
            }
            ["slice", name, stream, len, value] => {
                return self.obey(&["slice", name, stream, len, value, &format!("on={stream}")]);
            }
            ["slice", name, stream, len, value, on] => {
                let on = self.stream(on.trim_start_matches("on="))?;
                let first: u32 = value.parse()?;
                let values: Vec<u32> = (first..).take(len.parse()?).collect();
                let slice = self.of_cudarc[stream].clone_htod(&values)?;
                let tensor = CudaTensor::from_cuda_slice(&on, &slice, [values.len()])?;
                self.keep(name, tensor);
            }
            ["read-slice", name, stream] => return self.obey(&["read-slice", name, stream, stream]),
            ["read-slice", name, stream, other] => {
                let on = self.stream(stream)?;
                let on = self.tensor(name).on(&on)?;
                return Ok(shown(&self.of_cudarc[other].clone_dtoh(&*on.as_cuda_slice()?)?));
            }
            ["track-nothing", stream] => track_nothing(&self.of_cudarc[stream]),
            ["clear-slice", name, stream] => {
                let on = self.stream(stream)?;
                let on = self.tensor(name).on(&on)?;
                self.of_cudarc[stream].memset_zeros(&mut on.as_cuda_slice()?.view_mut())?;
            }
            _ => return self.obey_about_comings(words),
        }
        Ok("ok".to_owned())
    }
}
