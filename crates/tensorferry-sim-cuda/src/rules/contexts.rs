//! Tests of contexts, devices, plain device memory and host memory.

use super::{MIB, Machine, all_say, holds, says, use_device, used_mib, with_report};
use crate::access::HostMemory;
use crate::copy::Rows;
use crate::vmm::AccessFlags;
use crate::{Driver, PointerAttribute, Settings, Status};

#[test]
fn a_forked_process_has_no_driver() {
    let mut process = Machine::new("").process();
    // As after a fork: the driver's memory in a process with another number.
    process.identity.pid += 1;
    let answers = [
        says(&process.device_count()),
        says(&process.mem_alloc(512)),
        says(&process.primary_ctx_retain(0)),
        says(&process.vmm_reserve(2 * MIB, 0)),
        says(&process.pool_create(0, 0)),
    ];
    holds("fork", all_say(&answers));
}

#[test]
fn a_call_needs_a_context_that_lives() {
    let process = Machine::new("").bare("");
    let without = says(&process.mem_alloc(512));
    let context = use_device(&process, 0);
    process.mem_alloc(512).unwrap();
    assert_eq!(process.primary_ctx_retain(0), Ok(context), "one context for each device");
    process.primary_ctx_release(0).unwrap();
    process.mem_alloc(512).unwrap();
    process.primary_ctx_release(0).unwrap();
    assert_eq!(process.primary_ctx_is_active(0), Ok(false));
    holds("context-none", format!("{without}; {}", says(&process.mem_alloc(512))));
    assert_eq!(process.primary_ctx_release(0), Err(Status::INVALID_CONTEXT));
    process.ctx_set_current(0).unwrap();
    assert_eq!((process.ctx_get_current(), process.ctx_pop()), (Ok(0), Err(Status::INVALID_CONTEXT)));
}

#[test]
fn the_memory_of_a_context_goes_with_it() {
    let process = Machine::new("").process();
    process.mem_alloc(16 * MIB).unwrap();
    assert_eq!(used_mib(&process), 16);
    process.primary_ctx_release(0).unwrap();
    use_device(&process, 0);
    assert_eq!(used_mib(&process), 0);
    holds("context-release", "freed");
}

#[test]
fn work_that_fails_breaks_the_context() {
    let process = Machine::new("held").process();
    let (address, len) = (process.vmm_reserve(2 * MIB, 0).unwrap(), 2 * MIB);
    process.vmm_map(address, len, 0, process.vmm_create(len, 0, 0).unwrap()).unwrap();
    process.vmm_set_access(address, len, &[(0, AccessFlags::ReadWrite)]).unwrap();
    process.fill(address, Rows::ONE, &[1], 512, 0).unwrap();
    process.vmm_unmap(address, len).unwrap();
    process.control("running").unwrap();
    assert_eq!(process.ctx_synchronize(), Err(Status::LAUNCH_FAILED));
    assert_eq!(process.mem_alloc(512), Err(Status::LAUNCH_FAILED));
    assert_eq!(process.stream_create(0), Err(Status::LAUNCH_FAILED));
    holds("context-broken", "the same error again");
}

#[test]
fn a_lost_device_answers_nothing_else() {
    let process = Machine::new("devices=2").process();
    process.control("lost=0").unwrap();
    let answers = [
        says(&process.mem_alloc(512)),
        says(&process.ctx_synchronize()),
        says(&process.primary_ctx_retain(0)),
    ];
    holds("device-lost", all_say(&answers));
    use_device(&process, 1);
    process.mem_alloc(512).unwrap();
    let lost = Driver::new(Settings::parse("lost=0").unwrap());
    assert_eq!(lost.primary_ctx_retain(0), Err(Status::DEVICE_UNAVAILABLE));
}

#[test]
fn memory_runs_out_for_all_processes_together() {
    let machine = Machine::new("memory_mib=32");
    let (a, b) = (machine.process(), machine.process());
    let address = a.mem_alloc(20 * MIB).unwrap();
    let answers = [
        says(&b.mem_alloc(20 * MIB)),
        says(&b.alloc_async(20 * MIB, 0)),
        says(&b.vmm_create(20 * MIB, 0, 0)),
    ];
    holds("out-of-memory", all_say(&answers));
    assert_eq!(b.mem_info(), Ok((12 * MIB, 32 * MIB)));
    a.mem_free(address).unwrap();
    b.vmm_create(20 * MIB, 0, 0).unwrap();
}

