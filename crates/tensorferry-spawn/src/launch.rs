//! From a function and its arguments to running processes.

use std::ops::Range;

use serde::Serialize;
use tensorferry_domain::{MAX_MEMBERS, Parked};
use tensorferry_process::{Child, Stage, Start, StartMethod, wait_any};
use tensorferry_queue::Queue;
use tensorferry_reduce::Parcel;
use tensorferry_sharing::get_sharing_strategy;
use tensorferry_storage::Heap;

use crate::call::{ENTRY, Order};
use crate::context::ProcessContext;
use crate::error::StartErrorKind;
use crate::function::{BoxedError, Function};
use crate::identity::Identity;
use crate::method::get_start_method;
use crate::options::Options;
use crate::output::{self, Outputs, Tee};
use crate::registry::{self, Key};
use crate::seed::{SEED_VARIABLE, rank_seed};
use crate::values::Results;

/// Settings of a single process. Its name has no index, and its outputs can be redirected.
#[derive(Debug)]
pub(crate) struct Alone {
    /// `None` when the caller has not chosen one.
    pub(crate) rank: Option<usize>,
    pub(crate) outputs: Outputs,
}

/// Starts the processes. Every check that can be made without a process is made before the first one exists.
pub(crate) fn launch<F, Args>(
    options: &Options,
    function: F,
    args: &Args,
    nprocs: usize,
    alone: Option<Alone>,
) -> Result<ProcessContext<F::Value>, StartErrorKind>
where
    F: Function<Args>,
    Args: Serialize,
{
    let key = registry::find(&function)?;
    let method = options.start_method.unwrap_or_else(get_start_method);
    if method == StartMethod::Fork && options.tee != Tee::Off {
        return Err(StartErrorKind::TeeWithFork);
    }
    let heap = Heap::current().cloned().map_err(|e| StartErrorKind::Memory(e.into()))?;
    check_places(&heap, nprocs)?;
    let results: Results<F::Value> =
        Queue::new(nprocs.max(1)).map_err(|e| StartErrorKind::Memory(e.into()))?;
    let base = options.name.as_deref().unwrap_or_else(|| key.last_name());
    let first_rank = alone.as_ref().and_then(|alone| alone.rank).unwrap_or(0);
    if let Err(error) = u32::try_from(first_rank) {
        let error = tensorferry_process::StartError::Payload(error.into());
        return Err(StartErrorKind::Process { rank: first_rank, name: base.to_owned(), error });
    }
    // Declared before the children, so that it is dropped after them if this function fails.
    let (outputs, tee, all);
    if let Some(Alone { rank, outputs: own }) = alone {
        let identity = Identity::next();
        let name = options.name.clone().unwrap_or_else(|| identity.name());
        let (own, of_all) = output::open_alone(options, &name, first_rank, own)?;
        (outputs, tee) = (vec![own], of_all);
        all = vec![Who { rank: first_rank, known_rank: rank, nprocs, name, identity }];
    } else {
        (outputs, tee) = output::open(options, base, nprocs)?;
        all = (0..nprocs).map(|rank| Who::one_of_many(rank, nprocs, base)).collect();
    }
    let parcels = pack(&heap, &key, args, &results, first_rank..first_rank.saturating_add(nprocs))?;
    let common = Common { options, heap: &heap, key: &key, method };
    let mut children = Vec::with_capacity(nprocs);
    let mut starts = all.into_iter().zip(parcels.into_iter().zip(outputs));
    while let Some((who, (parcel, outputs))) = starts.next() {
        let (rank, name) = (who.rank, who.name.clone());
        match start(common, who, parcel, outputs) {
            Ok(child) => children.push(child),
            Err(error) => {
                take_back(starts.map(|(_, (parcel, _))| parcel));
                // Reaps the children that already run, and reclaims what they held as members of the domain.
                children.iter().for_each(|child: &Child| drop(child.kill()));
                drop(children);
                heap.domain().sweep_dead();
                return Err(StartErrorKind::Process { rank, name, error });
            }
        }
    }
    Ok(ProcessContext::new(children, first_rank, heap, results, options, tee))
}

/// Checks that the domain has places for `nprocs` more members.
fn check_places(heap: &Heap, nprocs: usize) -> Result<(), StartErrorKind> {
    let n_taken = || heap.domain().members().len();
    let has_room = |taken: usize| taken.saturating_add(nprocs) <= MAX_MEMBERS;
    if has_room(n_taken()) {
        return Ok(());
    }
    // Some members may be dead.
    heap.domain().sweep_all_dead();
    match n_taken() {
        taken if has_room(taken) => Ok(()),
        taken => Err(StartErrorKind::TooMany { nprocs, taken, places: MAX_MEMBERS }),
    }
}

