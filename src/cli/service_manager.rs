//! Tells a service manager how the service is doing, if there is one that wants to know.
//!
//! SOURCE    The datagrams of `sd_notify(3)`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, such as `READY=1`, to whoever `NOTIFY_SOCKET` names. It is a notice that may be
/// lost: a service manager that cannot be reached is not our business.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// Says that a reload begins; `READY=1` says that it is over.
pub(crate) fn notify_reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}
