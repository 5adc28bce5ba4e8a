//! The writes of one transaction: decided in memory on the rows that it read, and saved at its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use futures_util::future::join_all;
use tokio_postgres::{Client, Error, Row};

use super::kept::Kept;
use super::shared::{Param, Shared, count, epoch, int, query};
use crate::documents::{Conflict, Document, unix_now};
use crate::revision::Revision;
use crate::tables::{DocumentTables, next_local};
use policy::counted::Class;
use policy::ownership::Epoch;

/// The columns of a document, in the order of [`document`].
pub(super) const COLUMNS: &str = "id, rev_number, rev_hash, deleted, seq, body";

const SAVE: &str = "INSERT INTO settee.docs (id, rev_number, rev_hash, deleted, deleted_at, seq, body) \
     SELECT id, number, hash, deleted, CASE WHEN deleted THEN $5::bigint END, seq, body \
     FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $6::bigint[], $7::text[]) \
     AS d (id, number, hash, deleted, seq, body) \
     ON CONFLICT (id) DO UPDATE SET rev_number = excluded.rev_number, rev_hash = excluded.rev_hash, \
     deleted = excluded.deleted, deleted_at = excluded.deleted_at, seq = excluded.seq, body = excluded.body";

const TELL: &str = "UPDATE settee.meta SET seq = $1 RETURNING pg_notify('settee_docs', $1::text)";

const SAVE_LOCALS: &str = "INSERT INTO settee.locals SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[]) \
     ON CONFLICT (id) DO UPDATE SET number = excluded.number, body = excluded.body";

const REMOVE_LOCALS: &str = "DELETE FROM settee.locals WHERE id = ANY($1)";

const KEEP: &str = "INSERT INTO settee.jobs (doc_id, kept, kept_at) SELECT *, $3 FROM unnest($1::text[], $2::text[]) \
     ON CONFLICT (doc_id) DO UPDATE SET kept = excluded.kept, kept_at = excluded.kept_at";

/// A document that no longer requests a replication gives up its replication id, which another document may then take.
/// A new row has no replication id yet.
const WANT: &str = "INSERT INTO settee.jobs (doc_id, wanted, kept_at) SELECT *, $3 FROM unnest($1::text[], $2::boolean[]) \
     ON CONFLICT (doc_id) DO UPDATE SET wanted = excluded.wanted, \
     rep_id = CASE WHEN excluded.wanted THEN jobs.rep_id END, past = CASE WHEN excluded.wanted THEN jobs.past END";

const FORGET_STATUSES: &str = "DELETE FROM settee.job_status WHERE transient = 0 AND key = ANY($1)";

const TELL_WANTED: &str = "SELECT pg_notify('settee_fleet', 'claims')";

/// Whether a statement has anything to do, its text, and its parameters.
type Statement = (bool, &'static str, Vec<Param>);

/// Reads a document from its [`COLUMNS`].
pub(super) fn document(row: &Row) -> Result<Document, Error> {
    Ok(Document {
        id: row.try_get(0)?,
        revision: Revision {
            number: count(row.try_get(1)?),
            hash: row.try_get(2)?,
        },
        deleted: row.try_get(3)?,
        seq: count(row.try_get(4)?),
        body: row.try_get(5)?,
    })
}

/// The documents of a transaction: as in the database, with the changes of its earlier writes.
pub(super) struct Batch<'w> {
    shared: &'w Shared,
    /// The number of the last update.
    pub seq: u64,
    /// When the transaction began, in seconds since 1970.
    now: u64,
    /// When it acquired its lock: see [`Before::at`].
    locked_at: i64,
    documents: BTreeMap<String, Document>,
    saved: BTreeSet<String>,
    /// Id -> number and body, or the number of the deletion.
    locals: BTreeMap<String, (u64, Option<String>)>,
    saved_locals: BTreeSet<String>,
    kept: BTreeMap<String, Option<String>>,
    jobs: BTreeMap<String, Job>,
}

/// The state of a document's job.
#[derive(Debug)]
struct Job {
    wanted: bool,
    owner: Option<Epoch>,
    kept: Option<String>,
}