#[test]
fn freeing_is_for_what_was_allocated() {
    let process = Machine::new("").process();
    let address = process.mem_alloc(4 * MIB).unwrap();
    let mapped = process.vmm_reserve(2 * MIB, 0).unwrap();
    process.vmm_map(mapped, 2 * MIB, 0, process.vmm_create(2 * MIB, 0, 0).unwrap()).unwrap();
    let inside = says(&process.mem_free(address + 512));
    process.mem_free(0).unwrap();
    process.mem_free(address).unwrap();
    let answers = [
        inside,
        says(&process.mem_free(address)),
        says(&process.mem_free(mapped)),
        says(&process.free_async(mapped, 0)),
        says(&process.mem_alloc(0)),
    ];
    holds("free-foreign", all_say(&answers));
}

#[test]
fn peers_are_enabled_once() {
    let process = Machine::new("devices=2").process();
    let (zero, one) = (process.ctx_get_current().unwrap(), process.primary_ctx_retain(1).unwrap());
    process.ctx_enable_peer_access(one).unwrap();
    let twice = says(&process.ctx_enable_peer_access(one));
    let oneself = says(&process.ctx_enable_peer_access(zero));
    let lonely = Machine::new("devices=2,disable=peer").process();
    let other = lonely.primary_ctx_retain(1).unwrap();
    holds("peer-twice", format!("{twice}; {oneself}; {}", says(&lonely.ctx_enable_peer_access(other))));
    assert_eq!(
        (process.device_can_access_peer(0, 1), lonely.device_can_access_peer(0, 1)),
        (Ok(true), Ok(false))
    );
    process.ctx_disable_peer_access(one).unwrap();
    assert_eq!(process.ctx_disable_peer_access(one), Err(Status::PEER_ACCESS_NOT_ENABLED));
}

#[test]
fn pageable_memory_is_staged_and_pinned_memory_is_not() {
    let process = Machine::new("held").process();
    let (staged, late) = (process.mem_alloc(512).unwrap(), process.mem_alloc(512).unwrap());
    let mut source = [1_u8; 512];
    let memory = HostMemory::from_c(source.as_mut_ptr().expose_provenance(), 512).unwrap();
    process.copy_htod(staged, memory, 0).unwrap();
    process.host_register(memory).unwrap();
    process.copy_htod(late, memory, 0).unwrap();
    source.fill(2);
    process.control("running").unwrap();
    process.ctx_synchronize().unwrap();
    assert_eq!(process.read(staged, 512).unwrap(), [1; 512]);
    assert_eq!(
        process.read(late, 512).unwrap(),
        [2; 512],
        "pinned memory is read when the stream gets to it"
    );
    holds("host-pageable", "staged before the call returns");

    let twice = says(&process.host_register(memory));
    process.host_unregister(memory.address()).unwrap();
    holds("host-register-twice", format!("{twice}; {}", says(&process.host_unregister(memory.address()))));
    let pinned = process.host_alloc(4096).unwrap();
    assert_eq!(process.host_unregister(pinned), Err(Status::HOST_MEMORY_NOT_REGISTERED));
    process.host_free(pinned).unwrap();
    assert_eq!(process.host_free(pinned), Err(Status::INVALID_VALUE));
}

#[test]
fn host_memory_is_registered_by_pages_and_not_unregistered_under_a_copy() {
    let process = Machine::new("").process();
    let bytes = vec![0_u8; 2 * 4096];
    let page = bytes.as_ptr().expose_provenance().next_multiple_of(4096);
    let [first, second] = [0, 512].map(|at| HostMemory::from_c(page + at, 512).unwrap());
    process.host_register(first).unwrap();
    holds("host-register-page", says(&process.host_register(second)));
    // Memory in the same page is page-locked with it.
    process.control("held").unwrap();
    let to = process.mem_alloc(512).unwrap();
    process.copy_htod(to, second, 0).unwrap();
    std::thread::scope(|scope| {
        let unregistering = scope.spawn(|| {
            use_device(&process, 0);
            process.host_unregister(first.address())
        });
        while process.violations().is_empty() {
            std::thread::yield_now();
        }
        assert!(!unregistering.is_finished());
        process.control("running").unwrap();
        let answer = unregistering.join().unwrap();
        holds("host-unregister-busy", with_report(&answer, &process).replace("ok", "waits"));
    });
}

