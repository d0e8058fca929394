//! What children can do. Each task says what it tells the test.

mod puppet;
mod streams;

pub use puppet::Puppet;
pub use streams::{Adder, Consume, Count, Forward, Heard, Produce, SoleEcho, Worker};

use crate::task::run_task;

/// Runs the task with this name; false when there is none.
pub(crate) fn run_by_name(name: &str) -> bool {
    macro_rules! tasks {
        ($($run:ident::<$task:ty>),* $(,)?) => {
            $(if name == <$task>::NAME {
                $run::<$task>();
                return true;
            })*
        };
    }
    use crate::Task as _;
    tasks![
        run_task::<Puppet>,
        run_task::<Produce>,
        run_task::<Consume>,
        run_task::<Forward>,
        run_task::<Worker>,
        run_task::<Adder>,
        run_task::<SoleEcho>,
    ];
    false
}
