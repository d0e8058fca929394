//! Where others who come with a token are let into a domain.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorferry_reduce::ANY_TYPE;
use tensorferry_storage::Heap;

use crate::joined::Serving;
use crate::publication::publish_any_in;
use crate::{Publication, PublishError, Token};

/// Where the other processes are let into the domain. A process has one for each domain in which it offers
/// something or invites somebody, for as long as it does.
#[derive(Debug)]
struct Gate {
    /// Of no value.
    token: Token,
    n_open: usize,
    _publication: Publication<()>,
    /// So that this process itself finds the domain, which may be another one than its default one.
    _serving: Serving,
}

/// Those of this process, and copies of those of a process from which it was forked. Locked while one opens
/// or closes, because the next one of the domain has the same name.
static GATES: Mutex<Vec<Gate>> = Mutex::new(Vec::new());

/// Keeps a gate open.
#[derive(Debug)]
pub(crate) struct Open {
    /// Of no value.
    token: Token,
    made_by: u32,
    is_for_good: bool,
}

impl Open {
    pub(crate) fn gate_of(heap: &Heap) -> Result<Self, PublishError> {
        let (domain_id, member) = (heap.domain().id(), heap.domain().me());
        let token = Token { domain_id, member, parcel: Token::NO_VALUE, type_hash: ANY_TYPE };
        let mut gates = lock_gates();
        match gates.iter_mut().find(|gate| gate.token == token) {
            Some(gate) => gate.n_open += 1,
            None => gates.push(Gate {
                token,
                n_open: 1,
                _publication: publish_any_in(heap, token.address(), &())?,
                _serving: Serving::domain_of(heap),
            }),
        }
        Ok(Self { token, made_by: std::process::id(), is_for_good: false })
    }

    /// Of no value.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// For as long as the process lives.
    pub(crate) fn stay_open(mut self) {
        self.is_for_good = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // In a process that was forked the lock may be one that nobody releases.
        if self.is_for_good || self.made_by != std::process::id() {
            return;
        }
        let mut gates = lock_gates();
        let Some(at) = gates.iter().position(|gate| gate.token == self.token) else { return };
        gates[at].n_open -= 1;
        if gates[at].n_open == 0 {
            // Waits for the thread, which waits for nobody.
            drop(gates.swap_remove(at));
        }
    }
}

fn lock_gates() -> MutexGuard<'static, Vec<Gate>> {
    GATES.lock().unwrap_or_else(PoisonError::into_inner)
}
