//! The writes of one transaction: decided in memory on the rows that it read, and saved at its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use futures_util::future::{BoxFuture, join_all};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::kept::Kept;
use super::shared::{Shared, count, epoch, int};
use crate::documents::{Conflict, Document, unix_now};
use crate::revision::Revision;
use crate::tables::{DocumentTables, next_local};
use policy::counted::Class;
use policy::ownership::Epoch;

/// The columns of a document, in the order of [`document`].
pub(super) const COLUMNS: &str = "id, rev_number, rev_hash, deleted, seq, body";

const SAVE: &str = "INSERT INTO settee.docs (id, rev_number, rev_hash, deleted, deleted_at, seq, body) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::bigint[], $6::bigint[], $7::text[]) \
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

/// A parameter of a statement.
type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// The result of a statement.
type Ran = Result<(), tokio_postgres::Error>;

/// Reads a document from its [`COLUMNS`].
pub(super) fn document(row: &Row) -> Result<Document, tokio_postgres::Error> {
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
    seq: u64,
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
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    wanted: bool,
    owner: Option<Epoch>,
}

/// The documents, `_local/` documents and jobs that a batch is about, before its writes.
pub(super) struct Before {
    /// The number of the last update.
    pub seq: u64,
    /// When the lock was acquired, in microseconds since 1970, by the database's clock.
    pub at: i64,
    pub documents: Vec<Row>,
    pub locals: Vec<Row>,
    /// For each job: the document's id, whether a replication is wanted, and the owner.
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
        let document = Document {
            id: id.to_owned(),
            revision: revision.clone(),
            deleted,
            seq: self.seq,
            body: body.to_owned(),
        };
        self.documents.insert(id.to_owned(), document);
        self.saved.insert(id.to_owned());
        Ok(revision)
    }

    fn keep(&mut self, id: &str, value: Option<&str>) -> Result<(), Infallible> {
        self.kept.insert(id.to_owned(), value.map(str::to_owned));
        Ok(())
    }
}

impl<'w> Batch<'w> {
    pub fn of(shared: &'w Shared, before: &Before) -> Result<Self, tokio_postgres::Error> {
        let documents = before.documents.iter().map(document);
        let documents = documents.map(|read| read.map(|read| (read.id.clone(), read)));
        let locals = before.locals.iter().map(|row| {
            let (number, body) = (count(row.try_get(1)?), row.try_get(2)?);
            Ok((row.try_get(0)?, (number, Some(body))))
        });
        let jobs = before.jobs.iter().map(|row| {
            let owner: Option<i64> = row.try_get(2)?;
            let job = Job {
                wanted: row.try_get(1)?,
                owner: owner.map(epoch),
            };
            Ok((row.try_get(0)?, job))
        });
        Ok(Self {
            shared,
            seq: before.seq,
            now: unix_now(),
            locked_at: before.at,
            documents: documents.collect::<Result<_, _>>()?,
            saved: BTreeSet::new(),
            locals: locals.collect::<Result<_, tokio_postgres::Error>>()?,
            saved_locals: BTreeSet::new(),
            kept: BTreeMap::new(),
            jobs: jobs.collect::<Result<_, tokio_postgres::Error>>()?,
        })
    }

    /// Returns the number of the last update.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns whether the epoch has claimed a document.
    pub fn is_owner(&self, epoch: Epoch, id: &str) -> bool {
        self.jobs
            .get(id)
            .is_some_and(|job| job.owner == Some(epoch))
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
        let saved = self.saved.iter().filter_map(|id| self.documents.get(id));
        let class = |document: &Document| {
            (!document.deleted).then(|| self.shared.watcher.class(&document.id, &document.body))
        };
        saved
            .map(|document| (document.id.clone(), class(document)))
            .collect()
    }

    /// Returns the values kept for jobs by this batch, except removals for documents that had requested no replication.
    pub fn kept(&self) -> Vec<Kept> {
        let is_wanted = |id: &str| self.jobs.get(id).is_some_and(|job| job.wanted);
        let each = self.kept.iter();
        let set = each.filter(|(id, value)| value.is_some() || is_wanted(id));
        set.map(|(id, value)| Kept {
            doc: id.clone(),
            value: value.clone(),
            at: self.locked_at,
        })
        .collect()
    }

