//! Deaths of members: which members are watched, what proves a death, and which member sweeps.
//!
//! Watching costs few descriptors. A member watches those that it admitted, and the next two live members in
//! the order of their slots. When a watched member dies, its slot is claimed for sweeping by
//! compare-and-swap, so there is one sweeper. A sweeper that dies is found like any dead member, and the
//! member that sweeps it finishes its victims too. The order of the slots wraps around, so every member has a
//! live predecessor, and no death stays unseen while another member lives. If all predecessors of a dead
//! member are stopped, the lock that it no longer holds shows its death: now and then each member checks the
//! locks of all others, which takes no descriptor.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tensorferry_os::pidfd::{PidFd, pid_namespace};
use tensorferry_os::presence::Presence;

use super::LONGEST_SLEEP;
use crate::layout::presence_offset;
use crate::member::State;
use crate::{Domain, Member, Phase, ServiceHandler, deaths_seen, planted};

/// How often a change of a slot is tried while others change the slot too. No slot changes that often.
pub(crate) const MAX_CLAIMS: usize = 8;

/// How many of the members that follow in the table are watched, whichever member admitted them.
const N_NEIGHBOURS: usize = 2;

/// The members that are checked for their death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The members that this one admitted, and its neighbours.
    Watched,
    /// All members.
    All,
}

/// How long this member leaves a dead member to others, after it could not reach something of it.
pub(crate) const LEFT_TO_OTHERS: Duration = Duration::from_secs(2);

/// The state of a service from one turn to the next.
#[derive(Default)]
pub(super) struct Watch {
    watched: Vec<Watched>,
    /// When the locks of the members that are not watched were last checked.
    checked_all_at: Option<Instant>,
    /// The dead members that could not be swept from here, and when that was.
    left: Vec<(Member, Instant)>,
    /// The count of swept members in the last turn.
    sweeps: u64,
}

impl Watch {
    /// The descriptors that become readable when a watched member dies.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|watched| watched.pidfd.as_fd())
    }
}

/// A member, and the pidfd that will prove its death.
struct Watched {
    member: Member,
    pidfd: PidFd,
}

/// Checks members, and sweeps in one go those that are proven dead. Returns whether a slot is free as a
/// result.
pub(super) fn sweep_the_dead(
    domain: &Domain,
    handler: &dyn ServiceHandler,
    scope: Scope,
    watch: &mut Watch,
) -> bool {
    watch.left.retain(|(_, since)| since.elapsed() < LEFT_TO_OTHERS);
    let mut dead = Vec::new();
    let mut any_died = domain.sweeps() != watch.sweeps;
    watch.sweeps = domain.sweeps();
    loop {
        let found = find_dead(domain, scope, watch);
        any_died |= !found.is_empty();
        for member in found {
            if !watch.left.iter().any(|(left, _)| *left == member) {
                claim(domain, member);
            }
        }
        let n_known = dead.len();
        dead = take_over(domain);
        // Members that the dead had admitted are watched from here now. Some of those may be dead too.
        if dead.len() <= n_known {
            break;
        }
    }
    if any_died {
        // Also where another member has claimed it, or has swept it before this one had a turn.
        deaths_seen().wake();
    }
    if dead.is_empty() {
        return false;
    }
    let is_swept = sweep(domain, handler, &dead);
    if is_swept.is_none() {
        watch.left.extend(dead.iter().map(|member| (*member, Instant::now())));
    }
    is_swept.unwrap_or(false)
}

