//! Several daemons and one database in simulated time: messages are slow, get lost, or arrive late.
//!
//! SUMMARY   [`World::run_until`] executes events in order; after each, [`World::judge`] checks the invariants.
//! LIMITS    A message that a paused process has read but not handled counts as arriving when the pause ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::daemon::{Cut, Daemon, Run, RunState};
use super::database::{Answer, Ask, Database, Ms, Tables, ms, server_of};
use super::judge::Judge;
use super::*;
use crate::schedule::{Server, UNREACHABLE_AFTER};

/// The longest request to a server.
pub(super) const SERVER_MAX: Ms = 60_000;

/// How often a daemon probes servers that its jobs do not reach.
const PROBE_SERVERS_EVERY: Ms = 5_000;

/// How long a one-shot job takes.
const ONE_SHOT: Ms = 8_000;

/// An event at a daemon, or at the database.
#[derive(Clone, Debug)]
pub(super) enum WorldEvent {
    Wake,
    AnswerArrives(u64, Answer),
    /// A job has finished its work, or its outcome is not written yet.
    RunDone(DocId, u64),
    StopDone(DocId, u64),
    CheckpointDue(DocId, u64),
    /// The lease has expired, unless it was renewed since the checkpoint last checked it.
    LeaseDue(DocId, u64),
    /// The servers have committed for a checkpoint, or the request timed out.
    Committed(DocId, Record),
    /// A checkpoint arrives.
    CheckpointArrives(DocId, Record),
    /// A request arrives at the database, over a connection of this generation.
    RequestArrives(u64, Ask),
    /// The daemon probes unreachable servers.
    ProbeServers,
    /// A server is reachable again.
    Reached(Server),
    Resume,
    Heal,
    Start,
    Stop,
    /// The daemon drains for this long.
    Drain(Ms),
    Undrain,
    /// A failover begins: later commits are lost.
    Snapshot(Ms, Ms),
    /// The database has failed over.
    Failover(Box<Tables>, Ms),
    /// A fault that the test injects.
    Fault(histories::Fault),
}

impl WorldEvent {
    /// Whether the event waits while its daemon is paused.
    fn waits(&self) -> bool {
        matches!(
            self,
            Self::AnswerArrives(..)
                | Self::RunDone(..)
                | Self::StopDone(..)
                | Self::CheckpointDue(..)
                | Self::LeaseDue(..)
                | Self::Committed(..)
                | Self::ProbeServers
                | Self::Stop
                | Self::Drain(_)
                | Self::Undrain
        )
    }
}

#[derive(Debug)]
struct Entry {
    at: Ms,
    order: u64,
    daemon: usize,
    /// The process that the event concerns; `None`: any process of the daemon.
    life: Option<u64>,
    event: WorldEvent,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A checkpoint document.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    rev: u64,
    seq: u64,
}

/// The content of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The number of the checkpoint.
    number: u64,
    /// The revision that it replaces.
    rev: u64,
    seq: u64,
}

/// How long a replication's servers take for the requests of a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Servers {
    pub(super) commit: Ms,
    pub(super) write: Ms,
}

