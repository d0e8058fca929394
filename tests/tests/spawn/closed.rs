//! Standard streams that are closed: what a process has open instead is written to by nobody.

use std::fs;
use std::io::{self, Write as _};

use rustix::io::{FdFlags, fcntl_setfd};
use tensorferry::spawn::{func, get_context};
use tensorferry_process::{Failure, Inherited, Start};

use crate::support::{DEADLINE, for_every_program, told};

tensorferry_process::entry! {
    static PARENT = "test.closed.parent" => parent;
}

/// Writes to both outputs, and returns where its standard streams go.
#[func]
fn write_and_look(rank: usize) -> Result<Vec<String>, io::Error> {
    writeln!(io::stdout(), "rank {rank}")?;
    io::stdout().flush()?;
    writeln!(io::stderr(), "rank {rank}")?;
    let link = |fd: u32| Ok(fs::read_link(format!("/proc/self/fd/{fd}"))?.display().to_string());
    (0..3).map(link).collect()
}

/// A parent without outputs, or whose outputs are closed in what it executes.
fn parent(inherited: &mut Inherited) -> Result<(), Failure> {
    let (method, which) = told(inherited);
    if which == "here" {
        nix::unistd::close(1)?;
        nix::unistd::close(2)?;
    } else {
        fcntl_setfd(io::stdout(), FdFlags::CLOEXEC)?;
        fcntl_setfd(io::stderr(), FdFlags::CLOEXEC)?;
    }
    let found = get_context(method).spawn(write_and_look, (), 2)?;
    for links in found {
        assert_eq!(links, ["/dev/null"; 3]);
    }
    // Nobody has written over the domain.
    get_context(method).spawn(write_and_look, (), 1)?;
    Ok(())
}

for_every_program! {
    fn where_the_parent_has_no_outputs_its_processes_have_none(method: StartMethod) {
        for which in ["here", "in what is executed"] {
            let start = Start::new(&PARENT).payload(format!("{method} {which}"));
            let (null, theirs) = (fs::File::create("/dev/null").unwrap(), fs::File::create("/dev/null").unwrap());
            let mut parent = start.stdout(null).stderr(theirs).start().unwrap();
            let exit = parent.wait_timeout(DEADLINE).unwrap().expect("the parent did not end");
            assert!(exit.is_success(), "{which}: {exit:#}");
        }
    }
}
