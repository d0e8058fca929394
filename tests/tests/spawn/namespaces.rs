//! Programs in a PID namespace of their own, as in many containers: with numbers that mean others outside.
#![expect(clippy::disallowed_methods, reason = "starts this test program once more, in a namespace")]

use std::process::Command;

use tensorferry::spawn::{func, spawn};
use tensorferry::{Queue, Tensor, TensorMut};

#[func]
fn put_pid(_: usize, to: Queue<Tensor<u32>>) -> Result<std::path::PathBuf, String> {
    let tensor = TensorMut::from_slice(&[std::process::id()], [1]).map_err(|e| e.to_string())?;
    to.put(tensor.freeze()).map_err(|e| e.to_string())?;
    std::fs::read_link("/proc/self/ns/pid").map_err(|e| e.to_string())
}

/// Runs wherever it is started.
#[test]
fn children_are_started_and_send_tensors() {
    let queue = Queue::new(4).unwrap();
    let namespaces = spawn(put_pid, (queue.clone(),), 3).unwrap();
    let here = std::fs::read_link("/proc/self/ns/pid").unwrap();
    assert!(namespaces.iter().all(|namespace| *namespace == here));
    let pids: Vec<u32> = (0..3).map(|_| queue.get_nowait().unwrap().as_slice().unwrap()[0]).collect();
    println!("in {}: {pids:?}", here.display());
}

#[test]
fn the_same_in_a_namespace_of_its_own() {
    let exe = std::env::current_exe().unwrap();
    let name = "namespaces::children_are_started_and_send_tensors";
    let run = |namespace: &[&str]| {
        let (program, first) = namespace
            .split_first()
            .map_or((exe.as_os_str(), &[][..]), |(program, first)| (std::ffi::OsStr::new(*program), first));
        let mut command = Command::new(program);
        command.args(first);
        if !namespace.is_empty() {
            command.arg(&exe);
        }
        command.args(["--exact", name, "--nocapture"]).output()
    };
    // The usual way keeps the `/proc` of outside; the other one mounts its own.
    for options in [&["unshare", "--pid", "--fork"][..], &["unshare", "--pid", "--fork", "--mount-proc"]] {
        match run(options) {
            Ok(output) if output.stderr.starts_with(b"unshare: ") => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
            }
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{text}\n{errors}");
                assert!(text.contains("1 passed"), "{text}");
                let here = std::fs::read_link("/proc/self/ns/pid").unwrap();
                assert!(text.contains("in pid:[") && !text.contains(&*here.to_string_lossy()), "{text}");
            }
            Err(error) => println!("skipped: {error}"),
        }
    }
}
