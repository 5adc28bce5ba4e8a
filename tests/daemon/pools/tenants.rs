//! Whom the processes of a command serve: those that name the same database, or are the same user or
//! client.

use serde_json::{Value, json};
use settee::client::{Client as LibraryClient, ReturnStatus, TakeFrom};

use crate::support::daemon::{Client, Service};
use crate::support::program::run;

/// Borrows a Python process for a moment, and returns the number of its child.
fn served_by(client: &mut Client, mut arguments: Value) -> u64 {
    arguments["call"] = json!("get_proc");
    arguments["lang"] = json!("python");
    let got = client.ok(&arguments);
    assert!(client.ret_proc(got["proc"].as_str().unwrap()));
    got["os_pid"].as_u64().unwrap()
}

#[test]
fn connections_share_the_processes_of_the_database_that_they_name() {
    let service = Service::start("");
    let (mut one, mut two) = (service.connect(), service.connect());
    let of_shop = served_by(&mut one, json!({"db": "shop"}));
    assert_eq!(served_by(&mut two, json!({"db": "shop"})), of_shop);
    let others = [
        served_by(&mut two, json!({"db": "crm"})),
        served_by(&mut two, json!({})),
        served_by(&mut one, json!({})),
    ];
    for (at, other) in others.iter().enumerate() {
        assert_ne!(*other, of_shop);
        assert!(!others[..at].contains(other), "{others:?}");
    }
    assert_eq!(served_by(&mut one, json!({})), others[2]);
    service.stop();
}

#[test]
fn the_processes_of_a_connection_end_with_it() {
    let service = Service::start("");
    let mut one = service.connect();
    served_by(&mut one, json!({}));
    drop(one);
    let mut two = service.connect();
    two.wait_for_pool("python", &[("free", 0), ("used", 0), ("stopping", 0)]);
    service.stop();
}

#[test]
fn attached_clients_of_one_user_share_processes_unless_they_name_databases() {
    let service = Service::start("");
    let mut watching = service.connect();
    let mut pid = |arguments: &[&str]| {
        let mut command = vec!["attach", "--language", "python"];
        command.extend(arguments);
        let output = run(&mut service.client(&command), b"[\"pid\"]\n");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        watching.wait_for_pool("python", &[("used", 0)]);
        String::from_utf8(output.stdout).unwrap()
    };
    let own = pid(&[]);
    assert_eq!(pid(&[]), own);
    let of_shop = pid(&["--db", "shop"]);
    assert_ne!(of_shop, own);
    assert_eq!(pid(&["--db", "shop"]), of_shop);
    assert_ne!(pid(&["--db", "crm"]), of_shop);
    service.stop();
}

#[tokio::test]
async fn the_library_names_databases_too() {
    let service = Service::start("");
    let mut pids = Vec::new();
    for db in ["shop", "shop", "crm"] {
        let client = LibraryClient::connect(service.socket()).await.unwrap();
        let from = TakeFrom::Language("python").for_db(db);
        let proc = client.get_proc_from(from, None).await.unwrap();
        let ok = ReturnStatus::Ok;
        assert!(client.ret_proc(&proc.proc, ok).await.unwrap());
        pids.push(proc.os_pid.unwrap());
    }
    assert_eq!(pids[0], pids[1]);
    assert_ne!(pids[1], pids[2]);
    service.stop();
}
