//! The questions: assumptions about the real driver.

/// A question about the behaviour of a driver, and the answer of the software driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// A short name. Recorded answers of real drivers refer to it.
    pub id: &'static str,
    /// The question, in words.
    pub asks: &'static str,
    /// The answer of the software driver. A test of this crate checks each answer against the code. The
    /// package `tests` puts most of the questions to the driver of the machine, and compares records of real
    /// drivers with these answers.
    pub answer: &'static str,
}

macro_rules! questions {
    ($($id:literal, $asks:literal, $answer:literal;)*) => {
        /// All questions, with the answers of the software driver. Those that were seen on real drivers stand
        /// in `docs/gpu`.
        pub const QUESTIONS: &[Question] =
            &[$(Question { id: $id, asks: $asks, answer: $answer }),*];
    };
}

questions! {
    "ipc-same-process", "opening an IPC handle in the process that exported it", "CUDA_ERROR_INVALID_CONTEXT";
    "ipc-small-blocks", "do two small allocations share a block of 2 MiB, and what does an importer of one get", "shared; the whole block is mapped, copies are checked by allocation";
    "ipc-small-blocks-closed", "one of two small allocations in a block, both opened by one importer, after the other one was closed; closing it, too", "the other stays; ok";
    "ipc-interior", "the IPC handle of an address inside of an allocation", "the handle of the allocation";
    "ipc-open-after-free", "opening an IPC handle after its exporter freed the memory", "CUDA_ERROR_INVALID_VALUE";
    "ipc-open-after-death", "opening an IPC handle after its exporter died", "CUDA_ERROR_INVALID_HANDLE";
    "ipc-read-after-free", "reading opened memory after its exporter freed it", "7, reported";
    "ipc-read-after-death", "reading opened memory after its exporter died", "7, reported";
    "ipc-consumer-killed", "memory that a killed consumer had open, after the exporter frees it", "comes back";
    "ipc-free-while-open", "freeing memory that another process has open", "works, reported";
    "ipc-forward", "the IPC handle of memory that was opened itself", "CUDA_ERROR_INVALID_VALUE";
    "ipc-second-open", "opening an IPC handle twice, closing it three times", "same address; ok, ok, CUDA_ERROR_INVALID_VALUE";
    "ipc-flags", "opening an IPC handle without the flag for lazy peer access", "CUDA_ERROR_INVALID_VALUE";
    "ipc-free-imported", "cuMemFree of memory that was opened", "CUDA_ERROR_INVALID_VALUE";
    "vmm-same-process", "importing a descriptor in the process that exported it", "works, the same memory, close-on-exec";
    "vmm-re-export", "exporting a handle that was imported", "CUDA_ERROR_INVALID_VALUE";
    "vmm-import-twice", "importing a descriptor twice", "ok";
    "vmm-exporter-released", "mapped memory after its exporter released it", "stays";
    "vmm-exporter-killed", "mapped memory after its exporter was killed", "stays";
    "vmm-import-after-kill", "importing a descriptor after its exporter was killed", "works";
    "vmm-fd-alone", "memory that only a descriptor holds", "counted, importable, gone with the descriptor";
    "vmm-no-context", "virtual memory management in a process that never retained a context, and in one that has none current", "works; works";
    "vmm-unmap-queued", "unmapping under work that is queued", "does not wait; the work fails with CUDA_ERROR_LAUNCH_FAILED";
    "vmm-granularity", "sizes that are no multiple of the granularity: of memory, none at all, of addresses; a range that is mapped already; an offset; an address that is no multiple", "CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED; CUDA_ERROR_NOT_SUPPORTED";
    "vmm-not-exportable", "exporting memory that was made without a handle type", "CUDA_ERROR_INVALID_VALUE";
    "vmm-no-access", "touching a mapping before access was set, and writing where only reading was granted", "CUDA_ERROR_INVALID_VALUE";
    "vmm-free-mapped", "freeing addresses in which something is mapped, unmapping a part of a mapping", "CUDA_ERROR_INVALID_VALUE";
    "vmm-not-visible", "importing memory of a device that this process does not see", "CUDA_ERROR_INVALID_DEVICE";
    "vmm-foreign-fd", "importing a descriptor that is no memory of the driver, and that of a pool", "CUDA_ERROR_UNKNOWN; CUDA_ERROR_NOT_SUPPORTED";
    "event-recorder-killed", "waiting for an event whose recorder was killed before it was done", "does not end";
    "event-recorded-twice", "recording an event that another process has recorded and has not reached", "waits for the other's";
    "event-recorder-killed-again", "recording an event anew whose recorder was killed before it was done, in a process that has opened it", "does not end";
    "event-destroyed", "using an opened event after its exporter destroyed it, and opening it again", "ok, reported; CUDA_ERROR_INVALID_HANDLE";
    "event-same-process", "opening the handle of an event in its own process", "CUDA_ERROR_INVALID_CONTEXT";
    "event-limit", "how many interprocess events there may be", "as many as descriptors";
    "event-names", "names left in /dev/shm when both processes of an interprocess event were killed", "nothing";
    "event-flags", "an interprocess event with timing, an unknown flag, a handle of an event that is not interprocess", "CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_HANDLE";
    "event-other-device", "recording an event on a stream of another device", "CUDA_ERROR_INVALID_HANDLE";
    "event-unrecorded", "querying and waiting for an event that was never recorded", "done";
    "event-binds", "a wait is for the record before the call, not for later ones", "bound at the call";
    "pool-legacy", "an IPC handle of pool memory, exporting the default pool", "CUDA_ERROR_INVALID_VALUE, not capable; CUDA_ERROR_INVALID_VALUE";
    "pool-import-twice", "importing a pool's pointer twice, freeing it once", "same address; gone with the first free";
    "pool-exporter-first", "imported pool memory after its exporter freed it", "7, reported";
    "pool-imported-alloc", "allocating from an imported pool", "CUDA_ERROR_INVALID_VALUE";
    "pool-pointer-first", "exporting a pointer before its pool was exported, and after", "CUDA_ERROR_INVALID_VALUE; works";
    "pool-descriptor", "whether the descriptor of an exported pool stays open in what the process executes", "kept";
    "pool-re-export", "exporting an imported pointer, exporting an imported pool", "CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_VALUE";
    "word-shared", "a stream that waits for a word of shared memory, which a stream of another process writes, and then its host", "goes on; goes on";
    "word-after-all-before", "the same, where the write is behind work of the other stream that is held for a while", "goes on";
    "word-writer-killed", "a stream that waits for a word whose writer was killed, and when its own host writes the word", "CUDA_ERROR_NOT_READY; ok";
    "word-unregistered", "waiting for a word of memory that is not registered", "CUDA_ERROR_INVALID_VALUE";
    "word-unaligned", "waiting for a word at an address that is no multiple of its size", "CUDA_ERROR_INVALID_VALUE";
    "fork", "the driver in a process that was forked from the one that made it", "CUDA_ERROR_NOT_INITIALIZED";
    "exit-handlers", "a call in a handler of exit(3) that was registered before cuInit, and in one that was registered after it", "code 4; ok";
    "free-foreign", "freeing an address inside of an allocation, freeing twice, freeing a mapping", "CUDA_ERROR_INVALID_VALUE";
    "context-none", "a call without a current context, and with one that was released", "CUDA_ERROR_INVALID_CONTEXT; CUDA_ERROR_CONTEXT_IS_DESTROYED";
    "context-broken", "any call after queued work failed", "the same error again";
    "context-release", "memory of a context whose last reference was released", "freed";
    "device-lost", "any call on a device that has fallen off the bus", "CUDA_ERROR_DEVICE_UNAVAILABLE";
    "out-of-memory", "an allocation beyond what the device has", "CUDA_ERROR_OUT_OF_MEMORY";
    "peer-twice", "enabling peer access twice, to oneself, and where there is none", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED; CUDA_ERROR_INVALID_DEVICE; CUDA_ERROR_PEER_ACCESS_UNSUPPORTED";
    "capture-refused", "recording and waiting for an interprocess event, a fill, and synchronising in a capturing stream", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; CUDA_ERROR_STREAM_CAPTURE_INVALIDATED; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    "capture-global", "querying an event in another thread during a capture in global mode, and the end of the capture", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    "capture-relaxed-thread", "the same in a thread whose own mode is relaxed", "ok; ok";
    "host-pageable", "copying from pageable memory in a stream", "staged before the call returns";
    "host-register-twice", "registering host memory twice, unregistering what is not registered", "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED; CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    "host-register-page", "registering two ranges of host memory that lie in one page", "ok";
    "host-unregister-busy", "unregistering host memory under a copy", "waits, reported";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_an_id_of_its_own() {
        for (i, question) in QUESTIONS.iter().enumerate() {
            assert!(QUESTIONS[..i].iter().all(|other| other.id != question.id), "{} twice", question.id);
            assert!(question.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", question.id);
        }
    }
}
