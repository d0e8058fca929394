//! A process that calls the driver itself.

use std::ffi::{CString, c_void};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::hardware::is_real;
use crate::raw_driver::{Bytes64, PoolProperties, RawDriver, in_fork};
use crate::{Link, RootTask, gate};

const LEN: usize = 4 << 20;
const N_WORDS: usize = LEN / 4;
/// `CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING`.
const INTERPROCESS: u32 = 6;
const N_COLUMNS: u32 = 4;
const N_ROWS: u32 = 32;
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// Does one thing for each line, on device 0 and one stream, and answers `ok`, what was asked for, or `code
/// N`:
///
/// | line | does |
/// | --- | --- |
/// | `alloc` | allocates 4 MiB, answers the IPC handle |
/// | `open HANDLE`, `close`, `free` | |
/// | `fill VALUE` | queues it |
/// | `record` | records an interprocess event, answers its handle |
/// | `open-event HANDLE`, `wait`, `query` | |
/// | `copy` | queues a copy into memory of its own, which is what `read` reads from then on |
/// | `synchronize` | waits for the stream |
/// | `pool` | makes a pool and allocates from it, answers the pointer's data, and a descriptor beside the line |
/// | `open-pool DATA` | with the descriptor beside the line |
/// | `free-async` | |
/// | `used` | answers the memory in use, in MiB |
/// | `add-ten COLUMN` | queues a kernel that adds 10 to a column of floats: 32 rows of 4 |
/// | `forked` | answers what the driver says to a fork of this process |
/// | `version` | answers what the driver has said before it was initialised |
/// | `attribute NUMBER` | of the device |
/// | `read WORD` | answers the word with this index, now |
/// | `control WORD` | |
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RawDeviceUser;

struct State {
    driver: RawDriver,
    version: i32,
    stream: usize,
    address: u64,
    event: usize,
}

type Reply = Result<(String, Option<OwnedFd>), u32>;

impl RootTask for RawDeviceUser {
    const NAME: &'static str = "raw-device-user";

    fn run(self, link: &Link) {
        let driver = RawDriver::load();
        let (mut context, mut stream, mut version) = (0, 0, 0);
        assert_eq!(driver.version(&mut version), 0);
        assert_eq!(driver.init(0), 0);
        assert_eq!(driver.retain(&mut context, 0), 0);
        assert_eq!(driver.set_current(context), 0);
        assert_eq!(driver.stream_create(&mut stream, 1), 0);
        let mut state = State { driver, version, stream, address: 0, event: 0 };
        while let Ok(Some(line)) = link.hear_until(None) {
            match state.obey(&line, link) {
                Ok((answer, Some(fd))) => link.say_with(&answer, &[fd.as_fd()]),
                Ok((answer, None)) => link.say(&answer),
                Err(code) => link.say(&format!("code {code}")),
            }
        }
    }
}

