//! The writes of one transaction: what they have read, what they have decided, how it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

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

const KEEP: &str = "INSERT INTO settee.jobs (doc_id, kept) SELECT * FROM unnest($1::text[], $2::text[]) \
     ON CONFLICT (doc_id) DO UPDATE SET kept = excluded.kept";

/// What does not ask any more gives its replication to others.
const WANT: &str = "INSERT INTO settee.jobs (doc_id, wanted) SELECT * FROM unnest($1::text[], $2::boolean[]) \
     ON CONFLICT (doc_id) DO UPDATE SET wanted = excluded.wanted, \
     rep_id = CASE WHEN excluded.wanted THEN jobs.rep_id END, past = CASE WHEN excluded.wanted THEN jobs.past END";

const FORGET_STATUSES: &str = "DELETE FROM settee.job_status WHERE transient = 0 AND key = ANY($1)";

const TELL_WANTED: &str = "SELECT pg_notify('settee_fleet', 'claims')";

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

/// Documents in a transaction: as they are in the database, and as the writes before have left them.
pub(super) struct Batch<'w> {
    shared: &'w Shared,
    seq: u64,
    /// When the transaction began, in seconds since 1970.
    now: u64,
    documents: BTreeMap<String, Document>,
    saved: BTreeSet<String>,
    /// Id -> number and body, or the number of the deletion.
    locals: BTreeMap<String, (u64, Option<String>)>,
    saved_locals: BTreeSet<String>,
    kept: BTreeMap<String, Option<String>>,
    jobs: BTreeMap<String, Job>,
}

/// What is known of a document's job.
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    wanted: bool,
    owner: Option<Epoch>,
}

/// What the documents and `_local/` documents of a batch were before it.
pub(super) struct Before {
    /// The number of the last update.
    pub seq: u64,
    pub documents: Vec<Row>,
    pub locals: Vec<Row>,
    /// Id, whether it is wanted, and the owner of each document's job.
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

    /// Returns the documents that were saved, as a watcher hears of them.
    pub fn news(&self) -> Vec<(String, Option<Class>)> {
        let saved = self.saved.iter().filter_map(|id| self.documents.get(id));
        let class = |document: &Document| {
            (!document.deleted).then(|| self.shared.watcher.class(&document.id, &document.body))
        };
        saved
            .map(|document| (document.id.clone(), class(document)))
            .collect()
    }

    /// Writes the outcome, and commits it.
    pub async fn commit(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let documents = self.saved.iter().filter_map(|id| self.documents.get(id));
        let documents: Vec<&Document> = documents.collect();
        let column = |of: fn(&Document) -> &str| -> Vec<&str> {
            documents.iter().map(|document| of(document)).collect()
        };
        let (ids, hashes) = (column(|d| &d.id), column(|d| &d.revision.hash));
        let bodies = column(|d| &d.body);
        let number = |of: fn(&Document) -> u64| -> Vec<i64> {
            documents.iter().map(|document| int(of(document))).collect()
        };
        let (numbers, seqs) = (number(|d| d.revision.number), number(|d| d.seq));
        let deleted: Vec<bool> = documents.iter().map(|document| document.deleted).collect();
        let deleted_at: Vec<Option<i64>> = deleted
            .iter()
            .map(|deleted| deleted.then_some(int(self.now)))
            .collect();
        let save: [(&(dyn ToSql + Sync), Type); 7] = [
            (&ids, Type::TEXT_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&hashes, Type::TEXT_ARRAY),
            (&deleted, Type::BOOL_ARRAY),
            (&deleted_at, Type::INT8_ARRAY),
            (&seqs, Type::INT8_ARRAY),
            (&bodies, Type::TEXT_ARRAY),
        ];
        let asks = |d: &Document| !d.deleted && self.shared.watcher.asks(&d.id, &d.body);
        let known = |id: &str| self.jobs.get(id).is_some_and(|job| job.wanted);
        let (want_ids, wanted): (Vec<&str>, Vec<bool>) = documents
            .iter()
            .map(|document| (document.id.as_str(), asks(document)))
            .filter(|(id, asks)| known(id) != *asks)
            .unzip();
        let want: [(&(dyn ToSql + Sync), Type); 2] =
            [(&want_ids, Type::TEXT_ARRAY), (&wanted, Type::BOOL_ARRAY)];
        let left = want_ids.iter().zip(&wanted);
        let left: Vec<&str> = left
            .filter(|(_, asks)| !**asks)
            .map(|(id, _)| *id)
            .collect();
        let forget: [(&(dyn ToSql + Sync), Type); 1] = [(&left, Type::TEXT_ARRAY)];
        let locals = self.saved_locals.iter();
        let locals: Vec<_> = locals
            .filter_map(|id| Some((id, self.locals.get(id)?)))
            .collect();
        let (mut put, mut numbers_put, mut bodies_put) = (Vec::new(), Vec::new(), Vec::new());
        let mut removed = Vec::new();
        for (id, (number, body)) in locals {
            match body {
                Some(body) => {
                    put.push(id.as_str());
                    numbers_put.push(int(*number));
                    bodies_put.push(body.as_str());
                }
                None => removed.push(id.as_str()),
            }
        }
        let save_locals: [(&(dyn ToSql + Sync), Type); 3] = [
            (&put, Type::TEXT_ARRAY),
            (&numbers_put, Type::INT8_ARRAY),
            (&bodies_put, Type::TEXT_ARRAY),
        ];
        let (kept_ids, kept): (Vec<&str>, Vec<Option<&str>>) = self
            .kept
            .iter()
            .map(|(id, kept)| (id.as_str(), kept.as_deref()))
            .unzip();
        let keep: [(&(dyn ToSql + Sync), Type); 2] =
            [(&kept_ids, Type::TEXT_ARRAY), (&kept, Type::TEXT_ARRAY)];
        let remove: [(&(dyn ToSql + Sync), Type); 1] = [(&removed, Type::TEXT_ARRAY)];
        let seq = int(self.seq);
        let tell: [(&(dyn ToSql + Sync), Type); 1] = [(&seq, Type::INT8)];
        let run =
            async |is_due: bool, sql: &str, params: &[(&(dyn ToSql + Sync), Type)]| match is_due {
                true => client.query_typed(sql, params).await.map(drop),
                false => Ok(()),
            };
        // They are sent one behind the other; after one that fails the last one commits nothing.
        let all = futures_util::future::join_all([
            run(!ids.is_empty(), SAVE, &save),
            run(!put.is_empty(), SAVE_LOCALS, &save_locals),
            run(!removed.is_empty(), REMOVE_LOCALS, &remove),
            run(!kept.is_empty(), KEEP, &keep),
            run(!want_ids.is_empty(), WANT, &want),
            run(!left.is_empty(), FORGET_STATUSES, &forget),
            run(wanted.contains(&true), TELL_WANTED, &[]),
            run(!ids.is_empty(), TELL, &tell),
            run(true, "COMMIT", &[]),
        ]);
        all.await.into_iter().collect()
    }
}
