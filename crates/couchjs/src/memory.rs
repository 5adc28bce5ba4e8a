//! Memory of the process: one limit for everything that a tenant's functions make it hold.
//!
//! SUMMARY   [`Account`] counts memory outside of the running engine: long lines, answers, design documents,
//!           libraries, and the memory of the other engines. The running engine may take the rest
//!           ([`Engine::begin`](super::engine::Engine::begin)). [`limit_process`] sets the system's limit, which is
//!           higher.
//! PROMISES  The process never has more memory than its limit plus 32 MiB; with isolates, the idle ones together may
//!           hold as much as the limit in addition.
//! SOURCE    `VmHWM` of /proc/self/status: the process's peak memory, in KiB. It shows whether the engine raised
//!           `null` because it had no memory for an exception; a function can throw `null` too. Writing 5 to
//!           /proc/self/clear_refs resets it.
//! LIMITS    If a function throws `null` after another function of its tenant took nearly all memory, the `null` is
//!           mistaken for a lack of memory. A `null` counts as thrown by the function if there is no /proc, or if the
//!           peak did not rise: because it cannot be reset, or because the limit is below 32 MiB and the process has
//!           kept memory of ended isolates. Strings shorter than [`LONG_BYTES`] are not counted. An engine counts
//!           blocks, not the pages between them: a function that scatters small blocks hits the limit of the system.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::failure::Failure;

/// Strings of at least this length are counted, and copied only if necessary.
pub(super) const LONG_BYTES: usize = 256 << 10;

/// Memory that the process may have beyond the limit, in bytes: stacks (12 MiB, mostly unused), the server's own
/// tables, short strings. The code of the program, 9 MiB, is extra.
const WALL_BYTES: u64 = 26 << 20;

/// Sets the system's limit for the process, well above the functions' limit.
pub fn limit_process(limit_bytes: usize) {
    let most = (limit_bytes as u64).saturating_add(WALL_BYTES);
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    let most = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit {
        current: most(current),
        maximum: most(maximum),
    };
    // A process may always lower its limit; on a system without limits, the account must suffice.
    let _ = setrlimit(Resource::Data, limit);
}

/// Maximum bytes read of /proc/self/status: more than it has.
const STATUS_BYTES_MAX: usize = 4096;

/// How far a peak must rise to count as new, in bytes: the system counts pages late.
const RISE_BYTES_MIN: usize = 1 << 20;

/// Memory that the process may always have beyond that of isolates, in bytes: stacks, prepared engines.
const UNHELD_BYTES: usize = 16 << 20;

/// The system's report about the process; kept open, because the process is soon forbidden to open files.
#[derive(Debug)]
pub struct ProcessStatus {
    status: Option<File>,
    /// `/proc/self/statm`, and its unit, the size of a page in bytes, which is read from a file before Linux 6.4.
    pages: Option<(File, usize)>,
    reset: Option<File>,
}

impl ProcessStatus {
    /// Opens the report, if the system has one.
    pub fn open() -> Self {
        ProcessStatus {
            status: File::open("/proc/self/status").ok(),
            pages: None,
            reset: None,
        }
    }

    /// Like [`Self::open`], with the files that measure isolates one by one.
    pub fn open_for_isolates() -> Self {
        ProcessStatus {
            pages: File::open("/proc/self/statm")
                .ok()
                .map(|file| (file, page_size())),
            reset: OpenOptions::new()
                .write(true)
                .open("/proc/self/clear_refs")
                .ok(),
            ..Self::open()
        }
    }

    /// Resets the peak to the current memory; returns whether that succeeded.
    fn reset_peak(&self) -> bool {
        self.reset
            .as_ref()
            .is_some_and(|file| rustix::io::write(file, b"5").is_ok())
    }

    /// Returns the resident memory, and how much of it is not file-backed, in bytes.
    fn resident_bytes(&self) -> Option<(usize, usize)> {
        let (file, page_bytes) = self.pages.as_ref()?;
        let mut pages = [0; 128];
        let length = file.read_at(&mut pages, 0).ok()?;
        let pages = std::str::from_utf8(&pages[..length]).ok()?;
        let mut numbers = pages.split(' ').skip(1).map(str::parse::<usize>);
        let (all, of_files) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let bytes = |pages: usize| pages.saturating_mul(*page_bytes);
        Some((bytes(all), bytes(all.saturating_sub(of_files))))
    }

