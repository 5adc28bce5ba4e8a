//! A real browser for tests: Debian's Chromium, driven by the WebDriver protocol.
//!
//! PROMISES  [`Browser::close`] stops the browser and asserts that no process of it is left.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{DEADLINE, assert_nothing_runs_for, signal, wait_for_exit};
use crate::support::http_client::{Connection, Response};

/// The protocol's key for the reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One window of a browser.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    /// The browser's own files.
    profile: TempDir,
}

impl Browser {
    pub fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let (driver, port) = start_driver(profile.path());
        let mut browser = Self {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            profile,
        };
        let profile = format!("--user-data-dir={}", browser.profile.path().display());
        let session = browser.post(
            "/session",
            &json!({"capabilities": {"alwaysMatch": {"timeouts": {"script": DEADLINE.as_secs() * 1000},
                "goog:chromeOptions": {"args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update",
                "--disable-dev-shm-usage", "--disable-sync", profile,
            ]}}}}),
        );
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser.post("/url", &json!({"url": url}));
        browser
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Response {
        let path = format!("{}{path}", self.session);
        let json = [("Content-Type", "application/json")];
        Connection::open(self.address).request(method, &path, &json, body)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let response = self.request(method, path, body);
        assert_eq!(response.status, 200, "{method} {path}: {}", response.body);
        let mut answer: Value = serde_json::from_str(&response.body).unwrap();
        answer["value"].take()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, &body.to_string())
    }

    /// Returns what a script in the page returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Returns what a script in the page passes to its callback, the last argument.
    pub fn run_async(&self, script: &str) -> Value {
        self.post("/execute/async", &json!({"script": script, "args": []}))
    }

    /// Opens a view of the page by its hash, as a link does.
    pub fn go(&self, hash: &str) {
        self.run(&format!("location.hash = {}", json!(hash)));
    }

    /// Presses keys one after the other in the focused element; Tab is `\u{e004}`, Escape `\u{e00c}`.
    pub fn keys(&self, keys: &str) {
        let keys = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key})));
        let keyboard =
            json!({"type": "key", "id": "keyboard", "actions": keys.collect::<Vec<_>>()});
        self.post("/actions", &json!({"actions": [keyboard]}));
    }

    /// Returns the visible text of the page.
    pub fn text(&self) -> String {
        let text = self.run("return document.body.innerText");
        text.as_str().unwrap().to_owned()
    }

    /// Waits until the page shows `text`.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let start = Instant::now();
        loop {
            let seen = self.text();
            if seen.contains(text) {
                return;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "no {text:?} on the page: {seen}"
            );
        }
    }

    /// Waits for a matching element, and returns its path.
    #[track_caller]
    fn element(&self, selector: &str) -> String {
        let found = format!(
            "return document.querySelector({}) !== null",
            json!(selector)
        );
        self.wait_until(&found);
        let what = json!({"using": "css selector", "value": selector});
        let found = self.post("/element", &what);
        format!("/element/{}", found[ELEMENT].as_str().unwrap())
    }

    /// Clicks a matching element; retries if the page replaces the element meanwhile.
    pub fn click(&self, selector: &str) {
        let start = Instant::now();
        loop {
            let path = format!("{}/click", self.element(selector));
            let response = self.request("POST", &path, "{}");
            let is_gone = response.body.contains("stale element reference");
            if !is_gone || start.elapsed() >= DEADLINE {
                return assert_eq!(response.status, 200, "{selector}: {}", response.body);
            }
        }
    }

    pub fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("{element}/clear"), &json!({}));
        self.post(&format!("{element}/value"), &json!({"text": text}));
    }

    /// Focuses an element and presses a key in it; Enter is `\u{e007}`.
    pub fn press(&self, selector: &str, key: char) {
        let element = self.element(selector);
        self.post(&format!("{element}/value"), &json!({"text": key}));
    }

    /// Sends a command of Chromium's own protocol.
    pub fn command(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.post("/goog/cdp/execute", &body)
    }

    /// Emulates a screen of `width` by `height` pixels with a light or dark color scheme.
    pub fn resize(&self, width: u32, height: u32, scheme: &str) {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.command("Emulation.setDeviceMetricsOverride", &screen);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", &scheme);
    }

    /// Returns a screenshot, a PNG.
    pub fn picture(&self) -> Vec<u8> {
        let picture = self.ask("GET", "/screenshot", "");
        let base64 = data_encoding::BASE64.decode(picture.as_str().unwrap().as_bytes());
        base64.unwrap()
    }

    /// Waits until a script in the page returns true.
    #[track_caller]
    pub fn wait_until(&self, script: &str) {
        let start = Instant::now();
        while self.run(script) != true {
            let text = || format!("{script} is never true: {}", self.text());
            assert!(start.elapsed() < DEADLINE, "{}", text());
        }
    }

    pub fn close(mut self) {
        self.ask("DELETE", "", "");
        signal(self.driver.id(), "TERM");
        wait_for_exit(&mut self.driver);
        assert_nothing_runs_for(self.profile.path());
    }
}

/// Maximum number of starts of a driver that finds its port taken.
const STARTS_MAX: usize = 20;

/// Starts a driver that keeps its files in a folder, and returns the port that it listens on.
///
/// A driver chooses a port that is free in one address family and exits if it is taken in the other, which happens when
/// drivers and services start in parallel.
fn start_driver(folder: &Path) -> (Child, u16) {
    let mut output = String::new();
    for _ in 0..STARTS_MAX {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "chromedriver: {error}; install it (Debian: apt-get install chromium \
                     chromium-driver)"
                )
            });
        output.clear();
        for line in BufReader::new(driver.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, port)) = line.split_once("successfully on port ") {
                return (driver, port.trim_end_matches('.').parse().unwrap());
            }
            output = output + &line + "\n";
        }
        driver.wait().unwrap();
        if !output.contains("port not available") {
            break;
        }
    }
    panic!("chromedriver did not start: {output}");
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Reached only when a test failed: ending the session ends the browser, ending the driver does not.
        if self.driver.try_wait().is_ok_and(|ended| ended.is_none()) {
            if !self.session.is_empty() {
                Connection::open(self.address).request("DELETE", &self.session, &[], "");
            }
            signal(self.driver.id(), "TERM");
            wait_for_exit(&mut self.driver);
        }
    }
}
