//! What a container does to the processes in it: a filter of system calls, a limit of memory.

use std::fs;
use std::path::{Path, PathBuf};

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::until;

/// What Docker's default profile refuses to a container without further capabilities (docs.docker.com,
/// "Seccomp security profiles for Docker", and the profile itself): these calls fail with EPERM.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsopen,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Puts this process, and whom it starts, under a filter as of a container: the calls of `REFUSED` fail with
/// EPERM, and so does `clone` with a new namespace; `clone3` fails with ENOSYS.
///
/// # Errors
/// The machine's architecture or kernel has no such filter.
pub fn container_filter() -> Result<(), Box<dyn std::error::Error>> {
    // A filter cannot look into the structure that clone3 is given, so the profile says that there is no
    // clone3.
    forbid(&[libc::SYS_clone3], libc::ENOSYS)?;
    forbid(REFUSED, libc::EPERM)?;
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWUTS;
    install(&[libc::SYS_clone], libc::EPERM, |_| {
        let bits =
            (0..32).map(|bit| 1_u64 << bit).filter(|bit| u64::from(namespaces.cast_unsigned()) & bit != 0);
        bits.map(|bit| {
            let of_flags =
                SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit)?;
            SeccompRule::new(vec![of_flags])
        })
        .collect()
    })
}

/// Has these calls fail for this process, and for whom it starts.
///
/// # Errors
/// As [`container_filter`].
pub fn forbid(calls: &[libc::c_long], errno: i32) -> Result<(), Box<dyn std::error::Error>> {
    install(calls, errno, |_| Ok(Vec::new()))
}

fn install(
    calls: &[libc::c_long],
    errno: i32,
    rules: impl Fn(libc::c_long) -> Result<Vec<SeccompRule>, seccompiler::BackendError>,
) -> Result<(), Box<dyn std::error::Error>> {
    let rules = calls.iter().map(|&call| Ok((call, rules(call)?)));
    let rules = rules.collect::<Result<_, seccompiler::BackendError>>()?;
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// A control group with a limit of memory, below the one that this process is in. Dropping it removes it,
/// once nobody is in it.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Makes the group. `Err` with the reason where that cannot be done.
    ///
    /// # Errors
    /// What the kernel says, or that there is no hierarchy of version 1 for memory: below a group of version
    /// 2 that has processes itself, none with a limit can be made.
    pub fn create(limit_bytes: u64) -> Result<Self, String> {
        let membership = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let is_memory =
            |line: &&str| line.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "memory"));
        let line = membership.lines().find(is_memory).ok_or("no hierarchy of version 1 for memory")?;
        let own = line.splitn(3, ':').nth(2).unwrap_or_default().trim_start_matches('/');
        let mount = Path::new("/sys/fs/cgroup/memory");
        let own = Some(mount.join(own)).filter(|own| own.is_dir()).unwrap_or_else(|| mount.to_owned());
        let folder = own.join(format!("tensorferry-test-{}", std::process::id()));
        let describe = |what: &str, error: std::io::Error| format!("{what} {}: {error}", folder.display());
        fs::create_dir(&folder).map_err(|error| describe("making", error))?;
        let group = Self { folder: folder.clone() };
        fs::write(folder.join("memory.limit_in_bytes"), limit_bytes.to_string())
            .map_err(|error| describe("limiting", error))?;
        Ok(group)
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How often its limit got somebody killed.
    #[must_use]
    pub fn n_kills(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("memory.oom_control")).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // EBUSY until the last process in it has been collected.
        let removed = || fs::remove_dir(&self.folder).is_ok() || !self.folder.exists();
        if std::thread::panicking() {
            removed();
        } else {
            until("the control group is empty", removed);
        }
    }
}