impl State {
    fn obey(&mut self, line: &str, link: &Link) -> Reply {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        let (driver, stream) = (&self.driver, self.stream);
        let mut bytes = Bytes64([0; 64]);
        match command {
            "alloc" => {
                check(driver.alloc(&mut self.address, LEN))?;
                check(driver.memory_handle(&mut bytes, self.address))?;
                return Ok((to_hex(&bytes), None));
            }
            "open" => {
                check(driver.open_memory(&mut self.address, from_hex(argument), LAZY_ENABLE_PEER_ACCESS))?;
            }
            "close" => check(driver.close_memory(self.address))?,
            "free" => check(driver.free(self.address))?,
            "free-async" => check(driver.free_async(self.address, stream))?,
            "fill" => check(driver.fill(self.address, argument.parse().unwrap(), N_WORDS, stream))?,
            "read" => {
                let mut value = 0;
                let index: u64 = if argument.is_empty() { 0 } else { argument.parse().unwrap() };
                check(driver.read(&mut value, self.address + index * 4, 4))?;
                return Ok((value.to_string(), None));
            }
            "copy" => {
                let from = self.address;
                check(driver.alloc(&mut self.address, LEN))?;
                check(driver.copy(self.address, from, LEN, stream))?;
            }
            "record" => {
                check(driver.event_create(&mut self.event, INTERPROCESS))?;
                check(driver.event_record(self.event, stream))?;
                check(driver.event_handle(&mut bytes, self.event))?;
                return Ok((to_hex(&bytes), None));
            }
            "open-event" => check(driver.open_event(&mut self.event, from_hex(argument)))?,
            "wait" => check(driver.wait_event(stream, self.event, 0))?,
            "query" => check(driver.event_query(self.event))?,
            "synchronize" => check(driver.stream_synchronize(stream))?,
            "pool" => {
                let mut pool = 0;
                check(driver.pool_create(&mut pool, &PoolProperties::exportable()))?;
                check(driver.pool_alloc(&mut self.address, LEN, pool, stream))?;
                // Of a pool that was not exported, no pointer is.
                let fd = driver.pool_fd(pool)?;
                check(driver.pointer_export(&mut bytes, self.address))?;
                return Ok((to_hex(&bytes), Some(fd)));
            }
            "open-pool" => {
                let fd = link.take_fd().expect("a descriptor came");
                let (mut pool, number) = (0, usize::try_from(fd.as_raw_fd()).unwrap());
                check(driver.pool_import(&mut pool, number, 1, 0))?;
                check(driver.pointer_import(&mut self.address, pool, &from_hex(argument)))?;
            }
            "used" => {
                let (mut free, mut total) = (0, 0);
                check(driver.synchronize())?;
                check(driver.info(&mut free, &mut total))?;
                return Ok((((total - free) >> 20).to_string(), None));
            }
            "version" => return Ok((self.version.to_string(), None)),
            "attribute" => {
                let mut value = 0;
                check(driver.attribute(&mut value, argument.parse().unwrap(), 0))?;
                return Ok((value.to_string(), None));
            }
            "add-ten" => self.add_ten(argument.parse().unwrap())?,
            "forked" => {
                let code = in_fork(|| {
                    let codes = [driver.init(0), driver.count(&mut 0), driver.alloc(&mut 0, LEN)];
                    if codes == [codes[0]; 3] { u8::try_from(codes[0]).unwrap() } else { u8::MAX }
                });
                return Ok((code.to_string(), None));
            }
            "control" if is_real() && argument == "held" => {
                gate::close();
                gate::hold_if_closed(driver, stream);
            }
            "control" if is_real() && argument == "running" => gate::open(),
            "control" => check(driver.control(CString::new(argument).unwrap().as_ptr()))?,
            _ => panic!("no command is called {line:?}"),
        }
        Ok(("ok".to_owned(), None))
    }
}

impl State {
    /// Runs a kernel that adds ten to each element of a column of a matrix of [`N_COLUMNS`] columns.
    fn add_ten(&self, column: u64) -> Result<(), u32> {
        let (mut module, mut function) = (0, 0);
        let text = CString::new(include_str!("add_ten.ptx")).unwrap();
        check(self.driver.module_load(&mut module, text.as_ptr()))?;
        check(self.driver.module_function(&mut function, module, c"add_ten".as_ptr()))?;
        let (begin, pitch, n_rows) = (self.address + column * 4, N_COLUMNS * 4, N_ROWS);
        let arguments: [*const c_void; 3] =
            [(&raw const begin).cast(), (&raw const pitch).cast(), (&raw const n_rows).cast()];
        check(self.driver.launch(function, 1, 1, 1, N_ROWS, 1, 1, 0, self.stream, arguments.as_ptr(), 0))
    }
}

fn check(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

pub(super) fn to_hex(bytes: &Bytes64) -> String {
    bytes.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Bytes64 {
    Bytes64(std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()))
}
