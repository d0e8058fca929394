//! Tests of events and streams.

use super::{Machine, holds, says, use_device, with_report};
use crate::capture::Mode;
use crate::copy::Rows;
use crate::{Answer, Driver, Status};

const INTERPROCESS: u32 = 6;

/// A stream, an event recorded on it behind a fill, and the memory that is filled.
fn recorded(driver: &Driver) -> (usize, usize, u64) {
    let (stream, event) = (driver.stream_create(1).unwrap(), driver.event_create(INTERPROCESS).unwrap());
    let memory = driver.mem_alloc(4096).unwrap();
    driver.fill(memory, Rows::ONE, &7_u32.to_ne_bytes(), 1024, stream).unwrap();
    driver.event_record(event, stream).unwrap();
    (stream, event, memory)
}

fn open(driver: &Driver, owner: &Driver, event: usize) -> Answer<usize> {
    driver.ipc_open_event_handle(&owner.ipc_get_event_handle(event).unwrap())
}

fn synchronize(driver: &Driver, stream: usize) -> Answer {
    driver.stream(stream).unwrap().synchronize()
}

#[test]
fn a_wait_orders_work_of_two_processes() {
    let machine = Machine::new("");
    let (producer, consumer) = (machine.process_with("held"), machine.process());
    let (_, event, memory) = recorded(&producer);
    let theirs = consumer.ipc_open_mem_handle(&producer.ipc_get_mem_handle(memory).unwrap(), 1).unwrap();
    let opened = open(&consumer, &producer, event).unwrap();
    assert_eq!(consumer.event_query(opened), Err(Status::NOT_READY));
    // Without a wait, the consumer always reads too early: the producer's streams are held.
    assert_eq!(consumer.read(theirs, 4).unwrap(), [0xa5; 4]);
    let stream = consumer.stream_create(1).unwrap();
    let copy = consumer.mem_alloc(4096).unwrap();
    consumer.stream_wait_event(stream, opened).unwrap();
    consumer.copy_dtod(copy, theirs, 4096, stream).unwrap();
    assert_eq!(consumer.stream(stream).unwrap().query(), Err(Status::NOT_READY));
    producer.control("running").unwrap();
    synchronize(&consumer, stream).unwrap();
    assert_eq!(consumer.read(copy, 4).unwrap(), 7_u32.to_ne_bytes());
    assert_eq!(consumer.event_query(opened), Ok(()));
    consumer.event_destroy(opened).unwrap();
}

#[test]
fn a_wait_is_bound_at_its_call() {
    let process = Machine::new("").process();
    let event = process.event_create(INTERPROCESS).unwrap();
    let (early, late) = (process.stream_create(1).unwrap(), process.stream_create(1).unwrap());
    process.event_query(event).unwrap();
    process.stream_wait_event(early, event).unwrap();
    synchronize(&process, early).unwrap();
    holds("event-unrecorded", "done");
    process.control("held").unwrap();
    process.stream_wait_event(early, event).unwrap();
    process.event_record(event, late).unwrap();
    assert_eq!(process.event_query(event), Err(Status::NOT_READY));
    // If a wait were for later records, `early` would wait for a record behind the wait itself, and never
    // end.
    process.stream_wait_event(late, event).unwrap();
    process.event_record(event, early).unwrap();
    process.control("running").unwrap();
    synchronize(&process, early).unwrap();
    synchronize(&process, late).unwrap();
    holds("event-binds", "bound at the call");
}

#[test]
fn waiting_for_a_dead_recorder_does_not_end() {
    let machine = Machine::new("");
    let (producer, consumer) = (machine.process_with("held"), machine.process());
    let (_, event, _) = recorded(&producer);
    let opened = open(&consumer, &producer, event).unwrap();
    let [waiting, recording, free] = [(); 3].map(|()| consumer.stream_create(1).unwrap());
    consumer.stream_wait_event(waiting, opened).unwrap();
    drop(producer);
    consumer.event_record(opened, recording).unwrap();
    // What another stream is told after that is done.
    synchronize(&consumer, free).unwrap();
    let ends = |stream| match consumer.stream(stream).unwrap().query() {
        Err(Status::NOT_READY) => "does not end".to_owned(),
        answer => says(&answer),
    };
    holds("event-recorder-killed", ends(waiting));
    holds("event-recorder-killed-again", ends(recording));
    consumer.mem_alloc(512).unwrap();
}

