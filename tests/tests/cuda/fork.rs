//! The start method fork, before and after the driver was initialised.
//!
//! # Safety
//! The process that is forked keeps no slice of shared memory.
#![expect(unsafe_code, reason = "allows the start method fork")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use tensorferry::spawn::{StartMethod, func, get_context};
use tensorferry_cuda_ipc::{CudaTensor, Driver, Stream};
use tensorferry_process::{Failure, Inherited, Start};
use tensorferry_tests::{DEADLINE, Machine, where_possible};

tensorferry_process::entry! {
    static FORKS = "test.cuda-forks" => forks;
}

#[func]
fn sum(_rank: usize) -> Result<u32, tensorferry_cuda_ipc::CudaError> {
    let context = Driver::load()?.device(0)?.retain_primary_context()?;
    let stream = Stream::create(&context)?;
    let tensor = CudaTensor::from_slice(&stream, &[1_u32, 2, 3], [3])
        .map_err(|_| tensorferry_cuda_ipc::CudaError::Released)?;
    let elements = tensor.to_vec(&stream).map_err(|_| tensorferry_cuda_ipc::CudaError::Released)?;
    Ok(elements.iter().sum())
}

fn forks(_inherited: &mut Inherited) -> Result<(), Failure> {
    // SAFETY: allow_fork wants that no slice of shared memory is kept where a forked process would use it, and that no thread is
    // named as parked which does not stand still: this process does neither.
    unsafe { tensorferry::spawn::allow_fork() };
    let forked = || get_context(StartMethod::Fork).spawn(sum, (), 2);
    // Before: each forked process has a driver of its own.
    assert_eq!(forked()?, [6, 6]);
    let driver = Driver::load()?;
    let text = forked().unwrap_err().to_string();
    assert!(text.contains("it has initialised the CUDA driver"), "{text}");
    assert!(text.contains("another start method"), "{text}");
    // Also when nobody has the driver any more, because it stays initialised.
    drop(driver);
    assert!(forked().unwrap_err().to_string().contains("it has initialised the CUDA driver"));
    // The others are for that.
    assert_eq!(get_context(StartMethod::Spawn).spawn(sum, (), 2)?, [6, 6]);
    assert_eq!(get_context(StartMethod::Forkserver).spawn(sum, (), 2)?, [6, 6]);
    Ok(())
}

#[test]
fn a_process_forks_before_it_has_initialised_the_driver_and_is_refused_afterwards() {
    where_possible(|| {
        let machine = Machine::new("");
        let mut start = Start::new(&FORKS);
        for (name, value) in machine.environment() {
            start = start.env(name, value);
        }
        let mut child = start.start().unwrap();
        let exit = child.wait(Some(DEADLINE)).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
    });
}
