//! The OpenAPI document, `/_openapi`: an independent validator accepts it, and each operation behaves as described.
//!
//! SUMMARY   `openapi/play.py` sends the requests, and validates them and the answers against the document.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use settee::client::operator_socket;

use crate::clients::site::run;
use crate::support::couch::Couch;
use crate::support::http_client::Web;
use crate::support::program::project;

/// Users with and without rights, and a query server that only answers `reset`.
const CONFIG: &str = "\
[admins]
root = \"secret\"
[users.caller]
password = \"secret\"
roles = [\"caller\"]
[users.viewer]
password = \"secret\"
roles = [\"viewer\"]
[users.replicator]
password = \"secret\"
roles = [\"replicator\"]
[pools.bare]
language = \"bare\"
sandbox = \"off\"
[query_servers]
";

const BARE: &str = "\
while read -r line; do
  case $line in
    '[\"reset\"'*) echo true ;;
    *) exit 1 ;;
  esac
done
";

/// Returns a Python with the validators and the client generator.
fn python() -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi-0.9-0.29");
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    if !complete.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder));
        let install = "-m pip install --quiet --disable-pip-version-check openapi-spec-validator==0.9.0 jsonschema==4.26.0 openapi-python-client==0.29.1";
        run(Command::new(&python).args(install.split(' ')));
        File::create(complete).unwrap();
    }
    python
}

#[actix_rt::test]
async fn every_operation_accepts_and_returns_what_the_openapi_document_describes() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("a", None, serde_json::json!({"n": 1}));
    let (from, to) = (source.url(), target.url());
    let test = tokio::task::spawn_blocking(move || {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("bare.sh");
        fs::write(&script, BARE).unwrap();
        let web = Web::start(&format!("{CONFIG}bare = \"sh {}\"\n", script.display()));
        let play = project().join("tests/external/openapi/play.py");
        let daemon = format!("http://{}", web.address);
        let socket = operator_socket(&web.service.socket());
        let socket = socket.display().to_string();
        run(Command::new(python())
            .arg(play)
            .args([daemon, socket, from, to]));
        web.service.stop();
    });
    test.await.unwrap();
}

#[test]
fn a_client_generated_from_the_openapi_document_has_every_operation() {
    let directory = tempfile::tempdir().unwrap();
    let web = Web::start("");
    let generate = project().join("tests/external/openapi/generate.py");
    run(Command::new(python())
        .arg(generate)
        .arg(directory.path())
        .arg(project().join("docs/openapi.json"))
        .arg(format!("http://{}", web.address)));
    web.service.stop();
}
