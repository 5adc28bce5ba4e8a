//! A language whose children have options of their own: Perl, with its taint checks on, the same order
//! of hashes in every process, and short lines. Run: `cargo run --example own_process_language`.

use futures_util::future::LocalBoxFuture;
use settee::actors::language::{Language, StartContext};
use settee::actors::os_process::OsProcess;
use settee::messages::opener::StartError;
use settee::messages::process::{Fault, ProcessRef};
use settee::query_server::abilities::{Abilities, Ability};
use settee::query_server::cell::Cell;
use settee::query_server::child::CommandSpec;
use settee::testkit::TestPool;

type Start = LocalBoxFuture<'static, Result<ProcessRef, StartError>>;

/// The longest answer that a process may give, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The language: each process is a child that runs this script.
pub struct Perl(pub &'static str);

impl Language for Perl {
    fn describe(&self) -> String {
        format!("perl {}", self.0)
    }
    /// Known beforehand, so that nothing has to be probed: the others are refused.
    fn abilities(&self) -> Abilities {
        let present = [Ability::AddLib, Ability::Reduce, Ability::ReduceContext];
        Abilities::declared(
            &[
                &present[..],
                &[Ability::SeveralReducers, Ability::Pipelining],
            ]
            .concat(),
        )
    }
    fn start(&self, mut context: StartContext) -> Start {
        let command = CommandSpec {
            program: "perl".into(),
            arguments: vec!["-t".into(), self.0.into()],
            environment: vec![("PERL_HASH_SEED".into(), "0".into())],
            cell: Cell::None,
        };
        context.line_bytes_max = context.line_bytes_max.min(LINE_BYTES_MAX);
        Box::pin(async move {
            let child = context
                .spawner
                .spawn(command)
                .await
                .map_err(|error| refused(&error))?;
            OsProcess::start_with(child, context).map_err(|error| refused(&error))
        })
    }
}

fn refused(error: &dyn std::fmt::Display) -> StartError {
    let (reason, fault) = (format!("no Perl: {error}"), Fault::Host);
    StartError { reason, fault }
}

/// Maps one document; a design document is refused without a process.
#[actix::main]
pub async fn main() {
    let perl = Perl("examples/languages/perl_server.pl");
    let pool = TestPool::builder().language("perl", perl).start();
    let mut client = pool.client("view");
    client.takes(pool.any()).await;
    let function = r#"["add_fun","sub { my ($doc) = @_; emit($doc->{type}, 1) }"]"#;
    assert_eq!(client.prompts(function).await.as_deref(), Ok("true"));
    let rows = client
        .prompts(r#"["map_doc",{"_id":"a","type":"post"}]"#)
        .await;
    assert_eq!(rows.as_deref(), Ok(r#"[[["post",1]]]"#));
    client.returns().await;
    let error = client.is_refused(pool.ddoc("db", "_design/d")).await;
    assert!(
        error.to_string().contains("knows no design documents"),
        "{error}"
    );
    pool.assert_quiet().await;
}
