//! Tests of memory pools.

use std::os::fd::AsRawFd;

use rustix::io::{FdFlags, fcntl_getfd};

use super::{MIB, Machine, holds, read_first, says, used_mib, with_report};
use crate::address_space::Touch;
use crate::vmm::{AccessFlags, POSIX_FILE_DESCRIPTOR};
use crate::{Driver, Status};

/// An exportable pool, and an allocation from it.
fn pool(driver: &Driver) -> (usize, u64) {
    let pool = driver.pool_create(0, POSIX_FILE_DESCRIPTOR).unwrap();
    (pool, driver.alloc_from_pool(MIB, pool, 0).unwrap())
}

/// Imports the pool of another process.
fn import(driver: &Driver, owner: &Driver, pool: usize) -> usize {
    let fd = owner.pool_export(pool, POSIX_FILE_DESCRIPTOR).unwrap();
    driver.pool_import(fd.as_raw_fd(), POSIX_FILE_DESCRIPTOR).unwrap()
}

#[test]
fn pool_memory_is_shared_by_pool_and_pointer() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let (theirs, address) = pool(&exporter);
    exporter.write(address, b"pooled").unwrap();
    let fd = exporter.pool_export(theirs, POSIX_FILE_DESCRIPTOR).unwrap();
    let is_closed = fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC);
    holds("pool-descriptor", if is_closed { "close-on-exec" } else { "kept" });
    let ours = import(&importer, &exporter, theirs);
    let data = exporter.pool_export_pointer(address).unwrap();
    let imported = importer.pool_import_pointer(ours, &data).unwrap();
    assert_eq!(importer.read(imported, 6).unwrap(), b"pooled");
    holds("pool-imported-alloc", says(&importer.alloc_from_pool(512, ours, 0)));
    let again = says(&importer.pool_export_pointer(imported));
    let pool_again = importer.pool_export(ours, POSIX_FILE_DESCRIPTOR);
    holds("pool-re-export", format!("{again}; {}", says(&pool_again)));
    // Importers free first, the exporter last: the documented order.
    importer.free_async(imported, 0).unwrap();
    importer.ctx_synchronize().unwrap();
    exporter.free_async(address, 0).unwrap();
    exporter.ctx_synchronize().unwrap();
    assert!(exporter.violations().is_empty() && importer.violations().is_empty());
}

#[test]
fn legacy_ipc_and_the_default_pool_do_not_share_pool_memory() {
    let process = Machine::new("").process();
    let address = process.alloc_async(4 * MIB, 0).unwrap();
    let capable = process.pointer_attribute(10, address).unwrap();
    assert_eq!(capable, crate::PointerAttribute::Flag(false));
    let default = process.default_pool(0).unwrap();
    let exported = process.pool_export(default, POSIX_FILE_DESCRIPTOR);
    let handle = says(&process.ipc_get_mem_handle(address));
    holds("pool-legacy", format!("{handle}, not capable; {}", says(&exported)));
}

#[test]
fn the_current_pool_is_where_memory_comes_from() {
    let process = Machine::new("").process();
    let (exportable, _) = pool(&process);
    assert_eq!(process.current_pool(0), process.default_pool(0));
    process.set_current_pool(0, exportable).unwrap();
    let address = process.alloc_async(512, 0).unwrap();
    assert_eq!(process.pointer_attribute(17, address), Ok(crate::PointerAttribute::Word(exportable as u64)));
    drop(process.pool_export(exportable, POSIX_FILE_DESCRIPTOR).unwrap());
    assert!(process.pool_export_pointer(address).is_ok());
    process.pool_destroy(exportable).unwrap();
    assert_eq!(process.current_pool(0), process.default_pool(0));
    process.write(address, b"in use").unwrap();
}

#[test]
fn an_import_is_not_counted() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let (theirs, address) = pool(&exporter);
    let ours = import(&importer, &exporter, theirs);
    let data = exporter.pool_export_pointer(address).unwrap();
    let first = importer.pool_import_pointer(ours, &data).unwrap();
    let same = if importer.pool_import_pointer(ours, &data) == Ok(first) { "same" } else { "another" };
    importer.free_async(first, 0).unwrap();
    importer.ctx_synchronize().unwrap();
    assert_eq!(importer.read(first, 1), Err(Status::INVALID_VALUE));
    holds("pool-import-twice", format!("{same} address; gone with the first free"));
}

