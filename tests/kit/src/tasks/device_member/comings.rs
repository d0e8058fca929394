//! What comes and goes in a member: streams, and mappings, and what the system has for them.

use std::fs::read_dir;
use std::sync::Weak;

use tensorferry_cuda_ipc::{DeviceMapping, DeviceMemory};

use super::{Answer, State};

impl State {
    pub(super) fn obey_about_comings(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["forget", stream] => {
                self.of_cudarc.remove(stream);
                drop(self.streams.remove(stream).expect("there is such a stream"));
            }
            ["streams-of-cudarc"] => {
                self.made_by_cudarc.retain(|stream| Weak::strong_count(stream) > 0);
                return Ok(self.made_by_cudarc.len().to_string());
            }
            ["map", name] => {
                let len_bytes = self.context().device().granularity_bytes()?;
                let memory = DeviceMemory::create(self.context().device(), len_bytes)?;
                let mapping = DeviceMapping::map(&memory, self.context())?;
                self.mappings.insert(name.to_owned(), (mapping, memory));
            }
            ["unmap", name] => drop(self.mappings.remove(name).expect("there is such a mapping")),
            ["threads"] => return Ok(read_dir("/proc/self/task")?.count().to_string()),
            _ => panic!("no command is called {words:?}"),
        }
        Ok("ok".to_owned())
    }
}
