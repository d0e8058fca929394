//! Tests of virtual memory management.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_getfd};

use super::{MIB, Machine, all_say, holds, says, use_device, used_mib};
use crate::vmm::{AccessFlags, POSIX_FILE_DESCRIPTOR};
use crate::{Answer, Driver, Status};

const LEN: usize = 4 * MIB;

/// Maps a handle with access for device 0.
fn map(driver: &Driver, handle: u64) -> u64 {
    let address = driver.vmm_reserve(LEN, 0).unwrap();
    driver.vmm_map(address, LEN, 0, handle).unwrap();
    driver.vmm_set_access(address, LEN, &[(0, AccessFlags::ReadWrite)]).unwrap();
    address
}

fn unmap(driver: &Driver, address: u64) {
    driver.vmm_unmap(address, LEN).unwrap();
    driver.vmm_address_free(address, LEN).unwrap();
}

fn create(driver: &Driver) -> u64 {
    driver.vmm_create(LEN, 0, POSIX_FILE_DESCRIPTOR).unwrap()
}

fn import(driver: &Driver, fd: &OwnedFd) -> Answer<u64> {
    driver.vmm_import(fd.as_raw_fd(), POSIX_FILE_DESCRIPTOR)
}

#[test]
fn a_descriptor_is_imported_in_the_same_process_too() {
    let process = Machine::new("").process();
    let handle = create(&process);
    let fd = process.vmm_export(handle, POSIX_FILE_DESCRIPTOR).unwrap();
    let (a, b) = (map(&process, handle), map(&process, import(&process, &fd).unwrap()));
    process.write(a, b"once").unwrap();
    assert_eq!(process.read(b, 4).unwrap(), b"once");
    let is_closed = fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC);
    holds(
        "vmm-same-process",
        format!("works, the same memory, {}", if is_closed { "close-on-exec" } else { "kept" }),
    );
}

#[test]
fn memory_outlives_whoever_made_it() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let handle = create(&exporter);
    let theirs = map(&exporter, handle);
    exporter.write(theirs, b"kept").unwrap();
    let fd = exporter.vmm_export(handle, POSIX_FILE_DESCRIPTOR).unwrap();
    let imported = import(&importer, &fd).unwrap();
    holds("vmm-re-export", says(&importer.vmm_export(imported, POSIX_FILE_DESCRIPTOR)));
    holds("vmm-import-twice", says(&import(&importer, &fd)));

    let ours = map(&importer, imported);
    unmap(&exporter, theirs);
    exporter.vmm_release(handle).unwrap();
    assert_eq!(importer.read(ours, 4).unwrap(), b"kept");
    holds("vmm-exporter-released", "stays");
    drop(exporter);
    importer.write(ours, b"more").unwrap();
    assert_eq!(importer.read(ours, 4).unwrap(), b"more");
    holds("vmm-exporter-killed", "stays");
    let third = machine.process();
    assert_eq!(third.read(map(&third, import(&third, &fd).unwrap()), 4).unwrap(), b"more");
    holds("vmm-import-after-kill", "works");
}

#[test]
fn a_descriptor_alone_holds_memory() {
    let process = Machine::new("").process();
    let handle = create(&process);
    let fd = process.vmm_export(handle, POSIX_FILE_DESCRIPTOR).unwrap();
    process.vmm_release(handle).unwrap();
    assert_eq!(used_mib(&process), 4);
    let again = import(&process, &fd).unwrap();
    process.vmm_release(again).unwrap();
    assert_eq!(says(&process.vmm_release(again)), "CUDA_ERROR_INVALID_VALUE");
    drop(fd);
    assert_eq!(used_mib(&process), 0);
    holds("vmm-fd-alone", "counted, importable, gone with the descriptor");
}

