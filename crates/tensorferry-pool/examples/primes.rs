//! Counts primes with as many processes as there are processors. One of the workers is killed meanwhile, and
//! its task is tried again.

use std::io::Write as _;

use tensorferry_pool::Pool;
use tensorferry_spawn::{BoxedError, func};

const UP_TO: u64 = 20_000;
const STEP: u64 = 500;

/// How many primes there are from `first` on, among [`STEP`] numbers.
#[func]
fn count(_worker: usize, first: u64) -> Result<usize, String> {
    let is_prime = |n: &u64| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    Ok((first..first + STEP).filter(is_prime).count())
}

fn main() -> Result<(), BoxedError> {
    let pool = Pool::builder().max_tries(2).start()?;
    let mut n_primes = 0;
    for (at, counted) in pool.imap(count, (0..UP_TO / STEP).map(|step| step * STEP)).enumerate() {
        n_primes += counted?;
        if at == 3
            && let Some(process) = pool.processes().first()
        {
            process.kill()?;
        }
    }
    pool.join()?;
    if n_primes != 2262 {
        return Err(format!("there are 2262 primes below {UP_TO}, not {n_primes}").into());
    }
    writeln!(std::io::stdout(), "{n_primes} primes below {UP_TO}")?;
    Ok(())
}
