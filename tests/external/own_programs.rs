//! The example programs that add languages: `map`, `serve`, `check-config` and `conform` know the added ones. Needs
//! Lua.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use settee::client::Operator;
use settee::query_server::status::DaemonStatus;

use crate::support::daemon::{Service, configure, directory, serve_command_of};
use crate::support::program::{example, project};
use crate::support::work::lines;

/// A program, its language, and a function that emits the field `n`.
struct Own {
    /// Its name in `examples`.
    example: &'static str,
    language: &'static str,
    function: &'static str,
}

const FIELD: Own = Own {
    example: "new_language",
    language: "field",
    function: "n",
};

const LUA: Own = Own {
    example: "lua_program",
    language: "lua",
    function: "function(doc) emit(doc.n) end",
};

impl Own {
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(example(self.example));
        let command = command.args(arguments).current_dir(project());
        command.output().unwrap()
    }

    fn conforms(&self, arguments: &[&str]) -> String {
        let output = self.run(&[&["conform", "--language", self.language], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Maps two documents and checks the rows.
    fn maps(&self, folder: &Path, more: &[&str]) {
        let path = |name: &str| folder.join(name).display().to_string();
        let (function, documents) = (path("function"), path("documents"));
        fs::write(&function, self.function).unwrap();
        fs::write(
            &documents,
            "{\"_id\":\"a\",\"n\":2}\n{\"_id\":\"b\",\"n\":1}\n",
        )
        .unwrap();
        let map = ["map", "--language", self.language, "--map", &function];
        let output = self.run(&[&map, more, &["--", &documents]].concat());
        let row = |id: &str, key: u8| json!({"id": id, "key": key, "value": null});
        assert_eq!(lines(&output), [row("b", 1), row("a", 2)], "{output:?}");
    }

    /// Starts the program's service, with the processes of commands in cells.
    fn serves(&self) -> Service {
        let folder = directory();
        let config = configure(
            folder.path(),
            "[query_server_config]\nsandbox = \"standard\"\n",
        );
        let mut serve = serve_command_of(&example(self.example), &config);
        serve.current_dir(project());
        Service::start_command(folder, serve)
    }
}

#[test]
fn map_knows_the_languages_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    for own in [FIELD, LUA] {
        own.maps(folder.path(), &[]);
    }
}

#[test]
fn serve_knows_the_languages_of_the_program() {
    for own in [FIELD, LUA] {
        let service = own.serves();
        let socket = service.socket().display().to_string();
        own.maps(service.directory.path(), &["--socket", &socket]);
        service.stop();
    }
}

#[test]
fn configured_pools_and_services_can_use_a_language_of_the_program() {
    let folder = directory();
    let own = FIELD;
    let sections = format!(
        "[pools.few]\nlanguage = \"{0}\"\nmax = 1\n[services.s]\nlanguage = \"{0}\"\nlisten = \"unix:{1}/s\"\n",
        own.language,
        folder.path().display()
    );
    let config = configure(folder.path(), &sections);
    let checked = own.run(&["check-config", "-c", &config.display().to_string()]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let service = Service::start_command(folder, serve_command_of(&example(own.example), &config));
    let socket = service.socket().display().to_string();
    own.maps(service.directory.path(), &["--socket", &socket]);
    let pool = own.run(&["pool", "procs", "few", "--socket", &socket]);
    assert_eq!(pool.status.code(), Some(0), "{pool:?}");
    service.stop();
}

#[tokio::test]
async fn a_command_of_the_program_runs_in_a_cell_and_its_declared_abilities_are_known() {
    let service = LUA.serves();
    LUA.maps(
        service.directory.path(),
        &["--socket", &service.socket().display().to_string()],
    );
    let operator = Operator::at(service.socket());
    let status: DaemonStatus = operator.get("/_status").await.unwrap();
    let pool = status.pools.iter().find(|pool| pool.name == "lua").unwrap();
    assert_eq!(pool.sandbox.as_ref().unwrap().mode, "standard");
    assert_eq!(
        (pool.abilities["reduce"], pool.abilities["ddoc"]),
        (Some(true), Some(false))
    );
    service.stop();
}

#[test]
fn conform_tests_a_language_of_the_program_by_its_name() {
    let text = LUA.conforms(&[]);
    assert!(text.starts_with("language: lua\n"), "{text}");
    assert!(
        text.contains("\nok    map            basic/map/one-row\n"),
        "{text}"
    );
    assert!(
        text.contains("\nthe daemon will do without: ddoc\n"),
        "{text}"
    );
    // An in-process language has no process that could exit on an invalid command.
    let text = FIELD.conforms(&["-k", "common/map"]);
    assert!(text.starts_with("language: none"), "{text}");
    assert!(text.ends_with("\nconform: 1 of 1 cases, map\n"), "{text}");
    let refuses = "\nthe daemon will do without: add_lib ddoc index_doc reduce reduce_context several_reducers\n";
    assert!(text.contains(refuses), "{text}");
    let output = LUA.run(&["conform", "--language", "field"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("this program has no language 'field'"),
        "{stderr}"
    );
}