    /// Returns the peak memory so far, in bytes.
    fn peak_bytes(&self) -> Option<usize> {
        let mut status = [0; STATUS_BYTES_MAX];
        let length = self.status.as_ref()?.read_at(&mut status, 0).ok()?;
        let status = String::from_utf8_lossy(&status[..length]);
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1 << 10)
    }
}

/// Judges by the process's memory whether the selected isolate's functions have exhausted theirs.
pub(super) struct Peak {
    limit_bytes: usize,
    /// The process's memory before the first engine.
    start_bytes: usize,
    /// Memory that is not file-backed and that no eviction frees.
    base_unfiled_bytes: Cell<usize>,
    /// From this peak on, memory counts as exhausted.
    exhausted_bytes: Cell<usize>,
    /// Memory that was not file-backed when the isolate was selected.
    turn_bytes: Cell<usize>,
    status: ProcessStatus,
}

impl Peak {
    pub fn new(limit_bytes: usize, status: ProcessStatus) -> Self {
        let start_bytes = status.peak_bytes().unwrap_or(0);
        let start_unfiled_bytes = status.resident_bytes().map_or(0, |(_, unfiled)| unfiled);
        let peak = Peak {
            limit_bytes,
            start_bytes,
            base_unfiled_bytes: Cell::new(start_unfiled_bytes),
            exhausted_bytes: Cell::new(0),
            turn_bytes: Cell::new(0),
            status,
        };
        peak.exhausted_bytes.set(peak.exhausted_beside(0));
        peak
    }

    /// Returns the peak from which memory counts as exhausted. Three quarters of the limit suffice: the system does not
    /// count memory that an engine has reserved but not written to.
    fn exhausted_beside(&self, idle_bytes: usize) -> usize {
        self.start_bytes + idle_bytes + self.limit_bytes / 4 * 3
    }

    /// Starts a new peak for a newly selected isolate, while idle ones hold `idle_bytes`.
    pub fn begin_turn(&self, idle_bytes: usize) {
        let is_reset = self.status.reset_peak();
        let (now, unfiled) = self.status.resident_bytes().filter(|_| is_reset).unzip();
        self.turn_bytes.set(unfiled.unwrap_or(0));
        if let Some(unfiled) = unfiled {
            let base = self.base_unfiled_bytes.get();
            self.base_unfiled_bytes.set(base.min(unfiled));
        }
        let now = now.or_else(|| self.status.peak_bytes()).unwrap_or(0);
        let rise = RISE_BYTES_MIN.min(self.limit_bytes / 16);
        let bytes = self.exhausted_beside(idle_bytes).max(now + rise);
        self.exhausted_bytes.set(bytes);
    }

    /// Starts a new peak after all isolates have ended.
    pub fn restart(&self) {
        self.status.reset_peak();
        self.exhausted_bytes.set(self.exhausted_beside(0));
    }

    /// Returns whether an engine may have reached its limit.
    pub fn was_exhausted(&self) -> bool {
        self.status
            .peak_bytes()
            .is_some_and(|peak| peak >= self.exhausted_bytes.get())
    }

    /// Returns whether the process has grown much since the isolate was selected; `true` if unknown.
    pub fn has_grown(&self) -> bool {
        self.status
            .resident_bytes()
            .is_none_or(|(_, unfiled)| unfiled > self.turn_bytes.get() + LONG_BYTES)
    }

    /// Returns whether the process has much more memory than isolates hold: their memory is too fragmented to be
    /// returned to the system.
    pub fn is_scattered(&self, held_bytes: usize) -> bool {
        let unheld_bytes = UNHELD_BYTES.max(self.limit_bytes / 2);
        let most = self.base_unfiled_bytes.get() + held_bytes + unheld_bytes;
        self.status
            .resident_bytes()
            .is_some_and(|(_, unfiled)| unfiled > most)
    }

