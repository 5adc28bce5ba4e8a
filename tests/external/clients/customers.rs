//! The example of a product with hundreds of customers works, run by the commands at its head.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::site;
use crate::support::daemon::{directory, signal, wait_for_exit};
use crate::support::heads::code;
use crate::support::program::{SETTEE, project, run};

const CUSTOMERS: usize = 500;

/// Prepares a command as typed in a folder: `PATH` has both programs; the service has no HTTP port and no store file.
fn typed(command: &str, folder: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("exec {command}"));
    shell.current_dir(folder);
    let mut path = vec![site::python().folder.join("bin")];
    path.push(Path::new(SETTEE).parent().map(PathBuf::from).unwrap());
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    shell.env("PATH", std::env::join_paths(path).unwrap());
    shell.env("SETTEE__SERVER__HTTP", "off");
    shell.env("SETTEE__STORE__PATH", "memory");
    shell
}

#[test]
fn the_example_limits_customers_and_prints_their_invoices_and_logs() {
    let directory = directory();
    let folder = directory.path().join("customers");
    run(
        Command::new("cp")
            .arg("-R")
            .arg(project().join("examples/customers"))
            .arg(&folder),
        b"",
    );
    let [serve, customers] = &code("customers/customers.py")[..] else {
        panic!("not two commands")
    };
    let log = directory.path().join("log");
    let mut serve = typed(serve, &folder);
    serve.stdout(Stdio::piped());
    serve.stderr(File::create(&log).unwrap());
    let mut service = serve.spawn().unwrap();
    let mut line = String::new();
    let mut printed = BufReader::new(service.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    let log = fs::read_to_string(log).unwrap();
    let socket = folder.join("settee.sock");
    let listening = format!("settee: listening on unix:{}\n", socket.display());
    assert_eq!(line, listening, "{log}");
    let output = run(&mut typed(customers, &folder), b"");
    signal(service.id(), "TERM");
    assert_eq!(wait_for_exit(&mut service), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.starts_with("customer-0: {'out of time': 10, 'refused': 10}; "),
        "{said}"
    );
    let shown: Vec<&str> = said.lines().skip(1).collect();
    assert!(
        shown[0].starts_with("error: the function did not answer within 2000 ms"),
        "{said}"
    );
    assert_eq!(shown[1..], ["log: no total: 0"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("customer,calls,cpu_ms,price"));
    let invoices: BTreeMap<&str, Vec<f64>> = lines
        .map(|line| {
            let (customer, numbers) = line.split_once(',').unwrap();
            let numbers = numbers.split(',').map(|number| number.parse().unwrap());
            (customer, numbers.collect())
        })
        .collect();
    assert_eq!(invoices.len(), CUSTOMERS);
    let greedy = &invoices["customer-0"];
    for (customer, invoice) in &invoices {
        let [calls, _, price] = invoice[..] else {
            panic!("{customer}: {invoice:?}")
        };
        assert_eq!(calls, if *customer == "customer-0" { 20.0 } else { 1.0 });
        assert!(*customer == "customer-0" || price < greedy[2], "{customer}");
    }
}
