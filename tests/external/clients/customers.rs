//! The example of a product with hundreds of customers does what it says.

use std::collections::BTreeMap;
use std::fs;

use super::python;
use crate::support::daemon::{Service, configure, directory, serve_command};
use crate::support::program::{project, run};

const CUSTOMERS: usize = 500;

#[test]
fn a_product_bounds_its_customers_writes_their_invoices_and_shows_them_their_logs() {
    let example = project().join("examples/customers");
    let settings = fs::read_to_string(example.join("settee.toml")).unwrap();
    // The test's own socket takes the place of the example's.
    let settings = settings.replace("[server]\nsocket = \"settee.sock\"\n", "");
    let directory = directory();
    let costs = directory.path().join("costs").display().to_string();
    let settings = settings.replace("\"costs\"", &format!("{costs:?}"));
    let config = configure(directory.path(), &settings);
    let service = Service::start_command(directory, serve_command(&config));
    let mut command = python();
    command.arg(example.join("customers.py"));
    command.arg(service.socket()).arg(CUSTOMERS.to_string());
    let output = run(&mut command, b"");
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
    service.stop();
}