#[test]
fn an_address_tells_what_it_is() {
    let process = Machine::new("devices=2").process();
    let context = use_device(&process, 1);
    let address = process.mem_alloc(3 * MIB).unwrap();
    let ask = |attribute| process.pointer_attribute(attribute, address + 100).unwrap();
    assert_eq!(ask(1), PointerAttribute::Word(context as u64));
    assert_eq!((ask(2), ask(9)), (PointerAttribute::Unsigned(2), PointerAttribute::Signed(1)));
    assert_eq!((ask(10), ask(13)), (PointerAttribute::Flag(true), PointerAttribute::Flag(true)));
    assert_eq!((ask(11), ask(12)), (PointerAttribute::Word(address), PointerAttribute::Word(3 << 20)));
    let id = ask(7);
    process.mem_free(address).unwrap();
    assert_eq!(process.pointer_attribute(7, address), Err(Status::INVALID_VALUE));
    assert_eq!(process.mem_alloc(3 * MIB), Ok(address));
    assert_ne!(process.pointer_attribute(7, address).unwrap(), id, "another buffer at the same address");
}

#[test]
fn ranges_do_not_run_over_their_allocation() {
    let process = Machine::new("").process();
    let (a, b) = (process.mem_alloc(512).unwrap(), process.mem_alloc(512).unwrap());
    assert_eq!(b, a + 512, "side by side");
    assert_eq!(process.read(a, 513), Err(Status::INVALID_VALUE));
    assert_eq!(process.read(a + 511, 1).map(|bytes| bytes.len()), Ok(1));
    assert_eq!(process.read(u64::MAX, 2), Err(Status::INVALID_VALUE));
}

#[test]
fn a_context_takes_memory_as_long_as_it_is_retained() {
    let machine = Machine::new("context_mib=100,memory_mib=250");
    let (a, b) = (machine.process(), machine.bare(""));
    assert_eq!(used_mib(&a), 100);
    b.primary_ctx_retain(0).unwrap();
    b.primary_ctx_retain(0).unwrap();
    assert_eq!(used_mib(&a), 200, "once, however often it is retained");
    assert_eq!(machine.bare("").primary_ctx_retain(0), Err(Status::OUT_OF_MEMORY));
    assert_eq!(a.mem_alloc(60 * MIB), Err(Status::OUT_OF_MEMORY));
    b.primary_ctx_release(0).unwrap();
    assert_eq!(used_mib(&a), 200);
    b.primary_ctx_release(0).unwrap();
    assert_eq!(used_mib(&a), 100);
    use_device(&b, 0);
    drop(b);
    assert_eq!(used_mib(&a), 100, "it goes with its process");
}

#[test]
fn a_driver_knows_the_attributes_of_its_version() {
    const IPC_EVENTS: i32 = 125;
    for (version, last) in [("11.4", 119), ("11.8", 124), ("12.0", 129), ("12.4", 134), ("13.0", 147)] {
        let process = Machine::new(&format!("version={version}")).process();
        assert_eq!(process.device_attribute(last + 1, 0), Err(Status::INVALID_VALUE), "{version}");
        assert!(process.device_attribute(last, 0).is_ok(), "{version}");
        let events = process.device_attribute(IPC_EVENTS, 0);
        assert_eq!(events, if last < IPC_EVENTS { Err(Status::INVALID_VALUE) } else { Ok(1) }, "{version}");
    }
    assert_eq!(Machine::new("").process().device_attribute(0, 0), Err(Status::INVALID_VALUE));
}