/// Updates the list of watched members, and returns those that are proven dead.
fn find_dead(domain: &Domain, scope: Scope, watch: &mut Watch) -> Vec<Member> {
    let watched = &mut watch.watched;
    let wanted = worth_watching(domain, scope);
    watched.retain(|w| wanted.contains(&w.member));
    let mut dead = Vec::new();
    for &member in &wanted {
        if !watched.iter().any(|w| w.member == member) {
            match open(domain, member) {
                Opened::Alive(pidfd) => watched.push(Watched { member, pidfd }),
                Opened::Dead => dead.push(member),
                Opened::Unknown => {}
            }
        }
    }
    let is_dead = |w: &&Watched| w.pidfd.is_dead().unwrap_or(false) || has_no_presence(domain, w.member);
    dead.extend(watched.iter().filter(is_dead).map(|w| w.member));
    watched.retain(|w| !dead.contains(&w.member));
    // Not in every turn: a busy process has many turns, and each lock is a system call.
    if watch.checked_all_at.is_none_or(|at| at.elapsed() >= LONGEST_SLEEP) {
        watch.checked_all_at = Some(Instant::now());
        let others = domain.slots().filter(|(index, _)| *index != domain.me().slot);
        let others = others.map(|(slot, entry)| Member { slot, epoch: entry.state().epoch });
        dead.extend(others.filter(|other| !wanted.contains(other) && has_no_presence(domain, *other)));
    }
    dead
}

fn worth_watching(domain: &Domain, scope: Scope) -> Vec<Member> {
    let me = domain.me();
    let mut wanted = Vec::new();
    let mut neighbours = 0;
    let n = u16::try_from(crate::MAX_MEMBERS).unwrap_or(u16::MAX);
    for step in 1..n {
        let Ok(index) = u8::try_from((u16::from(me.slot) + step) % n) else { continue };
        let Some(slot) = domain.slot(index) else { continue };
        let state = slot.state();
        let member = Member { slot: index, epoch: state.epoch };
        let mine = state.author == me.slot;
        match state.phase {
            Phase::Live | Phase::Invited => {
                if mine || neighbours < N_NEIGHBOURS || scope == Scope::All {
                    wanted.push(member);
                }
                neighbours += 1;
            }
            // A dead member has a sweeper. If the sweeper dies, the members that watch it take over.
            Phase::Dead | Phase::Admitting | Phase::Free => {}
        }
    }
    wanted
}

enum Opened {
    Alive(PidFd),
    Dead,
    Unknown,
}

/// Opens the pidfd of a member. If its number belongs to no process, or to another one by now, that is proof
/// of death.
fn open(domain: &Domain, member: Member) -> Opened {
    let Some(slot) = domain.slot(member.slot) else { return Opened::Unknown };
    let identity = slot.identity();
    if identity.namespace != pid_namespace() {
        return if has_no_presence(domain, member) { Opened::Dead } else { Opened::Unknown };
    }
    match PidFd::open(identity.pid) {
        Ok(pidfd) => match pidfd.identity() {
            // A zombie's start time can still be read, so equal identities mean the same process, dead or
            // alive.
            Ok(found) if found.is_same_process(&identity) => Opened::Alive(pidfd),
            // It must be known that this is another process. Knowing nothing about it is no proof.
            Ok(found)
                if found.is_known() && found.is_comparable(&identity) && slot.identity() == identity =>
            {
                Opened::Dead
            }
            _ => Opened::Unknown,
        },
        Err(error) if error.is_no_such_process() && slot.identity() == identity => Opened::Dead,
        // For example, no descriptor is left. The lock can be checked nevertheless.
        Err(_) if has_no_presence(domain, member) => Opened::Dead,
        Err(_) => Opened::Unknown,
    }
}

/// Whether there is proof now that a member is dead.
pub(crate) fn is_proven_dead(domain: &Domain, member: Member) -> bool {
    match open(domain, member) {
        Opened::Alive(pidfd) => pidfd.is_dead().unwrap_or(false) || has_no_presence(domain, member),
        Opened::Dead => true,
        Opened::Unknown => false,
    }
}

/// Whether a member that counts as live has no memory of the domain any more.
///
/// Its byte of the file is locked from before it became live until after it has left. So an unlocked byte is
/// proof, if the member is live before and after the check. That covers members whose process number means
/// nothing here, and processes that live on as another program (execve(2)). No event reports a released lock,
/// so each turn checks. If this member does not find its own lock either, it checks through a descriptor that
/// was closed behind its back, and the answer proves nothing.
fn has_no_presence(domain: &Domain, member: Member) -> bool {
    let is_live = || {
        domain.slot(member.slot).is_some_and(|slot| {
            let state = slot.state();
            state.epoch == member.epoch && state.phase == Phase::Live
        })
    };
    let is_announced = |member| Presence::is_announced(domain, presence_offset(member)).ok();
    is_live() && is_announced(member) == Some(false) && is_live() && is_announced(domain.me()) == Some(true)
}