#[test]
fn a_record_of_another_process_is_behind_the_one_before() {
    let machine = Machine::new("");
    let (producer, consumer) = (machine.process_with("held"), machine.process());
    let (_, event, _) = recorded(&producer);
    let opened = open(&consumer, &producer, event).unwrap();
    let stream = consumer.stream_create(1).unwrap();
    consumer.event_record(opened, stream).unwrap();
    assert_eq!(consumer.stream(stream).unwrap().query(), Err(Status::NOT_READY));
    producer.control("running").unwrap();
    synchronize(&consumer, stream).unwrap();
    holds("event-recorded-twice", "waits for the other's");
}

#[test]
fn an_opened_event_that_is_used_after_its_exporter_destroyed_it_is_reported() {
    let machine = Machine::new("");
    let (producer, consumer) = (machine.process(), machine.process());
    let (stream, event, _) = recorded(&producer);
    let handle = producer.ipc_get_event_handle(event).unwrap();
    let opened = consumer.ipc_open_event_handle(&handle).unwrap();
    assert_eq!(says(&consumer.ipc_get_event_handle(opened)), "CUDA_ERROR_INVALID_VALUE", "not passed on");
    synchronize(&producer, stream).unwrap();
    producer.event_destroy(event).unwrap();
    let used = with_report(&consumer.event_query(opened), &consumer);
    holds("event-destroyed", format!("{used}; {}", says(&consumer.ipc_open_event_handle(&handle))));
}

#[test]
fn events_have_no_names() {
    let names =
        || std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let machine = Machine::new("");
    let (producer, consumer) = (machine.process_with("held"), machine.process());
    let (_, event, _) = recorded(&producer);
    open(&consumer, &producer, event).unwrap();
    drop((producer, consumer));
    assert!(names().all(|name| !name.to_string_lossy().contains("simcuda")));
    holds("event-names", "nothing");
}

#[test]
fn an_event_is_not_opened_where_it_was_made() {
    let process = Machine::new("").process();
    let (_, event, _) = recorded(&process);
    holds("event-same-process", says(&open(&process, &process, event)));
}

#[test]
fn flags_of_events_are_checked() {
    let process = Machine::new("").process();
    let local = process.event_create(0).unwrap();
    let answers = [
        says(&process.event_create(4)),
        says(&process.event_create(8)),
        says(&process.ipc_get_event_handle(local)),
    ];
    holds("event-flags", answers.join("; "));
    let events: Vec<usize> = (0..500).map(|_| process.event_create(INTERPROCESS).unwrap()).collect();
    assert_eq!(crate::memory_file::all_of(&process.settings.world).len(), events.len(), "a descriptor each");
    holds("event-limit", "as many as descriptors");
}

#[test]
fn an_event_belongs_to_a_device() {
    let process = Machine::new("devices=2").process();
    let event = process.event_create(INTERPROCESS).unwrap();
    use_device(&process, 1);
    let stream = process.stream_create(1).unwrap();
    holds("event-other-device", says(&process.event_record(event, stream)));
    process.stream_wait_event(stream, event).unwrap();
}

#[test]
fn times_are_measured_between_events_that_have_them() {
    let process = Machine::new("delay_us=2000").process();
    let (begin, end) = (process.event_create(0).unwrap(), process.event_create(0).unwrap());
    let memory = process.mem_alloc(512).unwrap();
    process.event_record(begin, 0).unwrap();
    process.fill(memory, Rows::ONE, &[1], 512, 0).unwrap();
    process.event_record(end, 0).unwrap();
    process.event_synchronize(end).unwrap();
    assert!(process.event_elapsed(begin, end).unwrap() >= 2.0, "an operation takes at least its delay");
    let timeless = process.event_create(2).unwrap();
    assert_eq!(process.event_elapsed(begin, timeless), Err(Status::INVALID_HANDLE));
}

#[test]
fn a_capturing_stream_refuses() {
    let process = Machine::new("").process();
    let stream = process.stream_create(1).unwrap();
    let memory = process.mem_alloc(512).unwrap();
    let event = process.event_create(INTERPROCESS).unwrap();
    process.stream_begin_capture(stream, Mode::Relaxed).unwrap();
    assert_eq!(process.stream_is_capturing(stream), Ok(true));
    let answers = [
        says(&process.event_record(event, stream)),
        says(&process.stream_wait_event(stream, event)),
        says(&process.fill(memory, Rows::ONE, &[1], 512, stream)),
        says(&synchronize(&process, stream)),
    ];
    holds("capture-refused", answers.join("; "));
    assert_eq!(process.stream_end_capture(stream), Err(Status::STREAM_CAPTURE_INVALIDATED));
    process.event_record(event, stream).unwrap();
    process.event_synchronize(event).unwrap();
}

