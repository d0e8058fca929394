//! A whole program, from its first domain to the restart of a killed process, where the system allows it
//! little.

use std::fs;

use nix::sys::signal::Signal;
use tensorferry::domain::Domain;
use tensorferry::tensor::TensorMut;
use tensorferry_kit::tasks::{Aborter, FillDomain, Place, Program};
use tensorferry_kit::{Child, Limit, Loner, MemoryGroup, alone, with_family_of};

/// 800 kB.
const N_ELEMENTS: usize = 100_000;

/// What became of a program: `done`, or the step that failed and its error; `None` where it could not go to
/// its place.
#[track_caller]
fn outcome_of(program: &Program, limits: &[(Limit, u64)]) -> Option<String> {
    let mut outcome = None;
    alone(|| {
        let child = Loner::start(program, limits);
        if is_there(&child) {
            outcome = Some(child.hear());
        }
        child.finish();
    });
    outcome
}

/// Prints the reason where it is not.
fn is_there(child: &Child) -> bool {
    let said = child.hear();
    if said != "there" {
        println!("{said}");
    }
    said == "there"
}

#[track_caller]
fn works(place: Place, limits: &[(Limit, u64)]) {
    let outcome = outcome_of(&Program { place, n_elements: N_ELEMENTS }, limits);
    assert!(outcome.as_deref().is_none_or(|outcome| outcome == "done"), "{outcome:?}");
}

#[test]
fn a_program_works_where_nothing_is_tight() {
    let outcome = outcome_of(&Program { place: Place::Anywhere, n_elements: N_ELEMENTS }, &[]);
    assert_eq!(outcome.as_deref(), Some("done"));
}

#[test]
fn a_program_works_with_64_descriptors() {
    works(Place::Anywhere, &[(Limit::OpenFiles, 64)]);
}

#[test]
fn a_program_works_with_files_of_100_mib() {
    works(Place::Anywhere, &[(Limit::FileSize, 100 << 20)]);
}

#[test]
fn with_less_and_less_address_space_a_program_works_or_says_what_is_missing() {
    let program = Program { place: Place::Anywhere, n_elements: N_ELEMENTS };
    assert_eq!(outcome_of(&program, &[(Limit::AddressSpace, 256 << 20)]).as_deref(), Some("done"));
    let mut n_refused = 0;
    for limit_mib in [96, 64, 48, 40, 32, 24, 16] {
        let outcome = outcome_of(&program, &[(Limit::AddressSpace, limit_mib << 20)]).unwrap();
        println!("{limit_mib} MiB: {outcome}");
        if outcome != "done" {
            n_refused += 1;
            // A thread's stack is address space too, and the kernel says of it that it may fit later.
            let says_what = [
                "no room for a domain",
                "address space",
                "Cannot allocate memory",
                "os error 12",
                "os error 11",
            ];
            assert!(says_what.iter().any(|what| outcome.contains(what)), "{limit_mib} MiB: {outcome}");
        }
    }
    assert!(n_refused > 0, "16 MiB are less than the smallest domain");
}

#[test]
fn with_few_threads_a_program_works_or_says_which_one_could_not_be_made() {
    let mut outcomes = Vec::new();
    for n_threads in 1..=8 {
        let program = Program { place: Place::FewThreads { n_threads }, n_elements: N_ELEMENTS };
        let Some(outcome) = outcome_of(&program, &[]) else { return };
        println!("{n_threads} threads: {outcome}");
        let says_what = outcome.contains("os error 11") || outcome.contains("temporarily unavailable");
        assert!(outcome == "done" || says_what, "{n_threads} threads: {outcome}");
        outcomes.push(outcome);
    }
    // One thread is its own and one watches the domain's members; a child needs one. Then one waits for the
    // child, which takes the fourth place for a second thread or finds it taken, and does without.
    for (outcome, step) in outcomes.iter().zip(["domain: ", "start: ", "thread: "]) {
        assert!(outcome.starts_with(step), "{outcome}");
    }
    assert!(outcomes[3] == "done" || outcomes[3].starts_with("thread: "), "{}", outcomes[3]);
    assert!(outcomes[4..].iter().all(|outcome| outcome == "done"), "{outcomes:?}");
}

#[test]
fn a_program_works_with_all_of_its_memory_locked() {
    works(Place::LockedMemory, &[]);
}

#[test]
fn a_program_works_beside_a_small_and_a_full_folder_of_shared_memory() {
    // Larger tensors than the folder: what a container without `--shm-size` gives.
    let len_bytes = 64 << 20;
    for is_full in [false, true] {
        let place = Place::SharedMemoryFolder { len_bytes, is_full };
        let outcome = outcome_of(&Program { place, n_elements: 9 << 20 }, &[]);
        assert!(outcome.as_deref().is_none_or(|outcome| outcome == "done"), "{outcome:?}");
    }
}

#[test]
fn a_program_works_under_the_system_call_filter_of_a_container() {
    works(Place::Filtered, &[]);
}

#[test]
fn in_a_control_group_a_domain_refuses_before_anybody_is_killed() {
    const LIMIT_BYTES: u64 = 96 << 20;
    alone(|| {
        let group = match MemoryGroup::create(LIMIT_BYTES) {
            Ok(group) => group,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let place = Place::ControlGroup { folder: group.folder().to_owned() };
        let child = Loner::start(&FillDomain { place: place.clone() }, &[]);
        if is_there(&child) {
            let (limit_bytes, used_bytes) = (child.hear_number(), child.hear_number());
            assert!(limit_bytes < LIMIT_BYTES && limit_bytes > LIMIT_BYTES / 2, "{limit_bytes}");
            assert!(used_bytes <= limit_bytes && used_bytes > LIMIT_BYTES / 3, "{used_bytes}");
        }
        child.finish();
        let child = Loner::start(&Program { place, n_elements: N_ELEMENTS }, &[]);
        if is_there(&child) {
            child.expect("done");
        }
        child.finish();
        assert_eq!(group.n_kills(), 0);
    });
}

#[test]
fn a_core_dump_does_not_have_the_terabyte() {
    let folder = std::env::temp_dir().join(format!("tensorferry-core-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let settings = Domain::builder().limit_bytes(512 << 20);
    with_family_of(settings, |family| {
        assert!(family.heap().domain().layout().data_len_bytes >= 1 << 40, "no terabyte to be had");
        let tensor = TensorMut::<u64>::zeros_in(family.heap(), [8 << 20]).unwrap().freeze();
        let child = family.start(Aborter { folder: folder.clone(), tensor });
        let (n_mappings, n_left_out) = (child.hear_number(), child.hear_number());
        assert!(n_mappings >= 2 && n_left_out == n_mappings, "{n_left_out} of {n_mappings} are left out");
        child.say("go");
        child.die_of(Signal::SIGABRT);
    });
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(Result::unwrap).collect();
    let sizes: Vec<_> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
    fs::remove_dir_all(&folder).unwrap();
    if pattern.trim().contains(['|', '/', '@']) {
        println!("the size of a core file was not looked at: core_pattern is {pattern}");
        return;
    }
    assert_eq!(sizes.len(), 1, "one core file");
    // The tensor of 64 MiB is not in it either.
    assert!(sizes[0] < 64 << 20, "{} bytes", sizes[0]);
}