#[test]
fn a_mapping_holds_memory_after_its_handle_was_released() {
    let process = Machine::new("").process();
    let handle = create(&process);
    let address = map(&process, handle);
    process.vmm_release(handle).unwrap();
    process.write(address, b"held").unwrap();
    assert_eq!((process.read(address, 4).unwrap(), used_mib(&process)), (b"held".to_vec(), 4));
    let retained = process.vmm_retain(address + 17).unwrap();
    assert_eq!(process.vmm_properties(retained), Ok((0, POSIX_FILE_DESCRIPTOR)));
    process.vmm_release(retained).unwrap();
    unmap(&process, address);
    assert_eq!(used_mib(&process), 0);
}

#[test]
fn unmapping_does_not_wait_for_work() {
    let process = Machine::new("held").process();
    let address = map(&process, create(&process));
    let stream = process.stream_create(0).unwrap();
    process.fill(address, crate::copy::Rows::ONE, &[1], LEN, stream).unwrap();
    process.vmm_unmap(address, LEN).unwrap();
    // Looked up now: once the work has failed, every lookup in the context fails.
    let stream = process.stream(stream).unwrap();
    assert_eq!(stream.query(), Err(Status::NOT_READY));
    process.control("running").unwrap();
    // The range is no device memory any more when the stream reaches the work.
    let answer = stream.synchronize();
    holds("vmm-unmap-queued", format!("does not wait; the work fails with {}", says(&answer)));
}

#[test]
fn no_context_is_needed() {
    let machine = Machine::new("");
    let (never, not_current) = (machine.bare(""), machine.process());
    not_current.ctx_set_current(0).unwrap();
    let works = [never, not_current].map(|process| {
        let handle = create(&process);
        let fd = process.vmm_export(handle, POSIX_FILE_DESCRIPTOR).unwrap();
        let imported = import(&process, &fd).unwrap();
        unmap(&process, map(&process, imported));
        process.vmm_release(imported).unwrap();
        process.vmm_release(handle).map_or_else(|status| status.to_string(), |()| "works".to_owned())
    });
    holds("vmm-no-context", works.join("; "));
}

#[test]
fn sizes_offsets_and_ranges_are_checked() {
    let process = Machine::new("").process();
    let handle = create(&process);
    let address = process.vmm_reserve(2 * LEN, 0).unwrap();
    let granule = process.granularity_bytes(0).unwrap();
    assert_eq!(granule, 2 * MIB);
    process.vmm_map(address, LEN, 0, handle).unwrap();
    let free = address + LEN as u64;
    let answers = [
        says(&process.vmm_create(granule + 4096, 0, POSIX_FILE_DESCRIPTOR)),
        says(&process.vmm_create(0, 0, POSIX_FILE_DESCRIPTOR)),
        says(&process.vmm_reserve(granule / 2, 0)),
        says(&process.vmm_map(address, LEN, 0, handle)),
        says(&process.vmm_map(free, LEN, granule, handle)),
        says(&process.vmm_map(free + 4096, granule, 0, handle)),
    ];
    holds("vmm-granularity", answers.join("; "));
    assert_eq!(process.vmm_reserve(granule, 3 * granule), Err(Status::INVALID_VALUE));
    assert_eq!(process.vmm_map(free, LEN + granule, 0, handle), Err(Status::NOT_SUPPORTED), "too long");
    assert_eq!(process.vmm_map(free + LEN as u64, granule, 0, handle), Err(Status::INVALID_VALUE));
    assert_eq!(process.vmm_map(free, granule, 0, handle + 1), Err(Status::INVALID_VALUE));
    process.vmm_map(free, granule, 0, handle).unwrap();
    let answers = [
        says(&process.vmm_address_free(address, 2 * LEN)),
        says(&process.vmm_unmap(address, granule)),
        says(&process.vmm_unmap(address + granule as u64, LEN)),
        says(&process.vmm_unmap(free + granule as u64, granule)),
    ];
    holds("vmm-free-mapped", all_say(&answers));
    process.vmm_unmap(address, LEN + granule).unwrap();
    assert_eq!(says(&process.vmm_address_free(address, LEN)), "CUDA_ERROR_INVALID_VALUE");
    process.vmm_address_free(address, 2 * LEN).unwrap();
}

