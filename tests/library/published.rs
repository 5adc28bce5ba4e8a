//! The published names of the library: `docs/library.md` lists exactly those that are imported here.

macro_rules! published {
    ($($path:path,)*) => {
        #[allow(unused_imports, reason = "importing them is the test")]
        mod names {
            $(use $path as _;)*
        }
        const PATHS: &[&str] = &[$(stringify!($path)),*];
    };
}

published! {
    settee::client::Client,
    settee::client::Operator,
    settee::client::ClientError,
    settee::client::Reported,
    settee_testkit::TestPool,
    settee_testkit::TestClient,
    settee_testkit::ScriptedChild,
    settee_testkit::Script,
    settee_testkit::Step,
    settee_testkit::FakeLanguage,
    settee_testkit::Probe,
    settee_testkit::TestRandom,
    settee::Daemon,
    settee::DaemonBuilder,
    settee::actors::language::Language,
    settee::actors::language::StartContext,
    settee::languages::native::NativeLanguage,
    settee::actors::native_process::NativeServer,
    settee::languages::command::CommandLanguage,
    settee::query_server::abilities::Ability,
    settee::query_server::cell::Cell,
    settee::query_server::child::CommandSpec,
    settee::config::Config,
    settee::mango::Selector,
    settee::mango::Index,
    settee::policy::pool::Pools,
    settee::policy::schedule::Scheduler,
    settee::replication::spec::Replication,
}

#[test]
fn the_published_names_are_those_of_library_md() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/library.md"));
    let page = page.expect("the page can be read");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(listed, PATHS);
}
