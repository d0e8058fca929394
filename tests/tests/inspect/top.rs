//! What `tensorferry top` prints.

use serde_json::Value;
use tensorferry::Queue;
use tensorferry_kit::tasks::{Caller, CommandLine, Puppet};
use tensorferry_kit::{Child, Family, Item, Loner, until, where_possible, with_family};

/// Runs `top` in a process of its own, and returns what it has written.
#[track_caller]
fn top(arguments: &[&str]) -> String {
    let all = [&["top", "--once"], arguments].concat();
    let (outcome, text) = CommandLine::new(&all).run();
    assert_eq!(outcome, "well", "{text}");
    text
}

fn full_queue(family: &Family) -> Queue<Item> {
    let queue = Queue::new_in(family.heap(), 1).unwrap();
    queue.put(Item::new(family.heap(), 1, 0, &[1 << 17])).unwrap();
    queue
}

#[test]
fn one_run_shows_members_queues_and_what_is_held() {
    with_family(|family| {
        let queue = full_queue(family);
        let child = family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() });
        let (me, its) = (std::process::id().to_string(), child.pid().to_string());
        let id = format!("domain {}:", family.heap().domain().id());
        for pids in [&[&*me][..], &[], &[&*me, &*its]] {
            let all = top(pids);
            // Other tests have domains too.
            let text = all.split("\n\ndomain ").map(|part| format!("domain {part}"));
            let text = text.into_iter().find(|part| part.contains(&id)).unwrap_or_else(|| panic!("{all}"));
            let line = |with: &str| text.lines().find(|line| line.contains(with)).unwrap_or_default();
            let words = |with: &str| line(with).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let queue = [&*queue.id().0.to_string(), "1/1", "1.00", "MiB", "1", "0", "1", "0", "1", "full"];
            assert_eq!(words(" full"), queue, "{text}");
            assert!(line("held:").contains("1 tensor or other data (1.00 MiB)"), "{text}");
            assert_eq!(words(&format!(" {its} "))[..4], ["1", &*its, "child", "live"], "{text}");
            // It is the queue that has the tensor, which nobody else holds.
            assert_eq!(words(" MiB  data ")[1..], ["1.00", "MiB", "data", "0", queue[0]], "{text}");
            assert_eq!(words(&format!(" {me} "))[7..9], ["0", "B"], "{text}");
        }
        child.finish();
    });
}

#[test]
fn programs_have_it_as_json() {
    with_family(|family| {
        let queue = full_queue(family);
        let report: Value = serde_json::from_str(&top(&["--json", &std::process::id().to_string()])).unwrap();
        let domain = &report["domains"][0];
        assert_eq!(domain["processes"][0]["pid"], std::process::id());
        let snapshot = &domain["snapshot"];
        assert_eq!(snapshot["domain_id"], family.heap().domain().id());
        assert_eq!(snapshot["members"][0]["state"], "live");
        assert_eq!(snapshot["queues"][0]["waiting_items"], 1);
        assert_eq!(snapshot["held"]["data"]["bytes"], 1 << 20);
        drop(queue);
    });
}

#[test]
fn a_stopped_process_is_told_from_one_that_works_and_one_that_is_not_there_from_both() {
    with_family(|family| {
        let queue = full_queue(family);
        let child = family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() });
        let its = child.pid().to_string();
        child.stop();
        assert!(top(&[&its]).contains(" stopped "));
        child.go_on();
        let alone = Loner::start(&Caller { address: String::new() }, &[]);
        let text = top(&[&its, &alone.pid().to_string(), "4194305"]);
        assert!(text.contains(" live "), "{text}");
        assert!(text.contains(&format!("process {} shares nothing", alone.pid())), "{text}");
        assert!(text.contains("there is no process 4194305"), "{text}");
        [alone, child].into_iter().for_each(Child::finish);
    });
}

#[test]
fn a_process_that_has_ended_and_was_not_reaped_is_not_there() {
    with_family(|family| {
        let queue = full_queue(family);
        let ended = Loner::start(&Caller { address: String::new() }, &[]);
        ended.kill_unreaped();
        let text = top(&[&std::process::id().to_string(), &ended.pid().to_string()]);
        assert!(text.contains(&format!("there is no process {}, or it has ended", ended.pid())), "{text}");
        assert!(text.contains(" full"), "{text}");
        drop((queue, ended));
    });
}

#[test]
fn it_goes_on_until_all_that_it_watches_have_ended() {
    for is_json in [false, true] {
        with_family(|family| {
            let queue = full_queue(family);
            let [first, last] =
                [(); 2].map(|()| family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() }));
            let [its, of_last] = [&first, &last].map(|child| child.pid().to_string());
            let mut arguments = vec!["top", "--every", "0.05", &its, &of_last];
            arguments.extend(is_json.then_some("--json"));
            let watching = Loner::start(&CommandLine::new(&arguments).telling(), &[]);
            let ended = |pid: &str| format!("there is no process {pid}, or it has ended");
            assert!(!CommandLine::shown(&watching).contains(&ended(&its)));
            // Nobody reaps them, so that nobody else gets their numbers.
            first.kill_unreaped();
            until("it is told", || CommandLine::shown(&watching).contains(&ended(&its)));
            last.kill_unreaped();
            let (outcome, text) = CommandLine::heard(watching);
            assert_eq!(outcome, "well", "{text}");
            if is_json {
                let domains = |line| serde_json::from_str::<Value>(line).unwrap()["domains"].is_array();
                assert!(text.lines().all(domains), "nothing but reports, for programs: {text}");
            } else {
                let end = text.lines().last().unwrap_or_default();
                assert_eq!(end, format!("{}; {}", ended(&its), ended(&of_last)));
            }
            drop([first, last]);
        });
    }
}

#[test]
fn another_user_sees_nothing_but_that_there_is_something() {
    where_possible(|| {
        with_family(|family| {
            let queue = full_queue(family);
            let all = CommandLine::new(&["top", "--json"]).as_somebody_else();
            let (outcome, text) = all.run();
            assert_eq!(outcome, "well", "{text}");
            let report: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(report["domains"].as_array().unwrap().len(), 0, "{text}");
            assert!(report["n_unreadable_processes"].as_u64().unwrap() > 0, "{text}");
            drop(queue);
        });
    });
}
