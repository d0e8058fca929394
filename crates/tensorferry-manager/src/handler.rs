//! What an object does with a request.

use crate::answer::Failure;
use crate::guarded::Guarded;

/// Does one step with the state for each request.
pub(crate) trait Handler<S, Q, R> {
    /// What it takes to put back what a step has taken out of the state.
    type Taken;

    /// The step. Fails where it is not made here.
    fn step(&mut self, state: &mut S, request: Q) -> Result<(R, Self::Taken), Failure>;

    /// Puts back what the last step has taken out: its answer, here it is, has not left this process.
    fn put_back(&mut self, state: &mut S, taken: Self::Taken, answer: R);
}

/// That of an object of somebody else's type: what its answers were taken from, only it knows.
impl<S, Q, R, F: FnMut(&mut S, Q) -> R> Handler<S, Q, R> for F {
    type Taken = ();

    fn step(&mut self, state: &mut S, request: Q) -> Result<(R, ()), Failure> {
        Ok((self(state, request), ()))
    }

    fn put_back(&mut self, _: &mut S, (): (), answer: R) {
        drop(Guarded::new(answer));
    }
}
