//! The child's side: reading its order and calling the function.

use serde::{Deserialize, Serialize};
use tensorferry_domain::{Admission, DomainFds};
use tensorferry_process::{Failure, Inherited, StartMethod};
use tensorferry_reduce::Parcel;
use tensorferry_sharing::{SharingStrategy, get_sharing_strategy, set_sharing_strategy};
use tensorferry_storage::Heap;

use crate::error::StartErrorKind;
use crate::function::{BoxedError, Function};
use crate::identity::Identity;
use crate::method;
use crate::registry::{self, Key};
use crate::rejoin::rejoin;
use crate::values::{Results, Sender};

tensorferry_process::entry! {
    /// Runs one registered function.
    pub(crate) static ENTRY = "tensorferry.spawn" => enter;
    /// Runs one registered function in a fork server.
    pub(crate) static PRELOAD = "tensorferry.preload" => preload;
}

/// What a parent tells a child. The domain's descriptor is sent with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) rank: u32,
    pub(crate) function: Key,
    pub(crate) admission: Admission,
    /// The number of the parcel with the arguments and the queue for the value.
    pub(crate) parcel: u64,
    pub(crate) strategy: String,
    pub(crate) identity: Identity,
    /// The parent's default start method.
    pub(crate) default_method: StartMethod,
}

/// One call of a registered function, in the child.
#[derive(Debug)]
pub struct Call<'a> {
    /// `None` in a fork server, where the function has no arguments and its value goes nowhere.
    order: Option<Opened<'a>>,
    rank: usize,
}

/// Where the arguments are.
#[derive(Debug)]
struct Opened<'a> {
    inherited: &'a Inherited,
    heap: Heap,
    parcel: u64,
}

impl Call<'_> {
    /// Opens the arguments, calls the function, and sends its value to the parent.
    ///
    /// # Errors
    /// [`Failure::Refused`] when the arguments cannot be read. [`Failure::Error`] with the function's own
    /// error, or when its value cannot be sent.
    pub fn run<F, Args>(self, function: F) -> Result<(), Failure>
    where
        F: Function<Args>,
        Args: serde::de::DeserializeOwned,
    {
        let unreadable =
            |e: &dyn std::fmt::Display| Failure::Refused(format!("its arguments cannot be read: {e}"));
        let Some(Opened { inherited, heap, parcel }) = self.order else {
            let none = postcard::from_bytes(&[]).map_err(|e| unreadable(&e))?;
            return __tensorferry_call(function, self.rank, none).map(drop).map_err(Failure::Error);
        };
        let (args, results): (Args, Results<F::Value>) =
            Parcel::open(&heap, parcel).map_err(|e| unreadable(&e))?;
        // From here on the child itself holds the tensors and queues in its arguments.
        inherited.taken();
        let value = __tensorferry_call(function, self.rank, args).map_err(Failure::Error)?;
        results
            .put((Sender(self.rank), value))
            .map_err(|e| Failure::Error(format!("its value cannot be sent: {e}").into()))
    }
}

/// Calls the function. Backtraces are cut at a frame whose name begins with `__tensorferry_`.
#[inline(never)]
pub(crate) fn __tensorferry_call<F: Function<Args>, Args>(
    function: F,
    rank: usize,
    args: Args,
) -> Result<F::Value, BoxedError> {
    let result = function.call(rank, args);
    // Keeps this frame on the stack: the call above must not become a tail call.
    std::hint::black_box(&result);
    result
}

/// Decodes an order from arbitrary bytes, as a child does before it joins, and finds the function. For
/// fuzzing.
///
/// # Errors
/// Why a child would refuse it.
pub fn read_order(payload: &[u8]) -> Result<(), String> {
    let order: Order = postcard::from_bytes(payload).map_err(|error| error.to_string())?;
    let _ = order.strategy.parse::<SharingStrategy>();
    registry::resolve(&order.function).map(drop).map_err(|error| error.to_string())
}

/// Joins the parent's domain and runs the requested function.
fn enter(inherited: &mut Inherited) -> Result<(), Failure> {
    let refused = |what: &str, error: &dyn std::fmt::Display| Failure::Refused(format!("{what}: {error}"));
    let order: Order =
        postcard::from_bytes(inherited.payload()).map_err(|e| refused("the order cannot be read", &e))?;
    let function = registry::resolve(&order.function).map_err(|e| Failure::Refused(e.to_string()))?;
    let fds = DomainFds::from_message(inherited.take_fds());
    let fds = fds.ok_or_else(|| Failure::Refused(String::from("the descriptor of the domain is missing")))?;
    let joined = match Heap::inherited() {
        // This process was forked from a member by the start method fork, and has everything that the member
        // holds.
        Some(heap) => rejoin(heap, order.admission, fds, inherited),
        None => Heap::join(fds, order.admission),
    };
    let heap = joined.map_err(|e| refused("the domain cannot be joined", &e))?;
    if let Ok(strategy) = order.strategy.parse::<SharingStrategy>()
        && strategy != get_sharing_strategy()
    {
        // A strategy that works in the parent works here. If it does not, this process keeps its own default.
        let _ = set_sharing_strategy(strategy);
    }
    order.identity.adopt();
    method::force_start_method(order.default_method);
    // Also when the function panics. A forked process still holds what it has copies of when it ends.
    let _end = AnnouncesEnd(heap.clone());
    let rank = usize::try_from(order.rank).unwrap_or(usize::MAX);
    function.run(Call { order: Some(Opened { inherited, heap, parcel: order.parcel }), rank })
}

/// Announces the end of this process when it is dropped.
struct AnnouncesEnd(Heap);

impl Drop for AnnouncesEnd {
    fn drop(&mut self) {
        self.0.domain().announce_end();
    }
}

/// The payload for [`PRELOAD`].
pub(crate) fn preload_payload(key: &Key) -> Result<Vec<u8>, StartErrorKind> {
    postcard::to_stdvec(key).map_err(|error| StartErrorKind::Arguments {
        function: key.name().to_owned(),
        rank: 0,
        error: error.into(),
    })
}

/// Calls one function without arguments.
fn preload(inherited: &mut Inherited) -> Result<(), Failure> {
    let key: Key = postcard::from_bytes(inherited.payload())?;
    let function = registry::resolve(&key).map_err(|e| Failure::Refused(e.to_string()))?;
    function.run(Call { order: None, rank: 0 })
}