pub(super) struct World {
    pub(super) random: TestRandom,
    pub(super) now: Ms,
    pub(super) daemons: Vec<Daemon>,
    pub(super) database: Database,
    /// Lost and slow messages, per thousand.
    pub(super) lost: usize,
    pub(super) slow: usize,
    pub(super) notifies: bool,
    pub(super) sabotage: Sabotage,
    pub(super) judge: Judge,
    queue: BinaryHeap<Reverse<Entry>>,
    numbers: u64,
    /// Slow servers, by document.
    pub(super) servers: BTreeMap<DocId, Servers>,
    logs: BTreeMap<DocId, Log>,
    /// The last sequence written to each document's target.
    written: BTreeMap<DocId, u64>,
    /// The events so far, for debugging.
    pub(super) story: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(mut random: TestRandom, daemons: usize) -> Self {
        Self {
            now: 1_000,
            daemons: (0..daemons).map(|_| Daemon::new(&mut random)).collect(),
            random,
            database: Database::default(),
            lost: 0,
            slow: 0,
            notifies: true,
            sabotage: Sabotage::None,
            judge: Judge::default(),
            queue: BinaryHeap::new(),
            numbers: 0,
            servers: BTreeMap::new(),
            logs: BTreeMap::new(),
            written: BTreeMap::new(),
            story: None,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    /// Schedules an event for the current process.
    pub(super) fn later(&mut self, after: Ms, daemon: usize, event: WorldEvent) {
        let life = self.daemons[daemon].life;
        self.later_to(after, daemon, life, event);
    }

    /// The same, for the process `life`; `None`: for any process at that time.
    pub(super) fn later_to(
        &mut self,
        after: Ms,
        daemon: usize,
        life: Option<u64>,
        event: WorldEvent,
    ) {
        let entry = Entry {
            at: self.now + after,
            order: self.number(),
            daemon,
            life,
            event,
        };
        self.queue.push(Reverse(entry));
    }

    pub(super) fn add(&mut self, doc: &str) {
        let row = self.database.tables.docs.entry(doc.into()).or_default();
        row.wanted = true;
        self.judge.changed(self.now);
        self.notify();
    }

    pub(super) fn is_one_shot(doc: &str) -> bool {
        doc.starts_with("once")
    }

    /// Executes events until a time.
    pub(super) fn run_until(&mut self, end: Ms) {
        while self
            .queue
            .peek()
            .is_some_and(|Reverse(entry)| entry.at <= end)
        {
            let Some(Reverse(entry)) = self.queue.pop() else {
                return;
            };
            self.now = self.now.max(entry.at);
            self.execute(entry.daemon, entry.life, entry.event);
            self.judge();
        }
        self.now = end;
        self.judge();
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each event")]
    fn execute(&mut self, at: usize, life: Option<u64>, event: WorldEvent) {
        let daemon = &mut self.daemons[at];
        let is_its = life.is_none() || daemon.life == life;
        if event.waits() {
            if !is_its {
                return;
            }
            if daemon.is_paused {
                return daemon.inbox.push(event);
            }
        }
        if matches!(event, WorldEvent::Wake)
            && (daemon.is_paused || daemon.wake_at != Some(self.now))
        {
            return;
        }
        if self.story.is_some() {
            let line = format!("{} {at} {event:?}", self.now);
            self.log(|| line);
        }
        match event {
            WorldEvent::Wake => self.core_event(at, Event::Tick),
            WorldEvent::AnswerArrives(generation, answer) => {
                self.answer_arrives(at, generation, answer)
            }
            WorldEvent::RunDone(doc, number) => self.run_done(at, doc, number),
            WorldEvent::StopDone(doc, number) => {
                let run = self.daemons[at].runs.get(&doc);
                if let Some(claim) = run.filter(|run| run.number == number).map(|run| run.claim) {
                    self.daemons[at].runs.remove(&doc);
                    self.judge.stopped(&doc, self.now);
                    self.core_event(at, Event::Stopped { doc, claim });
                }
            }
            WorldEvent::CheckpointDue(doc, number) => self.checkpoint(at, doc, number),
            WorldEvent::LeaseDue(doc, number) => self.lease_due(at, &doc, number),
            WorldEvent::Committed(doc, record) => self.committed(at, &doc, record),
            WorldEvent::CheckpointArrives(doc, record) => self.checkpoint_arrives(at, &doc, record),
            WorldEvent::RequestArrives(generation, ask) => {
                self.request_arrives(at, life, generation, ask)
            }
            WorldEvent::ProbeServers => self.probe_servers(at),
            WorldEvent::Reached(server) => self.reached(at, &server),
            WorldEvent::Resume => {
                if !is_its || !self.daemons[at].is_paused {
                    return;
                }
                self.daemons[at].is_paused = false;
                self.judge.changed(self.now);
                let mut inbox = std::mem::take(&mut self.daemons[at].inbox);
                // The order in which waiting events are seen is random.
                if !inbox.is_empty() {
                    let first = self.random.below(inbox.len());
                    inbox.rotate_left(first);
                }
                self.core_wake(at);
                let life = self.daemons[at].life;
                inbox
                    .into_iter()
                    .for_each(|event| self.execute(at, life, event));
            }
            WorldEvent::Heal => {
                self.daemons[at].cut = Cut::default();
                self.judge.changed(self.now);
            }
            WorldEvent::Start => self.start(at),
            WorldEvent::Stop => {
                self.daemons[at].is_stopping = true;
                self.judge.changed(self.now);
                self.core_event(at, Event::Stop);
            }
            WorldEvent::Drain(how_long) => {
                self.daemons[at].is_drained = true;
                self.judge.changed(self.now);
                self.later(how_long, at, WorldEvent::Undrain);
                self.core_event(at, Event::Drain);
            }
            WorldEvent::Undrain => {
                self.daemons[at].is_drained = false;
                self.judge.changed(self.now);
                self.core_event(at, Event::Undrain);
            }
            WorldEvent::Snapshot(after, down) => {
                let tables = Box::new(self.database.tables.clone());
                self.later_to(after, 0, None, WorldEvent::Failover(tables, down));
            }
            WorldEvent::Failover(tables, down) => {
                self.database.tables = *tables;
                self.database.generation += 1;
                self.database.down_until = self.now + down;
                self.judge.failover(self.now, self.now + down);
            }
            WorldEvent::Fault(fault) => self.fault(fault),
        }
    }

    /// Starts a process of a daemon that has none.
    pub(super) fn start(&mut self, at: usize) {
        if self.daemons[at].life.is_some() {
            return;
        }
        let life = Some(self.number());
        let name = format!("daemon-{at}");
        let daemon = &mut self.daemons[at];
        daemon.core = Ownership::new(name);
        (daemon.life, daemon.is_stopping, daemon.wake_at) = (life, false, None);
        daemon.is_drained = false;
        daemon.reported.clear();
        daemon
            .unreachable
            .values_mut()
            .for_each(|since| *since = None);
        self.judge.changed(self.now);
        self.later(PROBE_SERVERS_EVERY, at, WorldEvent::ProbeServers);
        self.core_event(at, Event::Tick);
    }

    /// Makes a server unreachable for a daemon.
    pub(super) fn unreach(&mut self, at: usize, server: Server) {
        self.daemons[at].unreachable.entry(server).or_default();
        self.judge.changed(self.now);
    }

    /// Makes a server reachable again; the daemon reports it if one of its jobs was waiting.
    fn reached(&mut self, at: usize, server: &Server) {
        let daemon = &mut self.daemons[at];
        let since = daemon.unreachable.remove(server);
        self.judge.changed(self.now);
        if since.flatten().is_some() && self.daemons[at].acts() && self.has_runs(at, server) {
            self.report_reached(at, server.clone());
        }
    }

    fn report_reached(&mut self, at: usize, server: Server) {
        self.judge.reports_reach(self.now);
        let answers = true;
        self.core_event(at, Event::ServerReach { server, answers });
    }

    fn has_runs(&self, at: usize, server: &Server) -> bool {
        let mut docs = self.daemons[at].runs.keys();
        docs.any(|doc| server_of(doc) == *server)
    }

    fn probe_servers(&mut self, at: usize) {
        let servers: Vec<Server> = self.daemons[at].unreachable.keys().cloned().collect();
        for server in servers {
            let has_runs = self.has_runs(at, &server);
            let now = self.now;
            let since = self.daemons[at].unreachable.get_mut(&server);
            let since = since.expect("an unreachable server");
            // A daemon does not notice servers without jobs.
            *since = since.or(Some(now)).filter(|_| has_runs);
            if since.is_some_and(|since| now >= since + ms(UNREACHABLE_AFTER)) {
                let answers = false;
                if self.daemons[at].reported.insert(server.clone()) {
                    self.judge.reports_reach(self.now);
                }
                self.core_event(at, Event::ServerReach { server, answers });
            }
        }
        self.later(PROBE_SERVERS_EVERY, at, WorldEvent::ProbeServers);
    }

    /// Kills a process.
    pub(super) fn kill(&mut self, at: usize) {
        let daemon = &mut self.daemons[at];
        (daemon.life, daemon.wake_at) = (None, None);
        daemon.is_paused = false;
        daemon.inbox.clear();
        daemon.runs.clear();
        self.judge.fault(self.now);
    }

    /// Passes an event to the core and executes its actions.
    pub(super) fn core_event(&mut self, at: usize, event: Event) {
        let Some(event) = self.sabotage.event(event, &self.daemons[at]) else {
            return;
        };
        let now = self.now;
        let daemon = &mut self.daemons[at];
        let local = daemon.clock.now(now);
        let before = daemon.core.lease.map(|lease| lease.sent);
        let renewal = match &event {
            Event::Renewed { request, .. } | Event::EpochTaken { request, .. } => Some(*request),
            _ => None,
        };
        self.sabotage.before(&mut daemon.core, local);
        let mut actions = Vec::new();
        daemon.core.handle(event, local, &mut actions);
        if let Some(request) =
            renewal.filter(|_| daemon.core.lease.map(|lease| lease.sent) != before)
        {
            daemon.renewed = (self.database.generation, request);
        }
        for action in actions {
            self.perform(at, action);
        }
        if self.daemons[at].core.is_gone() {
            self.daemons[at].life = None;
        }
        self.core_wake(at);
    }

    /// Sets a daemon's next wake-up.
    fn core_wake(&mut self, at: usize) {
        let daemon = &mut self.daemons[at];
        let Some(wake) = daemon.core.next_wake().filter(|_| daemon.life.is_some()) else {
            return;
        };
        let due = daemon.clock.when(wake).max(self.now + 1);
        if daemon.wake_at.replace(due) != Some(due) {
            self.later(due - self.now, at, WorldEvent::Wake);
        }
    }

    fn perform(&mut self, at: usize, action: OwnerAction) {
        if self.story.is_some() {
            let line = format!("{} {at}   {action:?}", self.now);
            self.log(|| line);
        }
        let Some(action) = self.sabotage.action(action, &mut self.daemons[at].core) else {
            return;
        };
        match action {
            OwnerAction::Claimed { doc, claim, .. } => self.begin_run(at, doc, claim),
            OwnerAction::GiveUp { .. } => {}
            OwnerAction::GiveBack { doc, claim } => {
                let takes = self.random.below(5_000) as Ms;
                let run = self.daemons[at].runs.get_mut(&doc);
                match run.filter(|run| run.claim == claim) {
                    Some(run) => {
                        run.state = RunState::Stopping;
                        let number = run.number;
                        self.later(takes, at, WorldEvent::StopDone(doc, number));
                    }
                    None => self.core_event(at, Event::Stopped { doc, claim }),
                }
            }
            OwnerAction::Lost { doc, .. } => drop(self.daemons[at].runs.remove(&doc)),
            request => self.send(at, Ask::Core(request)),
        }
    }

    fn begin_run(&mut self, at: usize, doc: DocId, claim: Claim) {
        let number = self.number();
        let log = self.logs.get(&doc).copied().unwrap_or_default();
        let run = Run {
            number,
            claim,
            epoch: self.daemons[at]
                .core
                .epoch()
                .expect("an owner has an epoch"),
            state: RunState::Working,
            rev: log.rev,
            progress: log.seq,
            checkpoint: None,
        };
        self.daemons[at].runs.insert(doc.clone(), run);
        let first = self.random.below(10_000) as Ms;
        self.later(first, at, WorldEvent::CheckpointDue(doc.clone(), number));
        if Self::is_one_shot(&doc) {
            self.later(ONE_SHOT, at, WorldEvent::RunDone(doc, number));
        }
    }

    fn run_done(&mut self, at: usize, doc: DocId, number: u64) {
        let run = self.daemons[at]
            .runs
            .get(&doc)
            .filter(|run| run.number == number);
        let Some(run) = run.filter(|run| run.state != RunState::Stopping) else {
            return;
        };
        if run.state == RunState::Working && !self.daemons[at].reaches(&server_of(&doc)) {
            return self.later(ONE_SHOT, at, WorldEvent::RunDone(doc, number));
        }
        let run = self.daemons[at].runs.get_mut(&doc);
        let run = run.expect("the run exists");
        run.state = RunState::Finished;
        let owner = (run.epoch, run.claim);
        let ask = Ask::Outcome {
            doc: doc.clone(),
            owner,
        };
        self.send(at, ask);
        // Retries until the outcome is known to be written.
        self.later(ms(REQUEST_MAX), at, WorldEvent::RunDone(doc, number));
    }

    fn checkpoint(&mut self, at: usize, doc: DocId, number: u64) {
        let progress = 1 + self.random.below(5) as u64;
        let daemon = &mut self.daemons[at];
        let Some(run) = daemon.runs.get_mut(&doc).filter(|run| run.number == number) else {
            return;
        };
        run.progress += progress;
        let (rev, seq) = (run.rev, run.progress);
        let written = self.written.entry(doc.clone()).or_default();
        *written = seq.max(*written);
        let is_idle = run.checkpoint.is_none();
        if is_idle && let Some(left) = daemon.may_checkpoint(&doc, self.now) {
            let number = self.number();
            let run = self.daemons[at].runs.get_mut(&doc);
            let run = run.expect("the run exists");
            run.checkpoint = Some(number);
            let epoch = run.epoch;
            self.sends(epoch);
            self.later(left, at, WorldEvent::LeaseDue(doc.clone(), number));
            let takes = self.servers_of(&doc).commit.min(SERVER_MAX);
            let record = Record { number, rev, seq };
            self.later(takes, at, WorldEvent::Committed(doc.clone(), record));
        }
        let next = 4_000 + self.random.below(8_000) as Ms;
        self.later(next, at, WorldEvent::CheckpointDue(doc.clone(), number));
        let server = server_of(&doc);
        let daemon = &mut self.daemons[at];
        if daemon.reaches(&server) && daemon.reported.remove(&server) {
            self.report_reached(at, server);
        }
    }

    fn servers_of(&self, doc: &DocId) -> Servers {
        self.servers.get(doc).copied().unwrap_or_default()
    }

    /// Sends a request of a checkpoint.
    fn sends(&mut self, epoch: Epoch) {
        let holds = self.database.lease_holds(epoch, self.now);
        self.judge.sends(self.now, holds);
    }

    /// Returns the run that makes a checkpoint.
    fn run_of(&mut self, at: usize, doc: &DocId, checkpoint: u64) -> Option<&mut Run> {
        let run = self.daemons[at].runs.get_mut(doc)?;
        Some(run).filter(|run| run.checkpoint == Some(checkpoint))
    }

    /// A checkpoint continues while there is a lease, and is abandoned without one.
    fn lease_due(&mut self, at: usize, doc: &DocId, number: u64) {
        if self.run_of(at, doc, number).is_none() {
            return;
        }
        let left = self.daemons[at].may_checkpoint(doc, self.now);
        match self.sabotage.left(left) {
            Some(left) => self.later(left, at, WorldEvent::LeaseDue(doc.clone(), number)),
            None => {
                self.judge.gives_up(doc, self.now, left.is_some());
                self.restart_from_checkpoint(at, doc);
            }
        }
    }

    /// Sends the checkpoint itself, unless the lease has expired or the servers took too long.
    fn committed(&mut self, at: usize, doc: &DocId, record: Record) {
        let Some(run) = self.run_of(at, doc, record.number) else {
            return;
        };
        let epoch = run.epoch;
        let Servers { commit, write } = self.servers_of(doc);
        let may = self.daemons[at].may_checkpoint(doc, self.now).is_some();
        if commit >= SERVER_MAX || !may {
            return self.restart_from_checkpoint(at, doc);
        }
        self.sends(epoch);
        let late = self.random.below(10) == 0;
        let takes = 5 + self.random.below(if late { 60_000 } else { 50 }) as Ms;
        self.later(
            takes + write,
            at,
            WorldEvent::CheckpointArrives(doc.clone(), record),
        );
    }

    fn checkpoint_arrives(&mut self, at: usize, doc: &DocId, record: Record) {
        let Record { number, rev, seq } = record;
        let log = self.logs.entry(doc.clone()).or_default();
        let is_taken = log.rev == rev;
        if is_taken {
            let is_committed = log.seq <= seq && seq <= self.written[doc];
            self.judge.require(is_committed, || {
                format!(
                    "FL-3: a checkpoint of {doc} at {seq} replaces one at {}",
                    log.seq
                )
            });
            *log = Log { rev: rev + 1, seq };
        }
        match self.run_of(at, doc, number) {
            Some(run) if is_taken => (run.rev, run.checkpoint) = (rev + 1, None),
            // A run that finds a revision of another run ends.
            Some(_) => self.restart_from_checkpoint(at, doc),
            None => {}
        }
    }

    /// A run whose checkpoint fails restarts from the existing one.
    fn restart_from_checkpoint(&mut self, at: usize, doc: &DocId) {
        let log = self.logs.get(doc).copied().unwrap_or_default();
        if let Some(run) = self.daemons[at].runs.get_mut(doc) {
            (run.rev, run.progress, run.checkpoint) = (log.rev, log.seq, None);
        }
    }

    /// Returns the sequence in a document's checkpoint.
    pub(super) fn recorded(&self, doc: &str) -> u64 {
        self.logs.get(doc).map_or(0, |log| log.seq)
    }

    fn latency(&mut self) -> Ms {
        let is_slow = self.random.below(1000) < self.slow;
        1 + self.random.below(if is_slow { 9_000 } else { 60 }) as Ms
    }

    fn is_lost(&mut self) -> bool {
        self.random.below(1000) < self.lost
    }

    /// Sends a request; it may be lost, or executed after its sender has given up.
    fn send(&mut self, at: usize, ask: Ask) {
        let is_lost = self.is_lost();
        let latency = self.latency();
        if is_lost || latency > 100 {
            // The fault ends when the message arrives.
            self.judge.fault(self.now + latency);
        }
        if !is_lost && !self.daemons[at].cut.requests {
            let generation = self.database.generation;
            self.later(latency, at, WorldEvent::RequestArrives(generation, ask));
        }
    }

    fn request_arrives(&mut self, at: usize, life: Option<u64>, generation: u64, ask: Ask) {
        if self.database.generation != generation || self.now < self.database.down_until {
            return;
        }
        let notifies = matches!(
            ask,
            Ask::Core(OwnerAction::Release { .. } | OwnerAction::Depart { .. })
        );
        if matches!(ask, Ask::Outcome { .. }) {
            self.judge.changed(self.now);
        }
        let answer = self.database.carry_out(at, ask, self.now, &mut self.random);
        self.judge.seen(self.database.live(self.now), self.now);
        let is_lost = self.is_lost();
        let latency = self.latency();
        if is_lost || latency > 100 {
            self.judge.fault(self.now + latency);
        }
        if let Some(answer) = answer.filter(|_| !is_lost && !self.daemons[at].cut.answers) {
            self.later_to(
                latency,
                at,
                life,
                WorldEvent::AnswerArrives(generation, answer),
            );
        }
        if notifies {
            self.notify();
        }
    }

    fn answer_arrives(&mut self, at: usize, generation: u64, answer: Answer) {
        // A failover ends connections.
        if generation != self.database.generation {
            return;
        }
        match answer {
            Answer::Core(event) => self.core_event(at, event),
            Answer::Outcome { doc, claim } => {
                let run = self.daemons[at].runs.get(&doc);
                if run.is_some_and(|run| run.claim == claim && run.state == RunState::Finished) {
                    self.daemons[at].runs.remove(&doc);
                    self.judge.changed(self.now);
                    self.core_event(at, Event::Stopped { doc, claim });
                }
            }
        }
    }

    /// Notifies all daemons that there may be something to claim. Losing this is not a fault.
    pub(super) fn notify(&mut self) {
        for at in 0..self.daemons.len() {
            let daemon = &self.daemons[at];
            if self.notifies
                && daemon.life.is_some()
                && !daemon.cut.is_any()
                && self.random.below(10) > 0
            {
                let latency = self.latency();
                let generation = self.database.generation;
                let notified = WorldEvent::AnswerArrives(generation, Answer::Core(Event::Notified));
                self.later(latency, at, notified);
            }
        }
    }

    fn judge(&mut self) {
        let mut judge = std::mem::take(&mut self.judge);
        judge.after_each(self);
        self.judge = judge;
    }
}
