//! A store's replications in one file: everything worth keeping, as lines of JSON.
//!
//! SUMMARY   The first line is the [`ExportHead`]; each following one an [`ExportRow`]: documents in the order of
//!           their ids, then `_local/` ones; the last line counts the rows and has the SHA-256 of every byte before
//!           it. [`ExportLines`] writes the lines of a [`StoreSnapshot`], [`ExportReader`] reads and verifies them.
//! PROMISES  Reading a file with a wrong bit or without its end fails.
//! LIMITS    A line has at most [`LINE_BYTES_MAX`] bytes.

use std::io::{self, BufRead, Read};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::document_store::Answer;
use super::error::StoreError;
use super::revision::Revision;

/// The format version of these lines.
const FORMAT: u32 = 1;

/// Maximum length of a line, in bytes; replication documents are far shorter.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Maximum rows read at a time.
pub(super) const ROWS_MAX: usize = 500;

/// Size of bodies at which a batch of rows ends, in bytes.
pub(super) const BYTES_MAX: usize = 256 << 10;

/// The head of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportHead {
    /// The format of the lines.
    pub settee_export: u32,
    /// The uuid of the store.
    pub uuid: String,
    /// Its last sequence number.
    pub seq: u64,
    /// Whether it contains credentials.
    pub secrets: bool,
}

/// A document, with its job's data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRow {
    /// Its id.
    pub id: String,
    /// Its revision; `0-N` for a `_local/` document written N times.
    pub rev: String,
    /// The number of its last update; 0 for a `_local/` document.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seq: u64,
    /// When it was deleted, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<u64>,
    /// Its job's pause, priority and past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<RawValue>>,
    /// Its members except `_id` and `_rev`.
    pub doc: Box<RawValue>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(seq: &u64) -> bool {
    *seq == 0
}

/// The end of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportEnd {
    /// The number of rows.
    pub rows: u64,
    /// The SHA-256 of every byte before this line, in hexadecimal digits.
    pub sha256: String,
}

/// The kinds of rows, in their order in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    /// Documents, deleted ones too.
    Documents,
    /// `_local/` documents.
    Locals,
}

/// The prefix of the ids of `_local/` documents.
pub(super) const LOCAL: &str = "_local/";

impl ExportRow {
    /// Makes a row of stored values.
    pub(super) fn of_store(
        id: String,
        rev: String,
        seq: u64,
        deleted_at: Option<u64>,
        body: String,
        job: Option<String>,
    ) -> Result<Self, String> {
        let damaged = |_| format!("the stored values of {id} are not JSON");
        let doc = RawValue::from_string(body).map_err(damaged)?;
        let job = job.map(RawValue::from_string).transpose();
        Ok(Self {
            job: job.map_err(damaged)?,
            id,
            rev,
            seq,
            deleted_at,
            doc,
        })
    }

    /// Returns its revision; without a hash for a `_local/` document.
    pub(super) fn revision(&self) -> Result<Revision, String> {
        let revision = match self.local() {
            None => self.rev.parse().ok(),
            Some(_) => self.rev.strip_prefix("0-").and_then(|number| {
                let (number, hash) = (number.parse().ok()?, String::new());
                Some(Revision { number, hash })
            }),
        };
        revision.ok_or_else(|| format!("{} of {} is not a revision", self.rev, self.id))
    }

    /// Returns the next rows: at most `most`, ending with the one that brings their documents to `bytes_max` bytes.
    ///
    /// # Errors
    /// That of a row.
    pub fn next_of<E>(
        rows: &mut impl Iterator<Item = Result<Self, E>>,
        most: usize,
        bytes_max: usize,
    ) -> Result<Vec<Self>, E> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < most
            && bytes < bytes_max
            && let Some(row) = rows.next().transpose()?
        {
            bytes += row.doc.get().len();
            taken.push(row);
        }
        Ok(taken)
    }

    /// Returns the id after `_local/`, if it has that prefix.
    pub fn local(&self) -> Option<&str> {
        self.id.strip_prefix(LOCAL)
    }
}

pub(super) trait RowSource: Send {
    /// Returns the next rows of a kind, ordered by id, after the id `after`, which lacks `_local/`; none at the end.
    fn rows(&mut self, kind: RowKind, after: &str) -> Answer<'_, Vec<ExportRow>>;
}

