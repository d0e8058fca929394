//! Device tensors: from `put` in one process until another has them ready on its stream, or has read the
//! first element.
//!
//! One process puts, the other, started before the clock, answers with a number; so each figure is a round
//! trip with a number on the way back. Beside it the same with tensors of the host, with a copy through host
//! memory, and, when `--python PATH` names a Python that has PyTorch, through torch's queues on the same
//! device. `--check` fails when a target is missed; without a device a target is not measured. With
//! `--simulate`, or wherever the device is the software driver's, the figures say nothing, and no target is
//! checked.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use lexopt::prelude::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tensorferry::cuda::{DRIVER_VARIABLE, Driver, IpcEvent, Stream, device_stats, empty_cache, ipc_collect};
use tensorferry::spawn::{Options as SpawnOptions, Process};
use tensorferry::{CudaTensor, GetError, Queue, Tensor, func};
use tensorferry_benches::{ask_python, median, number, open_descriptors};

const SIZES_BYTES: [usize; 5] = [4 << 10, 64 << 10, 2 << 20, 64 << 20, 1 << 30];
/// The size that targets are about.
const CHECKED_BYTES: usize = 2 << 20;
/// What is larger is not copied through the host.
const MAX_COPIED_BYTES: usize = 64 << 20;
/// The first element of a message is one of these numbers.
const N_NUMBERS: usize = 1024;
const N_WARM: usize = 20;
/// How much of the device memory in use may be somebody else's.
const SLACK_BYTES: usize = 64 << 20;
const KILLED_BYTES: usize = 512 << 20;
/// How soon after a kill memory has to be back; who waits longer gives up later.
const MAX_BACK: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(20);

const MAX_OF_QUEUE_AND_EVENT: f64 = 1.5;
const MIN_OF_TORCH: f64 = 5.0;
/// "As cheap as": what two medians of one thing may differ by.
const MAX_OF_HELD: f64 = 1.25;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/device_tensors.py");
/// A rehearsal is one of contexts that take about as much memory as those of real drivers.
const MACHINE: &str = "context_mib=500";
/// How the software driver calls its devices.
const SOFTWARE: &str = "software device";

/// What the user asked for.
#[derive(Clone, Debug)]
struct Options {
    python: Option<OsString>,
    script: PathBuf,
    json: Option<PathBuf>,
    n_rounds: usize,
    n_sends: usize,
    max_bytes: usize,
    check: bool,
    is_simulated: bool,
}

impl Options {
    fn parse(mut arguments: lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self {
            python: None,
            script: SCRIPT.into(),
            json: None,
            n_rounds: 300,
            n_sends: 100_000,
            max_bytes: SIZES_BYTES[SIZES_BYTES.len() - 1],
            check: false,
            is_simulated: false,
        };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("python") => options.python = Some(arguments.value()?),
                Long("script") => options.script = arguments.value()?.into(),
                Long("json") => options.json = Some(arguments.value()?.into()),
                Long("rounds") => options.n_rounds = arguments.value()?.parse()?,
                Long("sends") => options.n_sends = arguments.value()?.parse()?,
                Long("max-mib") => options.max_bytes = arguments.value()?.parse::<usize>()? << 20,
                Long("quick") => (options.n_rounds, options.n_sends) = (20, 1000),
                Long("check") => options.check = true,
                Long("simulate") => options.is_simulated = true,
                // What `cargo bench` adds to every bench.
                Long("bench") => {}
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.n_rounds > 0, "--rounds has to be at least 1");
        Ok(options)
    }

    /// How processes find the driver.
    fn variables(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        if !self.is_simulated {
            return Ok(Vec::new());
        }
        let variables = tensorferry_sim_cuda::environment(DRIVER_VARIABLE, MACHINE);
        Ok(variables.context("cargo builds the software driver")?.into())
    }
}

/// What the far process is asked to do.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Device {
        tensor: CudaTensor<u32>,
        reads: bool,
        keeps: bool,
    },
    Host(Tensor<u32>),
    /// Copies what came to its device.
    Copied(Tensor<u32>),
    /// Lets go of everything, and of what it has mapped.
    Forget,
}

/// What it answers: how long it took until the tensor was ready, and the first element if it was read.
type Reply = (u64, u32);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    what: String,
    size_bytes: usize,
    median_us: f64,
    p99_us: f64,
}

/// What must not grow with the number of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    descriptors: usize,
    timelines: usize,
    slabs: usize,
    device_mib: usize,
}