/// The documents, `_local/` documents and jobs that a batch is about, before its writes.
pub(super) struct Before {
    /// The number of the last update.
    pub seq: u64,
    /// When the lock was acquired, in microseconds since 1970, by the database's clock.
    pub at: i64,
    pub documents: Vec<Row>,
    pub locals: Vec<Row>,
    /// For each job: the document's id, whether a replication is wanted, the owner, and the kept value.
    pub jobs: Vec<Row>,
}

impl DocumentTables for Batch<'_> {
    type Error = Infallible;

    fn document(&self, id: &str) -> Result<Option<Document>, Infallible> {
        Ok(self.documents.get(id).cloned())
    }

    fn save(
        &mut self,
        id: &str,
        known: Option<&Document>,
        deleted: bool,
        body: &str,
    ) -> Result<Revision, Infallible> {
        self.seq += 1;
        let revision = Revision::after(known.map(|known| &known.revision), deleted, body);
        self.documents.insert(
            id.to_owned(),
            Document {
                id: id.to_owned(),
                revision: revision.clone(),
                deleted,
                seq: self.seq,
                body: body.to_owned(),
            },
        );
        self.saved.insert(id.to_owned());
        Ok(revision)
    }

    fn kept(&self, id: &str) -> Result<Option<String>, Infallible> {
        let before = || self.jobs.get(id).and_then(|job| job.kept.clone());
        Ok(self.kept.get(id).cloned().unwrap_or_else(before))
    }

    fn keep(&mut self, id: &str, value: Option<&str>) -> Result<(), Infallible> {
        self.kept.insert(id.to_owned(), value.map(str::to_owned));
        Ok(())
    }
}

impl<'w> Batch<'w> {
    pub fn of(shared: &'w Shared, before: &Before) -> Result<Self, Error> {
        let documents = before
            .documents
            .iter()
            .map(document)
            .map(|read| read.map(|read| (read.id.clone(), read)));
        let locals = before.locals.iter().map(|row| {
            let (number, body) = (count(row.try_get(1)?), row.try_get(2)?);
            Ok((row.try_get(0)?, (number, Some(body))))
        });
        let jobs = before.jobs.iter().map(|row| {
            let owner: Option<i64> = row.try_get(2)?;
            Ok((
                row.try_get(0)?,
                Job {
                    wanted: row.try_get(1)?,
                    owner: owner.map(epoch),
                    kept: row.try_get(3)?,
                },
            ))
        });
        Ok(Self {
            shared,
            seq: before.seq,
            now: unix_now(),
            locked_at: before.at,
            documents: documents.collect::<Result<_, _>>()?,
            saved: BTreeSet::new(),
            locals: locals.collect::<Result<_, Error>>()?,
            saved_locals: BTreeSet::new(),
            kept: BTreeMap::new(),
            jobs: jobs.collect::<Result<_, Error>>()?,
        })
    }

    /// Returns whether the epoch has claimed a document.
    pub fn is_owner(&self, epoch: Epoch, id: &str) -> bool {
        self.jobs
            .get(id)
            .is_some_and(|job| job.owner == Some(epoch))
    }

    /// Returns whether a document has requested a replication.
    fn is_wanted(&self, id: &str) -> bool {
        self.jobs.get(id).is_some_and(|job| job.wanted)
    }

    fn saved(&self) -> impl Iterator<Item = &Document> {
        self.saved.iter().filter_map(|id| self.documents.get(id))
    }