/// A store as it was at one moment.
pub struct StoreSnapshot {
    uuid: String,
    seq: u64,
    source: Box<dyn RowSource>,
    kind: RowKind,
    after: String,
}

impl StoreSnapshot {
    pub(super) fn new(uuid: String, seq: u64, source: impl RowSource + 'static) -> Self {
        Self {
            uuid,
            seq,
            source: Box::new(source),
            kind: RowKind::Documents,
            after: String::new(),
        }
    }

    /// Returns the next rows; none at the end.
    ///
    /// # Errors
    /// See [`StoreError`]: the snapshot cannot be read further.
    pub async fn rows(&mut self) -> Result<Vec<ExportRow>, StoreError> {
        loop {
            let rows = self.source.rows(self.kind, &self.after).await?;
            match rows.last() {
                Some(last) => self.after = last.local().unwrap_or(&last.id).to_owned(),
                None if self.kind == RowKind::Documents => {
                    self.kind = RowKind::Locals;
                    self.after.clear();
                    continue;
                }
                None => {}
            }
            return Ok(rows);
        }
    }
}

/// The lines of a store's export, in chunks.
pub struct ExportLines {
    snapshot: StoreSnapshot,
    /// Removes credentials from a row.
    strip: Option<fn(&mut ExportRow)>,
    sum: Sum,
    part: Part,
}

/// The part that follows.
enum Part {
    Head,
    Rows,
    Over,
}

impl ExportLines {
    /// Starts an export. `strip` removes credentials from each row.
    pub fn new(snapshot: StoreSnapshot, strip: Option<fn(&mut ExportRow)>) -> Self {
        Self {
            snapshot,
            strip,
            sum: Sum::default(),
            part: Part::Head,
        }
    }

    /// Returns the next lines; none at the end.
    ///
    /// # Errors
    /// As [`StoreSnapshot::rows`].
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut lines = Vec::new();
        match self.part {
            Part::Head => {
                push_line(
                    &mut lines,
                    &ExportHead {
                        settee_export: FORMAT,
                        uuid: self.snapshot.uuid.clone(),
                        seq: self.snapshot.seq,
                        secrets: self.strip.is_none(),
                    },
                );
                self.part = Part::Rows;
            }
            Part::Rows => {
                let mut rows = self.snapshot.rows().await?;
                self.sum.rows += rows.len() as u64;
                for row in &mut rows {
                    self.strip.inspect(|strip| strip(row));
                    push_line(&mut lines, row);
                }
                if rows.is_empty() {
                    push_line(&mut lines, &self.sum.end());
                    self.part = Part::Over;
                }
            }
            Part::Over => return Ok(None),
        }
        self.sum.hash.update(&lines);
        Ok(Some(lines))
    }
}

fn push_line(lines: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *lines, value).expect("export: its values can be written");
    lines.push(b'\n');
}

/// The number of rows so far, and the hash of all lines so far, for the last line.
#[derive(Default)]
struct Sum {
    rows: u64,
    hash: Sha256,
}

impl Sum {
    fn end(&self) -> ExportEnd {
        ExportEnd {
            rows: self.rows,
            sha256: data_encoding::HEXLOWER.encode(&self.hash.clone().finalize()),
        }
    }
}

/// Why reading an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It differs from the written one.
    #[error("line {line} is damaged: {what}")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// The problem.
        what: String,
    },
    /// A newer program wrote it.
    #[error("it has format {0}, and this program knows formats up to {FORMAT}")]
    Newer(u32),
}

/// Reads an export and verifies it.
pub struct ExportReader<R> {
    input: R,
    line: u64,
    sum: Sum,
}