/// All that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Report {
    card: String,
    rows: Vec<Row>,
    /// Before and after the many messages.
    kept: Vec<Kept>,
    n_sends: usize,
    /// Until memory was back after the receiver, and after the maker, was killed; NaN where it was not.
    killed_receiver_ms: f64,
    killed_maker_ms: f64,
    torch: Option<Torch>,
}

/// What the script says, in its last line.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Torch {
    version: String,
    rows: Vec<Row>,
}

impl Report {
    fn median_us(&self, what: &str, size_bytes: usize) -> Option<f64> {
        median_of(&self.rows, what, size_bytes)
    }
}

fn median_of(rows: &[Row], what: &str, size_bytes: usize) -> Option<f64> {
    let row = rows.iter().find(|row| row.what == what && row.size_bytes == size_bytes);
    row.map(|row| row.median_us)
}

fn stream() -> Result<Stream, Error> {
    Ok(Stream::create(&Driver::load()?.device(0)?.retain_primary_context()?)?)
}

/// Both sides of all round trips.
#[func]
fn pair(
    rank: usize,
    (n_rounds, n_sends, max_bytes): (usize, usize, usize),
    messages: Queue<Message>,
    replies: Queue<Reply>,
) -> Result<Report, Error> {
    if rank == 1 {
        far(&messages, &replies)?;
        return Ok(Report::default());
    }
    let stream = stream()?;
    let numbers: Vec<u32> = (0..).take(N_NUMBERS).collect();
    let numbers = CudaTensor::from_slice(&stream, &numbers, [N_NUMBERS])?;
    let mut near = Near { stream, numbers, messages, replies, n_rounds, rows: Vec::new() };
    let total = near.stream.context().memory_info()?.total_bytes;
    // Two of a size are on the device at once, and the cache may keep one more.
    for size_bytes in SIZES_BYTES.into_iter().filter(|&size| size <= max_bytes && size < total / 4) {
        near.measure(size_bytes)?;
    }
    near.event()?;
    let kept = near.send_many(n_sends)?;
    near.messages.close();
    let card = near.stream.context().device().name()?;
    Ok(Report { card, rows: near.rows, kept, n_sends, ..Report::default() })
}

