//! Sealed tensors between processes, of which some are killed.

use std::os::unix::net::UnixStream;

use tensorferry::Queue;
use tensorferry::tensor::SealedTensor;
use tensorferry_kit::tasks::{SealedGuest, SealedHolder};
use tensorferry_kit::{
    Child, DEADLINE, Family, Limit, Loner, alone, not_here, until, where_possible, with_family,
};

type Sealed = Queue<SealedTensor<u64>>;

fn queue(family: &Family) -> Sealed {
    Queue::new_in(family.heap(), 4).unwrap()
}

fn holder(family: &Family, queue: &Sealed) -> Child {
    family.start(SealedHolder { queue: queue.clone() })
}

#[track_caller]
fn told(child: &Child, command: &str) -> String {
    child.say(command);
    child.hear()
}

/// Until nothing is kept for anybody.
fn wait_for_no_descriptor(family: &Family) {
    until("the descriptors of what nobody has are closed", || {
        family.heap().collect();
        family.heap().domain().n_fds_kept() == 0
    });
}

#[test]
fn it_outlives_its_sender_and_nobody_can_change_it() {
    with_family(|family| {
        let queue = queue(family);
        let sender = holder(family, &queue);
        let [one, other] = [(); 2].map(|()| holder(family, &queue));
        assert_eq!(told(&sender, "put 1000"), "put");
        assert_eq!(family.heap().domain().n_fds_kept(), 1, "before it was received");
        sender.kill();
        assert_eq!(told(&one, "get"), "499500");
        assert_eq!(told(&one, "attack"), "in vain");
        assert_eq!(told(&one, "pass"), "put");
        assert_eq!(told(&other, "get"), "499500");
        one.kill();
        assert_eq!(told(&other, "attack"), "in vain");
        assert_eq!(told(&other, "pass"), "put");
        let mine = queue.get().unwrap();
        assert_eq!(mine.as_slice()[999], 999);
        assert_eq!(told(&other, "let_go"), "let go");
        assert_eq!(family.heap().domain().n_fds_kept(), 1, "this process has it");
        drop(mine);
        wait_for_no_descriptor(family);
        other.finish();
    });
}

#[test]
fn one_that_was_sent_and_never_received_goes_with_its_queue() {
    with_family(|family| {
        let queue = queue(family);
        let sender = holder(family, &queue);
        assert_eq!(told(&sender, "put 10"), "put");
        assert_eq!(told(&sender, "put 20"), "put");
        sender.kill();
        assert_eq!(queue.get().unwrap().n_elements(), 10);
        drop(queue);
        wait_for_no_descriptor(family);
    });
}

#[test]
fn the_same_one_many_times_takes_one_descriptor() {
    with_family(|family| {
        let queue = queue(family);
        let holder = holder(family, &queue);
        let tensor = SealedTensor::<u64>::build([100], |elements| elements.fill(1)).unwrap();
        for _ in 0..10 {
            queue.put(tensor.clone()).unwrap();
            assert_eq!(told(&holder, "get"), "100");
        }
        assert_eq!(family.heap().domain().n_fds_kept(), 1);
        let files = std::fs::read_dir(format!("/proc/{}/fd", holder.pid())).unwrap();
        let links = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        let sealed = links.filter(|link| link.to_string_lossy().contains("tensorferry-sealed"));
        assert_eq!(sealed.count(), 1);
        drop(tensor);
        holder.finish();
        wait_for_no_descriptor(family);
    });
}

#[test]
fn without_descriptors_left_it_is_an_error_and_the_next_one_arrives() {
    with_family(|family| {
        let queue = queue(family);
        let limits = [(Limit::OpenFiles, 40)];
        let holder = family.start_limited(SealedHolder { queue: queue.clone() }, &limits);
        let mut n_received = 0;
        let error = loop {
            queue.put(SealedTensor::build([1], |elements| elements.fill(3)).unwrap()).unwrap();
            match told(&holder, "get") {
                number if number == "3" => n_received += 1,
                error => break error,
            }
            assert!(n_received < 40);
        };
        assert!(error.contains("RLIMIT_NOFILE"), "{error}");
        assert_eq!(told(&holder, "let_go"), "let go");
        queue.put(SealedTensor::build([2], |elements| elements.fill(4)).unwrap()).unwrap();
        assert_eq!(told(&holder, "get"), "8");
        assert!(n_received > 5, "{n_received}");
        holder.finish();
        wait_for_no_descriptor(family);
    });
}

#[test]
fn a_leased_one_that_a_process_has_no_descriptor_for_goes_to_another() {
    with_family(|family| {
        let queue = Queue::with_leases_in(family.heap(), 64, 4).unwrap();
        let holder = family.start_limited(SealedHolder { queue: queue.clone() }, &[(Limit::OpenFiles, 40)]);
        let error = loop {
            queue.put(SealedTensor::build([1], |elements| elements.fill(3)).unwrap()).unwrap();
            let answer = told(&holder, "lease");
            if answer != "acknowledged" {
                break answer;
            }
        };
        assert!(error.contains("RLIMIT_NOFILE"), "{error}");
        // It is the first one, for whoever can take it.
        assert_eq!(told(&holder, "lease"), error);
        let lease = queue.get_leased_timeout(DEADLINE).unwrap();
        assert_eq!((lease.as_slice(), lease.deliveries()), (&[3][..], 3));
        drop(lease.ack().unwrap());
        assert!(queue.get_leased_nowait().unwrap_err().is_empty());
        assert_eq!(told(&holder, "let_go"), "let go");
        holder.finish();
        wait_for_no_descriptor(family);
    });
}

#[test]
fn a_process_that_is_no_member_has_it_through_a_socket_and_another_user_too() {
    where_possible(|| {
        alone(|| {
            let tensor = SealedTensor::<u64>::build([10, 10], |elements| elements.fill(3)).unwrap();
            for is_somebody_else in [false, true] {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let guest = Loner::start_with_fd(&SealedGuest { is_somebody_else }, theirs.into());
                tensor.send_over(&ours, DEADLINE).unwrap();
                let said = guest.hear();
                if let Some(why) = said.strip_prefix("not here: ") {
                    not_here(why.to_owned());
                }
                assert!(said.starts_with("300 of [10, 10], in vain, as user "), "{said}");
                let own = said.ends_with(&format!(" {}", nix::unistd::getuid()));
                assert_eq!(own, !is_somebody_else, "{said}");
                guest.finish();
            }
        });
    });
}
