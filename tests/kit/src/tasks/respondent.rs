//! A process that calls the functions of the CUDA driver one by one, and says what each answers.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde::{Deserialize, Serialize};

use super::raw_device::{from_hex, to_hex};
use crate::raw_driver::{
    Access, AllocationProperties, Bytes64, PoolProperties, RawDriver, SharedWords, in_fork,
};
use crate::{Link, RootTask, gate, last_words};

const DESCRIPTOR: u32 = 1;
/// `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`.
const IS_LEGACY_CAPABLE: i32 = 10;
/// `CUstreamCaptureMode`.
const CAPTURE_MODES: [&str; 3] = ["global", "thread-local", "relaxed"];

/// Calls one function for each line, and answers `ok`, what was asked for, or the name of the error. Results
/// have names, and stand for themselves in later lines; `NAME+N` is N more, and numbers are numbers. Device
/// 0, one stream unless it is said.
///
/// | line | calls |
/// | --- | --- |
/// | `context`, `release-context`, `no-context`, `peer DEVICE` | |
/// | `alloc A LEN`, `free A`, `range A`, `name A` | `range`: where A lies in its allocation, the length of that, and in which 2 MiB |
/// | `read A`, `fill A VALUE`, `queue-fill A VALUE` | one word; a page, waited for or not |
/// | `used`, `total`, `version`, `card` | MiB |
/// | `handle A`, `open A HANDLE FLAGS`, `close A`, `is-capable A` | legacy IPC |
/// | `create H LEN TYPES`, `release H`, `export H`, `import H` | descriptors beside the line |
/// | `reserve A LEN`, `map A LEN OFFSET H`, `access A LEN FLAGS`, `unmap A LEN`, `unreserve A LEN` | |
/// | `event E FLAGS`, `record E`, `query E`, `wait E`, `wait-other E`, `destroy E`, `event-handle E`, `open-event E HANDLE` | |
/// | `synchronize`, `synchronize-other`, `hold`, `run`, `stream-of DEVICE` | `other` is a second stream |
/// | `capture MODE`, `end-capture`, `query-elsewhere E MODE` | `elsewhere` is another thread, in this mode |
/// | `pool P`, `default-pool P`, `pool-alloc A P`, `pool-free A`, `pool-export P`, `pool-import P` | |
/// | `pointer A`, `pool-open A P DATA` | |
/// | `make-words`, `map-words` | a page that other processes map, too; the descriptor beside the line |
/// | `wait-word I VALUE`, `write-word I VALUE`, `set-word I VALUE`, `wait-byte OFFSET VALUE`, `query-stream` | the stream waits and writes, the host sets; a wait at any offset |
/// | `register OFFSET LEN`, `unregister` | a part of a page of the host; the one at its beginning |
/// | `ask-at-exit`, `exit` | handlers that ask when the process exits; it does |
/// | `fork` | what three functions answer in a fork, if it is the same |
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Respondent;

struct State {
    driver: RawDriver,
    streams: [usize; 2],
    names: HashMap<String, u64>,
    host: Vec<u8>,
    words: Option<SharedWords>,
}

enum Reply {
    Done,
    Text(String),
    Fd(OwnedFd),
}

impl RootTask for Respondent {
    const NAME: &'static str = "respondent";

    fn run(self, link: &Link) {
        let driver = RawDriver::load();
        last_words::register_before_init();
        let mut state =
            State { driver, streams: [0; 2], names: HashMap::new(), host: vec![0; 8192], words: None };
        assert_eq!(state.driver.init(0), 0, "cuInit");
        while let Ok(Some(line)) = link.hear_until(None) {
            if line == "exit" {
                return;
            }
            let words: Vec<&str> = line.split(' ').collect();
            match state.obey(&words, link) {
                Ok(Reply::Done) => link.say("ok"),
                Ok(Reply::Text(text)) => link.say(&text),
                Ok(Reply::Fd(fd)) => {
                    let flags = fcntl(&fd, FcntlArg::F_GETFD).unwrap();
                    link.say_with(if flags & 1 == 1 { "close-on-exec" } else { "kept" }, &[fd.as_fd()]);
                }
                Err(code) => link.say(&state.driver.name_of(code)),
            }
        }
    }
}

