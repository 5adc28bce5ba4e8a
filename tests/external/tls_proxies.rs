//! nginx and Caddy in front of a service, with the configurations of docs/tls.md: functions run, and cookies are
//! `Secure`.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::daemon::{configure, directory, wait_until};
use crate::support::http_client::{Web, closed_command};
use crate::support::pages::blocks;
use crate::support::tls::certify;

/// A proxy, stopped when dropped.
struct Proxy(Child);

impl Proxy {
    fn start(command: &mut Command, address: SocketAddr) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the proxy is installed");
        wait_until("proxy that listens", || {
            let ended = child.try_wait().unwrap();
            assert_eq!(ended, None, "the proxy refused its configuration");
            TcpStream::connect(address).is_ok()
        });
        Self(child)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a service that accepts the page's host name.
fn start() -> Web {
    let directory = directory();
    certify(directory.path());
    let extra = "[server]\nhosts = \"settee.example\"\n[admins]\nann = \"secret\"\n";
    let config = configure(directory.path(), extra);
    Web::start_command(directory, closed_command(&config))
}

/// Returns a free address. If another program takes it first, the proxy exits.
fn free() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap()
}

/// Returns the page's configuration of a kind with this test's files and addresses.
fn here(kind: &str, web: &Web) -> String {
    let folder = web.service.directory.path();
    blocks("docs/tls.md", kind)[0]
        .replace("127.0.0.1:5995", &web.address.to_string())
        .replace("/etc/settee/", &format!("{}/", folder.display()))
}

/// Calls the service through the proxy, by the page's host name.
fn curl(web: &Web, address: SocketAddr, arguments: &[&str], path: &str) -> String {
    let port = address.port();
    let host = "settee.example";
    let mut command = Command::new("curl");
    command.args(["-sSi", "--max-time", "30", "-u", "ann:secret", "--insecure"]);
    command.args(["--resolve", &format!("{host}:{port}:127.0.0.1")]);
    command.args([
        "-H",
        &format!("Host: {host}"),
        "-H",
        "Content-Type: application/json",
    ]);
    command
        .args(arguments)
        .arg(format!("https://{host}:{port}{path}"));
    let output = command
        .current_dir(web.service.directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr} {}", web.service.log());
    String::from_utf8(output.stdout).unwrap()
}

fn assert_serves(web: &Web, address: SocketAddr) {
    let call = r#"{"lang":"javascript","docs":[{"_id":"a"}],"funs":["function(doc) { emit(doc._id, 7); }"]}"#;
    let mapped = curl(web, address, &["-d", call], "/_query/map");
    assert!(mapped.contains(r#"[["a",7]]"#), "{mapped}");
    let login = r#"{"name":"ann","password":"secret"}"#;
    let session = curl(web, address, &["-d", login], "/_session");
    let cookie = session
        .lines()
        .find(|line| line.to_lowercase().starts_with("set-cookie: authsession="));
    assert!(
        cookie.is_some_and(|cookie| cookie.contains("Secure")),
        "{session}"
    );
}

#[test]
fn nginx_proxies_functions_and_session_cookies_are_secure() {
    let (web, address) = (start(), free());
    let folder = web.service.directory.path();
    let server = here("nginx", &web).replace("listen 443", &format!("listen {address}"));
    let place = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary
        .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
        .concat();
    let text = format!(
        "daemon off; master_process off; pid {place}/nginx.pid; error_log {place}/nginx.log;\n\
         events {{}}\nhttp {{ access_log off; {temporary}\n{server} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command
        .arg("-e")
        .arg(folder.join("nginx.log"))
        .arg("-c")
        .arg(&file);
    let proxy = Proxy::start(&mut command, address);
    assert_serves(&web, address);
    drop(proxy);
    web.service.stop();
}

#[test]
fn caddy_proxies_functions_and_session_cookies_are_secure() {
    let (web, address) = (start(), free());
    let folder: &Path = web.service.directory.path();
    let port = address.port();
    let site =
        here("caddy", &web).replace("settee.example {", &format!("settee.example:{port} {{"));
    // No admin endpoint, no redirects, and a free port for HTTP.
    let text = format!(
        "{{\n    admin off\n    auto_https disable_redirects\n    http_port {}\n}}\n{site}",
        free().port()
    );
    let file = folder.join("Caddyfile");
    fs::write(&file, text).unwrap();
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(&file);
    command
        .env("HOME", folder)
        .env("XDG_DATA_HOME", folder)
        .env("XDG_CONFIG_HOME", folder);
    let proxy = Proxy::start(&mut command, address);
    assert_serves(&web, address);
    drop(proxy);
    web.service.stop();
}
