//! Objects of another machine, whose process is killed, or the one that has the connection.

use std::net::SocketAddr;
use std::thread;

use serde::{Deserialize, Serialize};
use tensorferry::manager::{CallErrorKind, Dict, Manager, Proxy, ReachError, RemoteHandle, accept};
use tensorferry::remote::{ConnectError, Listener};
use tensorferry::spawn::ProcessHandle;
use tensorferry::sync::Event;
use tensorferry::{BoxedError, Process, Queue, Sender, Tensor, TensorMut, func, start_processes};
use tensorferry_kit::{DEADLINE, leaving_nothing};

use crate::key;

#[derive(Serialize, Deserialize)]
enum Ask {
    Add(u64),
    /// Does not answer before it is told to.
    Wait,
    Panic,
}

type Number = Proxy<Ask, u64>;
type Tensors = Dict<u64, Tensor<u64>>;

/// When a call waits, and when it shall go on.
#[derive(Clone, Serialize, Deserialize)]
struct Gate {
    begun: Event,
    go_on: Event,
}

impl Gate {
    fn new() -> Self {
        Self { begun: Event::new().unwrap(), go_on: Event::new().unwrap() }
    }
}

/// Has a number and tensors, for all who connect.
#[func]
fn keep_objects(_rank: usize, addresses: Sender<[SocketAddr; 2]>, gate: Gate) -> Result<(), BoxedError> {
    let manager = Manager::new()?;
    let number: Number = manager.serve(0, move |total, ask| {
        match ask {
            Ask::Add(number) => *total += number,
            Ask::Wait => {
                gate.begun.set();
                gate.go_on.wait().unwrap();
                *total += 1000;
            }
            Ask::Panic => panic!("told to panic"),
        }
        *total
    })?;
    let tensors: Tensors = manager.dict()?;
    let [for_number, for_tensors] = [(); 2].map(|()| Listener::bind("127.0.0.1:0", &key()));
    let (for_number, for_tensors) = (for_number?, for_tensors?);
    addresses.put([for_number.local_addr()?, for_tensors.local_addr()?])?;
    thread::spawn(move || answer_all(&for_tensors, &tensors));
    answer_all(&for_number, &number);
    Ok(())
}

fn answer_all<H: RemoteHandle>(listener: &Listener, object: &H) {
    loop {
        // Strangers are not let in.
        if let Ok(caller) = accept(listener, object) {
            thread::spawn(move || caller.answer());
        }
    }
}

/// Another machine, which has the objects.
fn keeper() -> (ProcessHandle<()>, [SocketAddr; 2], Gate) {
    let (addresses, gate) = (Queue::new(1).unwrap(), Gate::new());
    let arguments = (addresses.sender().unwrap(), gate.clone());
    let keeper = Process::new(keep_objects, arguments).start().unwrap();
    (keeper, addresses.get_timeout(DEADLINE).unwrap(), gate)
}

fn kill(mut process: ProcessHandle<()>) {
    process.kill().unwrap();
    process.join().unwrap_err();
}

/// Calls both objects.
#[func]
fn call(rank: usize, number: Number, tensors: Tensors) -> Result<(), BoxedError> {
    let rank = rank as u64;
    for n in 1..=100 {
        number.call(Ask::Add(n))?;
    }
    tensors.insert(rank, TensorMut::full([50_000], rank)?.freeze())?;
    let own = tensors.get(&rank)?.ok_or("it is gone")?;
    if own.is_shared() && own.to_vec() == vec![rank; 50_000] {
        return Ok(());
    }
    Err("another tensor has come back".into())
}

