//! Source and sink over rings and buffers in one mapping.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tensorferry_benches::{Ask, Read, Received, Row, Sink, Source, Way, sum, touch};

use crate::memory::Shared;
use crate::ring::{End, Ring, SPINS};

const LARGE_PAGE_BYTES: usize = 2 << 20;
const LINE_BYTES: usize = 64;
/// Rings: messages and returns, in both directions.
const N_RINGS: usize = 4;
/// The receiver's bit in a block's header.
const RECEIVER: u64 = 2;

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
struct Plan {
    n_slots: usize,
    n_buffers: usize,
    buffer_bytes: usize,
    n_elements: usize,
    /// Buffers in one message. If there are several, the descriptor names a list of their numbers.
    count: usize,
}

/// Sends the number of a buffer.
pub(crate) struct Sender {
    shared: Shared,
    plan: Plan,
    messages: End,
    returns: End,
    free: VecDeque<u64>,
    is_lifo: bool,
    existing: u64,
    n_sent: u64,
}

pub(crate) struct Receiver {
    shared: Shared,
    plan: Plan,
    messages: End,
    returns: End,
    is_fresh: bool,
}

impl Plan {
    fn of(ask: &Ask) -> Self {
        let n_buffers = if ask.row == Row::Fresh { ask.depth + 2 } else { ask.count.max(2) };
        // With a slot for each buffer nobody waits for one; where a message has many, the depth is what was
        // asked for.
        let n_messages = if ask.count > 1 { ask.depth } else { ask.depth.max(n_buffers) };
        let n_slots = n_messages.next_power_of_two();
        let n_elements = ask.n_elements();
        // Many are to fit into a cache, which lines at the same place of their pages do not.
        let alignment = if ask.count > 1 { LINE_BYTES } else { 4096 };
        let buffer_bytes = (n_elements * 4).next_multiple_of(alignment);
        Self { n_slots, n_buffers, buffer_bytes, n_elements, count: ask.count }
    }

    /// The messages of this side.
    fn messages(&self, side: usize) -> Ring {
        Ring::at(side * self.ring_bytes(), self.n_slots)
    }

    /// The buffers that come back to this side. They never wait: there is a slot for each.
    fn returns(&self, side: usize) -> Ring {
        Ring::at((2 + side) * self.ring_bytes(), self.n_buffers.next_power_of_two())
    }

    fn ring_bytes(&self) -> usize {
        Ring::len_bytes(self.n_slots.max(self.n_buffers.next_power_of_two())).next_multiple_of(4096)
    }

    /// The list of buffers of one of as many messages as fit into a ring, and of two more: that which the
    /// receiver reads, and that which the sender writes.
    fn list_at(&self, list: u64) -> usize {
        N_RINGS * self.ring_bytes() + usize::try_from(list).unwrap_or(0) * self.list_bytes()
    }

    fn n_lists(&self) -> u64 {
        if self.count > 1 { self.n_slots as u64 + 2 } else { 0 }
    }

    fn list_bytes(&self) -> usize {
        (self.count * 8).next_multiple_of(LINE_BYTES)
    }

    fn header_at(&self, buffer: u64) -> usize {
        self.list_at(self.n_lists()) + usize::try_from(buffer).unwrap_or(0) * LINE_BYTES
    }

    fn buffer_at(&self, buffer: u64) -> usize {
        let start = self.header_at(self.n_buffers as u64).next_multiple_of(LARGE_PAGE_BYTES);
        start + usize::try_from(buffer).unwrap_or(0) * self.buffer_bytes
    }
}

/// How much memory the measurement needs.
pub(crate) fn len_bytes(ask: &Ask) -> usize {
    let plan = Plan::of(ask);
    plan.buffer_at(plan.n_buffers as u64)
}

/// The ends of the near (0) or far (1) side.
pub(crate) fn ends(ask: &Ask, shared: &Shared, side: usize) -> anyhow::Result<(Sender, Receiver)> {
    let plan = Plan::of(ask);
    let spins = match ask.row {
        Row::Asleep => 0,
        _ if ask.polls => u32::MAX,
        _ => SPINS,
    };
    let end = |ring| End::new(ring, spins);
    let source = Sender {
        shared: shared.again()?,
        plan,
        messages: end(plan.messages(side)),
        returns: end(plan.returns(side)),
        free: (0..plan.n_buffers as u64).collect(),
        is_lifo: ask.way == Way::FloorLifo,
        existing: side as u64,
        n_sent: 0,
    };
    let other = 1 - side;
    let sink = Receiver {
        shared: shared.again()?,
        plan,
        messages: end(plan.messages(other)),
        returns: end(plan.returns(other)),
        is_fresh: ask.row == Row::Fresh,
    };
    Ok((source, sink))
}

impl Sender {
    /// All buffers in one message.
    fn send_all(&mut self, stamp: u64) {
        let list = self.n_sent % self.plan.n_lists();
        self.n_sent += 1;
        let header = |buffer| &self.shared.words(self.plan.header_at(buffer), 1)[0];
        let places = self.shared.words(self.plan.list_at(list), self.plan.count);
        for (place, buffer) in places.iter().zip(0..) {
            place.store(buffer, Ordering::Relaxed);
            header(buffer).fetch_or(RECEIVER, Ordering::SeqCst);
        }
        self.messages.push(&self.shared, [list, stamp]);
    }
}

impl Source for Sender {
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()> {
        if self.plan.count > 1 {
            self.send_all(stamp);
            return Ok(());
        }
        let buffer = match value {
            None => self.existing,
            Some(value) => {
                while let Some([buffer, _]) = self.returns.try_pop(&self.shared) {
                    self.free.push_back(buffer);
                }
                let free = if self.is_lifo { self.free.pop_back() } else { self.free.pop_front() };
                let buffer = match free {
                    Some(buffer) => buffer,
                    None => self.returns.pop(&self.shared)[0],
                };
                let offset_bytes = self.plan.buffer_at(buffer);
                tensorferry_benches::fill(
                    self.shared.elements_mut(offset_bytes, self.plan.n_elements),
                    value,
                );
                buffer
            }
        };
        self.shared.words(self.plan.header_at(buffer), 1)[0].fetch_or(RECEIVER, Ordering::SeqCst);
        self.messages.push(&self.shared, [buffer, stamp]);
        Ok(())
    }
}

impl Receiver {
    /// The buffers of a list.
    fn receive_all(&self, list: u64, stamp: u64) -> Received {
        let header = |buffer| &self.shared.words(self.plan.header_at(buffer), 1)[0];
        let places = self.shared.words(self.plan.list_at(list), self.plan.count);
        let mut total = 0.0;
        for place in places {
            let buffer = place.load(Ordering::Relaxed);
            total += touch(self.shared.elements(self.plan.buffer_at(buffer), self.plan.n_elements));
            header(buffer).fetch_and(!RECEIVER, Ordering::SeqCst);
        }
        Received { stamp, total }
    }
}

impl Sink for Receiver {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        let [buffer, stamp] = self.messages.pop(&self.shared);
        if self.plan.count > 1 {
            return Ok(self.receive_all(buffer, stamp));
        }
        let elements = self.shared.elements(self.plan.buffer_at(buffer), self.plan.n_elements);
        let total = if read == Read::Sum { sum(elements) } else { touch(elements) };
        self.shared.words(self.plan.header_at(buffer), 1)[0].fetch_and(!RECEIVER, Ordering::SeqCst);
        if self.is_fresh {
            self.returns.push(&self.shared, [buffer, 0]);
        }
        Ok(Received { stamp, total })
    }
}