#[test]
fn memory_without_a_handle_type_is_not_exported() {
    let process = Machine::new("").process();
    let handle = process.vmm_create(LEN, 0, 0).unwrap();
    holds("vmm-not-exportable", says(&process.vmm_export(handle, POSIX_FILE_DESCRIPTOR)));
}

#[test]
fn nothing_is_touched_without_access() {
    let machine = Machine::new("");
    let no_access = machine.process();
    let address = no_access.vmm_reserve(LEN, 0).unwrap();
    no_access.vmm_map(address, LEN, 0, create(&no_access)).unwrap();
    assert_eq!(no_access.vmm_access(0, address), Ok(AccessFlags::None));
    let read_only = machine.process();
    let readable = map(&read_only, create(&read_only));
    read_only.vmm_set_access(readable, LEN, &[(0, AccessFlags::Read)]).unwrap();
    assert_eq!(read_only.read(readable, 1), Ok(vec![0]));
    let answers = [says(&no_access.read(address, 1)), says(&read_only.write(readable, b"x"))];
    holds("vmm-no-access", all_say(&answers));
}

#[test]
fn access_is_granted_device_by_device() {
    let process = Machine::new("devices=2").process();
    let address = map(&process, create(&process));
    process.write(address, b"zero").unwrap();
    use_device(&process, 1);
    assert_eq!(process.read(address, 4), Err(Status::INVALID_VALUE));
    let process = Machine::new("devices=2").process();
    let address = map(&process, create(&process));
    process.vmm_set_access(address, LEN, &[(1, AccessFlags::Read)]).unwrap();
    use_device(&process, 1);
    assert_eq!(process.read(address, 4), Ok(vec![0; 4]));
}

#[test]
fn devices_are_the_machine_s_and_not_the_process_s() {
    let machine = Machine::new("devices=2");
    let (swapped, lone) = (machine.process_with("visible=1+0"), machine.process_with("visible=1"));
    let process = machine.process();
    assert_eq!(process.device_uuid(0), swapped.device_uuid(1));
    assert_ne!(process.device_uuid(0), lone.device_uuid(0));
    let fd = process.vmm_export(create(&process), POSIX_FILE_DESCRIPTOR).unwrap();
    let imported = import(&swapped, &fd).unwrap();
    assert_eq!(swapped.vmm_properties(imported), Ok((1, POSIX_FILE_DESCRIPTOR)));
    holds("vmm-not-visible", says(&import(&lone, &fd)));
}

#[test]
fn other_descriptors_are_no_memory() {
    let process = Machine::new("").process();
    let file: OwnedFd = std::fs::File::open("/proc/self/stat").unwrap().into();
    let pool = process.pool_create(0, POSIX_FILE_DESCRIPTOR).unwrap();
    let pool = process.pool_export(pool, POSIX_FILE_DESCRIPTOR).unwrap();
    let elsewhere = Machine::new("").process();
    let elsewhere = elsewhere.vmm_export(create(&elsewhere), POSIX_FILE_DESCRIPTOR).unwrap();
    let answers = [says(&import(&process, &file)), says(&import(&process, &pool))];
    holds("vmm-foreign-fd", answers.join("; "));
    assert_eq!(import(&process, &elsewhere), Err(Status::INVALID_VALUE), "another machine's");
    assert_eq!(process.vmm_import(-1, POSIX_FILE_DESCRIPTOR), Err(Status::UNKNOWN));
}

#[test]
fn without_vmm_every_call_says_so() {
    let process = Machine::new("disable=vmm").process();
    assert_eq!(process.vmm_create(LEN, 0, POSIX_FILE_DESCRIPTOR), Err(Status::NOT_SUPPORTED));
    assert_eq!(process.vmm_reserve(LEN, 0), Err(Status::NOT_SUPPORTED));
    assert_eq!((process.device_attribute(102, 0), process.device_attribute(103, 0)), (Ok(0), Ok(0)));
}