#[test]
fn processes_of_one_machine_call_objects_of_another() {
    let test = || {
        let (keeper, [for_number, for_tensors], _) = keeper();
        let manager = Manager::new().unwrap();
        let other_key = tensorferry::remote::Key::new("a secret that nobody knows").unwrap();
        let refused = manager.connect::<Number>(for_number, &other_key).unwrap_err();
        assert!(matches!(refused, ReachError::Connect(ConnectError::Key)), "{refused}");
        let number: Number = manager.connect(for_number, &key()).unwrap();
        let tensors: Tensors = manager.connect(for_tensors, &key()).unwrap();
        let mut callers = start_processes(call, (number.clone(), tensors.clone()), 3).unwrap();
        callers.join().unwrap();
        assert_eq!(number.call(Ask::Add(0)).unwrap(), 3 * 5_050);
        assert_eq!(tensors.keys().unwrap(), [0, 1, 2]);
        assert_eq!(tensors.remove(&2).unwrap().unwrap().to_vec(), vec![2; 50_000]);

        let error = number.call(Ask::Panic).unwrap_err();
        let CallErrorKind::Panicked(panic) = error.kind else { panic!("{error}") };
        assert_eq!((panic.pid, &*panic.message), (keeper.pid(), "told to panic"));
        assert_eq!(tensors.len().unwrap(), 2, "the other object goes on");
        manager.shutdown().unwrap();
        kill(keeper);
    };
    leaving_nothing(test, test);
}

/// Waits for an answer, and says which error has come instead.
#[func]
fn wait_for(_rank: usize, number: Number, errors: Sender<String>) -> Result<(), BoxedError> {
    let error = match number.call(Ask::Wait) {
        Ok(answer) => format!("answered {answer}"),
        Err(error) => match error.kind {
            CallErrorKind::ConnectionLost(_) => "ConnectionLost".to_owned(),
            CallErrorKind::Disconnected(_) => "Disconnected".to_owned(),
            CallErrorKind::OwnerDied { pid } => format!("OwnerDied {pid}"),
            other => other.to_string(),
        },
    };
    Ok(errors.put(error)?)
}

#[test]
fn all_who_wait_are_told_when_the_process_of_an_object_on_another_machine_is_killed() {
    let test = || {
        let (keeper, [for_number, for_tensors], gate) = keeper();
        let manager = Manager::new().unwrap();
        let number: Number = manager.connect(for_number, &key()).unwrap();
        let tensors: Tensors = manager.connect(for_tensors, &key()).unwrap();
        let errors = Queue::new(2).unwrap();
        let mut callers = start_processes(wait_for, (number.clone(), errors.sender().unwrap()), 2).unwrap();
        gate.begun.wait_timeout(DEADLINE).unwrap();
        kill(keeper);
        let mut told = [(); 2].map(|()| errors.get_timeout(DEADLINE).unwrap());
        told.sort();
        // The other one's request was not sent any more.
        assert_eq!(told, ["ConnectionLost", "Disconnected"]);
        callers.join().unwrap();
        let error = number.call(Ask::Add(1)).unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Disconnected(_)), "{error}");
        let error = tensors.len().unwrap_err();
        assert!(error.is_final(), "{error}");
        manager.shutdown().unwrap();
    };
    leaving_nothing(test, test);
}

/// Has the connection of its machine.
#[func]
fn connect_all(_rank: usize, address: SocketAddr, handles: Sender<Number>) -> Result<(), BoxedError> {
    let manager = Manager::new()?;
    handles.put(manager.connect(address, &key())?)?;
    loop {
        thread::park();
    }
}

#[test]
fn all_who_wait_are_told_when_the_process_with_the_connection_is_killed() {
    let test = || {
        let (keeper, [address, _], gate) = keeper();
        let handles = Queue::new(1).unwrap();
        let arguments = (address, handles.sender().unwrap());
        let between = Process::new(connect_all, arguments).start().unwrap();
        let number: Number = handles.get_timeout(DEADLINE).unwrap();
        let errors = Queue::new(2).unwrap();
        let mut callers = start_processes(wait_for, (number.clone(), errors.sender().unwrap()), 2).unwrap();
        gate.begun.wait_timeout(DEADLINE).unwrap();
        let died = format!("OwnerDied {}", between.pid());
        kill(between);
        for _ in 0..2 {
            assert_eq!(errors.get_timeout(DEADLINE).unwrap(), died);
        }
        callers.join().unwrap();
        gate.go_on.set();
        // The object goes on, for those who connect now. One of the calls was made.
        let manager = Manager::new().unwrap();
        let number: Number = manager.connect(address, &key()).unwrap();
        assert_eq!(number.call(Ask::Add(7)).unwrap(), 1_007);
        manager.shutdown().unwrap();
        kill(keeper);
    };
    leaving_nothing(test, test);
}
