//! A sweeper that is killed at one position of its sweep after the other.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use tensorferry_domain::Layout;

use super::Operation;
use super::plan::Struck;
use super::run::{Announced, SERVICE_THREAD, kill, run_to};
use crate::tasks::{Host, Puppet};
use crate::{Child, Loner, SharedBytes, Stepper, alone, until};

/// A domain in which one member alone sweeps another: a root, a witness and another member that are stopped,
/// a victim, and the sweeper, whose sweeping thread is under control. The test process is no member.
struct Sweeping {
    root: Child,
    witness: Child,
    other: Child,
    sweeper: Child,
    services: Vec<Stepper>,
    domain: OwnedFd,
    /// Where the state of the victim lies in the file.
    victim_state_offset_bytes: usize,
}

/// What the library calls a slot that nobody has.
const FREE: u64 = 0;
/// docs/WIRE.md has these numbers.
const PROCESS_TABLE_OFFSET_BYTES: usize = 4096;
const PROCESS_SLOT_LEN_BYTES: usize = 128;
const PHASE_MASK: u64 = 0xff;

pub(super) fn strike(position: u64, instructions: &mut u64) -> Result<Struck, Errno> {
    let mut outcome = Ok(Struck { position: 0, done: true });
    alone(|| outcome = strike_alone(position, instructions));
    outcome
}

fn strike_alone(position: u64, instructions: &mut u64) -> Result<Struck, Errno> {
    let sweeping = Sweeping::prepare()?;
    let layout = Layout::with_data_len(Host::ADDRESS_SPACE_BYTES);
    let mut shared = SharedBytes::of(&sweeping.domain, &layout);
    let [service] = &sweeping.services[..] else { panic!("one domain, one thread") };
    let at = sweeping.victim_state_offset_bytes;
    let is_swept = |shared: &SharedBytes| shared.word(at) & PHASE_MASK == FREE;
    let struck = run_to(position, service, &mut shared, instructions, is_swept);
    let announced = Announced { operation: Operation::Sweep, struck };
    sweeping.kill_and_check();
    drop(announced);
    Ok(struck)
}

impl Sweeping {
    /// Up to where the victim is dead and the sweep can begin. The victim has left two items in the queue,
    /// the second one too long for a slot, and has leased a third; the witness holds a fourth. The sweeper
    /// has no end of the queue, so that nothing of its own death makes anybody look for what the victim had
    /// leased.
    fn prepare() -> Result<Self, Errno> {
        let root = Loner::start(&Host::Puppets { maxsize: 3 }, &[]);
        // All others stand still when the victim dies: each looks at all members now and then.
        let (victim, domain) = Loner::start_in_with_domain::<Puppet>(&root);
        let [witness, other, sweeper] = [(); 3].map(|()| Loner::start_in::<Puppet>(&root));
        assert_eq!(victim.ask("put 1 0 3"), "put");
        assert_eq!(witness.ask("get"), "got 1/0");
        assert_eq!(victim.ask("put 1 3 3"), "put");
        assert_eq!(victim.ask("lease"), "leased 1/3");
        assert_eq!(witness.ask("try_get"), "Empty");
        assert_eq!(sweeper.ask("leave"), "left");
        assert_eq!(victim.ask("put 1 1 3"), "put");
        assert_eq!(victim.ask("make 1 2 3"), "made");
        assert_eq!(victim.ask("note 300"), "noted");
        assert_eq!(victim.ask("pass"), "put");
        assert_eq!(sweeper.ask("members"), "5");
        root.stop();
        let services = Stepper::interrupt_polling(&sweeper, SERVICE_THREAD)?;
        let slot = usize::from(victim.member().slot);
        witness.stop();
        other.stop();
        victim.kill();
        let victim_state_offset_bytes = PROCESS_TABLE_OFFSET_BYTES + slot * PROCESS_SLOT_LEN_BYTES;
        Ok(Self { root, witness, other, sweeper, services, domain, victim_state_offset_bytes })
    }

    /// The others finish what the sweeper began, and sweep it too.
    fn kill_and_check(self) {
        let Self { root, witness, other, sweeper, services, .. } = self;
        kill(sweeper, services);
        witness.go_on();
        other.go_on();
        until("both are swept", || witness.ask("members") == "3");
        for item in ["got 1/3", "got 1/1", "got 1/2"] {
            assert_eq!(witness.ask("get"), item);
        }
        assert_eq!(witness.ask("let_go"), "let go");
        root.go_on();
        let newcomer = Loner::start_in::<Puppet>(&root);
        assert_eq!(newcomer.ask("put 4 0 3"), "put");
        assert_eq!(witness.ask("get"), "got 4/0");
        assert_eq!(witness.ask("let_go"), "let go");
        for sequence in 0..3 {
            assert_eq!(newcomer.ask(&format!("try_put 4 {sequence} 1")), "put", "every slot works");
        }
        for sequence in 0..3 {
            assert_eq!(other.ask("get"), format!("got 4/{sequence}"));
        }
        other.finish();
        // The queue, and the parcel for the last one who came.
        until("memory comes back", || witness.ask("held") == "2");
        [root, witness, newcomer].into_iter().for_each(Child::finish);
    }
}
