//! The call `dashboard`: a URL that lets a browser in once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use super::ticket::Ticket;
use crate::messages::client_error::ErrorReply;

/// Answers with the URL. The token stands behind the `#`, which browsers do not send.
pub(super) fn dashboard(ticket: Ticket) {
    let services = Rc::clone(&ticket.session().services);
    let Some(address) = services.http else {
        let reason = "this service has no HTTP address ([server] http)";
        return ticket.error(&ErrorReply::not_found(reason));
    };
    let page = format!("http://{}/_dashboard", reachable(address));
    match services.authority.is_open() {
        true => ticket.ok(&page),
        false => ticket.ok(&format!(
            "{page}#token={}",
            services.authority.issue_token()
        )),
    }
}

/// A browser of this machine finds an address that stands for all of them under this machine's own.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}
