//! A process with a pipe that looks like something else.

use std::fs::{self, File, OpenOptions};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde::{Deserialize, Serialize};

use crate::{Link, RootTask};

/// Has a pipe open that was deleted at the root of a file system of its own, so that `/proc` shows it as
/// `/NAME (deleted)`. Says `ready`, or what it is not allowed to do, and waits to be ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct PipeWithName {
    /// Its name.
    pub name: String,
}

impl PipeWithName {
    fn open(&self) -> Result<File, String> {
        let place = std::env::temp_dir().join(format!("tensorferry-test-mount-{}", std::process::id()));
        let because = |what: &'static str| move |error: nix::Error| format!("{what}: {error}");
        unshare(CloneFlags::CLONE_NEWNS).map_err(because("unshare"))?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(because("mount"))?;
        fs::create_dir(&place).unwrap();
        mount(Some("none"), &place, Some("tmpfs"), MsFlags::empty(), none).map_err(because("mount"))?;
        let path = place.join(&self.name);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        umount2(&place, MntFlags::MNT_DETACH).unwrap();
        fs::remove_dir(&place).unwrap();
        Ok(file)
    }
}

impl RootTask for PipeWithName {
    const NAME: &'static str = "pipe_with_name";

    fn run(self, link: &Link) {
        let opened = self.open();
        link.say(opened.as_ref().map_or_else(String::as_str, |_| "ready"));
        let _ = link.hear_until(None);
    }
}