#[test]
fn every_call_is_refused_once_the_driver_is_down() {
    let process = Machine::new("held").process();
    let (stream, event) = (process.stream_create(1).unwrap(), process.event_create(6).unwrap());
    process.event_record(event, stream).unwrap();
    let later = says(&process.device_count());
    process.tear_down();
    let answers = [
        says(&process.device_count()),
        says(&process.mem_alloc(512)),
        says(&process.event_query(event)),
        says(&process.event_destroy(event)),
        says(&process.stream_destroy(stream)),
        says(&process.vmm_reserve(2 * MIB, 0)),
        says(&process.pool_create(0, 0)),
        says(&process.primary_ctx_release(0)),
    ];
    assert_eq!(all_say(&answers), Status::DEINITIALIZED.to_string());
    // The driver does not even name it any more.
    holds("exit-handlers", format!("code {}; {later}", Status::DEINITIALIZED.code()));
}

#[test]
fn fresh_memory_is_not_zeros_and_memory_that_was_used_keeps_what_was_in_it() {
    let process = Machine::new("").process();
    let long = process.mem_alloc(4 * MIB).unwrap();
    for at in [0, MIB - 1, 4 * MIB - 1] {
        assert_eq!(process.read(long + at as u64, 1).unwrap(), [0xa5], "byte {at}");
    }
    process.write(long, b"what was in it").unwrap();
    process.mem_free(long).unwrap();
    assert_eq!(process.mem_alloc(6 * MIB), Ok(long));
    assert_eq!(process.read(long, 15).unwrap(), b"what was in it\xa5");
    assert_eq!(process.read(long + (6 * MIB - 1) as u64, 1).unwrap(), [0xa5], "nobody had this part");
    let pooled = process.alloc_async(512, 0).unwrap();
    assert_eq!(process.read(pooled, 512).unwrap(), [0xa5; 512]);
}

#[test]
fn what_is_copied_from_pageable_memory_may_be_on_its_way_when_the_call_returns() {
    let process = Machine::new("held,staged_copies").process();
    let (to, beside) = (process.mem_alloc(512).unwrap(), process.mem_alloc(512).unwrap());
    let mut source = [1_u8; 512];
    let memory = HostMemory::from_c(source.as_mut_ptr().expose_provenance(), 512).unwrap();
    process.copy_htod_at_once(to, memory).unwrap();
    process.on_device(|| process.copy_dtod(beside, to, 512, 0)).unwrap();
    assert_eq!(process.stream(0).unwrap().query(), Err(Status::NOT_READY));
    source.fill(2);
    process.control("running").unwrap();
    process.ctx_synchronize().unwrap();
    assert_eq!(
        (process.read(to, 512).unwrap(), process.read(beside, 512).unwrap()),
        (vec![1; 512], vec![1; 512])
    );

    process.host_register(memory).unwrap();
    process.control("held").unwrap();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            use_device(&process, 0);
            process.copy_htod_at_once(to, memory)
        });
        while process.stream(0).unwrap().query() != Err(Status::NOT_READY) {
            std::thread::yield_now();
        }
        assert!(!copying.is_finished(), "page-locked memory is waited for");
        process.control("running").unwrap();
        copying.join().unwrap().unwrap();
    });
    assert_eq!(process.read(to, 512).unwrap(), [2; 512]);
    process.host_unregister(memory.address()).unwrap();

    let patient = Machine::new("delay_us=2000").process();
    let to = patient.mem_alloc(512).unwrap();
    patient.copy_htod_at_once(to, memory).unwrap();
    assert_eq!(patient.stream(0).unwrap().query(), Ok(()), "without the setting it is done");
}

#[test]
fn memory_that_one_thread_frees_is_another_ones_as_a_whole() {
    let process = Machine::new("").process();
    let work = || {
        use_device(&process, 0);
        for _ in 0..5_000 {
            let address = process.mem_alloc(2 * MIB).unwrap();
            assert_eq!(process.read(address, 1).map(|bytes| bytes.len()), Ok(1));
            process.mem_free(address).unwrap();
        }
    };
    std::thread::scope(|scope| [(); 3].map(|()| drop(scope.spawn(work))));
    assert_eq!(used_mib(&process), 0);
}
