//! What is shown of what.

use std::time::Instant;

use tensorferry_domain::Domain as SharedDomain;
use tensorferry_storage::{Heap, Monitor, Ring};

use super::super::report::Process;
use super::*;

/// What there is of a domain with an empty queue, in which this process puts and gets, and a lock.
fn snapshot() -> Snapshot {
    let heap = Heap::create(SharedDomain::builder().address_space_bytes(16 << 20)).unwrap();
    let _queue = Ring::create(&heap, 4, 0).unwrap();
    let _lock = Monitor::create(&heap, 1).unwrap();
    heap.snapshot().unwrap()
}

fn queue() -> QueueSnapshot {
    snapshot().queues.remove(0)
}

fn report(snapshot: Option<Snapshot>) -> Report {
    let processes = [(7, State::Stopped), (9, State::Running)];
    let processes = processes.map(|(pid, state)| {
        let (name, command) = ("trainer".to_owned(), format!("./train {pid}"));
        Process { pid, name, state, command }
    });
    let domain =
        Domain { processes: processes.into(), snapshot, monitor_kinds: vec!["lock".to_owned()], error: None };
    Report {
        domains: vec![domain],
        n_unreadable_processes: 0,
        not_among_them: Vec::new(),
        made: Instant::now(),
    }
}

/// The words of the line that begins with this one.
fn words(text: &str, first: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    lines.into_iter().find(|line| line.first().is_some_and(|word| word == first)).unwrap_or_default()
}

#[test]
fn a_rate_is_what_was_put_each_second() {
    let (mut last, mut now) = (queue(), queue());
    (last.put_items, now.put_items) = (1000, 2500);
    let rate_in = |millis| rate(&last, &now, Duration::from_millis(millis));
    assert_eq!(rate_in(2000).as_deref(), Some("750"));
    assert_eq!(rate_in(500).as_deref(), Some("3,000"));
    assert_eq!(rate_in(0).as_deref(), Some("1,500,000,000,000"), "the shortest time there is");
    assert_eq!(rate(&now, &last, Duration::from_secs(1)), None, "another queue at the same place");
    assert_eq!(rate(&now, &now, Duration::from_secs(1)).as_deref(), Some("0"));
    now.put_items = u64::MAX;
    assert_eq!(rate(&last, &now, Duration::from_nanos(1)), Some(count(u64::MAX)), "as much as can be said");
}

#[test]
fn rates_are_those_since_the_last_report_of_the_same_queue() {
    let mut earlier = snapshot();
    earlier.queues[0].put_items = 100;
    let mut later = earlier.clone();
    later.queues[0].put_items = 700;
    let id = later.queues[0].id.to_string();
    let (last, mut now) = (report(Some(earlier)), report(Some(later)));
    now.made = last.made + Duration::from_secs(3);
    assert_eq!(words(&of(&now, Some(&last)), &id), [&*id, "0/4", "700", "200", "0", "0"]);
    assert_eq!(words(&of(&now, None), &id), [&*id, "0/4", "700", "0", "0"], "nothing to compare with");
    let change = |change: fn(&mut Snapshot)| {
        let mut last = report(last.domains[0].snapshot.clone());
        change(last.domains[0].snapshot.as_mut().unwrap());
        words(&of(&now, Some(&last)), &id).len()
    };
    assert_eq!(change(|_| ()), 6);
    assert_eq!(change(|last| last.queues[0].id += 1), 5, "another queue");
    assert_eq!(change(|last| last.domain_id += 1), 5, "another domain");
}

#[test]
fn the_state_of_a_queue_is_all_that_is_unusual() {
    let idle = queue();
    let state = |change: fn(&mut QueueSnapshot)| {
        let mut queue = idle.clone();
        change(&mut queue);
        state_of(&queue, None)
    };
    assert_eq!(state(|_| ()), "");
    assert_eq!(state(|queue| queue.is_closed = true), "closed");
    assert_eq!(state(|queue| queue.waiting_items = 3), "");
    assert_eq!(state(|queue| queue.waiting_items = 4), "full");
    // With what was leased and came back.
    assert_eq!(state(|queue| queue.waiting_items = 5), "full");
    assert_eq!(state(|queue| queue.receivers.clear()), "nobody receives");
    assert_eq!(state(|queue| queue.senders.clear()), "nobody sends");
    assert_eq!(state(|queue| queue.sender_deaths = 1), "1 member died");
    assert_eq!(state(|queue| (queue.sender_deaths, queue.receiver_deaths) = (1, 2)), "2 members died");
    let all = state(|queue| {
        (queue.is_closed, queue.waiting_items) = (true, 4);
        queue.senders.clear();
        queue.receivers.clear();
        queue.receiver_deaths = 1;
    });
    assert_eq!(all, "closed, full, nobody receives, nobody sends, 1 member died");
}

#[test]
fn whoever_is_in_a_message_twice_may_stand_still_there() {
    let (mut last, mut now) = (queue(), queue());
    (last.in_progress, now.in_progress) = (vec![3, 5], vec![2, 3]);
    assert_eq!(state_of(&now, Some(&last)), "in the middle of a message: 3");
    assert_eq!(state_of(&now, None), "", "it was seen once");
    now.put_items += 1;
    assert_eq!(state_of(&now, Some(&last)), "", "messages were put meanwhile");
    now.put_items = last.put_items;
    last.in_progress = vec![5];
    assert_eq!(state_of(&now, Some(&last)), "", "those have got on");
}

