//! The decisions that `tidy` enforces, and their exceptions: each exception with its reason.

/// A name and the reason why it is in the list.
pub(super) type Listed = (&'static str, &'static str);

/// Which crates a crate may depend on, without the prefix `tensorferry-`. It may also use what those may use.
/// docs/ARCHITECTURE.md has the picture.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("os", &[]),
    ("process", &["os"]),
    ("sharing", &["os"]),
    ("domain", &["os", "sharing"]),
    ("storage", &["domain"]),
    ("reduce", &["domain", "storage"]),
    ("tensor", &["storage", "reduce"]),
    ("state", &["tensor"]),
    ("sync", &["storage", "reduce"]),
    ("queue", &["storage", "reduce"]),
    ("listen", &["queue", "domain", "os"]),
    // Its tests and examples send tensors and bundles.
    ("remote", &["queue", "os", "state"]),
    // Connections with the feature `remote` only; its tests send tensors.
    ("manager", &["queue", "remote"]),
    ("inspect", &["domain", "sharing", "storage", "sync"]),
    ("cli", &["cuda-ipc", "inspect", "listen", "spawn"]),
    ("python", &["cuda-ipc", "listen", "queue", "state", "tensor"]),
    ("cuda-ipc", &["tensor", "reduce", "process"]),
    // It stands in for somebody else's library, so it shares nothing with what it is there to test.
    ("sim-cuda", &[]),
    ("macros", &[]),
    // The return values of children come back through a queue.
    ("spawn", &["process", "domain", "reduce", "queue", "macros"]),
    ("pool", &["spawn", "storage", "reduce"]),
    ("data", &["pool", "process", "spawn", "storage", "sync", "tensor", "macros"]),
];

/// External crates that only these crates may depend on.
pub(super) const CONFINED: &[(&str, &[&str])] = &[
    // Only `os` calls the kernel.
    ("libc", &["os"]),
    ("memmap2", &["os"]),
    ("nix", &["os"]),
    // `sim-cuda` is no part of the library: it is what the library finds in the place of a driver.
    ("rustix", &["os", "sim-cuda"]),
    ("cudarc", &["cuda-ipc"]),
    // The one crate that finds functions at run time.
    ("libloading", &["cuda-ipc"]),
    // The one crate that encrypts.
    ("snow", &["remote"]),
    // The errors of a library are types of its own; this one is a program.
    ("anyhow", &["cli"]),
];

/// Crates that have no example of their own.
pub(super) const WITHOUT_EXAMPLE: &[Listed] =
    &[("tensorferry-macros", "its attributes name paths of tensorferry-spawn, whose example uses them")];

/// Files that are longer than the limit.
pub(super) const LONG_FILES: &[Listed] = &[];

/// Crate roots that hold code.
pub(super) const ROOTS_WITH_CODE: &[Listed] = &[(
    "crates/tensorferry-macros/src/lib.rs",
    "the compiler wants attributes defined in the root of their crate",
)];

