//! Tests of stream memory operations.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Machine, holds, says};
use crate::access::HostMemory;
use crate::copy::Rows;
use crate::{Driver, Status};

/// A page of its own; the drivers of a test register the same one, as processes map the same memory.
#[repr(align(4096))]
struct Page([AtomicU64; 512]);

impl Page {
    fn new() -> Box<Self> {
        Box::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    /// Registers the page; returns its address for the device.
    fn register(&self, driver: &Driver) -> u64 {
        let address = self.0.as_ptr().expose_provenance();
        driver.host_register(HostMemory::from_c(address, 4096).unwrap()).unwrap();
        driver.host_device_pointer(address as u64, 0).unwrap()
    }
}

fn is_waiting(driver: &Driver, stream: usize) -> bool {
    driver.stream(stream).unwrap().query() == Err(Status::NOT_READY)
}

#[test]
fn a_word_is_written_by_whoever_has_it_for_whoever_waits() {
    let machine = Machine::new("");
    let (writer, waiter) = (machine.process(), machine.process());
    let page = Page::new();
    let (to, from) = (page.register(&writer), page.register(&waiter));
    let (theirs, ours) = (writer.stream_create(1).unwrap(), waiter.stream_create(1).unwrap());
    waiter.stream_wait_value(ours, from, 1, 0).unwrap();
    assert!(is_waiting(&waiter, ours));
    writer.stream_write_value(theirs, to, 1, 0).unwrap();
    let goes_on = || waiter.stream(ours).unwrap().synchronize().map(|()| "goes on");
    let by_stream = goes_on().unwrap();
    waiter.stream_wait_value(ours, from, 2, 0).unwrap();
    page.0[0].store(2, Ordering::SeqCst);
    holds("word-shared", format!("{by_stream}; {}", goes_on().unwrap()));

    writer.control("held").unwrap();
    let memory = writer.mem_alloc(512).unwrap();
    writer.fill(memory, Rows::ONE, &[7], 512, theirs).unwrap();
    writer.stream_write_value(theirs, to, 3, 0).unwrap();
    waiter.stream_wait_value(ours, from, 3, 0).unwrap();
    assert!(is_waiting(&waiter, ours));
    writer.control("running").unwrap();
    holds("word-after-all-before", goes_on().unwrap());

    writer.control("held").unwrap();
    writer.stream_write_value(theirs, to, 4, 0).unwrap();
    waiter.stream_wait_value(ours, from, 4, 0).unwrap();
    drop(writer);
    let waits = says(&waiter.stream(ours).unwrap().query());
    page.0[0].store(1 << 62, Ordering::SeqCst);
    holds("word-writer-killed", format!("{waits}; {}", says(&waiter.stream(ours).unwrap().synchronize())));
}

#[test]
fn words_are_registered_and_aligned_and_compared_as_they_are() {
    let process = Machine::new("").process();
    let (page, other) = (Page::new(), Page::new());
    let address = page.register(&process);
    let stream = process.stream_create(1).unwrap();
    let unregistered = other.0.as_ptr().expose_provenance() as u64;
    holds("word-unregistered", says(&process.stream_wait_value(stream, unregistered, 1, 0)));
    holds("word-unaligned", says(&process.stream_wait_value(stream, address + 4, 1, 0)));
    assert_eq!(process.host_device_pointer(unregistered, 0), Err(Status::INVALID_VALUE));
    assert_eq!(process.stream_wait_value(stream, address, 1, 1), Err(Status::NOT_SUPPORTED));
    // A difference of less than half of all numbers is one forward.
    page.0[0].store(3, Ordering::SeqCst);
    process.stream_wait_value(stream, address, u64::MAX, 0).unwrap();
    process.stream(stream).unwrap().synchronize().unwrap();
}

#[test]
fn a_device_may_lack_them() {
    const MEMORY_OPERATIONS: i32 = 122;
    let without = Machine::new("disable=words").process();
    assert_eq!(without.device_attribute(MEMORY_OPERATIONS, 0), Ok(0));
    assert_eq!(without.stream_wait_value(0, 8, 1, 0), Err(Status::NOT_SUPPORTED));
    assert_eq!(without.stream_write_value(0, 8, 1, 0), Err(Status::NOT_SUPPORTED));
    let with = |version: &str| Machine::new(version).process().device_attribute(MEMORY_OPERATIONS, 0);
    assert_eq!((with("version=11.6"), with("version=11.7")), (Err(Status::INVALID_VALUE), Ok(1)));
}
