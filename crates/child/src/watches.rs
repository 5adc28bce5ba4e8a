//! `epoll` watches; the kernel limits their number for each user.
//!
//! SUMMARY   [`named`] and [`named_in`] report exhausted watches, where the system's own message reports a full
//!           device; [`require`] checks that some remain.
//! CALLED    Where event loops are created, or something is registered with one.

use std::error::Error;
use std::io;
use std::iter::successors;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::process::{Uid, getuid};

/// Minimum reserved for event loops with clients and children.
pub const WATCHES_MIN: usize = 64;

/// The remedy when they are exhausted.
const REMEDY: &str = "end programs of this user that hold some, or raise that limit";

#[derive(Debug, thiserror::Error)]
#[error(
    "the watches of epoll that the kernel allows user {} are used up (sysctl fs.epoll.max_user_watches)", .0.as_raw()
)]
struct UsedUp(Uid);

/// Replaces the error of a registration with an event loop if watches are exhausted; leaves other errors unchanged.
#[must_use]
pub fn named(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => io::Error::new(error.kind(), UsedUp(getuid())),
        _ => error,
    }
}

/// As [`named`], for the text of an error that exhausted watches caused; leaves other texts unchanged.
#[must_use]
pub fn named_in(text: String, error: &(dyn Error + 'static)) -> String {
    let mut causes = successors(Some(error), |error| (*error).source());
    let refused = causes.find_map(|error| {
        let error = error.downcast_ref::<io::Error>()?;
        (error.raw_os_error() == Some(libc::ENOSPC)).then(|| error.to_string())
    });
    match refused {
        Some(refused) => text.replace(&refused, &UsedUp(getuid()).to_string()),
        None => text,
    }
}

/// Returns the remedy for an error from [`named`]; `None` for any other.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.is::<UsedUp>().then_some(REMEDY)
}

/// Checks that this many watches remain, without taking them. Succeeds if there are no descriptors for the check.
///
/// # Errors
/// They are exhausted.
pub fn require(count: usize) -> io::Result<()> {
    let watch_all = || -> rustix::io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut watched = Vec::with_capacity(count);
        for _ in 0..count {
            let event = eventfd(0, EventfdFlags::CLOEXEC)?;
            let (data, nothing) = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
            epoll::add(&epoll, &event, data, nothing)?;
            watched.push(event);
        }
        Ok(())
    };
    match watch_all() {
        Err(error @ Errno::NOSPC) => Err(named(error.into())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;

    use tokio::io::Interest;

    use super::*;
    use crate::watch;

    /// Makes the system refuse further watches to this thread, as when they are exhausted.
    fn use_up() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp};
        use seccompiler::{SeccompCondition, SeccompFilter, SeccompRule};
        let add = SeccompCondition::new(
            1,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            libc::EPOLL_CTL_ADD as u64,
        );
        let rule = SeccompRule::new(vec![add.unwrap()]).unwrap();
        let filter = SeccompFilter::new(
            [(libc::SYS_epoll_ctl, vec![rule])].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSPC as u32),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: BpfProgram = filter.unwrap().try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }

    #[test]
    fn exhausted_watches_are_reported_with_their_user_and_a_remedy() {
        require(WATCHES_MIN).unwrap();
        let told = thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .unwrap();
            use_up();
            let file = File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
            let watched = runtime.block_on(async { watch(file, Interest::READABLE) });
            [watched.unwrap_err(), require(1).unwrap_err()]
        });
        let text = format!(
            "the watches of epoll that the kernel allows user {} are used up (sysctl fs.epoll.max_user_watches)",
            getuid().as_raw()
        );
        for error in told.join().unwrap() {
            assert_eq!(error.to_string(), text);
            assert!(remedy(&error).is_some());
        }
        let full_disk = io::Error::from(io::ErrorKind::StorageFull);
        assert!(remedy(&named(full_disk)).is_none());
    }

    #[test]
    fn used_up_watches_are_named_in_the_text_of_an_error_that_they_caused() {
        let refused = io::Error::from_raw_os_error(libc::ENOSPC);
        let text = named_in(format!("tcp open error: {refused}"), &refused);
        assert!(
            text.starts_with("tcp open error: the watches of epoll"),
            "{text}"
        );
        assert!(!text.contains("No space left"), "{text}");
        let other = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(named_in(other.to_string(), &other), other.to_string());
    }
}
