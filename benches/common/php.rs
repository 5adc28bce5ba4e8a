//! php-fpm, alone or behind nginx: the floor for function calls. Skipped if not installed.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(10);

/// Poll interval while a program starts.
const START_POLL: Duration = Duration::from_millis(20);

/// php-fpm with one script, in its own temporary folder. Terminated when dropped.
pub struct Php {
    pub child: Child,
    pub socket: PathBuf,
    pub script: PathBuf,
    folder: tempfile::TempDir,
}

/// Finds a program by the beginning of its name: Debian's php-fpm ends in its version.
fn program(name: &str) -> Option<PathBuf> {
    let programs = fs::read_dir("/usr/sbin").ok()?.flatten();
    let mut found = programs.map(|entry| entry.path()).filter(|path| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.is_some_and(|file| file.starts_with(name))
    });
    found.next()
}

fn wait_until_listening<T>(connect: impl Fn() -> std::io::Result<T>) {
    let start = Instant::now();
    while connect().is_err() {
        assert!(start.elapsed() < START_MAX, "the program does not listen");
        std::thread::sleep(START_POLL);
    }
}

impl Php {
    /// Starts php-fpm with this many processes; `None` if it is not installed.
    pub fn start(script: &str, processes: usize) -> Option<Self> {
        let Some(program) = program("php-fpm") else {
            println!("php-fpm is not installed: nothing is measured beside it");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (socket, file, config) = (at("php.sock"), at("script.php"), at("php-fpm.conf"));
        fs::write(&file, script).expect("the script is written");
        let text = format!(
            "[global]\nerror_log = {}\n[www]\nuser = root\nlisten = {}\npm = static\npm.max_children = {processes}\n",
            at("log").display(),
            socket.display()
        );
        fs::write(&config, text).expect("the configuration is written");
        let mut command = Command::new(program);
        command.args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"]);
        command.arg(config).stderr(Stdio::null());
        let child = command.spawn().expect("php-fpm starts");
        wait_until_listening(|| UnixStream::connect(&socket));
        Some(Self {
            child,
            socket,
            script: file,
            folder,
        })
    }

    /// Starts nginx in front of php-fpm, with keep-alive connections on both sides; `None` if it is not installed.
    pub fn nginx(&self) -> Option<(Child, SocketAddr)> {
        let Some(program) = program("nginx") else {
            println!("nginx is not installed: nothing is measured beside it");
            return None;
        };
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let folder = self.folder.path();
        let text = format!(
            "daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n access_log off; keepalive_requests 1000000;\n client_body_temp_path {folder}/body;\n \
             upstream php {{ server unix:{socket}; keepalive 16; }}\n server {{ listen {address};\n location / {{\n \
             fastcgi_pass php; fastcgi_keep_conn on;\n fastcgi_param SCRIPT_FILENAME {script};\n \
             fastcgi_param REQUEST_METHOD $request_method;\n fastcgi_param CONTENT_TYPE $content_type;\n \
             fastcgi_param CONTENT_LENGTH $content_length;\n }} }} }}\n",
            folder = folder.display(),
            socket = self.socket.display(),
            script = self.script.display(),
        );
        let config = folder.join("nginx.conf");
        fs::write(&config, text).expect("the configuration is written");
        let mut command = Command::new(program);
        let child = command.arg("-c").arg(config).stderr(Stdio::null()).spawn();
        wait_until_listening(|| TcpStream::connect(address));
        Some((child.expect("nginx starts"), address))
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        terminate(&mut self.child);
    }
}

/// Sends SIGTERM to a program that stops its children by itself, and waits for it.
pub fn terminate(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    let term = rustix::process::Signal::TERM;
    // The program may have ended by itself.
    let _ = rustix::process::kill_process(pid, term);
    drop(child.wait());
}

/// A FastCGI request for a script, on a keep-alive connection.
pub fn fast_cgi(script: &Path, body: &str) -> Vec<u8> {
    const BEGIN: u8 = 1;
    const PARAMS: u8 = 4;
    const STDIN: u8 = 5;
    let mut request = Vec::new();
    let mut record = |kind: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).expect("it fits in a record");
        let [high, low] = length.to_be_bytes();
        request.extend([1, kind, 0, 1, high, low, 0, 0]);
        request.extend(content);
    };
    // The responder role, with FCGI_KEEP_CONN.
    record(BEGIN, &[0, 1, 1, 0, 0, 0, 0, 0]);
    let mut params = Vec::new();
    for (name, value) in [
        ("SCRIPT_FILENAME", script.to_str().expect("a name")),
        ("REQUEST_METHOD", "POST"),
        ("CONTENT_TYPE", "application/json"),
        ("CONTENT_LENGTH", &body.len().to_string()),
    ] {
        // One byte holds a length below 128.
        params.extend([name.len() as u8, value.len() as u8]);
        params.extend(name.as_bytes());
        params.extend(value.as_bytes());
    }
    record(PARAMS, &params);
    record(PARAMS, &[]);
    record(STDIN, body.as_bytes());
    record(STDIN, &[]);
    request
}
