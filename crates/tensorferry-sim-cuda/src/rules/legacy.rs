//! Tests of legacy IPC.

use super::{MIB, Machine, all_say, holds, read_first, says, used_mib, with_report};

const LAZY: u32 = 1;

#[test]
fn the_exporting_process_cannot_open_its_own_handle() {
    let process = Machine::new("").process();
    let handle = process.ipc_get_mem_handle(process.mem_alloc(4 * MIB).unwrap()).unwrap();
    holds("ipc-same-process", says(&process.ipc_open_mem_handle(&handle, LAZY)));
}

#[test]
fn an_importer_sees_what_the_exporter_wrote_and_the_other_way_round() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let theirs = exporter.mem_alloc(8 * MIB).unwrap();
    exporter.write(theirs + 5, b"device memory").unwrap();
    let ours = importer.ipc_open_mem_handle(&exporter.ipc_get_mem_handle(theirs).unwrap(), LAZY).unwrap();
    assert_eq!(importer.read(ours + 5, 13).unwrap(), b"device memory");
    importer.write(ours, b"back").unwrap();
    assert_eq!(exporter.read(theirs, 4).unwrap(), b"back");
    importer.ipc_close_mem_handle(ours).unwrap();
    exporter.mem_free(theirs).unwrap();
    assert!(exporter.violations().is_empty() && importer.violations().is_empty());
}

#[test]
fn small_allocations_share_a_block_that_an_importer_maps_whole() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let (a, b) = (exporter.mem_alloc(512).unwrap(), exporter.mem_alloc(512).unwrap());
    exporter.write(b, b"neighbour").unwrap();
    assert_eq!(a >> 21, b >> 21, "one block of 2 MiB");
    assert_ne!(exporter.ipc_get_mem_handle(a), exporter.ipc_get_mem_handle(b));
    let opened = importer.ipc_open_mem_handle(&exporter.ipc_get_mem_handle(a).unwrap(), LAZY).unwrap();
    let region = importer.space().at(opened).cloned().unwrap();
    let block = region.memory.address()..region.memory.address() + region.memory.len_bytes() as u64;
    assert!(block.contains(&(opened + (b - a))), "the neighbour is mapped too");
    assert_eq!(
        importer.read(opened + (b - a), 9),
        Err(crate::Status::INVALID_VALUE),
        "and copies are refused"
    );
    holds("ipc-small-blocks", "shared; the whole block is mapped, copies are checked by allocation");
}

#[test]
fn small_allocations_of_one_block_are_closed_one_by_one() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let [a, b] = [(); 2].map(|()| {
        let address = exporter.mem_alloc(512).unwrap();
        importer.ipc_open_mem_handle(&exporter.ipc_get_mem_handle(address).unwrap(), LAZY).unwrap()
    });
    importer.write(b, b"stays").unwrap();
    importer.ipc_close_mem_handle(a).unwrap();
    assert_eq!(importer.read(b, 5).unwrap(), b"stays");
    holds("ipc-small-blocks-closed", format!("the other stays; {}", says(&importer.ipc_close_mem_handle(b))));
}

#[test]
fn the_handle_of_an_address_inside_names_the_allocation() {
    let process = Machine::new("").process();
    let address = process.mem_alloc(8 * MIB).unwrap();
    let inside = process.ipc_get_mem_handle(address + 4 * MIB as u64).unwrap();
    assert_eq!(inside, process.ipc_get_mem_handle(address).unwrap());
    holds("ipc-interior", "the handle of the allocation");
}

#[test]
fn a_handle_cannot_be_opened_after_a_free_or_a_death() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let address = exporter.mem_alloc(4 * MIB).unwrap();
    let handle = exporter.ipc_get_mem_handle(address).unwrap();
    exporter.mem_free(address).unwrap();
    holds("ipc-open-after-free", says(&importer.ipc_open_mem_handle(&handle, LAZY)));
    // Same address and slot, but another allocation and another handle.
    assert_eq!(exporter.mem_alloc(4 * MIB), Ok(address));
    assert_eq!(says(&importer.ipc_open_mem_handle(&handle, LAZY)), "CUDA_ERROR_INVALID_VALUE");
    let handle = exporter.ipc_get_mem_handle(address).unwrap();
    drop(exporter);
    holds("ipc-open-after-death", says(&importer.ipc_open_mem_handle(&handle, LAZY)));
}