impl<R: BufRead> ExportReader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn open(input: R) -> Result<(ExportHead, Self), ExportError> {
        let mut reader = Self {
            input,
            line: 0,
            sum: Sum::default(),
        };
        let text = reader.text()?;
        #[derive(Deserialize)]
        struct Format {
            settee_export: u32,
        }
        let Format { settee_export } = reader.parsed(&text)?;
        if settee_export > FORMAT {
            return Err(ExportError::Newer(settee_export));
        }
        let head = reader.parsed(&text)?;
        reader.sum.hash.update(&text);
        Ok((head, reader))
    }

    /// Returns the next row; none after the last one of a file that is whole.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn row(&mut self) -> Result<Option<ExportRow>, ExportError> {
        let text = self.text()?;
        if let Ok(row) = serde_json::from_slice(&text) {
            self.sum.hash.update(&text);
            self.sum.rows += 1;
            return Ok(Some(row));
        }
        let mut end = Vec::new();
        push_line(&mut end, &self.sum.end());
        if text != end {
            let _: ExportEnd = self.parsed(&text)?;
            return Err(self.damaged("rows before it are missing or are not what was written"));
        }
        if self.input.fill_buf()?.is_empty() {
            Ok(None)
        } else {
            Err(self.damaged("it marks the end, but the file goes on"))
        }
    }

    fn text(&mut self) -> Result<Vec<u8>, ExportError> {
        let mut text = Vec::new();
        self.line += 1;
        let mut line = (&mut self.input).take(LINE_BYTES_MAX);
        line.read_until(b'\n', &mut text)?;
        if text.ends_with(b"\n") {
            Ok(text)
        } else if text.len() as u64 == LINE_BYTES_MAX {
            Err(self.damaged("it is too long"))
        } else {
            Err(self.damaged("the file is truncated here"))
        }
    }

    fn parsed<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, ExportError> {
        serde_json::from_slice(text).map_err(|error| self.damaged(&error.to_string()))
    }

    fn damaged(&self, what: &str) -> ExportError {
        ExportError::Damaged {
            line: self.line,
            what: what.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl RowSource for Two {
        fn rows(&mut self, kind: RowKind, after: &str) -> Answer<'_, Vec<ExportRow>> {
            let row = |id: &str, rev: &str| {
                let (body, job) = ("{\"n\":1.0}".to_owned(), Some("{}".to_owned()));
                ExportRow::of_store(id.to_owned(), rev.to_owned(), 0, None, body, job).unwrap()
            };
            let rows = match (kind, after) {
                (RowKind::Documents, "") => vec![row("a", "1-x"), row("b", "2-x")],
                (RowKind::Documents, "b") => vec![row("c", "1-x")],
                (RowKind::Locals, "") => vec![row("_local/a", "0-1")],
                _ => Vec::new(),
            };
            Box::pin(async { Ok(rows) })
        }
    }

    async fn written() -> Vec<u8> {
        let snapshot = StoreSnapshot::new("f00d".to_owned(), 7, Two);
        let (mut lines, mut all) = (ExportLines::new(snapshot, None), Vec::new());
        while let Some(some) = lines.next().await.unwrap() {
            all.extend(some);
        }
        all
    }

    fn read(mut bytes: &[u8]) -> Result<(ExportHead, Vec<String>), ExportError> {
        let (head, mut reader) = ExportReader::open(&mut bytes)?;
        let mut ids = Vec::new();
        while let Some(row) = reader.row()? {
            ids.push(format!("{} {} {}", row.id, row.rev, row.doc.get()));
        }
        Ok((head, ids))
    }

    #[tokio::test]
    async fn what_is_written_can_be_read_back() {
        let bytes = written().await;
        let (head, rows) = read(&bytes).unwrap();
        assert_eq!((&*head.uuid, head.seq, head.secrets), ("f00d", 7, true));
        let expected = ["a 1-x", "b 2-x", "c 1-x", "_local/a 0-1"];
        assert_eq!(rows, expected.map(|row| format!("{row} {{\"n\":1.0}}")));
        let end = String::from_utf8(bytes).unwrap();
        let end = end.lines().last().unwrap();
        assert!(end.starts_with("{\"rows\":4,\"sha256\":\""), "{end}");
    }

    #[tokio::test]
    async fn an_export_that_is_damaged_truncated_or_followed_by_more_is_refused() {
        let whole = written().await;
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert!(read(&damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(read(&whole[..at]).is_err(), "cut at {at}");
        }
        assert!(read(&[&whole[..], b"\n"].concat()).is_err());
        let newer = String::from_utf8(whole).unwrap();
        let newer = newer.replace("export\":1,", "export\":2,\"more\":1,");
        let error = read(newer.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("format 2"), "{error}");
    }
}