/// Every file that holds `unsafe`.
pub(super) const UNSAFE_FILES: &[Listed] = &[
    ("benches/peers/src/ice.rs", "says that a sample on loan is initialised"),
    ("benches/benches/processes.rs", "allows the start method fork, to measure it"),
    ("benches/recovery/kernel.rs", "measures a mutex of the C library in shared memory"),
    ("benches/src/bin/floor/memory.rs", "measures what is possible without any layer in between"),
    ("benches/src/bin/pages.rs", "maps memory in ways that the library does not use, to compare them"),
    ("benches/src/bin/steps.rs", "allows the start method fork, for profilers"),
    ("crates/tensorferry-cuda-ipc/src/lent_slice.rs", "tells cudarc of memory that it did not allocate"),
    ("crates/tensorferry-cuda-ipc/src/foreign.rs", "takes streams and memory of other libraries as numbers"),
    ("crates/tensorferry-cuda-ipc/src/driver.rs", "calls the functions of the CUDA driver"),
    ("crates/tensorferry-cuda-ipc/src/driver/sharing.rs", "calls the functions of the CUDA driver"),
    ("crates/tensorferry-cuda-ipc/src/table.rs", "loads the CUDA driver and finds its functions"),
    (
        "crates/tensorferry-domain/src/memory.rs",
        "maps the file of a domain and declares the one function through which its memory is reached",
    ),
    ("crates/tensorferry-os/src/child.rs", "has the C library call a function when the process ends"),
    (
        "crates/tensorferry-os/src/child/environment.rs",
        "changes the environment of a process that is just starting",
    ),
    (
        "crates/tensorferry-os/src/child/program.rs",
        "a process that shares this memory until it executes a program",
    ),
    ("crates/tensorferry-os/src/child/signals.rs", "signal dispositions of a process that is just starting"),
    ("crates/tensorferry-os/examples/memfile.rs", "maps a file of its own"),
    ("crates/tensorferry-os/src/fork.rs", "forks, and ends what was forked"),
    ("crates/tensorferry-os/src/fork_detector.rs", "maps a page that fork wipes, and reads a word of it"),
    ("crates/tensorferry-os/src/leash.rs", "fcntl calls that rustix and nix do not offer"),
    ("crates/tensorferry-os/src/address_space.rs", "maps files where there is room"),
    ("crates/tensorferry-os/src/mapping.rs", "maps memory and lends atomic words of it"),
    ("crates/tensorferry-os/src/prefetch.rs", "asks for memory ahead of its use"),
    ("crates/tensorferry-os/src/sealed.rs", "maps memory files that nobody can write and lends their bytes"),
    (
        "crates/tensorferry-os/src/tcp_info.rs",
        "asks for an option of a socket that no library has as safe code",
    ),
    ("crates/tensorferry-process/src/entry.rs", "places the child's entry in .init_array"),
    ("crates/tensorferry-process/src/fork.rs", "forks, where the program has allowed it"),
    ("crates/tensorferry-process/src/forkserver/serve.rs", "forks a process that is made for it"),
    ("crates/tensorferry-python/src/buffer.rs", "fills a structure of the interpreter"),
    ("crates/tensorferry-python/src/cuda.rs", "takes streams and memory of other libraries as numbers"),
    (
        "crates/tensorferry-python/src/dlpack.rs",
        "says to other libraries what lies where, and reads what they say",
    ),
    ("crates/tensorferry-python/src/tensor.rs", "has functions that the interpreter calls with a pointer"),
    ("crates/tensorferry-sim-cuda/src/abi.rs", "reads and writes what C callers point to"),
    ("crates/tensorferry-sim-cuda/src/access.rs", "copies bytes of simulated device memory"),
    ("crates/tensorferry-sim-cuda/src/word.rs", "reads and writes words of a C caller"),
    ("crates/tensorferry-sim-cuda/src/exit.rs", "has the C library call a function when the process ends"),
    ("crates/tensorferry-sim-cuda/src/exports.rs", "exports the symbols of the driver"),
    ("crates/tensorferry-sim-cuda/src/mapping.rs", "maps memory files and lends atomic words of them"),
    ("crates/tensorferry-spawn/src/rejoin.rs", "promises that the parent of a forked child waits"),
    ("crates/tensorferry-storage/src/access.rs", "lends slices of blocks, by the members' protocol"),
    (
        "crates/tensorferry-storage/src/heap/rejoin.rs",
        "declares a function whose caller promises that the parent waits",
    ),
    (
        "crates/tensorferry-storage/src/handle.rs",
        "a handle keeps its heap through the count of its cell, which points to its header",
    ),
    ("facade/examples/cuda_columns/main.rs", "launches a kernel"),
    ("facade/examples/cuda_replicas/main.rs", "launches a kernel"),
    ("tests/kit/src/raw_driver.rs", "calls functions of the CUDA driver that no crate calls yet"),
    ("tests/tests/cuda/fork.rs", "allows the start method fork"),
    ("tests/tests/spawn/fork.rs", "allows the start method fork"),
    ("tests/tests/spawn/fork_connections.rs", "forks by itself"),
    ("tests/tests/spawn/strangers.rs", "forks by itself"),
    ("tests/kit/src/shared_bytes.rs", "maps a domain's file once more, to look at it from outside"),
    ("tests/kit/src/silence.rs", "sets an option of a socket that no library has as safe code"),
];