fn far(messages: &Queue<Message>, replies: &Queue<Reply>) -> Result<(), Error> {
    let stream = stream()?;
    let mut held = None;
    loop {
        let (mut ready_ns, mut first) = (0, 0);
        match messages.get() {
            Err(GetError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(Message::Device { tensor, reads, keeps }) => {
                let begin = Instant::now();
                let _ = tensor.on(&stream)?;
                ready_ns = u64::try_from(begin.elapsed().as_nanos())?;
                if reads {
                    first = tensor.narrow(0, 0, 1)?.to_vec(&stream)?[0];
                }
                held = keeps.then_some(tensor);
            }
            Ok(Message::Host(tensor)) => first = tensor.narrow(0, 0, 1)?.to_vec()[0],
            Ok(Message::Copied(tensor)) => {
                let here = CudaTensor::from_tensor(&stream, &tensor)?;
                first = here.narrow(0, 0, 1)?.to_vec(&stream)?[0];
            }
            Ok(Message::Forget) => {
                drop(held.take());
                stream.synchronize()?;
                ipc_collect();
                empty_cache();
            }
        }
        replies.put((ready_ns, first))?;
    }
}

struct Near {
    stream: Stream,
    numbers: CudaTensor<u32>,
    messages: Queue<Message>,
    replies: Queue<Reply>,
    n_rounds: usize,
    rows: Vec<Row>,
}

impl Near {
    fn measure(&mut self, size_bytes: usize) -> Result<(), Error> {
        let n_elements = size_bytes / size_of::<u32>();
        let held = CudaTensor::zeros(&self.stream, [n_elements])?;
        let again = || Ok(held.clone());
        self.device("held, ready", size_bytes, again, false, true)?;
        self.device("held, read", size_bytes, again, true, true)?;
        self.device("dropped, ready", size_bytes, again, false, false)?;
        self.device("dropped, read", size_bytes, again, true, false)?;
        let stream = self.stream.clone();
        let fresh = || Ok(CudaTensor::zeros(&stream, [n_elements])?);
        self.device("fresh, ready", size_bytes, fresh, false, false)?;
        self.device("fresh, read", size_bytes, fresh, true, false)?;
        self.first_open(size_bytes, &held)?;
        drop(held);
        if size_bytes <= MAX_COPIED_BYTES {
            self.host(size_bytes)?;
        }
        self.ask(Message::Forget)?;
        empty_cache();
        Ok(())
    }

    fn ask(&self, message: Message) -> Result<Reply, Error> {
        self.messages.put(message)?;
        Ok(self.replies.get()?)
    }

    /// Work on the stream, which the other process has to wait for: writes the first element.
    fn begin(&self, round: usize, tensor: &CudaTensor<u32>) -> Result<u32, Error> {
        let index = round % N_NUMBERS;
        tensor.narrow(0, 0, 1)?.copy_from(&self.stream, &self.numbers.narrow(0, index, 1)?)?;
        Ok(u32::try_from(index)?)
    }

    fn device(
        &mut self,
        what: &str,
        size_bytes: usize,
        mut tensor: impl FnMut() -> Result<CudaTensor<u32>, Error>,
        reads: bool,
        keeps: bool,
    ) -> Result<(), Error> {
        let round = |near: &Self, i| {
            let tensor = tensor()?;
            let wanted = near.begin(i, &tensor)?;
            let begin = Instant::now();
            let (_, first) = near.ask(Message::Device { tensor, reads, keeps })?;
            let elapsed = begin.elapsed();
            if reads && first != wanted {
                return Err(format!("{what}: the first element is {first}, not {wanted}").into());
            }
            Ok(elapsed)
        };
        self.rounds(what, size_bytes, round)
    }

    /// As the other process sees it: memory that it has not mapped, until it is ready.
    fn first_open(&mut self, size_bytes: usize, tensor: &CudaTensor<u32>) -> Result<(), Error> {
        let round = |near: &Self, i| {
            near.ask(Message::Forget)?;
            near.begin(i, tensor)?;
            let message = Message::Device { tensor: tensor.clone(), reads: false, keeps: false };
            Ok(Duration::from_nanos(near.ask(message)?.0))
        };
        self.rounds("first open", size_bytes, round)
    }

    /// The same by way of the host: as a handle of what lies there, and with copies from the device and to
    /// the device.
    fn host(&mut self, size_bytes: usize) -> Result<(), Error> {
        let n_elements = size_bytes / size_of::<u32>();
        let tensor = Tensor::from_vec(vec![7_u32; n_elements], [n_elements])?.share_memory()?;
        self.rounds("tensor of the host", size_bytes, |near, _| {
            let begin = Instant::now();
            near.ask(Message::Host(tensor.clone()))?;
            Ok(begin.elapsed())
        })?;
        let tensor = CudaTensor::<u32>::zeros(&self.stream, [n_elements])?;
        self.rounds("copied through the host", size_bytes, |near, i| {
            let wanted = near.begin(i, &tensor)?;
            let begin = Instant::now();
            let (_, first) = near.ask(Message::Copied(tensor.to_tensor(&near.stream)?))?;
            let elapsed = begin.elapsed();
            if first != wanted {
                return Err(format!("copied: the first element is {first}, not {wanted}").into());
            }
            Ok(elapsed)
        })
    }

    /// Recording an event, and having another stream wait for it.
    fn event(&mut self) -> Result<(), Error> {
        let (event, other) = (IpcEvent::create(self.stream.context())?, stream()?);
        self.rounds("event record and wait", 0, |near, i| {
            near.begin(i, &near.numbers)?;
            let begin = Instant::now();
            event.record(&near.stream)?;
            event.wait(&other)?;
            Ok(begin.elapsed())
        })
    }

    fn rounds(
        &mut self,
        what: &str,
        size_bytes: usize,
        mut round: impl FnMut(&Self, usize) -> Result<Duration, Error>,
    ) -> Result<(), Error> {
        let mut us = Vec::with_capacity(self.n_rounds);
        for i in 0..N_WARM + self.n_rounds {
            let elapsed = round(self, i)?;
            if i >= N_WARM {
                us.push(elapsed.as_secs_f64() * 1e6);
            }
        }
        us.sort_by(f64::total_cmp);
        let p99_us = us[(us.len() * 99 / 100).min(us.len() - 1)];
        self.rows.push(Row { what: what.to_owned(), size_bytes, median_us: median(&us), p99_us });
        Ok(())
    }

    /// Sends so many, of which nothing may be kept.
    fn send_many(&self, n_sends: usize) -> Result<Vec<Kept>, Error> {
        let mut kept = Vec::new();
        let tensor = CudaTensor::zeros(&self.stream, [1024])?;
        for n in [N_WARM, n_sends] {
            for i in 0..n {
                self.begin(i, &tensor)?;
                self.ask(Message::Device { tensor: tensor.clone(), reads: false, keeps: false })?;
            }
            self.ask(Message::Forget)?;
            self.stream.synchronize()?;
            ipc_collect();
            let (stats, info) = (device_stats(), self.stream.context().memory_info()?);
            let (free, total) = (info.free_bytes, info.total_bytes);
            kept.push(Kept {
                descriptors: open_descriptors()?,
                timelines: stats.timelines,
                slabs: stats.slabs_owned + stats.slabs_received,
                device_mib: (total - free) >> 20,
            });
        }
        Ok(kept)
    }
}

/// Makes a tensor, or holds one that it gets, until it is killed. Says its process number first, and that
/// before it has a context.
#[func]
fn victim(
    _rank: usize,
    makes: bool,
    tensors: Queue<CudaTensor<u32>>,
    told: Queue<u32>,
    goes: Queue<()>,
) -> Result<(), Error> {
    told.put(std::process::id())?;
    goes.get()?;
    let stream = stream()?;
    let _tensor = if makes {
        let tensor = CudaTensor::<u32>::zeros(&stream, [KILLED_BYTES / size_of::<u32>()])?;
        stream.synchronize()?;
        tensors.put(tensor.clone())?;
        tensor
    } else {
        let tensor = tensors.get()?;
        let _ = tensor.on(&stream)?;
        stream.synchronize()?;
        told.put(0)?;
        tensor
    };
    loop {
        std::thread::park();
    }
}

/// Kills the victim, lets go of the tensor itself, and waits until the device has its memory back: how long,
/// in ms.
#[func]
fn survivor(
    _rank: usize,
    victim_makes: bool,
    tensors: Queue<CudaTensor<u32>>,
    told: Queue<u32>,
    goes: Queue<()>,
) -> Result<f64, Error> {
    let stream = stream()?;
    let pid = Pid::from_raw(i32::try_from(told.get()?)?);
    let used = || stream.context().memory_info().map(|info| info.total_bytes - info.free_bytes);
    // Without the victim's context: it may be as large as the tensor, and what comes back of it is not the
    // tensor's.
    let alone = used()?;
    goes.put(())?;
    let tensor = if victim_makes {
        let tensor = tensors.get()?;
        let _ = tensor.on(&stream)?;
        tensor
    } else {
        let tensor = CudaTensor::<u32>::zeros(&stream, [KILLED_BYTES / size_of::<u32>()])?;
        tensors.put(tensor.clone())?;
        told.get()?;
        tensor
    };
    stream.synchronize()?;
    if used()? < alone + KILLED_BYTES {
        // What was not in use cannot come back.
        return Ok(f64::NAN);
    }
    let begin = Instant::now();
    kill(pid, Signal::SIGKILL)?;
    drop(tensor);
    while used()? > alone + SLACK_BYTES {
        if begin.elapsed() > GIVE_UP {
            return Ok(f64::NAN);
        }
        ipc_collect();
        empty_cache();
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

fn after_kill(options: &Options, victim_makes: bool) -> anyhow::Result<f64> {
    let (tensors, told, goes) = (Queue::new(1)?, Queue::new(2)?, Queue::new(1)?);
    let (mut first, mut second) = (
        Process::new(victim, (victim_makes, tensors.clone(), told.clone(), goes.clone())),
        Process::new(survivor, (victim_makes, tensors, told, goes)),
    );
    for (name, value) in options.variables()? {
        first = first.env(name, &value);
        second = second.env(name, &value);
    }
    let first = first.start()?;
    let ms = second.start()?.into_value()?;
    // It was killed.
    drop(first);
    Ok(ms)
}

fn measure(options: &Options) -> anyhow::Result<Report> {
    let (messages, replies) = (Queue::new(1)?, Queue::new(1)?);
    let mut spawn = SpawnOptions::new();
    for (name, value) in options.variables()? {
        spawn = spawn.env(name, value);
    }
    let settings = (options.n_rounds, options.n_sends, options.max_bytes);
    let mut report = spawn.spawn(pair, (settings, messages, replies), 2)?.swap_remove(0);
    report.killed_receiver_ms = after_kill(options, false)?;
    report.killed_maker_ms = after_kill(options, true)?;
    Ok(report)
}

fn with_torch(options: &Options, python: &OsStr) -> anyhow::Result<Torch> {
    let sizes: Vec<String> =
        SIZES_BYTES.iter().filter(|size| **size <= options.max_bytes).map(ToString::to_string).collect();
    ask_python(python, options.script.as_ref(), &[options.n_rounds.to_string(), sizes.join(",")])
}

/// Whether a target was met; `None` where it was not measured.
type Verdict = (String, Option<bool>);

/// The targets, with what was measured.
fn targets(report: Option<&Report>) -> Vec<Verdict> {
    let at = |what| report.and_then(|report| report.median_us(what, CHECKED_BYTES));
    let queue_and_event = at("tensor of the host")
        .zip(report.and_then(|report| report.median_us("event record and wait", 0)))
        .map(|(queue, event)| queue + event);
    let torch = report.and_then(|report| report.torch.as_ref());
    let torch = torch.and_then(|torch| median_of(&torch.rows, "held", CHECKED_BYTES));
    let ratio = |what: &str, limit: f64, most: bool, pair: Option<(f64, f64)>| {
        let ratio = pair.map(|(value, of)| value / of);
        let word = if most { "at most" } else { "at least" };
        let shown = ratio.map_or_else(|| "not measured".to_owned(), number);
        let met = ratio.map(|ratio| if most { ratio <= limit } else { ratio >= limit });
        (format!("{what}: {shown}, {word} {limit}"), met)
    };
    let sends = report.filter(|report| report.kept.len() == 2 && report.n_sends >= 100_000);
    let flat = sends.map(|report| report.kept[0] == report.kept[1]);
    let shown = sends.map_or_else(|| "not measured".to_owned(), |report| format!("{:?}", report.kept));
    let back = |what: &str, ms: Option<f64>| {
        let shown = ms.map_or_else(|| "not measured".to_owned(), |ms| format!("{} ms", number(ms)));
        let met = ms.map(|ms| ms <= MAX_BACK.as_secs_f64() * 1e3);
        (format!("memory back after SIGKILL of the {what}: {shown}, at most 1000 ms"), met)
    };
    vec![
        ratio(
            "cached hand-over, times the queue's with an event",
            MAX_OF_QUEUE_AND_EVENT,
            true,
            at("held, ready").zip(queue_and_event),
        ),
        ratio("torch's Queue, times ours", MIN_OF_TORCH, false, torch.zip(at("held, read"))),
        ratio(
            "dropped and sent again, times held",
            MAX_OF_HELD,
            true,
            at("dropped, ready").zip(at("held, ready")),
        ),
        (format!("100,000 sends keep nothing: {shown}"), flat),
        back("receiver", report.map(|report| report.killed_receiver_ms)),
        back("maker", report.map(|report| report.killed_maker_ms)),
    ]
}

fn show(rows: &[Row], of: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{of}, in microseconds\n{:<26}{:>12}{:>12}{:>12}", "what", "bytes", "median", "p99")?;
    for Row { what, size_bytes, median_us, p99_us } in rows {
        writeln!(out, "{what:<26}{size_bytes:>12}{:>12}{:>12}", number(*median_us), number(*p99_us))?;
    }
    writeln!(out)
}

/// Whether there is a device for the processes of this bench.
fn device_here(options: &Options) -> Result<(), String> {
    if options.is_simulated {
        return Ok(());
    }
    let device = Driver::load().and_then(|driver| driver.device(0));
    device.map(|_| ()).map_err(|error| error.to_string())
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse(lexopt::Parser::from_env())?;
    let mut report = match device_here(&options) {
        Ok(()) => Some(measure(&options)?),
        Err(why) => {
            writeln!(io::stdout(), "not measured: {why}")?;
            None
        }
    };
    let is_software = report.as_ref().is_some_and(|report| report.card.starts_with(SOFTWARE));
    if let Some(report) = &mut report {
        if is_software {
            writeln!(io::stdout(), "{}: these figures say nothing about any GPU", report.card)?;
        }
        show(&report.rows, &format!("round trips on {}", report.card))?;
        match options.python.as_deref().map(|python| with_torch(&options, python)) {
            None => writeln!(io::stdout(), "torch is not measured: no --python was given")?,
            Some(Err(why)) => writeln!(io::stdout(), "torch is not measured: {why:#}")?,
            Some(Ok(torch)) => {
                show(&torch.rows, &format!("torch {}", torch.version))?;
                report.torch = Some(torch);
            }
        }
        if let Some(path) = &options.json {
            std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
        }
    }
    let mut n_missed = 0;
    for (text, met) in targets(report.as_ref()) {
        let verdict = match met {
            _ if is_software => "not measured on a GPU",
            None => "not measured",
            Some(true) => "met",
            Some(false) => {
                n_missed += 1;
                "MISSED"
            }
        };
        writeln!(io::stdout(), "{verdict}: {text}")?;
    }
    if options.check && n_missed > 0 {
        bail!("{n_missed} targets were missed");
    }
    Ok(ExitCode::SUCCESS)
}
