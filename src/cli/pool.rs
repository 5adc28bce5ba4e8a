//! `settee pool`: manages the pools of the running service.
//!
//! SUMMARY   Sends one request for each subcommand; prints the changes, one per line, or the service's answer.
//! PROMISES  No option carries a command: a pool names a language of the service's configuration.
//! LIMITS    Changes last until the service is restarted; permanent ones belong in `[pools.NAME]`.

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::client::{PoolChange, path, with_query};
use crate::config::PoolConfig;
use crate::query_server::status::{DaemonStatus, ProcStatus};

use super::exit::{CliResult, Exit};
use super::output::{self, json_or};
use super::service_socket::{Service, SocketArgs, block_on, explained};
use super::status_table;
use super::terminal::TableArgs;

/// Options of `settee pool`.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_long_help = "\
Changes last until the service restarts. For permanent ones use a section [pools.NAME] of the
configuration; docs/configuration.md explains each setting.

Exit codes:
  0   done
  64  the command line is wrong: for example an unknown setting, or an invalid value
  66  there is no such pool
  69  no service answers
  74  writing standard output failed
  75  the service is shutting down
  77  the socket belongs to another user

Example:
  settee pool add python-1 --language python --group python --max 4 --set min_free=1"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// Print the value as the service sends it: JSON on one line.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Show every pool with its language, group, limit and processes.
    #[command(after_long_help = "\
Example:
  settee pool list --wide")]
    List(TableArgs),
    /// Add a pool.
    #[command(after_long_help = "\
Example:
  settee pool add python-1 --language python --group python --max 4 --set min_free=1")]
    Add(AddArgs),
    /// Change settings of a pool.
    #[command(after_long_help = "\
Example:
  settee pool set python-1 max=8 queue_max=")]
    Set {
        /// The pool.
        name: String,
        /// Settings, as in a section [pools.NAME]; an empty value restores the default.
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = assignment)]
        settings: Vec<(String, String)>,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Remove a pool: its idle processes stop now, the others on return.
    #[command(after_long_help = "\
Example:
  settee pool remove python-1 --dry-run")]
    Remove {
        /// The pool.
        name: String,
        /// Stop all its processes now; holders are notified.
        #[arg(long)]
        immediate: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// End the throttle of a pool after failed starts.
    #[command(after_long_help = "\
Example:
  settee pool unthrottle python-1")]
    Unthrottle {
        /// The pool.
        name: String,
    },
    /// Show the processes of a pool.
    #[command(after_long_help = "\
Example:
  settee pool procs javascript")]
    Procs {
        /// The pool.
        name: String,
        #[command(flatten)]
        table: TableArgs,
    },
}

#[derive(clap::Args)]
struct PlanArgs {
    /// Print what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl PlanArgs {
    /// Returns the path of an order for a pool.
    fn path(&self, pool: &str, mode: &str) -> String {
        let query = [
            ("mode", mode.to_owned()),
            ("dry_run", self.dry_run.to_string()),
        ];
        with_query(&path(["_pools", pool]), query)
    }
}

/// The result of an order.
#[derive(Deserialize)]
struct Changed {
    changes: Vec<PoolChange>,
}

#[derive(clap::Args)]
struct AddArgs {
    /// The new pool's name.
    name: String,
    #[command(flatten)]
    keys: KeyArgs,
    /// Any setting, as in a section [pools.NAME].
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    settings: Vec<(String, String)>,
    #[command(flatten)]
    plan: PlanArgs,
}

/// An option for each key of a pool that a request may set, with the configuration's description.
struct KeyArgs(Vec<(String, String)>);

impl clap::Args for KeyArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        PoolConfig::keys_of_requests().fold(command, |command, key| {
            let option = clap::Arg::new(key.name)
                .long(key.name.replace('_', "-"))
                .alias(key.name);
            let option = option.value_name("VALUE").help(key.plain_sentence());
            command.arg(match key.name {
                "language" => option.short('l').required(true),
                _ => option,
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for KeyArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = PoolConfig::keys_of_requests().filter_map(|key| {
            let value = matches.get_one::<String>(key.name)?;
            Some((key.name.to_owned(), value.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as KEY=VALUE, max=10 for example".to_owned()),
    }
}

/// Returns settings in a request's form; an empty value is `null`.
fn settings(pairs: &[(String, String)]) -> Map<String, Value> {
    let value = |text: &String| match text.as_str() {
        "" => Value::Null,
        text => text.into(),
    };
    pairs
        .iter()
        .map(|(key, text)| (key.clone(), value(text)))
        .collect()
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    output::print(&block_on(perform(args))?)
}

async fn perform(args: &Args) -> CliResult<String> {
    // The caller's mistakes are like those in the command line, except the name of a missing object.
    let service = Service::at(&args.socket, |_, said| {
        let codes = [
            ("not_found", Exit::NotFound),
            ("bad_request", Exit::Usage),
            ("file_exists", Exit::Usage),
        ];
        let hint = "`settee pool list` shows the pools, docs/configuration.md the settings";
        explained(said, &codes, hint)
    });
    let json = args.json;
    let changed = |Changed { changes }| {
        let text = || {
            if changes.is_empty() {
                "nothing has changed\n".to_owned()
            } else {
                changes.iter().map(|change| format!("{change}\n")).collect()
            }
        };
        json_or(json, &changes, text)
    };
    Ok(match &args.action {
        Action::List(table) => {
            let pools = service.get::<DaemonStatus>("/_status").await?.pools;
            json_or(json, &pools, || status_table::pools(&pools, table.layout()))
        }
        Action::Add(add) => {
            let path = add.plan.path(&add.name, "add");
            let mut all = settings(&add.settings);
            // Each option is named after its key.
            all.extend(settings(&add.keys.0));
            changed(service.put(&path, &all).await?)
        }
        Action::Set {
            name,
            settings: pairs,
            plan,
        } => {
            let path = plan.path(name, "change");
            changed(service.put(&path, &settings(pairs)).await?)
        }
        Action::Remove {
            name,
            immediate,
            plan,
        } => {
            let mode = if *immediate { "immediate" } else { "graceful" };
            changed(service.delete(&plan.path(name, mode)).await?)
        }
        Action::Unthrottle { name } => {
            let path = path(["_pools", name, "_unthrottle"]);
            let answer: Value = service.post(&path, &()).await?;
            let lifted = answer["was_throttled"] == true;
            let text = if lifted {
                "starts processes again"
            } else {
                "was not throttled"
            };
            json_or(json, &lifted, || format!("{name} {text}\n"))
        }
        Action::Procs { name, table } => {
            let path = path(["_pools", name, "_procs"]);
            let procs = service.get::<Procs>(&path).await?.procs;
            json_or(json, &procs, || {
                let procs = procs.iter().map(|proc| (name.as_str(), proc));
                status_table::processes(procs, table.layout())
            })
        }
    })
}

/// The processes of a pool.
#[derive(Deserialize)]
struct Procs {
    procs: Vec<ProcStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_a_key_and_a_value_and_an_empty_value_is_sent_as_null() {
        assert_eq!(
            assignment("max = 10"),
            Ok(("max".to_owned(), "10".to_owned()))
        );
        for wrong in ["max", "=1", ""] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
        let all = settings(&[
            ("max".into(), "10".into()),
            ("queue_max".into(), String::new()),
        ]);
        assert_eq!(
            Value::Object(all),
            serde_json::json!({"max": "10", "queue_max": null})
        );
    }
}
