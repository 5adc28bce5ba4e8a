//! `/_dashboard`: a live page of problems, pools, waiters, costs of functions, services and jobs.
//!
//! SUMMARY   The page and its files, modules without a build step, have no data and are public; [`state::state`]
//!           returns the data of the views: the user and their rights, the values of `_health`, `status`, `_functions`
//!           and `_active_tasks`, the number of jobs in each state, those in trouble, and a fleet's daemons.
//! PROMISES  A user sees here only what those pages show to the same user. The page loads nothing from elsewhere,
//!           runs only its own script, and shows texts from children and other servers as text. If the browser has a
//!           file, the answer is 304; files are sent compressed.

pub(super) mod state;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use actix_web::http::header::{self, EntityTag, Header, IfNoneMatch};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use flate2::Crc;

use super::Shared;
use super::answer::{self, Answer, Refusal};
use super::compress::Text;

/// Allows only resources of this service, and forbids framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A file of the page.
struct File {
    name: &'static str,
    content_type: &'static str,
    text: Text,
    tag: EntityTag,
}

impl File {
    fn new(name: &'static str, text: &'static str) -> Self {
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        Self {
            name,
            content_type: match name.rsplit('.').next() {
                Some("css") => "text/css; charset=utf-8",
                Some("js") => "text/javascript; charset=utf-8",
                _ => "text/html; charset=utf-8",
            },
            text: Text::constant(text),
            // Weak, because the compressed and the plain text share it.
            tag: EntityTag::new_weak(format!("{:x}-{:08x}", text.len(), crc.sum())),
        }
    }

    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let known = IfNoneMatch::parse(request);
        let is_known = known.is_ok_and(|known| match known {
            IfNoneMatch::Any => true,
            IfNoneMatch::Items(tags) => tags.iter().any(|tag| tag.weak_eq(&self.tag)),
        });
        let mut response = if is_known {
            HttpResponse::NotModified()
        } else {
            HttpResponse::Ok()
        };
        response
            .insert_header((header::CACHE_CONTROL, "no-cache"))
            .insert_header(header::ETag(self.tag.clone()))
            .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
            .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .insert_header((header::REFERRER_POLICY, "no-referrer"));
        if is_known {
            return response.finish();
        }
        response.content_type(self.content_type);
        self.text.answer(request, response)
    }
}

static PAGE: LazyLock<File> =
    LazyLock::new(|| File::new("page.html", include_str!("dashboard/page.html")));

/// Makes [`File`]s from the sources with these names.
macro_rules! files {
    ($($name:literal),*) => {
        [$(File::new($name, include_str!(concat!("dashboard/", $name)))),*]
    };
}

/// The files of the page.
static FILES: LazyLock<[File; 13]> = LazyLock::new(|| {
    files![
        "page.css",
        "page.js",
        "api.js",
        "charts.js",
        "dom.js",
        "fleet.js",
        "functions.js",
        "jobs.js",
        "orders.js",
        "overview.js",
        "pools.js",
        "problems.js",
        "words.js"
    ]
});

/// `GET /_dashboard`.
pub(super) async fn page(request: HttpRequest) -> Answer {
    Ok(PAGE.answer(&request))
}

/// `POST /_dashboard_link`: a URL that logs a browser in once. The token follows the `#`, which browsers do not send.
pub(super) async fn link(shared: Shared) -> Answer {
    let Some(address) = shared.address else {
        return Err(Refusal::not_found(
            "this service has no HTTP address ([server] http)",
        ));
    };
    let page = format!("http://{}/_dashboard", reachable(address));
    answer::ok(&if shared.authority.is_open() {
        page
    } else {
        format!("{page}#token={}", shared.authority.issue_token())
    })
}

/// Replaces a wildcard address by the loopback address, which a browser on this machine can use.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

/// `GET /_dashboard/FILE`.
pub(super) async fn part(request: HttpRequest, name: Path<String>) -> Answer {
    Ok(FILES
        .iter()
        .find(|file| *file.name == **name)
        .ok_or_else(Refusal::no_such_path)?
        .answer(&request))
}
