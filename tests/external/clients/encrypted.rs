//! The clients over TLS, with a certificate instead of a password.

use std::fs;
use std::process::Command;

use super::site::run;
use super::{node, python};
use crate::support::daemon::{Service, configure, directory, serve_command};
use crate::support::tls::{ClientAuthority, certify, ssl};

const PYTHON: &str = r#"
import ssl, sys, settee
folder, *addresses = sys.argv[1:]
context = ssl.create_default_context(cafile=f"{folder}/cert.pem")
context.load_cert_chain(f"{folder}/ann.pem", f"{folder}/ann.key")
for address in addresses:
    with settee.Client(address, ssl=context, retry_for=0) as client:
        print(client.compile("function(doc) { emit(1, 2); }"))
        try:
            client.compile("x" * 20_000)
        except settee.BadRequest as error:
            print("more than the 10000 bytes" in str(error))
        print(client.compile("function(doc) {}"))
    try:
        with settee.Client(address, retry_for=1000, call_seconds=20) as client:
            print(client.compile("function(doc) {}"))
    except settee.Unavailable as error:
        print("CERTIFICATE_VERIFY_FAILED" in str(error) and not error.retry)
"#;

const NODE: &str = r#"
const fs = require("node:fs");
const { Client, Unavailable } = require("settee");
const [folder, ...addresses] = process.argv.slice(1);
const read = (name) => fs.readFileSync(`${folder}/${name}`, "utf8");
const tls = { ca: read("cert.pem"), cert: read("ann.pem"), key: read("ann.key") };
(async () => {
  for (const address of addresses) {
    for (const options of [{ tls, retryFor: 0 }, { retryFor: 1e3, callMs: 20_000 }]) {
      const client = new Client(address, options);
      await client.compile("function(doc) {}").then(console.log, (error) => {
        if (!(error instanceof Unavailable)) throw error;
        console.log(/self-signed|unable to verify/.test(error.message) && !error.retry);
      });
      if (options.tls) {
        const tooLong = client.compile("x".repeat(20_000));
        await tooLong.catch(({ message }) => console.log(message.includes("more than the 10000 bytes")));
        await client.compile("function(doc) {}").then(console.log);
      }
      client.close();
    }
  }
})();
"#;

/// Runs a client against both addresses: with its certificate it is served, and a call that is too long fails alone;
/// without the authority it refuses the service at once, without retries.
fn assert_speaks_tls(mut client: Command) {
    let directory = directory();
    let place = directory.path().to_owned();
    certify(&place);
    let authority = ClientAuthority::new(&place.join("clients.pem"));
    let (certificate, key) = authority.sign_as_pem("ann");
    fs::write(place.join("ann.pem"), certificate).unwrap();
    fs::write(place.join("ann.key"), key).unwrap();
    let extra = format!(
        "[server]\nline_max = 10000\nbody_max = 10000\n[users.ann]\npassword = \"secret\"\nroles = \"caller\"\n[admins]\nroot = \"secret\"\n\
         {}enable = true\nport = 0\ntcp = \"127.0.0.1:0\"\ncacert_file = \"{}/clients.pem\"\n",
        ssl(&place),
        place.display()
    );
    let config = configure(&place, &extra);
    let mut service = Service::start_command(directory, serve_command(&config));
    let tls = service.next_address("tls:").port();
    let https = service.next_address("https://").port();
    client.arg(&place);
    client.arg(format!("tls:localhost:{tls}"));
    client.arg(format!("https://localhost:{https}/"));
    let printed = run(&mut client).to_lowercase();
    assert_eq!(printed, "true\n".repeat(8));
    service.stop();
}

#[test]
fn the_python_client_speaks_tls_and_fails_at_once_on_an_untrusted_certificate() {
    let mut client = python();
    client.args(["-c", PYTHON]);
    assert_speaks_tls(client);
}

#[test]
fn the_node_client_speaks_tls_and_fails_at_once_on_an_untrusted_certificate() {
    let mut client = node();
    client.args(["-e", NODE]);
    assert_speaks_tls(client);
}