/// One parcel for each process, because a value that is given away exclusively can be in one only.
fn pack<Args: Serialize, T: Serialize>(
    heap: &Heap,
    key: &Key,
    args: &Args,
    results: &Results<T>,
    ranks: Range<usize>,
) -> Result<Vec<Parcel>, StartErrorKind> {
    let mut parcels = Vec::with_capacity(ranks.len());
    for rank in ranks {
        match Parcel::pack(heap, &(args, results)) {
            Ok(parcel) => parcels.push(parcel),
            Err(error) => {
                take_back(parcels);
                let function = key.name().to_owned();
                return Err(StartErrorKind::Arguments { function, rank, error: error.into() });
            }
        }
    }
    Ok(parcels)
}

/// Gives the arguments back to the caller's values.
fn take_back(parcels: impl IntoIterator<Item = Parcel>) {
    for parcel in parcels {
        parcel.take_back();
    }
}

/// What all of them have in common.
#[derive(Clone, Copy)]
struct Common<'a> {
    options: &'a Options,
    heap: &'a Heap,
    key: &'a Key,
    method: StartMethod,
}

/// One of the processes.
struct Who {
    rank: usize,
    /// What [`CurrentProcess::rank`](crate::CurrentProcess::rank) returns there.
    known_rank: Option<usize>,
    nprocs: usize,
    name: String,
    identity: Identity,
}

impl Who {
    fn one_of_many(rank: usize, nprocs: usize, base: &str) -> Self {
        Self {
            rank,
            known_rank: Some(rank),
            nprocs,
            name: format!("{base} {rank}"),
            identity: Identity::next(),
        }
    }
}

/// Starts one of them, and posts its arguments.
fn start(
    common: Common<'_>,
    who: Who,
    parcel: Parcel,
    outputs: Outputs,
) -> Result<Child, tensorferry_process::StartError> {
    let Common { options, heap, key, method } = common;
    // Until the forked child itself holds the memory that its copied handles refer to, no thread of this
    // process may release that memory.
    let parked = (method == StartMethod::Fork).then(Parked::all);
    let start = configure(options, &who, outputs).method(method);
    let Who { rank, identity, .. } = who;
    let start = start.parked(parked.iter().flat_map(Parked::thread_ids));
    let domain = heap.domain();
    let mut newcomer = None;
    let fds = domain.fds().map_err(|e| tensorferry_process::StartError::Payload(e.into()));
    let child = fds.and_then(|fds| {
        fds.into_message().fold(start, Start::fd).start_with(|child| {
            let admission = domain.admit(child)?;
            newcomer = Some(admission.member());
            let order = Order {
                rank: u32::try_from(rank)?,
                function: key.clone(),
                admission,
                parcel: parcel.id(),
                strategy: get_sharing_strategy().to_string(),
                identity,
                default_method: get_start_method(),
            };
            postcard::to_stdvec(&order).map_err(BoxedError::from)
        })
    });
    match (child, newcomer) {
        // From here on the parcel is held for the child, not on behalf of this process. Once the child has
        // adopted the arguments or is gone, nothing here keeps the other side of a queue waiting.
        (Ok(mut child), Some(newcomer)) => {
            let parcel_id = parcel.id();
            parcel.post(newcomer);
            if parked.is_some() {
                while child.stage() < Stage::Taken && child.exit().is_none() {
                    if let Err(error) = wait_any(std::slice::from_mut(&mut child), None) {
                        // It may be about to hold what this process holds, so its end comes first: the drop
                        // waits for it.
                        drop(child.kill());
                        drop(child);
                        heap.take_back_parcel(parcel_id);
                        return Err(error.into());
                    }
                }
            }
            Ok(child)
        }
        (child, _) => {
            parcel.take_back();
            child
        }
    }
}

/// Applies the options to one of them.
fn configure(options: &Options, who: &Who, outputs: Outputs) -> Start {
    let &Who { rank, known_rank, nprocs, ref name, .. } = who;
    let mut start = Start::new(&ENTRY).name(name.as_str()).on_drop(options.on_drop);
    if let Some(rank) = known_rank {
        start = start.rank(rank);
    }
    if options.is_daemon {
        start = start.daemon();
    }
    if let Some(dir) = &options.current_dir {
        start = start.current_dir(dir);
    }
    if let Some(value) = options.nice {
        start = start.nice(value);
    }
    if let Some(cpus) = &options.cpus {
        start = start.cpus(cpus.iter().copied());
    }
    start = start.stdout(outputs.stdout).stderr(outputs.stderr);
    for (variable, value) in options.rank_environment.variables(rank, nprocs) {
        start = start.env(variable, value);
    }
    // Two processes must not have the same seed, so a child does not inherit this process's seed.
    start = match options.seed {
        Some(base) => {
            let rank = options.rank_environment.global_rank(rank);
            start.env(SEED_VARIABLE, rank_seed(base, rank).to_string())
        }
        None => start.env_remove(SEED_VARIABLE),
    };
    for (whose, variable, value) in &options.environment {
        if whose.is_none_or(|whose| whose == rank) {
            start = match value {
                Some(value) => start.env(variable, value),
                None => start.env_remove(variable),
            };
        }
    }
    if let Some(executable) = &options.executable {
        start = start.executable(executable);
    }
    start
}
