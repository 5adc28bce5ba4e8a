//! Sockets passed by a service manager: `LISTEN_FDS`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::json;

use crate::support::activation::pass;
use crate::support::daemon::{
    DEADLINE, Order, Service, configure, directory, make_private_folder, serve_command, socket_of,
};

fn ask(stream: UnixStream) -> String {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut stream = BufReader::new(stream);
    let request = b"{\"id\":1,\"call\":\"cancel\",\"request\":0}\n";
    stream.get_mut().write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_that_connects_while_no_service_runs_is_served_by_the_next_one() {
    let mut place = directory();
    let path = socket_of(place.path());
    make_private_folder(path.parent().unwrap());
    let listener = UnixListener::bind(&path).unwrap();
    let config = configure(place.path(), "");
    for _ in 0..2 {
        let early = UnixStream::connect(&path).unwrap();
        let passed = listener.try_clone().unwrap();
        let service = Service::start_command(
            place,
            pass(serve_command(&config), [("socket", passed.into())]),
        );
        assert_eq!(ask(early), "{\"id\":1,\"ok\":false}\n");
        assert_eq!(
            ask(UnixStream::connect(&path).unwrap()),
            "{\"id\":1,\"ok\":false}\n"
        );
        place = service.stop_and_keep();
        assert!(path.exists(), "the service does not own the file");
    }
}

#[test]
fn http_is_served_on_a_passed_socket_and_not_at_the_configured_address() {
    let place = directory();
    let config = configure(place.path(), "[server]\nopen = true\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut early = TcpStream::connect(address).unwrap();
    let mut command = pass(serve_command(&config), [("http", listener.into())]);
    command.env("SETTEE__SERVER__HTTP", "127.0.0.1:1");
    let mut service = Service::start_command(place, command);
    assert_eq!(service.next_address("http://"), address);
    early.set_read_timeout(Some(DEADLINE)).unwrap();
    early
        .write_all(b"GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut line = String::new();
    BufReader::new(early).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    service.stop();
}

#[test]
fn a_service_lends_on_a_passed_socket_before_and_after_a_reload() {
    let place = directory();
    let path = place.path().join("own.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let extra = format!(
        "[pools.p]\nlanguage = \"javascript\"\n[services.js]\npool = \"p\"\nlisten = \"unix:{}\"\n",
        place.path().join("configured.sock").display()
    );
    let config = configure(place.path(), &extra);
    let command = pass(serve_command(&config), [("service-js", listener.into())]);
    let mut service = Service::start_command(place, command);
    let shown = format!("settee: service js listening on unix:{}\n", path.display());
    assert_eq!(service.next_line(), shown);
    for _ in 0..2 {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(b"[\"reset\"]\n").unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        assert_eq!(answer, "true\n");
        service.signal("HUP");
        service.wait_for_log("configuration is unchanged");
    }
    service.stop();
}

#[test]
fn a_service_listens_on_its_passed_socket_after_a_plan_and_when_added_again() {
    let place = directory();
    let config = configure(place.path(), "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let passed = listener.try_clone().unwrap();
    let command = pass(serve_command(&config), [("service-p", passed.into())]);
    let service = Service::start_command(place, command);
    let operator = service.connect().operator;
    let extra = format!(
        "[pools.p]\nlanguage = \"python\"\n[services.p]\npool = \"p\"\nlisten = \"{address}\"\n"
    );
    for text in [&extra, "", &extra] {
        configure(service.directory.path(), text);
        operator.ok(&Order::new(
            "POST",
            "/_node/_local/_config/_plan",
            json!({}),
        ));
        operator.reload_config();
    }
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut stream = BufReader::new(fs::File::from(OwnedFd::from(stream)));
    stream.get_mut().write_all(b"[\"reset\"]\n").unwrap();
    assert_eq!(line_of(&mut stream), "true\n");
    service.stop();
}

fn line_of(connection: &mut BufReader<fs::File>) -> String {
    let mut line = String::new();
    connection.read_line(&mut line).expect("a line in time");
    line
}

#[test]
fn a_client_waiting_at_shutdown_is_served_by_the_next_service() {
    let place = directory();
    let path = place.path().join("own.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    // Each service has one process.
    let config = configure(
        place.path(),
        "[pools.u]\nlanguage = \"python\"\nmax = 1\n[pools.t]\nlanguage = \"python\"\nmax = 1\n\
         [services.u]\npool = \"u\"\nlisten = \"unix:/configured.sock\"\n\
         [services.t]\npool = \"t\"\nlisten = \"127.0.0.1:1\"\n",
    );
    let serve = |place| {
        let passed = [
            ("service-u", unix.try_clone().unwrap().into()),
            ("service-t", tcp.try_clone().unwrap().into()),
        ];
        Service::start_command(place, pass(serve_command(&config), passed))
    };
    let ask = |line: &str| {
        let unix = UnixStream::connect(&path).unwrap();
        unix.set_read_timeout(Some(DEADLINE)).unwrap();
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(DEADLINE)).unwrap();
        let both: [OwnedFd; 2] = [unix.into(), tcp.into()];
        both.map(|connection| {
            let mut connection = BufReader::new(fs::File::from(connection));
            connection.get_mut().write_all(line.as_bytes()).unwrap();
            connection
        })
    };
    let service = serve(place);
    let mut served = ask("[\"first\"]\n");
    for connection in &mut served {
        assert_eq!(line_of(connection), "[\"first\"]\n");
    }
    let mut waiting = ask("[\"second\"]\n");
    let place = std::thread::scope(|scope| {
        scope.spawn(|| {
            for mut connection in served {
                let last = line_of(&mut connection);
                assert!(last.starts_with("[\"error\",\"shutting_down\""), "{last}");
            }
        });
        service.stop_and_keep()
    });
    let service = serve(place);
    for connection in &mut waiting {
        assert_eq!(line_of(connection), "[\"second\"]\n");
    }
    drop(waiting);
    service.stop();
}

#[test]
fn an_unusable_socket_is_a_configuration_error() {
    let place = directory();
    let config = configure(place.path(), "");
    let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let file = || OwnedFd::from(fs::File::open(&config).unwrap());
    for (socket, name, complaint) in [
        (tcp(), "sofa", "no listener has that name"),
        (tcp(), "", "LISTEN_FDNAMES"),
        (tcp(), "http:tcp", "LISTEN_FDNAMES"),
        (tcp(), "socket", "it is not a Unix socket"),
        (file(), "http", "cannot be listened on"),
    ] {
        let mut command = pass(serve_command(&config), [(name, socket)]);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{name}: {said}");
        assert!(said.contains(complaint), "{name}: {said}");
    }
}

#[test]
fn a_socket_without_a_listener_is_a_warning() {
    let place = directory();
    let config = configure(place.path(), "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = Service::start_command(
        place,
        pass(serve_command(&config), [("tcp", listener.into())]),
    );
    service.wait_for_log("a socket was passed that nothing listens on");
    service.stop();
}