    pub fn edit_local(
        &mut self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Result<u64, Conflict> {
        let known = self.locals.get(id).filter(|(_, body)| body.is_some());
        let number = next_local(known.map(|(number, _)| *number), expected, body.is_none())?;
        self.locals.insert(id.to_owned(), (number, body));
        self.saved_locals.insert(id.to_owned());
        Ok(number)
    }

    /// Returns the saved documents, in the form that a watcher gets.
    pub fn news(&self) -> Vec<(String, Option<Class>)> {
        let class = |document: &Document| {
            (!document.deleted).then(|| self.shared.watcher.class(&document.id, &document.body))
        };
        self.saved()
            .map(|document| (document.id.clone(), class(document)))
            .collect()
    }

    /// Returns the values kept for jobs by this batch, except removals for documents that had requested no replication,
    /// or that it writes: a failover that loses a document leaves the deleted one before it, with its value.
    pub fn acknowledged(&self) -> Vec<Kept> {
        let is_old = |id: &String| self.is_wanted(id) && !self.saved.contains(id);
        self.kept
            .iter()
            .filter(|(id, value)| value.is_some() || is_old(id))
            .map(|(id, value)| Kept {
                doc: id.clone(),
                value: value.clone(),
                at: self.locked_at,
            })
            .collect()
    }

    /// Writes the outcome, and commits it.
    pub async fn commit(&self, client: &Client) -> Result<(), Error> {
        let saved: Vec<&Document> = self.saved().collect();
        let texts = |of: fn(&Document) -> &str| {
            Param::Texts(saved.iter().map(|one| of(one).to_owned()).collect())
        };
        let numbers = |of: fn(&Document) -> u64| {
            Param::Integers(saved.iter().map(|one| int(of(one))).collect())
        };
        let save = vec![
            texts(|one| &one.id),
            numbers(|one| one.revision.number),
            texts(|one| &one.revision.hash),
            Param::Flags(saved.iter().map(|one| one.deleted).collect()),
            Param::Number(self.now),
            numbers(|one| one.seq),
            texts(|one| &one.body),
        ];
        let [save_locals, remove_locals] = self.local_statements();
        let kept = self.kept.clone().into_iter();
        // A removal makes no row.
        let kept = kept.filter(|(id, value)| value.is_some() || self.jobs.contains_key(id));
        let (kept, values): (Vec<_>, Vec<_>) = kept.unzip();
        let (turned, asks) = self.turned(&saved);
        let begins = asks.contains(&true);
        let left: Vec<String> = turned
            .iter()
            .zip(&asks)
            .filter(|(_, asks)| !**asks)
            .map(|(id, _)| id.clone())
            .collect();
        let at = || Param::Number(count(self.locked_at));
        let statements: [Statement; 9] = [
            (!saved.is_empty(), SAVE, save),
            save_locals,
            remove_locals,
            (
                !kept.is_empty(),
                KEEP,
                vec![Param::Texts(kept), Param::OptionalTexts(values), at()],
            ),
            (
                !turned.is_empty(),
                WANT,
                vec![Param::Texts(turned), Param::Flags(asks), at()],
            ),
            (!left.is_empty(), FORGET_STATUSES, vec![Param::Texts(left)]),
            (begins, TELL_WANTED, vec![]),
            (!saved.is_empty(), TELL, vec![Param::Number(self.seq)]),
            (true, "COMMIT", vec![]),
        ];
        // Pipelined; after a failed statement the last one commits nothing.
        join_all(
            statements
                .iter()
                .filter(|(is_due, ..)| *is_due)
                .map(|(_, sql, params)| query(client, sql, params)),
        )
        .await
        .into_iter()
        .try_for_each(|rows| rows.map(drop))
    }

    /// Returns the statements that save and remove `_local/` documents.
    fn local_statements(&self) -> [Statement; 2] {
        let (mut ids, mut numbers, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let mut gone = Vec::new();
        for id in &self.saved_locals {
            match self.locals.get(id) {
                Some((number, Some(body))) => {
                    ids.push(id.clone());
                    numbers.push(int(*number));
                    bodies.push(body.clone());
                }
                _ => gone.push(id.clone()),
            }
        }
        let is_due = !ids.is_empty();
        let save = vec![
            Param::Texts(ids),
            Param::Integers(numbers),
            Param::Texts(bodies),
        ];
        [
            (is_due, SAVE_LOCALS, save),
            (!gone.is_empty(), REMOVE_LOCALS, vec![Param::Texts(gone)]),
        ]
    }

    /// Returns the saved documents that began (`true`) or ceased (`false`) to request a replication.
    fn turned(&self, saved: &[&Document]) -> (Vec<String>, Vec<bool>) {
        let asks = |d: &Document| !d.deleted && self.shared.watcher.class(&d.id, &d.body) == 0;
        saved
            .iter()
            .map(|d| (d.id.clone(), asks(d)))
            .filter(|(id, asks)| self.is_wanted(id) != *asks)
            .unzip()
    }
}