/// Stamps the slot of a dead member, unless another live member has done so already.
fn claim(domain: &Domain, dead: Member) {
    let Some(slot) = domain.slot(dead.slot) else { return };
    let claimed = State { epoch: dead.epoch, author: domain.me().slot, phase: Phase::Dead };
    // A member that takes over the slots of its dead admitter may restamp it meanwhile.
    for _ in 0..MAX_CLAIMS {
        let found = slot.state();
        let is_member = matches!(found.phase, Phase::Live | Phase::Invited);
        if found.epoch != dead.epoch || !is_member || slot.change(found, claimed) {
            return;
        }
    }
}

/// Returns the dead members whose slots carry this member's stamp, including those of sweeps that it could
/// not finish. The members that they were sweeping are restamped and added, and so on. Other slots that carry
/// the stamp of a dead member are settled.
fn take_over(domain: &Domain) -> Vec<Member> {
    let me = domain.me().slot;
    let mut dead: Vec<Member> = stamped_dead(domain, me).map(|(member, _)| member).collect();
    let mut n_settled = 0;
    while let Some(&author) = dead.get(n_settled) {
        n_settled += 1;
        for (member, state) in stamped_dead(domain, author.slot) {
            let taken = domain
                .slot(member.slot)
                .is_some_and(|slot| slot.change(state, State { author: me, ..state }));
            if taken {
                dead.push(member);
            }
        }
        settle_invited(domain, author);
    }
    dead
}

/// The dead members with this stamp, and the states of their slots.
fn stamped_dead(domain: &Domain, author: u8) -> impl Iterator<Item = (Member, State)> + '_ {
    domain.slots().filter_map(move |(slot, entry)| {
        let state = entry.state();
        let is_theirs = state.phase == Phase::Dead && state.author == author && slot != author;
        is_theirs.then_some((Member { slot, epoch: state.epoch }, state))
    })
}

/// Settles the members that a dead member had admitted.
fn settle_invited(domain: &Domain, dead: Member) {
    for (index, other) in domain.slots() {
        let state = other.state();
        if state.author != dead.slot || index == dead.slot {
            continue;
        }
        match state.phase {
            // The newcomer was never told of its slot.
            Phase::Admitting if !planted("sweep-keeps-admitting") => {
                other.change(state, State { phase: Phase::Free, ..state });
            }
            // Its number means nothing here, and it holds no lock yet, so no member would ever learn of its
            // death. It has no memory of the domain either, and learns that its slot is gone when it joins.
            Phase::Invited if other.identity().namespace != pid_namespace() => {
                other.change(state, State { phase: Phase::Free, ..state });
            }
            // This member watches it from now on.
            Phase::Live | Phase::Invited => {
                other.change(state, State { author: domain.me().slot, ..state });
            }
            Phase::Dead | Phase::Admitting | Phase::Free => {}
        }
    }
}

/// Gives back everything that the dead members held, and frees their slots, which carry this member's stamp.
///
/// All of them are swept in one pass. A sweep walks over every block of the domain, so a pass for each of
/// many deaths would fall ever further behind. Returns whether a slot is free as a result; `None` when
/// something could not be reached from here. Others may reach it, so the stamps are then taken back, and any
/// member can prove the deaths again.
fn sweep(domain: &Domain, handler: &dyn ServiceHandler, dead: &[Member]) -> Option<bool> {
    if !handler.sweep(dead) {
        for member in dead {
            if let Some(slot) = domain.slot(member.slot) {
                let state = slot.state();
                if state.epoch == member.epoch && state.phase == Phase::Dead {
                    slot.change(state, State { phase: Phase::Live, ..state });
                }
            }
        }
        return None;
    }
    let mut any_free = false;
    for member in dead {
        domain.count_sweep();
        if let Some(slot) = domain.slot(member.slot) {
            let state = slot.state();
            any_free |=
                state.epoch == member.epoch && slot.change(state, State { phase: Phase::Free, ..state });
        }
    }
    Some(any_free)
}
