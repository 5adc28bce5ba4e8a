//! A program that adds Lua: each process is a separate child, in a cell.
//!
//! In the project's folder: `cargo run --example lua_program -- serve`, and likewise `map --language lua`, `conform --language lua`.

use std::process::ExitCode;

use settee::Daemon;
use settee::languages::command::CommandLanguage;
use settee::query_server::abilities::Ability;
use settee::query_server::cell::Cell;
use settee::query_server::child::CommandSpec;

fn main() -> ExitCode {
    let command = CommandSpec {
        program: "lua5.4".into(),
        arguments: vec!["-W".into(), "examples/languages/lua_server.lua".into()],
        environment: vec![("LANG".into(), "C.UTF-8".into())],
        // The service puts each process into its pool's cell.
        cell: Cell::None,
    };
    // The abilities are listed, so that none has to be probed. Others are refused.
    let lua = CommandLanguage::from_spec(command).with_abilities(&[
        Ability::AddLib,
        Ability::IndexDoc,
        Ability::Pipelining,
        Ability::Reduce,
        Ability::ReduceContext,
        Ability::SeveralReducers,
    ]);
    Daemon::builder().language("lua", lua).run()
}
