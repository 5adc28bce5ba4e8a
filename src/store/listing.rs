//! Documents in the order of their ids, a page at a time.
//!
//! SOURCE    couch_mrview: all docs; fabric_view_all_docs.

use std::ops::Bound;

use super::documents::{Document, Row};
use super::records::Snapshot;

/// Which documents to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where to begin, in the order of the list.
    pub start: Bound<String>,
    /// Where to end.
    pub end: Bound<String>,
    /// Whether the last id comes first.
    pub descending: bool,
    /// How many to pass over.
    pub skip: usize,
    /// How many at most.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            descending: false,
            skip: 0,
            limit: usize::MAX,
        }
    }
}

/// Documents of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// How many there are in all.
    pub total: u64,
    /// Those of the page.
    pub documents: Vec<Document>,
    /// The last sequence number.
    pub update_seq: u64,
}

impl Snapshot {
    pub(super) fn list(&self, page: &Page) -> Result<Listing, redb::Error> {
        let info = self.info()?;
        let mut listing = Listing {
            total: info.documents,
            update_seq: info.update_seq,
            ..Listing::default()
        };
        let mut to_skip = page.skip;
        let mut take = |entry: Result<Entry<'_>, redb::StorageError>| {
            let (id, row) = entry?;
            let row = row.value();
            if row.2 {
                return Ok(true);
            }
            if listing.documents.len() >= page.limit {
                return Ok(false);
            }
            if to_skip > 0 {
                to_skip -= 1;
            } else {
                listing.documents.push(Document::of(id.value(), row));
            }
            Ok::<bool, redb::Error>(true)
        };
        let (lower, upper) = match page.descending {
            false => (&page.start, &page.end),
            true => (&page.end, &page.start),
        };
        if is_empty(lower, upper) {
            return Ok(listing);
        }
        let range = (text(lower), text(upper));
        let mut entries = self.documents.range::<&str>(range)?;
        loop {
            let entry = match page.descending {
                false => entries.next(),
                true => entries.next_back(),
            };
            match entry {
                Some(entry) => {
                    if !take(entry)? {
                        return Ok(listing);
                    }
                }
                None => return Ok(listing),
            }
        }
    }
}

/// A row of the table of documents.
type Entry<'a> = (
    redb::AccessGuard<'a, &'static str>,
    redb::AccessGuard<'a, Row>,
);

fn text(bound: &Bound<String>) -> Bound<&str> {
    bound.as_ref().map(String::as_str)
}

/// The library takes a range whose beginning comes after its end for a mistake.
fn is_empty(lower: &Bound<String>, upper: &Bound<String>) -> bool {
    match (lower, upper) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    }
}