#[test]
fn the_state_of_a_member_is_that_of_its_process_while_it_is_live() {
    let mut member = snapshot().members.remove(0);
    let states = [None, Some(State::Running), Some(State::Stopped), Some(State::Ended)];
    let mut shown = |state| {
        member.state = state;
        states.map(|process| state_of_member(&member, process))
    };
    assert_eq!(shown(MemberState::Live), ["live", "live", "stopped", "ended"]);
    assert_eq!(shown(MemberState::Invited), ["invited"; 4]);
    assert_eq!(shown(MemberState::Dead), ["dead"; 4]);
}

#[test]
fn members_are_shown_with_their_processes() {
    let mut now = snapshot();
    let mut members = [0, 1, 2].map(|slot| {
        let mut member = now.members[0].clone();
        (member.slot, member.pid) = (slot, None);
        member
    });
    (members[0].pid, members[1].pid) = (Some(7), Some(8));
    now.members = members.into();
    let text = of(&report(Some(now)), None);
    assert_eq!(words(&text, "0")[..4], ["0", "7", "trainer", "stopped"]);
    assert_eq!(words(&text, "1")[..3], ["1", "8", "live"], "nothing is known of its process");
    assert_eq!(words(&text, "2")[..3], ["2", "elsewhere", "live"]);
    assert!(text.contains("\nprocess 9 has the file and is no member: ./train 9\n"), "{text}");
    assert!(!text.contains("process 7 has the file"), "{text}");
}

#[test]
fn the_state_of_a_lock_is_how_it_was_left_and_who_has_died() {
    let mut lock = snapshot().monitors.remove(0);
    let mut state = |left_by, deaths| {
        (lock.left_by, lock.deaths) = (left_by, deaths);
        state_of_monitor(&lock)
    };
    assert_eq!(state(None, 0), "");
    assert_eq!(state(Some(LastOwner::Released), 0), "");
    assert_eq!(state(Some(LastOwner::Panicked), 0), "poisoned: its owner panicked");
    assert_eq!(state(None, 1), "1 member died");
    assert_eq!(state(Some(LastOwner::Died), 2), "poisoned: its owner died, 2 members died");
}

#[test]
fn leases_are_shown_where_there_can_be_any() {
    let mut queue = queue();
    assert_eq!(leased(&queue), "");
    queue.max_leases = 10;
    assert_eq!(leased(&queue), "0/10");
    queue.leased_items = vec![(0, 2), (3, 1)];
    assert_eq!(leased(&queue), "3/10");
}

#[test]
fn what_is_held_is_named_by_what_it_is() {
    let now = snapshot();
    let (queues, locks) = (bytes(now.held.queues.bytes), bytes(now.held.monitors.bytes));
    let text = format!("1 queue ({queues}), 1 lock or the like ({locks})");
    assert_eq!(held(&now.held, now.in_doubt), text);
    assert_eq!(held(&now.held, now.held.queues), format!("{text}, 1 held by no member ({queues})"));
    assert_eq!(held(&HeldByKind::default(), Amount::default()), "nothing");
}

#[test]
fn what_cannot_be_shown_is_said() {
    let mut none = Report { domains: Vec::new(), ..report(None) };
    assert_eq!(of(&none, None), "no process shares anything by tensorferry\n");
    none.n_unreadable_processes = 1;
    assert!(of(&none, None).ends_with("\n1 process of others could not be asked; root may ask all\n"));
    assert!(of(&report(Some(snapshot())), None).starts_with("domain "));
    none.n_unreadable_processes = 0;
    none.not_among_them.push("process 5 shares nothing".to_owned());
    assert_eq!(of(&none, None), "process 5 shares nothing\n");
    let mut unreadable = report(None);
    unreadable.domains[0].error = Some("it is of another version".to_owned());
    unreadable.not_among_them.push("process 5 shares nothing".to_owned());
    let text =
        "a domain of process 7 9 cannot be read: it is of another version\n\nprocess 5 shares nothing\n";
    assert_eq!(of(&unreadable, None), text);
}

#[test]
fn slots_are_ranges() {
    assert_eq!(slots(&[]), "");
    assert_eq!(slots(&[3]), "3");
    assert_eq!(slots(&[0, 1, 3, 4, 5, 6, 62]), "0 1 3-6 62");
}

#[test]
fn commands_are_cut_and_have_nothing_that_a_terminal_obeys() {
    assert_eq!(shortened("./train\x1b[2J now"), "./train [2J now");
    assert_eq!(shortened(&"x".repeat(100)).len(), COMMAND_CHARS + 3);
}

#[test]
fn what_a_terminal_does_not_show_is_counted() {
    assert_eq!(cut_to("abc\nd\n", (3, 2)), "ab\nd");
    let cut = cut_to("1\n2\n3\n4\n", (4, 80));
    assert!(cut.starts_with("1\n2\n... 2 more lines"), "{cut}");
}

#[test]
fn one_is_not_many() {
    assert_eq!(things(1, "queue", "queues"), "1 queue");
    assert_eq!((things(0, "a", "as"), things(2000, "a", "as")), ("0 as".to_owned(), "2,000 as".to_owned()));
}
