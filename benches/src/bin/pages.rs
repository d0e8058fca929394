//! What the pages under large tensors cost: `pages KIND MIB N SECONDS` writes and sums N buffers of so many
//! MiB in turn, one thread and one mapping for each side, over memory that was made present in one of these
//! ways:
//!
//! - `touched`: by the first write to each page;
//! - `populated`: at once, by `MADV_POPULATE_WRITE`, as the library does it;
//! - `advised`: populated after `MADV_HUGEPAGE`, which gives large pages where
//!   `/sys/kernel/mm/transparent_hugepage/shmem_enabled` is `advise`, `within_size` or `always`;
//! - `collapsed`: populated, and then copied into large pages by `MADV_COLLAPSE` (Linux 6.1);
//! - `hugetlb`: in large pages that `vm.nr_hugepages` has set aside (`MFD_HUGETLB`).
//!
//! Prints how long that took for each MiB, and how many buffers went over each second.
//!
//! # Safety
//!
//! All access to the memory is through atomic words.
#![expect(unsafe_code, reason = "maps memory in ways that the library does not use")]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::libc;
use rustix::fs::MemfdFlags;
use rustix::thread::CpuSet;
use tensorferry_benches::{Answer, median};
use tensorferry_os::mapping::{LARGE_PAGE_BYTES, PAGE_BYTES, Reservation};

const PAGE_WORDS: usize = PAGE_BYTES / size_of::<AtomicU64>();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Touched,
    Populated,
    Advised,
    Collapsed,
    Hugetlb,
}

impl Kind {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "touched" => Self::Touched,
            "populated" => Self::Populated,
            "advised" => Self::Advised,
            "collapsed" => Self::Collapsed,
            "hugetlb" => Self::Hugetlb,
            _ => return None,
        })
    }
}

/// One side's mapping.
struct Memory(Reservation);

impl Memory {
    fn over(file: &OwnedFd, len_bytes: usize) -> anyhow::Result<Self> {
        // SAFETY: the file is ours, and all that is ever made of it are atomic words of 64 bits.
        let memory = unsafe { Reservation::map(file, 0, len_bytes, LARGE_PAGE_BYTES) }?;
        (0..len_bytes / LARGE_PAGE_BYTES).try_for_each(|page| memory.open(page, LARGE_PAGE_BYTES))?;
        Ok(Self(memory))
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.words(0, self.0.len_bytes() / 8).unwrap_or_default()
    }

    /// Makes the memory present.
    fn prepare(&self, kind: Kind) -> anyhow::Result<()> {
        if kind == Kind::Touched {
            self.words().iter().step_by(PAGE_WORDS).for_each(|word| word.store(1, Ordering::Relaxed));
            return Ok(());
        }
        if kind == Kind::Advised {
            self.advise(libc::MADV_HUGEPAGE).context("MADV_HUGEPAGE")?;
        }
        self.0.populate(0, self.0.len_bytes())?;
        if kind == Kind::Collapsed {
            self.advise(libc::MADV_COLLAPSE).context("MADV_COLLAPSE")?;
        }
        Ok(())
    }

    fn advise(&self, advice: libc::c_int) -> anyhow::Result<()> {
        let len_bytes = self.0.len_bytes();
        let start = self.0.bytes(0, len_bytes).context("not open")?;
        // SAFETY: the range is our own mapping, and whatever pages are under it, its contents stay.
        let done = unsafe { libc::madvise(start.as_ptr().cast(), len_bytes, advice) };
        ensure!(done == 0, std::io::Error::last_os_error());
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [kind, mib, n_buffers, seconds] = arguments.as_slice() else {
        bail!("pages touched|populated|advised|collapsed|hugetlb MIB N SECONDS");
    };
    let kind = Kind::parse(kind).context("no such kind")?;
    let (mib, n_buffers): (usize, usize) = (mib.parse()?, n_buffers.parse()?);
    let len_bytes = (mib * n_buffers) << 20;
    ensure!(len_bytes.is_multiple_of(LARGE_PAGE_BYTES), "not a number of large pages");
    let large = if kind == Kind::Hugetlb { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
    let file = rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC | large)?;
    rustix::fs::ftruncate(&file, len_bytes as u64)?;
    let (near, far) = (Memory::over(&file, len_bytes)?, Memory::over(&file, len_bytes)?);
    let begin = Instant::now();
    near.prepare(kind)?;
    let prepared = begin.elapsed();
    // The other side finds the pages and has only to map them.
    far.prepare(if kind == Kind::Touched { Kind::Populated } else { kind })?;
    let per_second = hand_over(&near, &far, n_buffers, Duration::from_secs_f64(seconds.parse()?))?;
    let per_mib = prepared.as_secs_f64() * 1e6 / (len_bytes >> 20) as f64;
    Answer::default().with("prepare_us_per_mib", per_mib).with("buffers_per_s", per_second).print()
}

/// Writes on one side and sums on the other, the writer ahead by all buffers but one at most. Returns how
/// many buffers went over each second, by the median over them, so that a stall does not count.
fn hand_over(near: &Memory, far: &Memory, n_buffers: usize, lasts: Duration) -> anyhow::Result<f64> {
    let len_words = near.words().len() / n_buffers;
    let (written, summed, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let range = |number: u64| {
        let at = usize::try_from(number).unwrap_or(0) % n_buffers * len_words;
        at..at + len_words
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(0);
            let mut number = 0;
            while !is_over.load(Ordering::Acquire) {
                if written.load(Ordering::Acquire) > number {
                    let words = far.words()[range(number)].iter().map(|word| word.load(Ordering::Relaxed));
                    std::hint::black_box(words.fold(0, u64::wrapping_add));
                    number += 1;
                    summed.store(number, Ordering::Release);
                } else {
                    std::hint::spin_loop();
                }
            }
        });
        let pinned = pin(1);
        let begin = Instant::now();
        let (mut last, mut seconds) = (begin, Vec::new());
        let mut number = 0_u64;
        while last - begin < lasts {
            while number - summed.load(Ordering::Acquire) >= n_buffers as u64 {
                std::hint::spin_loop();
            }
            near.words()[range(number)].iter().for_each(|word| word.store(number, Ordering::Relaxed));
            number += 1;
            written.store(number, Ordering::Release);
            let now = Instant::now();
            seconds.push((now - last).as_secs_f64());
            last = now;
        }
        is_over.store(true, Ordering::Release);
        pinned.map(|()| 1.0 / median(&seconds))
    })
}

/// Binds the calling thread to a processor.
fn pin(processor: usize) -> anyhow::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(rustix::thread::sched_setaffinity(None, &only)?)
}