    /// Accepts fragmented memory that remained after all idle isolates were evicted: evicting others would not free it.
    pub fn accept_scattered(&self, held_bytes: usize) {
        if self.is_scattered(held_bytes)
            && let Some((_, unfiled)) = self.status.resident_bytes()
        {
            self.base_unfiled_bytes
                .set(unfiled.saturating_sub(held_bytes));
        }
    }
}

/// The memory held for the functions of one isolate, and its limit.
pub(super) struct Account {
    limit_bytes: usize,
    held_bytes: Cell<usize>,
}

impl Account {
    pub fn new(limit_bytes: usize) -> Rc<Self> {
        Rc::new(Account {
            limit_bytes,
            held_bytes: Cell::new(0),
        })
    }

    pub fn held(&self) -> usize {
        self.held_bytes.get()
    }

    pub fn left(&self) -> usize {
        self.limit_bytes.saturating_sub(self.held_bytes.get())
    }

    /// Counts memory until the returned value is dropped, even beyond the limit.
    pub fn count(self: &Rc<Self>, bytes: usize) -> Held {
        let mut held = Held {
            account: Rc::clone(self),
            bytes: 0,
        };
        held.set(bytes);
        held
    }

    /// Like [`Self::count`], if that much remains.
    ///
    /// # Errors
    /// [`Failure::OutOfMemory`].
    pub fn take(self: &Rc<Self>, bytes: usize) -> Result<Held, Failure> {
        if bytes <= self.left() {
            Ok(self.count(bytes))
        } else {
            Err(Failure::out_of_memory())
        }
    }
}

/// Memory that its account counts until this is dropped.
pub(super) struct Held {
    account: Rc<Account>,
    bytes: usize,
}

impl Held {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replaces the counted bytes, even beyond the limit.
    pub fn set(&mut self, bytes: usize) {
        let held = &self.account.held_bytes;
        held.set(held.get() - self.bytes + bytes);
        self.bytes = bytes;
    }

    /// Like [`Self::set`]; beyond the limit, returns `false` and changes nothing.
    pub fn try_set(&mut self, bytes: usize) -> bool {
        let is_left = bytes <= self.account.left() + self.bytes;
        if is_left {
            self.set(bytes);
        }
        is_left
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Appends to a string that may be very long. It grows by [`LONG_BYTES`] at most, or by `more` if longer.
///
/// # Errors
/// [`rquickjs::Error::Allocation`] when the system has no more memory.
pub(super) fn push_long(text: &mut String, more: &str) -> rquickjs::Result<()> {
    if text.capacity() - text.len() < more.len() {
        let room = more.len().max(LONG_BYTES.min(text.len()));
        text.try_reserve_exact(room)
            .map_err(|_| rquickjs::Error::Allocation)?;
    }
    text.push_str(more);
    Ok(())
}

/// Copies a string that may be very long, with room for the NUL that the engine needs after it.
///
/// # Errors
/// [`rquickjs::Error::Allocation`] when the system has no memory for it.
pub(super) fn copy_long(text: &str) -> rquickjs::Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(text.len() + 1)
        .map_err(|_| rquickjs::Error::Allocation)?;
    copy.extend_from_slice(text.as_bytes());
    Ok(copy)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_the_process_has_taken_nearly_as_much() {
        let peak = Peak::new(64 << 20, ProcessStatus::open());
        assert!(!peak.was_exhausted());
        let taken = vec![1_u8; 60 << 20];
        assert!(peak.was_exhausted());
        drop(taken);
    }

    #[test]
    fn holders_share_the_limit_of_their_account() {
        let account = Account::new(100);
        let mut first = account.take(60).unwrap();
        assert!(account.take(41).is_err());
        let second = account.take(40).unwrap();
        assert!(!first.try_set(61) && first.bytes() == 60);
        drop(second);
        assert!(first.try_set(100));
        drop(first);
        assert_eq!(account.left(), 100);
        // Existing memory is counted even beyond the limit.
        let more = account.count(150);
        assert_eq!(account.left(), 0);
        drop(more);
        assert_eq!(account.left(), 100);
    }
}
