//! Servers that could not be reached, and whether they answer again.
//!
//! SUMMARY   Says which crashes are of that kind, and asks a server when the core says so.
//! PROMISES  One question at most takes [`ANSWER_MAX`], and its result goes to the core.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use super::ReplicationScheduler;
use policy::schedule::{End, Event, JobId, Reason, Server};
use replication::crash::Crash;
use replication::endpoint::HttpSettings;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl ReplicationScheduler {
    /// Returns how a run of a job ended that crashed.
    pub(super) fn crashed(&self, id: &JobId, crash: &Crash) -> End {
        let (text, short) = (crash.to_string(), crash.short());
        let reason = Arc::new(Reason::with_short(&text, &short, crash.is_max_backoff()));
        let entry = self.entries.get(id).filter(|_| crash.is_unreachable());
        match entry {
            Some(entry) => End::Unreachable(reason, entry.servers()),
            None => End::Crashed(reason),
        }
    }

    /// Asks a server whether it answers, in the way in which a job speaks to it.
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
            let settings = HttpSettings::of_source(&replication.options, threshold);
            http.answers(side, settings, ANSWER_MAX).await
        };
        ctx.spawn(asking.into_actor(self).map(move |answers, scheduler, ctx| {
            let server = name;
            scheduler.event(Event::Probed { server, answers }, ctx);
        }));
    }
}
