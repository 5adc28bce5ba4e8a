//! Probes unreachable servers.
//!
//! SUMMARY   Detects crashes caused by an unreachable server, and probes a server when the core requests it.
//! PROMISES  A probe takes at most [`ANSWER_MAX`], and its result goes to the core.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use super::ReplicationScheduler;
use policy::schedule::{End, Event, JobId, Reason, Server};
use replication::crash::Crash;
use replication::endpoint::HttpSettings;

/// The time limit of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl ReplicationScheduler {
    /// Returns how a crashed run of a job ended.
    pub(super) fn crashed(&self, id: &JobId, crash: &Crash) -> End {
        let (text, short) = (crash.to_string(), crash.short());
        let reason = Arc::new(Reason::with_short(&text, &short, crash.is_max_backoff()));
        let entry = self.entries.get(id).filter(|_| crash.is_unreachable());
        match entry {
            Some(entry) => End::Unreachable(reason, entry.servers()),
            None => End::Crashed(reason),
        }
    }

    /// Probes a server over the same connection settings as a job.
    pub(super) fn ask_server(&self, server: Server, id: &JobId, ctx: &mut Context<Self>) {
        let entry = self
            .entries
            .get(id)
            .expect("SCH-1: a job that waits for a server is registered");
        let replication = Arc::clone(&entry.replication);
        let (http, threshold) = (self.http.clone(), self.core.settings().health_threshold);
        let name = Server::clone(&server);
        let asking = async move {
            let side = if replication.source.server() == *server {
                &replication.source
            } else {
                &replication.target
            };
            http.answers(
                side,
                HttpSettings::of_source(&replication.options, threshold),
                ANSWER_MAX,
            )
            .await
        };
        ctx.spawn(asking.into_actor(self).map(move |answers, scheduler, ctx| {
            scheduler.event(
                Event::Probed {
                    server: name,
                    answers,
                },
                ctx,
            );
        }));
    }
}