#[test]
fn opened_memory_that_is_used_after_its_exporter_freed_it_is_reported() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let address = exporter.mem_alloc(4 * MIB).unwrap();
    let opened = importer.ipc_open_mem_handle(&exporter.ipc_get_mem_handle(address).unwrap(), LAZY).unwrap();
    importer.write(opened, &[7]).unwrap();
    holds("ipc-free-while-open", with_report(&exporter.mem_free(address), &exporter).replace("ok", "works"));
    holds("ipc-read-after-free", with_report(&read_first(&importer, opened), &importer));
}

#[test]
fn opened_memory_that_is_used_after_its_exporter_died_is_reported() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let address = exporter.mem_alloc(4 * MIB).unwrap();
    let opened = importer.ipc_open_mem_handle(&exporter.ipc_get_mem_handle(address).unwrap(), LAZY).unwrap();
    importer.write(opened, &[7]).unwrap();
    drop(exporter);
    holds("ipc-read-after-death", with_report(&read_first(&importer, opened), &importer));
}

#[test]
fn memory_comes_back_after_a_consumer_is_gone() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let before = used_mib(&exporter);
    let address = exporter.mem_alloc(64 * MIB).unwrap();
    importer.ipc_open_mem_handle(&exporter.ipc_get_mem_handle(address).unwrap(), LAZY).unwrap();
    drop(importer);
    assert_eq!(used_mib(&exporter), before + 64);
    exporter.mem_free(address).unwrap();
    assert_eq!(used_mib(&exporter), before);
    holds("ipc-consumer-killed", "comes back");
}

#[test]
fn what_was_opened_is_neither_forwarded_nor_freed() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let handle = exporter.ipc_get_mem_handle(exporter.mem_alloc(4 * MIB).unwrap()).unwrap();
    let opened = importer.ipc_open_mem_handle(&handle, LAZY).unwrap();
    holds("ipc-forward", says(&importer.ipc_get_mem_handle(opened)));
    holds("ipc-free-imported", says(&importer.mem_free(opened)));
    // The bytes of a handle may be passed on.
    assert!(machine.process().ipc_open_mem_handle(&handle, LAZY).is_ok());
}

#[test]
fn a_second_open_is_counted() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let handle = exporter.ipc_get_mem_handle(exporter.mem_alloc(4 * MIB).unwrap()).unwrap();
    let opened = importer.ipc_open_mem_handle(&handle, LAZY).unwrap();
    let same = if importer.ipc_open_mem_handle(&handle, LAZY) == Ok(opened) { "same" } else { "another" };
    let closed: Vec<String> = (0..3).map(|_| says(&importer.ipc_close_mem_handle(opened))).collect();
    holds("ipc-second-open", format!("{same} address; {}", closed.join(", ")));
}

#[test]
fn flags_and_bytes_are_checked() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let handle = exporter.ipc_get_mem_handle(exporter.mem_alloc(4 * MIB).unwrap()).unwrap();
    let flags = [0, 2].map(|flags| says(&importer.ipc_open_mem_handle(&handle, flags)));
    holds("ipc-flags", all_say(&flags));
    for at in 0..48 {
        let mut forged = handle;
        forged[at] ^= 0x41;
        assert!(importer.ipc_open_mem_handle(&forged, LAZY).is_err(), "byte {at} was forged");
    }
}

#[test]
fn without_legacy_ipc_every_call_says_so() {
    let process = Machine::new("disable=ipc").process();
    let address = process.mem_alloc(512).unwrap();
    assert_eq!(says(&process.ipc_get_mem_handle(address)), "CUDA_ERROR_NOT_SUPPORTED");
    assert_eq!(says(&process.ipc_open_mem_handle(&[0; 64], LAZY)), "CUDA_ERROR_NOT_SUPPORTED");
    assert_eq!(process.device_attribute(125, 0), Ok(0));
}
