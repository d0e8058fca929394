//! Address space, file sizes, and a domain's own limit of memory.

use tensorferry::domain::{Domain, DomainError};
use tensorferry::queue::PutErrorKind;
use tensorferry::reduce::{EncodeError, TransitError};
use tensorferry::storage::StorageError;
use tensorferry::{Queue, Tensor, TensorMut};
use tensorferry_kit::tasks::{MakeDomain, Puppet, Seal};
use tensorferry_kit::{Item, Limit, Loner, alone, until, with_family_of};

#[track_caller]
fn made_under(limit: Limit, value: u64) -> String {
    let mut said = String::new();
    alone(|| {
        let child = Loner::start(&MakeDomain, &[(limit, value)]);
        said = child.hear();
        child.finish();
    });
    said
}

#[test]
fn with_little_address_space_a_domain_is_smaller() {
    for limit in [256 << 20, 2 << 30, 1 << 36] {
        let data_len: u64 = made_under(Limit::AddressSpace, limit).parse().unwrap();
        assert!(data_len < limit, "half of it is left to the program: {data_len} of {limit}");
        assert!(data_len >= limit / 8, "and not much less than that is used: {data_len} of {limit}");
    }
}

#[test]
fn with_a_small_limit_of_files_a_domain_is_smaller() {
    let limit = 100 << 20;
    let data_len: u64 = made_under(Limit::FileSize, limit).parse().unwrap();
    assert!(data_len < limit && data_len >= limit / 4, "{data_len} of {limit}");
}

#[test]
fn where_not_even_the_smallest_domain_fits_the_error_has_the_numbers() {
    let limit = 1 << 20;
    let said = made_under(Limit::FileSize, limit);
    assert!(said.contains(&limit.to_string()) && said.contains("RLIMIT_FSIZE"), "{said}");
}

#[test]
fn a_sealed_tensor_beyond_the_limit_of_files_is_an_error_and_no_signal() {
    const LIMIT_BYTES: usize = 1 << 20;
    alone(|| {
        let lens_bytes = vec![LIMIT_BYTES, LIMIT_BYTES + 1, LIMIT_BYTES];
        let child = Loner::start(&Seal { lens_bytes }, &[(Limit::FileSize, LIMIT_BYTES as u64)]);
        child.expect("sealed");
        let said = child.hear();
        assert!(said.contains("1048577 bytes") && said.contains("os error 27"), "EFBIG: {said}");
        child.expect("sealed");
        child.finish();
    });
}

const LIMIT_BYTES: u64 = 24 << 20;
/// 4 MiB.
const N_ELEMENTS: usize = 512 << 10;

#[test]
fn the_limit_of_a_domain_counts_all_members_and_frees_what_they_free() {
    let settings = Domain::builder().address_space_bytes(1 << 30).limit_bytes(LIMIT_BYTES);
    with_family_of(settings, |family| {
        let queue = Queue::new_in(family.heap(), 16).unwrap();
        let child = family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() });
        for sequence in 0..3 {
            assert_eq!(child.ask(&format!("put 1 {sequence} {N_ELEMENTS}")), "put");
        }
        let mut own = Vec::new();
        let refused = loop {
            match family.heap().allocate(N_ELEMENTS * 8) {
                Ok(block) => own.push(block),
                Err(error) => break error,
            }
        };
        let no_tensor = TensorMut::<u64>::zeros_in(family.heap(), [N_ELEMENTS]).unwrap_err();
        assert!(
            no_tensor.is_out_of_memory() && no_tensor.to_string().contains("Heap::trim()"),
            "{no_tensor}"
        );
        let too_large = TensorMut::<u64>::zeros_in(family.heap(), [1 << 40]).unwrap_err();
        assert!(!too_large.is_out_of_memory(), "{too_large}");
        let StorageError::Domain(DomainError::Limit { wanted_bytes, used_bytes, limit_bytes }) = refused
        else {
            panic!("another error: {refused}");
        };
        assert_eq!(limit_bytes, LIMIT_BYTES);
        assert!(wanted_bytes >= N_ELEMENTS as u64 * 8);
        assert!(used_bytes + wanted_bytes > limit_bytes && used_bytes <= limit_bytes);
        for number in [wanted_bytes, used_bytes, limit_bytes] {
            assert!(refused.to_string().contains(&number.to_string()), "{refused}");
        }
        assert!((1..=3).contains(&own.len()), "the child's 12 MiB count: {} of ours", own.len());
        // A message that needs memory is refused and given back; one that needs none goes.
        let small = Item::new(family.heap(), 2, 0, &[8]);
        let large = small.clone().with_note(8 << 20);
        let refused = queue.put_nowait(large).unwrap_err();
        assert!(
            matches!(&refused.kind, PutErrorKind::Encode(EncodeError::Storage(StorageError::Domain(_)))),
            "{refused}"
        );
        assert!(refused.is_out_of_memory());
        refused.into_value().check();
        queue.put_nowait(small).unwrap();
        assert_eq!(queue.len(), 4);
        // What a dead member held and nobody needs comes back to all.
        for sequence in 0..3 {
            assert_eq!(child.ask("get"), format!("got 1/{sequence}"));
        }
        child.kill();
        // A sweep gives one run of extents back after the other.
        family.wait_alone();
        let mut again = None;
        until("the memory of the dead can be used", || {
            again = family.heap().allocate(N_ELEMENTS * 8).ok();
            again.is_some()
        });
        drop((again, own));
        let all = family.heap().allocate(5 * N_ELEMENTS * 8);
        assert!(all.is_ok(), "blocks of other sizes go back to the system first: {all:?}");
        queue.get().unwrap().check();
    });
}

#[test]
fn a_member_at_the_limit_is_told_and_can_go_on() {
    let settings = Domain::builder().address_space_bytes(1 << 30).limit_bytes(LIMIT_BYTES);
    with_family_of(settings, |family| {
        let queue = Queue::new_in(family.heap(), 2).unwrap();
        let child = family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() });
        let most = family.heap().allocate(20 << 20).unwrap();
        let outcome = child.ask(&format!("try_make {}", 1 << 20));
        assert!(
            outcome.contains("out of shared memory") && outcome.contains(&LIMIT_BYTES.to_string()),
            "{outcome}"
        );
        drop(most);
        // Freed is not given back: it is this process's for its next blocks.
        assert!(family.heap().trim() >= 20 << 20);
        assert_eq!(child.ask(&format!("try_make {}", 1 << 20)), "made");
        child.finish();
    });
}

/// Private memory is copied into the domain to be sent.
#[test]
fn a_private_tensor_for_which_there_is_no_memory_is_refused_as_such_and_comes_back() {
    let settings = Domain::builder().address_space_bytes(1 << 30).limit_bytes(LIMIT_BYTES);
    with_family_of(settings, |family| {
        let queue = Queue::new_in(family.heap(), 2).unwrap();
        let most = family.heap().allocate(20 << 20).unwrap();
        let refused = queue.put(Tensor::from_vec(vec![7_u8; 16 << 20], [16 << 20]).unwrap()).unwrap_err();
        assert!(refused.is_out_of_memory() && !refused.is_final(), "{refused}");
        let no_memory = |kind: &PutErrorKind| {
            matches!(kind, PutErrorKind::Encode(EncodeError::Transit(TransitError::NoMemory(_))))
        };
        let text = refused.to_string();
        assert!(text.contains("out of shared memory") && no_memory(&refused.kind), "{text}");
        drop(most);
        queue.put(refused.value).unwrap();
        assert_eq!(queue.get().unwrap().as_slice().unwrap(), [7; 16 << 20]);
    });
}
