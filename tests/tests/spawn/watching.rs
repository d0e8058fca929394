//! One thread waits for messages and for the ends of the processes that send them.

use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use tensorferry::queue::{GetError, Receiver, Sender, Source, WaitAnyError, channel, wait, wait_timeout};
use tensorferry::spawn::{Process, ProcessHandle, func};

use crate::support::{DEADLINE, for_every_method, within_deadline};

/// Answers one question. Then it ends: it returns for 0, or is killed.
#[func]
fn answer(_: usize, questions: Receiver<u8>, answers: Sender<u8>) -> Result<(), String> {
    let question = questions.get().map_err(|e| e.to_string())?;
    answers.put(question).map_err(|e| e.to_string())?;
    let question = questions.get().map_err(|e| e.to_string())?;
    if question > 0 {
        raise(Signal::SIGKILL).map_err(|e| e.to_string())?;
    }
    Ok(())
}

for_every_method! {
    fn a_message_ends_a_wait_and_so_does_the_end_of_each_process(method: Context) {
        let (answers, from_all) = channel(4).unwrap();
        let mut questions = Vec::new();
        let mut processes: Vec<ProcessHandle<()>> = Vec::new();
        for _ in 0..3 {
            let (to, from) = channel(1).unwrap();
            processes.push(method.process(answer, (from, answers.clone())).start().unwrap());
            questions.push(to);
        }
        let sources = |processes: &[ProcessHandle<()>]| -> Vec<usize> {
            let of_processes = processes.iter().map(|process| process as &dyn Source);
            let all: Vec<&dyn Source> = [&from_all as &dyn Source].into_iter().chain(of_processes).collect();
            wait_timeout(&all, DEADLINE).unwrap()
        };
        for (at, question) in [1_u8, 0, 1].into_iter().enumerate() {
            questions[at].put(question).unwrap();
            assert_eq!(sources(&processes), [0], "nobody has ended");
            assert_eq!(from_all.get_nowait().unwrap(), question);
            questions[at].put(question).unwrap();
            let mut found = sources(&processes);
            if found[0] == 0 {
                // That nobody else is left to send may be known before the last one's end is.
                let told = from_all.get_nowait().unwrap_err();
                assert!(matches!(told, GetError::Disconnected | GetError::PeerDied) && at == 2, "{told}");
                found = sources(&processes);
            }
            assert_eq!(found, [1], "the first one that is left");
            let mut ended = processes.remove(0);
            assert_eq!(ended.join().is_ok(), question == 0);
        }
        drop(answers);
        assert_eq!(sources(&processes), [0], "there is no sender any more");
    }
}

#[test]
fn a_process_that_has_ended_is_found_by_every_wait() {
    let (to, from) = channel(1).unwrap();
    let (answers, _from_it) = channel(1).unwrap();
    let mut process = Process::new(answer, (from, answers)).start().unwrap();
    let alive = wait_timeout(&[&process], Duration::ZERO);
    assert!(matches!(alive, Err(WaitAnyError::TimedOut)), "{alive:?}");
    let alive = wait_timeout(&[&process], Duration::from_millis(1));
    assert!(matches!(alive, Err(WaitAnyError::TimedOut)), "{alive:?}");
    let waits = std::thread::spawn(move || {
        for _ in 0..3 {
            assert_eq!(wait(&[&process]).unwrap(), [0]);
        }
        assert!(process.join().is_err());
        assert_eq!(wait(&[&process]).unwrap(), [0], "also after it was collected");
    });
    drop(to);
    within_deadline("the end of the process", || waits.join()).unwrap();
}
