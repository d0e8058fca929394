//! iceoryx2: samples that are loaned from shared memory, written and sent.
//!
//! # Safety
//!
//! A tensor that exists already is sent without writing it again, so a sample is said to be initialised that
//! this process may never have written. Its memory is a shared mapping, which the kernel fills with zeroes,
//! and every bit pattern is a float.
#![expect(
    unsafe_code,
    reason = "a loaned sample is said to be written; its memory reads as something in any case"
)]

use std::hint::spin_loop;
use std::mem::MaybeUninit;

use anyhow::Context as _;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use crate::{
    Answer, Ask, Far, Near, Other, Read, Received, Row, Sink, Source, Way, files_of, measure, read_of,
    remove_files_of, serve,
};

type Ipc = ipc::Service;

/// The stamp is the first two elements of a tensor that exists; a fresh one has none.
const STAMP_ELEMENTS: usize = 2;

struct IceSource {
    publisher: Publisher<Ipc, [f32], ()>,
    notifier: Option<Notifier<Ipc>>,
    n_elements: usize,
    _node: Node<Ipc>,
}

struct IceSink {
    subscriber: Subscriber<Ipc, [f32], ()>,
    listener: Option<Listener<Ipc>>,
    has_stamp: bool,
    _node: Node<Ipc>,
}

fn n_elements(ask: &Ask) -> usize {
    ask.n_elements().max(STAMP_ELEMENTS)
}

/// All files of a measurement begin with the same name, by which whoever has started it removes what a killed
/// side leaves.
fn node(ask_of: u32) -> anyhow::Result<Node<Ipc>> {
    let (prefix, root) = files_of(ask_of);
    let mut config = Config::default();
    config.global.prefix = FileName::new(prefix.as_bytes()).ok().context("not the name of a file")?;
    let root = root.to_str().context("not a path")?;
    config.global.set_root_path(&Path::new(root.as_bytes()).ok().context("not a path")?);
    let builder = NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled);
    builder.create::<Ipc>().ok().context("no node")
}

macro_rules! services {
    ($ask:expr, $node:expr, $name:expr) => {{
        let name: ServiceName = $name.as_str().try_into().ok().context("not a name")?;
        let messages = $node
            .service_builder(&name)
            .publish_subscribe::<[f32]>()
            .payload_alignment(Alignment::new(64).context("not an alignment")?)
            .enable_safe_overflow(false)
            .history_size(0)
            .max_publishers(1)
            .max_subscribers(1)
            .subscriber_max_buffer_size($ask.depth)
            .subscriber_max_borrowed_samples(1)
            .open_or_create()
            .ok()
            .context("no service")?;
        let events = match $ask.way {
            Way::IceEvent => {
                Some($node.service_builder(&name).event().open_or_create().ok().context("no events")?)
            }
            _ => None,
        };
        (messages, events)
    }};
}

fn source(ask: &Ask, ask_of: u32, name: &str) -> anyhow::Result<IceSource> {
    let (node, name) = (node(ask_of)?, name.to_owned());
    let (messages, events) = services!(ask, node, name);
    let publisher = messages
        .publisher_builder()
        .initial_max_slice_len(n_elements(ask))
        .max_loaned_samples(1)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()
        .ok()
        .context("no publisher")?;
    let notifier =
        events.map(|events| events.notifier_builder().create().ok().context("no notifier")).transpose()?;
    Ok(IceSource { publisher, notifier, n_elements: n_elements(ask), _node: node })
}

fn sink(ask: &Ask, ask_of: u32, name: &str) -> anyhow::Result<IceSink> {
    let (node, name) = (node(ask_of)?, name.to_owned());
    let (messages, events) = services!(ask, node, name);
    let subscriber =
        messages.subscriber_builder().buffer_size(ask.depth).create().ok().context("no subscriber")?;
    let listener =
        events.map(|events| events.listener_builder().create().ok().context("no listener")).transpose()?;
    Ok(IceSink { subscriber, listener, has_stamp: ask.row != Row::Fresh, _node: node })
}

impl Source for IceSource {
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()> {
        loop {
            let mut sample = self.publisher.loan_slice_uninit(self.n_elements)?;
            match value {
                Some(value) => sample.payload_mut().fill(MaybeUninit::new(value)),
                None => {
                    let halves = [stamp as u32, (stamp >> 32) as u32];
                    for (element, half) in sample.payload_mut().iter_mut().zip(halves) {
                        element.write(f32::from_bits(half));
                    }
                }
            }
            // SAFETY: the payload lies in a shared mapping, which the kernel fills with zeroes; every bit
            // pattern is a float.
            let sample = unsafe { sample.assume_init() };
            // A message may reach nobody while the connection is being made, although both ends are there.
            if sample.send()? == 1 {
                break;
            }
        }
        if let Some(notifier) = &self.notifier {
            while notifier.notify()? == 0 {}
        }
        Ok(())
    }
}

impl Sink for IceSink {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                let elements = sample.payload();
                let half = |index: usize| u64::from(elements[index].to_bits());
                let stamp = if self.has_stamp { half(0) | half(1) << 32 } else { 0 };
                return Ok(Received { stamp, total: read_of(elements, read) });
            }
            match &self.listener {
                None => spin_loop(),
                Some(listener) => drop(listener.blocking_wait(|_| {})?),
            }
        }
    }
}

fn names(ask_of: u32) -> [String; 2] {
    ["forth", "back"].map(|way| format!("tensorferry-bench-{ask_of}-{way}"))
}

pub(crate) fn far(ask: &Ask, pid: &str) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let ask_of = pid.parse()?;
    let [forth, back] = names(ask_of);
    let (sink, source) = (sink(ask, ask_of, &forth)?, source(ask, ask_of, &back)?);
    serve(ask, &mut Far { source, sink, control: (std::io::stdin(), std::io::stdout()) })
}

pub(crate) fn near(ask: &Ask) -> anyhow::Result<Answer> {
    set_log_level(LogLevel::Error);
    let pid = std::process::id();
    let [forth, back] = names(pid);
    let (source, sink) = (source(ask, pid, &forth)?, sink(ask, pid, &back)?);
    let control = Other::start(ask, &pid.to_string())?;
    let answer = measure(ask, &mut Near { source, sink, control });
    // The far side has been killed.
    remove_files_of(pid).context("what iceoryx2 has left cannot be removed")?;
    answer
}
