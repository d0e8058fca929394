//! Drivers that are missing, old, or fail in the middle.

use tensorferry_cuda_ipc::DRIVER_VARIABLE;
use tensorferry_kit::{Machine, where_possible};

use super::{ask, told};

const CREATE: &str = "create 4194304";

#[test]
fn no_driver_is_an_error_that_says_what_was_tried() {
    where_possible(|| {
        let process = Machine::new("").process_with("", &[(DRIVER_VARIABLE, "libtensorferry-none.so")]);
        let answer = ask(&process, "load");
        assert!(answer.starts_with("error: no CUDA driver: libtensorferry-none.so"), "{answer}");
        process.finish();
    });
}

#[test]
fn a_library_that_is_no_driver_is_an_error() {
    where_possible(|| {
        let process = Machine::new("").process_with("", &[(DRIVER_VARIABLE, "libc.so.6")]);
        let answer = ask(&process, "load");
        assert_eq!(answer, "error: the CUDA driver has no function cuInit: it is too old, or no driver");
        process.finish();
    });
}

#[test]
fn a_driver_without_a_device_says_so() {
    where_possible(|| {
        let process = Machine::new("").process_with("", &[("CUDA_VISIBLE_DEVICES", "")]);
        let answer = ask(&process, "load");
        assert!(answer.starts_with("error: cuInit failed: CUDA_ERROR_NO_DEVICE (100)"), "{answer}");
        process.finish();
    });
}

#[test]
fn each_driver_call_may_fail_once_and_nothing_is_left() {
    where_possible(|| {
        let steps = [
            ("cuMemGetAllocationGranularity", CREATE),
            ("cuMemCreate", CREATE),
            ("cuMemAddressReserve", "map"),
            ("cuMemMap", "map"),
            ("cuMemSetAccess", "map"),
            ("cuMemcpyHtoD_v2", "write x"),
            // The bytes are at the device when it is done.
            ("cuStreamSynchronize", "write x"),
            ("cuMemcpyDtoH_v2", "read 1"),
            ("cuMemGetInfo_v2", "used"),
        ];
        for (function, command) in steps {
            let process = Machine::new(&format!("fail={function}:2")).process();
            told(&process, &["load"]);
            for line in [CREATE, "map", "write x", "read 1", "used"] {
                let mut answer = ask(&process, line);
                if line == command {
                    let expected =
                        format!("error: {function} failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
                    assert_eq!(answer, expected);
                    // Where it failed halfway it was taken back, so it works now, and costs no more than it
                    // should.
                    answer = ask(&process, line);
                }
                let expected = match line {
                    "read 1" => "x",
                    "used" => "4",
                    _ => "ok",
                };
                assert_eq!(answer, expected, "{line} with a failing {function}");
            }
            told(&process, &["unmap", "release"]);
            assert_eq!(ask(&process, "used"), "0", "after a failing {function}");
            process.finish();
        }
    });
}

#[test]
fn memory_that_there_is_not_is_an_error() {
    where_possible(|| {
        let process = Machine::new("memory_mib=2").process();
        told(&process, &["load"]);
        assert!(ask(&process, CREATE).contains("CUDA_ERROR_OUT_OF_MEMORY (2)"));
        told(&process, &["create 2097152", "map"]);
        process.finish();
    });
}

#[test]
fn a_length_that_is_not_granular_is_refused_before_the_driver_is_asked() {
    where_possible(|| {
        let process = Machine::new("").process();
        told(&process, &["load"]);
        for len in ["0", "4096", "2097153"] {
            let expected =
                format!("error: {len} bytes are no multiple of the device's granularity of 2097152 bytes");
            assert_eq!(ask(&process, &format!("create {len}")), expected);
        }
        process.finish();
    });
}

#[test]
fn more_than_there_is_cannot_be_mapped_or_read() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, consumer) = (machine.process(), machine.process());
        told(&producer, &["load", CREATE, "map"]);
        told(&consumer, &["load"]);
        // The exporter lies about the length.
        super::hand_over(&producer, "export", &consumer, "import 8388608");
        let answer = ask(&consumer, "map");
        assert!(answer.starts_with("error: cuMemMap failed: CUDA_ERROR_NOT_SUPPORTED (801)"), "{answer}");
        let answer = ask(&producer, "read 4194305");
        assert_eq!(answer, "error: 4194305 bytes from 0 do not lie in a mapping of 4194304 bytes");
        producer.finish();
        consumer.finish();
    });
}

#[test]
fn a_device_without_shareable_memory_and_a_lost_one_say_so() {
    where_possible(|| {
        let process = Machine::new("disable=vmm").process();
        told(&process, &["load"]);
        assert!(ask(&process, CREATE).contains("CUDA_ERROR_NOT_SUPPORTED (801)"));
        process.finish();
        let process = Machine::new("lost=0").process();
        let answer = ask(&process, "load");
        assert!(
            answer.starts_with("error: cuDevicePrimaryCtxRetain failed: CUDA_ERROR_DEVICE_UNAVAILABLE"),
            "{answer}"
        );
        process.finish();
    });
}
