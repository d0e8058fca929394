//! What children can do. Each task says what it tells the test.

mod aborter;
mod attacher;
mod bearer;
mod buffers;
mod caller;
mod closes;
mod command_line;
mod device;
mod device_member;
mod device_parent;
mod execs;
mod gauntlet;
mod lessee;
mod limited;
pub mod manager;
mod nested;
mod pipe_with_name;
mod program;
mod publisher;
mod puppet;
mod raw_device;
mod reader;
mod respondent;
mod root;
mod sealed_holder;
mod sharer;
mod stranger;
mod streams;
mod travelling_ends;
mod vandal;

pub use aborter::Aborter;
pub use attacher::Attacher;
pub use bearer::Bearer;
pub use buffers::{Filled, Refiller, Spent, Streamer};
pub use caller::Caller;
pub use closes::Closes;
pub use command_line::{CommandLine, Forbidden};
pub use device::DeviceUser;
pub use device_member::{Cargo, DeviceMember, Mixed};
pub use device_parent::{DeviceParent, Synchronizer};
pub use execs::Execs;
pub(crate) use gauntlet::round as round_of_gauntlet;
pub use gauntlet::{Gauntlet, Target};
pub use lessee::Lessee;
pub use limited::{KeepMany, MakeDomain, RunOutOfDescriptors, Seal, SendMany};
pub use nested::{Nested, Unsharing};
pub use pipe_with_name::PipeWithName;
pub use program::{FillDomain, Place, Program};
pub use publisher::{Publisher, Shelf};
pub use puppet::Puppet;
pub use raw_device::RawDeviceUser;
pub use reader::Reader;
pub use respondent::Respondent;
pub use root::Host;
pub use sealed_holder::{SealedGuest, SealedHolder};
pub use sharer::{Primitives, Sharer};
pub use stranger::Stranger;
pub use streams::{
    Adder, Consume, Count, Forward, Heard, MakeChannel, MakeQueue, Nest, Partner, Produce, SendTensor,
    SoleEcho, Worker,
};
pub use travelling_ends::{Dropper, Passer};
pub use vandal::{Region, Vandal, Victim};

use tensorferry::GetError;
use tensorferry::queue::PutErrorKind;

use crate::chaos::{Chaos, ChaosConsumer, ChaosForwarder, ChaosProducer};
use crate::kill::Subject;
use crate::loner::run_root_task;
use crate::soak::{SoakConsumer, SoakForwarder, SoakProducer};
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
    use crate::{RootTask as _, Task as _};
    tasks![
        run_task::<Puppet>,
        run_task::<Subject>,
        run_task::<Sharer>,
        run_task::<manager::Asker>,
        run_task::<manager::Keeper>,
        run_task::<SealedHolder>,
        run_task::<Produce>,
        run_task::<Consume>,
        run_task::<Forward>,
        run_task::<Worker>,
        run_task::<Adder>,
        run_task::<Partner>,
        run_task::<SoleEcho>,
        run_task::<MakeQueue>,
        run_task::<Execs>,
        run_task::<Closes>,
        run_task::<Lessee>,
        run_task::<Passer>,
        run_task::<Dropper>,
        run_task::<Nested>,
        run_root_task::<Unsharing>,
        run_task::<MakeChannel>,
        run_task::<Nest>,
        run_task::<SendTensor>,
        run_task::<SendMany>,
        run_task::<KeepMany>,
        run_root_task::<MakeDomain>,
        run_root_task::<Stranger>,
        run_root_task::<Caller>,
        run_root_task::<Publisher>,
        run_root_task::<Attacher>,
        run_root_task::<Bearer>,
        run_root_task::<SealedGuest>,
        run_root_task::<PipeWithName>,
        run_root_task::<CommandLine>,
        run_root_task::<Gauntlet>,
        run_root_task::<RunOutOfDescriptors>,
        run_root_task::<Seal>,
        run_root_task::<Program>,
        run_root_task::<Reader>,
        run_root_task::<Vandal>,
        run_root_task::<Victim>,
        run_root_task::<FillDomain>,
        run_task::<Aborter>,
        run_task::<Refiller>,
        run_task::<Streamer>,
        run_task::<Chaos>,
        run_task::<ChaosProducer>,
        run_task::<ChaosForwarder>,
        run_task::<ChaosConsumer>,
        run_task::<SoakProducer>,
        run_task::<SoakForwarder>,
        run_task::<SoakConsumer>,
        run_root_task::<Host>,
        run_task::<DeviceMember>,
        run_root_task::<DeviceUser>,
        run_root_task::<RawDeviceUser>,
        run_root_task::<Respondent>,
        run_root_task::<DeviceParent>,
        run_task::<Synchronizer>,
    ];
    false
}

/// Why nothing was got, in the one word that tests compare with.
fn name_of(error: &GetError) -> String {
    let name = match error {
        GetError::Empty => "Empty",
        GetError::Closed => "Closed",
        GetError::Disconnected => "Disconnected",
        GetError::PeerDied => "PeerDied",
        GetError::Moved => "Moved",
        GetError::NoLeases => "NoLeases",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// Why nothing was put, in the one word that tests compare with.
fn name_of_put(error: &PutErrorKind) -> String {
    let name = match error {
        PutErrorKind::Full => "Full",
        PutErrorKind::Closed => "Closed",
        PutErrorKind::Disconnected => "Disconnected",
        PutErrorKind::PeerDied => "PeerDied",
        PutErrorKind::Moved => "Moved",
        PutErrorKind::Encode(error) => return format!("Encode: {error}"),
        other => return other.to_string(),
    };
    name.to_owned()
}