#[test]
fn imported_memory_that_is_used_after_its_exporter_freed_it_is_reported() {
    let machine = Machine::new("");
    let (exporter, importer) = (machine.process(), machine.process());
    let (theirs, address) = pool(&exporter);
    let before = says(&exporter.pool_export_pointer(address));
    let ours = import(&importer, &exporter, theirs);
    let data = exporter.pool_export_pointer(address).unwrap();
    holds("pool-pointer-first", format!("{before}; works"));
    let imported = importer.pool_import_pointer(ours, &data).unwrap();
    importer.write(imported, &[7]).unwrap();
    exporter.free_async(address, 0).unwrap();
    exporter.ctx_synchronize().unwrap();
    assert_eq!(exporter.violations().len(), 1, "an importer still had it");
    holds("pool-exporter-first", with_report(&read_first(&importer, imported), &importer));
}

#[test]
fn memory_freed_in_a_stream_is_there_until_the_stream_gets_to_it() {
    let process = Machine::new("held").process();
    let address = process.alloc_async(512, 0).unwrap();
    process.free_async(address, 0).unwrap();
    assert!(process.address_range(address).is_ok());
    process.control("running").unwrap();
    process.ctx_synchronize().unwrap();
    assert_eq!(process.address_range(address), Err(Status::NOT_FOUND));
    assert_eq!(process.free_async(address, 0), Err(Status::INVALID_VALUE));
}

#[test]
fn another_device_reaches_a_pool_when_it_was_told_to_and_not_as_a_peer() {
    let process = Machine::new("devices=2").process();
    let (pool, address) = pool(&process);
    let first = process.ctx_get_current().unwrap();
    super::use_device(&process, 1);
    process.ctx_enable_peer_access(first).unwrap();
    let by_kernel = Touch { device: 1, is_write: false, is_kernel: true };
    assert_eq!(process.space().check(address, 4, by_kernel), Err(Status::ILLEGAL_ADDRESS));
    process.pool_set_access(pool, &[(1, AccessFlags::ReadWrite)]).unwrap();
    assert_eq!(process.space().check(address, 4, by_kernel), Ok(()));
    process.pool_set_access(pool, &[(1, AccessFlags::None)]).unwrap();
    assert_eq!(process.space().check(address, 4, by_kernel), Err(Status::ILLEGAL_ADDRESS));
    for wrong in [(0, AccessFlags::ReadWrite), (1, AccessFlags::Read)] {
        assert_eq!(process.pool_set_access(pool, &[wrong]), Err(Status::INVALID_VALUE));
    }
    let alone = Machine::new("devices=2,disable=peer").process();
    let pool = alone.pool_create(0, POSIX_FILE_DESCRIPTOR).unwrap();
    let answer = alone.pool_set_access(pool, &[(1, AccessFlags::ReadWrite)]);
    assert_eq!(answer, Err(Status::INVALID_DEVICE));
}

#[test]
fn without_pools_every_call_says_so() {
    let process = Machine::new("disable=pool").process();
    assert_eq!(process.pool_create(0, POSIX_FILE_DESCRIPTOR), Err(Status::NOT_SUPPORTED));
    assert_eq!(process.alloc_async(512, 0), Err(Status::NOT_SUPPORTED));
    assert_eq!((process.device_attribute(115, 0), process.device_attribute(119, 0)), (Ok(0), Ok(0)));
}

#[test]
fn an_exportable_pool_may_keep_what_it_had_until_it_is_destroyed() {
    let process = Machine::new("memory_mib=32,pools_keep").process();
    let default = process.alloc_async(8 * MIB, 0).unwrap();
    process.mem_free(default).unwrap();
    assert_eq!(used_mib(&process), 0, "the default pool is not exportable");
    let (pool, small) = pool(&process);
    let large = process.alloc_from_pool(20 * MIB, pool, 0).unwrap();
    assert_eq!(used_mib(&process), 22);
    process.free_async(large, 0).unwrap();
    process.ctx_synchronize().unwrap();
    process.pool_set_attribute(pool, 4, 0).unwrap();
    process.pool_trim(pool).unwrap();
    assert_eq!(used_mib(&process), 22, "neither the threshold nor trimming does anything");
    // There is room only in the memory that the pool keeps.
    assert_eq!(process.mem_alloc(20 * MIB), Err(Status::OUT_OF_MEMORY));
    let large = process.alloc_from_pool(20 * MIB, pool, 0).unwrap();
    assert_eq!(used_mib(&process), 22);
    process.pool_destroy(pool).unwrap();
    process.mem_free(large).unwrap();
    assert_eq!(used_mib(&process), 22, "something is still allocated in it");
    process.mem_free(small).unwrap();
    assert_eq!(used_mib(&process), 0);
}