fn capture_mode(name: &str) -> u32 {
    (0..).zip(CAPTURE_MODES).find(|(_, mode)| *mode == name).expect("a mode").0
}

fn check(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl State {
    fn value(&self, word: &str) -> u64 {
        let (name, more) = word.split_once('+').unwrap_or((word, "0"));
        let base = name.parse().ok().or_else(|| self.names.get(name).copied());
        base.unwrap_or_else(|| panic!("nothing is called {name}")) + more.parse::<u64>().unwrap()
    }

    fn size(&self, word: &str) -> usize {
        usize::try_from(self.value(word)).unwrap()
    }

    fn number(&self, word: &str) -> u32 {
        u32::try_from(self.value(word)).unwrap()
    }

    /// Keeps what a function has made, if it has.
    fn keep(&mut self, name: &str, code: u32, value: u64) -> Result<Reply, u32> {
        check(code)?;
        self.names.insert(name.to_owned(), value);
        Ok(Reply::Done)
    }

    fn obey(&mut self, words: &[&str], link: &Link) -> Result<Reply, u32> {
        let driver = &self.driver;
        let [stream, other] = self.streams;
        let done = |code| check(code).map(|()| Reply::Done);
        match *words {
            ["context"] => {
                let mut context = 0;
                check(driver.retain(&mut context, 0))?;
                check(driver.set_current(context))?;
                let [first, second] = &mut self.streams;
                check(driver.stream_create(first, 1))?;
                done(driver.stream_create(second, 1))
            }
            ["release-context"] => done(driver.release_primary(0)),
            ["no-context"] => done(driver.set_current(0)),
            ["peer", device] => {
                let mut context = 0;
                check(driver.retain(&mut context, device.parse().unwrap()))?;
                done(driver.enable_peer(context, 0))
            }
            ["stream-of", device] => {
                let (mut context, device) = (0, device.parse().unwrap());
                check(driver.retain(&mut context, device))?;
                check(driver.set_current(context))?;
                done(driver.stream_create(&mut self.streams[0], 1))
            }
            ["synchronize"] => done(driver.stream_synchronize(stream)),
            ["synchronize-other"] => done(driver.stream_synchronize(other)),
            ["hold"] => {
                gate::close();
                gate::hold_if_closed(driver, stream);
                Ok(Reply::Done)
            }
            ["run"] => {
                gate::open();
                Ok(Reply::Done)
            }
            ["capture", mode] => done(driver.begin_capture(stream, capture_mode(mode))),
            ["end-capture"] => done(driver.end_capture(stream, &mut 0)),
            ["query-elsewhere", event, mode] => {
                let (mut context, event, mut mode) = (0, self.size(event), capture_mode(mode));
                check(driver.retain(&mut context, 0))?;
                let query = || {
                    check(driver.set_current(context))?;
                    check(driver.exchange_capture_mode(&mut mode))?;
                    done(driver.event_query(event))
                };
                std::thread::scope(|scope| scope.spawn(query).join().expect("it does not panic"))
            }
            ["register", offset, len] => {
                done(driver.host_register(self.page() + self.size(offset), self.size(len), 0))
            }
            ["unregister"] => done(driver.host_unregister(self.page())),
            ["ask-at-exit"] => {
                last_words::ask_at_exit();
                Ok(Reply::Done)
            }
            ["fork"] => {
                let code = in_fork(|| {
                    let codes = [driver.init(0), driver.count(&mut 0), driver.alloc(&mut 0, 4096)];
                    if codes == [codes[0]; 3] { u8::try_from(codes[0]).unwrap() } else { u8::MAX }
                });
                done(code.into())
            }
            _ => self.obey_about_words(words, link),
        }
    }

    fn obey_about_words(&mut self, words: &[&str], link: &Link) -> Result<Reply, u32> {
        let (driver, stream) = (&self.driver, self.streams[0]);
        let done = |code| check(code).map(|()| Reply::Done);
        match *words {
            ["make-words"] => {
                let fd = memfd_create("words", MemfdFlags::CLOEXEC).unwrap();
                ftruncate(&fd, 4096).unwrap();
                self.map_words(&fd)?;
                Ok(Reply::Fd(fd))
            }
            ["map-words"] => {
                let fd = link.take_fd().expect("a descriptor came");
                self.map_words(&fd).map(|()| Reply::Done)
            }
            ["wait-word", index, value] => {
                done(driver.wait_value(stream, self.word(index)?, self.value(value), 0))
            }
            ["write-word", index, value] => {
                done(driver.write_value(stream, self.word(index)?, self.value(value), 0))
            }
            ["set-word", index, value] => {
                self.words.as_ref().expect("words").set(self.size(index), self.value(value));
                Ok(Reply::Done)
            }
            ["wait-byte", offset, value] => {
                // Without words it is memory of the host that is not registered.
                let begin = self.words.as_ref().map_or(self.page(), SharedWords::address);
                let address = begin as u64 + self.value(offset);
                done(driver.wait_value(stream, address, self.value(value), 0))
            }
            ["query-stream"] => done(driver.stream_query(stream)),
            _ => self.obey_about_memory(words, link),
        }
    }

    /// Maps and registers words.
    fn map_words(&mut self, fd: &OwnedFd) -> Result<(), u32> {
        let words = SharedWords::of(fd);
        // For all contexts, with an address for devices.
        check(self.driver.host_register(words.address(), words.len_bytes(), 3))?;
        self.words = Some(words);
        Ok(())
    }

    /// The address of a word for the device.
    fn word(&self, index: &str) -> Result<u64, u32> {
        let mut address = 0;
        let words = self.words.as_ref().expect("there are words");
        check(self.driver.device_pointer(&mut address, words.address(), 0))?;
        Ok(address + self.value(index) * 8)
    }

    /// The address of a page of the host that nothing else lies in.
    fn page(&self) -> usize {
        self.host.as_ptr().addr().next_multiple_of(4096)
    }

    fn obey_about_memory(&mut self, words: &[&str], link: &Link) -> Result<Reply, u32> {
        let (driver, stream) = (&self.driver, self.streams[0]);
        let done = |code| check(code).map(|()| Reply::Done);
        let text = |text: String| Ok(Reply::Text(text));
        match *words {
            ["alloc", name, len] => {
                let mut address = 0;
                let code = driver.alloc(&mut address, self.size(len));
                self.keep(name, code, address)
            }
            ["free", address] => done(driver.free(self.value(address))),
            ["range", address] => {
                let (mut base, mut len, address) = (0, 0, self.value(address));
                check(driver.address_range(&mut base, &mut len, address))?;
                text(format!("{} {len} {}", address - base, address >> 21))
            }
            ["read", address] => {
                let mut value = 0;
                check(driver.read(&mut value, self.value(address), 4))?;
                text(value.to_string())
            }
            ["fill", address, value] => {
                check(driver.fill(self.value(address), self.number(value), 1024, stream))?;
                done(driver.stream_synchronize(stream))
            }
            ["queue-fill", address, value] => {
                done(driver.fill(self.value(address), self.number(value), 1024, stream))
            }
            ["name", value] => text(format!("{:#x}", self.value(value))),
            ["used"] | ["total"] => {
                let (mut free, mut total) = (0, 0);
                check(driver.synchronize())?;
                check(driver.info(&mut free, &mut total))?;
                let bytes = if words[0] == "used" { total - free } else { total };
                text((bytes >> 20).to_string())
            }
            ["version"] => {
                let mut version = 0;
                check(driver.version(&mut version))?;
                text(format!("{}.{}", version / 1000, version % 1000 / 10))
            }
            ["card"] => {
                let mut name = [0; 256];
                check(driver.device_name(&mut name, 256, 0))?;
                let end = name.iter().position(|&byte| byte == 0).unwrap();
                text(String::from_utf8_lossy(&name[..end]).into_owned())
            }
            ["create", name, len, types] => {
                let (mut handle, properties) = (0, AllocationProperties::of(self.number(types)));
                let code = driver.memory_create(&mut handle, self.size(len), &properties, 0);
                self.keep(name, code, handle)
            }
            ["release", handle] => done(driver.memory_release(self.value(handle))),
            ["export", handle] => driver.memory_fd(self.value(handle)).map(Reply::Fd),
            ["import", name] => {
                let fd = link.take_fd().expect("a descriptor came");
                let (mut handle, number) = (0, usize::try_from(fd.as_raw_fd()).unwrap());
                let code = driver.memory_import(&mut handle, number, DESCRIPTOR);
                self.keep(name, code, handle)
            }
            ["reserve", name, len] => {
                let mut address = 0;
                let code = driver.reserve(&mut address, self.size(len), 0, 0, 0);
                self.keep(name, code, address)
            }
            ["map", at, len, offset, handle] => {
                let (at, handle) = (self.value(at), self.value(handle));
                done(driver.map(at, self.size(len), self.size(offset), handle, 0))
            }
            ["access", at, len, flags] => {
                let access = Access::of(self.number(flags));
                done(driver.set_access(self.value(at), self.size(len), &access, 1))
            }
            ["unmap", at, len] => done(driver.unmap(self.value(at), self.size(len))),
            ["unreserve", at, len] => done(driver.address_free(self.value(at), self.size(len))),
            _ => self.obey_about_ipc(words, link),
        }
    }

    fn obey_about_ipc(&mut self, words: &[&str], link: &Link) -> Result<Reply, u32> {
        let (driver, [stream, other]) = (&self.driver, self.streams);
        let mut bytes = Bytes64([0; 64]);
        let done = |code| check(code).map(|()| Reply::Done);
        let hex = |code, bytes: &Bytes64| check(code).map(|()| Reply::Text(to_hex(bytes)));
        match *words {
            ["handle", address] => {
                let code = driver.memory_handle(&mut bytes, self.value(address));
                hex(code, &bytes)
            }
            ["open", name, handle, flags] => {
                let mut address = 0;
                let code = driver.open_memory(&mut address, from_hex(handle), self.number(flags));
                self.keep(name, code, address)
            }
            ["close", address] => done(driver.close_memory(self.value(address))),
            ["is-capable", address] => {
                let mut flag = 0;
                check(driver.pointer_flag(&mut flag, IS_LEGACY_CAPABLE, self.value(address)))?;
                Ok(Reply::Text(if flag == 0 { "not capable" } else { "capable" }.to_owned()))
            }
            ["event", name, flags] => {
                let mut event = 0;
                let code = driver.event_create(&mut event, self.number(flags));
                self.keep(name, code, event as u64)
            }
            ["record", event] => done(driver.event_record(self.size(event), stream)),
            ["query", event] => done(driver.event_query(self.size(event))),
            ["wait", event] => done(driver.wait_event(stream, self.size(event), 0)),
            ["wait-other", event] => done(driver.wait_event(other, self.size(event), 0)),
            ["destroy", event] => done(driver.event_destroy(self.size(event))),
            ["event-handle", event] => {
                let code = driver.event_handle(&mut bytes, self.size(event));
                hex(code, &bytes)
            }
            ["open-event", name, handle] => {
                let mut event = 0;
                let code = driver.open_event(&mut event, from_hex(handle));
                self.keep(name, code, event as u64)
            }
            ["pool", name] => {
                let mut pool = 0;
                let code = driver.pool_create(&mut pool, &PoolProperties::exportable());
                self.keep(name, code, pool as u64)
            }
            ["default-pool", name] => {
                let mut pool = 0;
                let code = driver.default_pool(&mut pool, 0);
                self.keep(name, code, pool as u64)
            }
            ["pool-alloc", name, pool] => {
                let mut address = 0;
                let code = driver.pool_alloc(&mut address, 4 << 20, self.size(pool), stream);
                self.keep(name, code, address)
            }
            ["pool-free", address] => done(driver.free_async(self.value(address), stream)),
            ["pool-export", pool] => driver.pool_fd(self.size(pool)).map(Reply::Fd),
            ["pool-import", name] => {
                let fd = link.take_fd().expect("a descriptor came");
                let (mut pool, number) = (0, usize::try_from(fd.as_raw_fd()).unwrap());
                let code = driver.pool_import(&mut pool, number, DESCRIPTOR, 0);
                self.keep(name, code, pool as u64)
            }
            ["pointer", address] => {
                let code = driver.pointer_export(&mut bytes, self.value(address));
                hex(code, &bytes)
            }
            ["pool-open", name, pool, data] => {
                let mut address = 0;
                let code = driver.pointer_import(&mut address, self.size(pool), &from_hex(data));
                self.keep(name, code, address)
            }
            _ => panic!("no line is {words:?}"),
        }
    }
}