/// The answer for another thread in this mode that makes such a call during a capture, and the answer at the
/// end of the capture.
fn met_elsewhere(capture: Mode, thread: Mode) -> String {
    let process = Machine::new("").process();
    let stream = process.stream_create(1).unwrap();
    process.stream_begin_capture(stream, capture).unwrap();
    let elsewhere = || {
        let before = process.exchange_thread_mode(thread);
        let safe = process.meet_captures("cuEventRecord");
        let met = process.meet_captures("cuEventQuery");
        assert_eq!((before, safe, process.exchange_thread_mode(before)), (Mode::Global, Ok(()), thread));
        met
    };
    let met = std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
    format!("{}; {}", says(&met), says(&process.stream_end_capture(stream)))
}

#[test]
fn a_global_capture_is_spoilt_by_what_other_threads_do_unless_they_say_that_it_has_nothing_to_do_with_it() {
    holds("capture-global", met_elsewhere(Mode::Global, Mode::Global));
    holds("capture-relaxed-thread", met_elsewhere(Mode::Global, Mode::Relaxed));
    for (capture, thread) in
        [(Mode::Global, Mode::ThreadLocal), (Mode::ThreadLocal, Mode::Global), (Mode::Relaxed, Mode::Global)]
    {
        assert_eq!(met_elsewhere(capture, thread), "ok; ok", "{capture:?} {thread:?}");
    }
}

#[test]
fn a_capture_is_spoilt_by_what_its_own_thread_does_unless_it_is_relaxed() {
    let process = Machine::new("").process();
    let stream = process.stream_create(1).unwrap();
    let unsupported = Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    for (capture, met, end) in [
        (Mode::Global, unsupported, Err(Status::STREAM_CAPTURE_INVALIDATED)),
        (Mode::ThreadLocal, unsupported, Err(Status::STREAM_CAPTURE_INVALIDATED)),
        (Mode::Relaxed, Ok(()), Ok(())),
    ] {
        process.stream_begin_capture(stream, capture).unwrap();
        assert_eq!(process.meet_captures("cuMemFree_v2"), met, "{capture:?}");
        assert_eq!(process.stream_end_capture(stream), end, "{capture:?}");
        assert_eq!(process.meet_captures("cuMemFree_v2"), Ok(()), "it is over");
    }
    process.stream_begin_capture(stream, Mode::ThreadLocal).unwrap();
    let end = || process.stream_end_capture(stream);
    // Each thread has a current context of its own.
    let context = process.ctx_get_current().unwrap();
    let elsewhere = || process.ctx_set_current(context).and_then(|()| end());
    let ended = std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
    assert_eq!((ended, end()), (Err(Status::STREAM_CAPTURE_WRONG_THREAD), Ok(())));
}

#[test]
fn a_destroyed_stream_finishes_first() {
    let process = Machine::new("held").process();
    let (stream, event, memory) = recorded(&process);
    process.stream_destroy(stream).unwrap();
    assert_eq!(says(&process.stream(stream)), "CUDA_ERROR_INVALID_HANDLE");
    process.control("running").unwrap();
    process.event_synchronize(event).unwrap();
    assert_eq!(process.read(memory, 4).unwrap(), 7_u32.to_ne_bytes());
}

#[test]
fn handles_are_used_again() {
    let process = Machine::new("").process();
    let (stream, event) = (process.stream_create(1).unwrap(), process.event_create(2).unwrap());
    process.stream_destroy(stream).unwrap();
    process.event_destroy(event).unwrap();
    assert_eq!((process.stream_create(1), process.event_create(2)), (Ok(stream), Ok(event)));
    assert_ne!(process.stream_create(1), Ok(stream), "one at a time");
    // The handles of objects that end with their context are free, too.
    process.primary_ctx_release(0).unwrap();
    use_device(&process, 0);
    let again = [(); 2].map(|()| process.stream_create(1).unwrap());
    assert!(again.contains(&stream));
}
