//! Requests of browsers: accepted host names and origins.

use crate::support::http_client::{Response, Web};

const CONFIG: &str = "/_node/_local/_config/log/level";

fn ask(web: &Web, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    web.connect().request(method, path, headers, body)
}

#[test]
fn a_host_name_of_another_machine_is_refused_with_and_without_admins() {
    for extra in ["", "[admins]\nann = \"open sesame\"\n"] {
        let web = Web::start(extra);
        for host in [
            "evil.example",
            "evil.example:5995",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil@127.0.0.1",
            "127.0.0.1, evil.example",
            "",
        ] {
            let refused = ask(&web, "GET", "/", &[("Host", host)], "");
            let reason = refused.reason(403, "forbidden");
            assert!(reason.contains("[server] hosts"), "{host}: {reason}");
        }
        let machine = rustix::system::uname()
            .nodename()
            .to_str()
            .unwrap()
            .to_owned();
        for host in [
            "localhost",
            "LOCALHOST.:1",
            "127.0.0.1",
            "10.1.2.3:80",
            "[::1]:7",
            &machine,
        ] {
            assert_eq!(
                ask(&web, "GET", "/", &[("Host", host)], "").status,
                200,
                "{host}"
            );
        }
        web.service.stop();
    }
}

#[test]
fn configured_host_names_are_accepted() {
    let web = Web::start("[server]\nhosts = [\"settee.example\", \"Other.example\"]\n");
    for host in ["settee.example", "SETTEE.example:443", "other.example."] {
        assert_eq!(
            ask(&web, "GET", "/", &[("Host", host)], "").status,
            200,
            "{host}"
        );
    }
    for host in ["example", "a.settee.example"] {
        ask(&web, "GET", "/", &[("Host", host)], "").error(403, "forbidden");
    }
    web.service.stop();
}

#[test]
fn a_request_must_have_one_host_that_matches_its_target() {
    let web = Web::start("");
    for head in [
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n",
        "GET / HTTP/1.1\r\nHost: evil\u{e4}.example\r\n",
    ] {
        let mut connection = web.connect();
        connection.write(&format!("{head}\r\n"));
        let status = connection.response().status;
        assert!([400, 403].contains(&status), "{head}: {status}");
    }
    // Browsers do not use HTTP/1.0; probes do, and send no host.
    let mut connection = web.connect();
    connection.write("GET /_up HTTP/1.0\r\n\r\n");
    assert_eq!(connection.response().status, 200);
    web.service.stop();
}

#[test]
fn a_cross_origin_page_can_change_nothing() {
    let web = Web::start("");
    let put = |headers: &[(&str, &str)]| ask(&web, "PUT", CONFIG, headers, "\"debug\"");
    let here = format!("http://{}", web.address);
    let host = web.address.to_string();
    for headers in [
        &[("Origin", "http://evil.example")][..],
        &[("Origin", "null")],
        &[("Origin", "http://localhost:1")],
        &[("Origin", "http://evil\u{e4}.example")],
        &[
            ("Origin", "http://localhost"),
            ("Origin", "http://evil.example"),
        ],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[
            ("Sec-Fetch-Site", "same-origin"),
            ("Sec-Fetch-Site", "cross-site"),
        ],
        &[
            ("Origin", "http://localhost"),
            ("Sec-Fetch-Site", "cross-site"),
        ],
    ] {
        let reason = put(headers).reason(403, "forbidden");
        assert!(reason.contains("web page"), "{headers:?}: {reason}");
    }
    // Login and logout are changes, too.
    let cross = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Content-Type", "application/json"),
    ];
    for method in ["POST", "DELETE"] {
        ask(&web, method, "/_session", &cross, "{}").error(403, "forbidden");
    }
    for headers in [
        &[][..],
        &[
            ("Host", host.as_str()),
            ("Origin", here.as_str()),
            ("Sec-Fetch-Site", "same-origin"),
        ],
        &[("Sec-Fetch-Site", "none")],
    ] {
        assert_eq!(put(headers).status, 200, "{headers:?}");
    }
    // A link from another page is accepted.
    assert_eq!(ask(&web, "GET", "/_dashboard", &cross[..1], "").status, 200);
    web.service.stop();
}
