//! Domains that a child makes.

use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::queue::Queue;
use tensorferry::reduce::Parcel;
use tensorferry::storage::Heap;
use tensorferry_os::pidfd::PidFd;

use crate::tasks::{DeviceMember, Puppet};
use crate::{Chaos, Link, RootTask};

/// Makes a domain and lets others into it. To `admit PID` it answers with an admission and the number of a
/// parcel, and the domain's descriptor beside the line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Host {
    /// Everybody gets a [`Puppet`] with one and the same queue for so many items, with leases.
    Puppets {
        /// How many fit.
        maxsize: usize,
    },
    /// The newcomer gets this.
    Chaos(Chaos),
    /// Everybody gets a [`DeviceMember`] with the same two queues. It also takes all descriptors that it may
    /// have when it is told to `fill`, and gives them back when told to `drain`; asked for `kept`, it says
    /// how many it keeps for others.
    Devices,
}

impl Host {
    /// Of the domains that it makes.
    pub(crate) const ADDRESS_SPACE_BYTES: usize = 1 << 30;
}

impl RootTask for Host {
    const NAME: &'static str = "host";

    fn run(self, link: &Link) {
        let settings =
            Domain::builder().address_space_bytes(Self::ADDRESS_SPACE_BYTES).limit_bytes(512 << 20);
        let heap = Heap::create(settings).unwrap();
        let queue = match &self {
            Self::Puppets { maxsize } => Some(Queue::with_leases_in(&heap, *maxsize, 2).unwrap()),
            Self::Chaos(_) | Self::Devices => None,
        };
        let n_queues = if matches!(self, Self::Devices) { 2 } else { 0 };
        let queues: Vec<_> = (0..n_queues).map(|_| Queue::new_in(&heap, 4).unwrap()).collect();
        let mut taken = Vec::new();
        // A parcel is opened once, so each newcomer gets one. The one before has opened its own by then.
        let mut _last = None;
        while let Ok(Some(line)) = link.hear_until(None) {
            match &*line {
                "fill" => taken.extend(std::iter::from_fn(|| link.as_fd().try_clone_to_owned().ok())),
                "drain" => taken.clear(),
                "kept" => {
                    link.say(&heap.domain().n_fds_kept().to_string());
                    continue;
                }
                _ => {}
            }
            if !line.starts_with("admit ") {
                link.say("ok");
                continue;
            }
            let pid = line.strip_prefix("admit ").and_then(|pid| pid.parse().ok()).unwrap();
            let admission = heap.domain().admit(&PidFd::open(pid).unwrap()).unwrap();
            let parcel = match &self {
                Self::Puppets { .. } => {
                    Parcel::pack(&heap, &Puppet { queue: queue.clone(), ..Puppet::default() })
                }
                Self::Chaos(chaos) => Parcel::pack(&heap, chaos),
                Self::Devices => {
                    Parcel::pack(&heap, &DeviceMember { queues: queues.clone(), tensors: Vec::new() })
                }
            };
            let parcel = parcel.unwrap();
            let answer = serde_json::to_string(&(admission, parcel.id())).unwrap();
            _last = Some(parcel);
            let fds: Vec<OwnedFd> = heap.domain().fds().unwrap().into_message().collect();
            link.say_with(&answer, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        }
    }
}