    /// Writes the outcome, and commits it.
    pub async fn commit(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let saved = self.saved.iter().filter_map(|id| self.documents.get(id));
        let saved: Vec<&Document> = saved.collect();
        let turned = self.turned(&saved);
        let seq = int(self.seq);
        let tell: [Param<'_>; 1] = [(&seq, Type::INT8)];
        // Pipelined; after a failed statement the last one commits nothing.
        let all: [BoxFuture<'_, _>; 9] = [
            Box::pin(self.save_documents(client, &saved)),
            Box::pin(self.save_locals(client)),
            Box::pin(self.remove_locals(client)),
            Box::pin(self.save_kept(client)),
            Box::pin(save_wanted(client, &turned, self.locked_at)),
            Box::pin(forget_statuses(client, &turned)),
            Box::pin(run(
                turned.iter().any(|(_, asks)| *asks),
                client,
                TELL_WANTED,
                &[],
            )),
            Box::pin(run(!saved.is_empty(), client, TELL, &tell)),
            Box::pin(run(true, client, "COMMIT", &[])),
        ];
        join_all(all).await.into_iter().collect()
    }

    /// Returns the saved documents that began (`true`) or ceased (`false`) to request a replication.
    fn turned<'d>(&self, saved: &[&'d Document]) -> Vec<(&'d str, bool)> {
        let asks = |d: &Document| !d.deleted && self.shared.watcher.asks(&d.id, &d.body);
        let known = |id: &str| self.jobs.get(id).is_some_and(|job| job.wanted);
        let each = saved.iter().map(|d| (d.id.as_str(), asks(d)));
        each.filter(|(id, asks)| known(id) != *asks).collect()
    }

    async fn save_documents(&self, client: &Client, saved: &[&Document]) -> Ran {
        let column =
            |of: fn(&Document) -> &str| -> Vec<&str> { saved.iter().map(|d| of(d)).collect() };
        let number =
            |of: fn(&Document) -> u64| -> Vec<i64> { saved.iter().map(|d| int(of(d))).collect() };
        let deleted: Vec<bool> = saved.iter().map(|d| d.deleted).collect();
        let now = int(self.now);
        let deleted_at: Vec<Option<i64>> = deleted.iter().map(|gone| gone.then_some(now)).collect();
        let params: [Param<'_>; 7] = [
            (&column(|d| &d.id), Type::TEXT_ARRAY),
            (&number(|d| d.revision.number), Type::INT8_ARRAY),
            (&column(|d| &d.revision.hash), Type::TEXT_ARRAY),
            (&deleted, Type::BOOL_ARRAY),
            (&deleted_at, Type::INT8_ARRAY),
            (&number(|d| d.seq), Type::INT8_ARRAY),
            (&column(|d| &d.body), Type::TEXT_ARRAY),
        ];
        run(!saved.is_empty(), client, SAVE, &params).await
    }

    /// Returns the written `_local/` documents and their content.
    fn saved_locals(&self) -> impl Iterator<Item = (&str, &(u64, Option<String>))> {
        let each = self.saved_locals.iter();
        each.filter_map(|id| Some((id.as_str(), self.locals.get(id)?)))
    }

    async fn save_locals(&self, client: &Client) -> Ran {
        let (mut ids, mut numbers, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (id, (number, body)) in self.saved_locals() {
            if let Some(body) = body {
                ids.push(id);
                numbers.push(int(*number));
                bodies.push(body.as_str());
            }
        }
        let params: [Param<'_>; 3] = [
            (&ids, Type::TEXT_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&bodies, Type::TEXT_ARRAY),
        ];
        run(!ids.is_empty(), client, SAVE_LOCALS, &params).await
    }

    async fn remove_locals(&self, client: &Client) -> Ran {
        let gone = self.saved_locals();
        let gone = gone.filter(|(_, (_, body))| body.is_none());
        let ids: Vec<&str> = gone.map(|(id, _)| id).collect();
        let params: [Param<'_>; 1] = [(&ids, Type::TEXT_ARRAY)];
        run(!ids.is_empty(), client, REMOVE_LOCALS, &params).await
    }

    async fn save_kept(&self, client: &Client) -> Ran {
        let each = self.kept.iter();
        let each = each.map(|(id, kept)| (id.as_str(), kept.as_deref()));
        let (ids, kept): (Vec<&str>, Vec<Option<&str>>) = each.unzip();
        let params: [Param<'_>; 3] = [
            (&ids, Type::TEXT_ARRAY),
            (&kept, Type::TEXT_ARRAY),
            (&self.locked_at, Type::INT8),
        ];
        run(!ids.is_empty(), client, KEEP, &params).await
    }
}

async fn save_wanted(client: &Client, turned: &[(&str, bool)], at: i64) -> Ran {
    let (ids, wanted): (Vec<&str>, Vec<bool>) = turned.iter().copied().unzip();
    let params: [Param<'_>; 3] = [
        (&ids, Type::TEXT_ARRAY),
        (&wanted, Type::BOOL_ARRAY),
        (&at, Type::INT8),
    ];
    run(!ids.is_empty(), client, WANT, &params).await
}

async fn forget_statuses(client: &Client, turned: &[(&str, bool)]) -> Ran {
    let left = turned.iter().filter(|(_, asks)| !asks);
    let ids: Vec<&str> = left.map(|(id, _)| *id).collect();
    let params: [Param<'_>; 1] = [(&ids, Type::TEXT_ARRAY)];
    run(!ids.is_empty(), client, FORGET_STATUSES, &params).await
}

/// Runs a statement if it has anything to do.
async fn run(is_due: bool, client: &Client, sql: &str, params: &[Param<'_>]) -> Ran {
    if is_due {
        client.query_typed(sql, params).await.map(drop)
    } else {
        Ok(())
    }
}
