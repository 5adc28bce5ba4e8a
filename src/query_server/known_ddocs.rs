//! Design documents that calls may name by id and digest.
//!
//! SUMMARY   [`KnownDdocs::keep`] keeps a design document sent with a call, [`KnownDdocs::find`] finds it for a later
//!           call of the same database. Both return the same text, which the pool compares by address.
//! PROMISES  A digest never finds a document of another database. Memory is bounded by [`KNOWN_BYTES_MAX`]; the least
//!           recently used is evicted first. Resending a text costs a comparison, not another digest.
//! CALLED    Where arguments of calls are parsed, on any thread.
//! SOURCE    Redis: EVALSHA, without its scripts' global names.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::ddoc::{Ddoc, TextDigest};
use crate::lock;
use policy::pool::DdocKey;

/// Maximum number of bytes of design documents kept.
const KNOWN_BYTES_MAX: usize = 64 << 20;

/// The overhead of a document besides its texts, in bytes.
const ENTRY_BYTES: usize = 512;

/// A database, the id of a design document, and the digest of its text.
type Name = (Arc<str>, Arc<str>, TextDigest);

/// A database, and a design document taught as sent.
type Text = (Arc<str>, DdocKey);

/// Recently sent design documents.
pub struct KnownDdocs {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

impl Default for KnownDdocs {
    fn default() -> Self {
        Self::of(KNOWN_BYTES_MAX)
    }
}

impl KnownDdocs {
    fn of(bytes_max: usize) -> Self {
        Self {
            kept: Mutex::default(),
            bytes_max,
        }
    }

    /// Returns the design document with this id and digest, if it was sent for this database and is still kept.
    pub(crate) fn find(
        &self,
        db: &Arc<str>,
        id: Arc<str>,
        digest: TextDigest,
    ) -> Option<Arc<Ddoc>> {
        lock(&self.kept).get(&(Arc::clone(db), id, digest))
    }

    /// Keeps a design document sent as the text `sent`. Returns it, or the earlier document sent with the same text.
    pub(crate) fn keep(&self, db: &Arc<str>, ddoc: Ddoc, sent: &str) -> Arc<Ddoc> {
        // Texts that differ only in members that are not taught share a key.
        let is_whole = ddoc.key.text.as_str().len() == sent.len();
        let text = is_whole.then(|| (Arc::clone(db), ddoc.key.clone()));
        if let Some(known) = text
            .as_ref()
            .and_then(|text| lock(&self.kept).sent_again(text))
        {
            return known;
        }
        let name = (
            Arc::clone(db),
            Arc::clone(&ddoc.key.id),
            Sha256::digest(sent).into(),
        );
        let mut kept = lock(&self.kept);
        if let Some(known) = kept.get(&name) {
            return known;
        }
        let ddoc = Arc::new(ddoc);
        if bytes_of(&name, &ddoc) <= self.bytes_max {
            kept.add(name, text, Arc::clone(&ddoc));
            kept.evict(self.bytes_max);
        }
        ddoc
    }
}

fn bytes_of((db, id, _): &Name, ddoc: &Ddoc) -> usize {
    ddoc.key.text.as_str().len() + db.len() + id.len() + ENTRY_BYTES
}

#[derive(Default)]
struct Kept {
    /// The documents, and when each was last used.
    ddocs: HashMap<Name, (Arc<Ddoc>, u64)>,
    /// The names of the documents that are taught as sent.
    by_text: HashMap<Text, Name>,
    /// The names by last use, least recently used first.
    by_use: BTreeMap<u64, Name>,
    uses: u64,
    bytes: usize,
}

impl Kept {
    fn get(&mut self, name: &Name) -> Option<Arc<Ddoc>> {
        let (ddoc, used) = self.ddocs.get_mut(name)?;
        self.uses += 1;
        let name = self.by_use.remove(&mem::replace(used, self.uses))?;
        self.by_use.insert(self.uses, name);
        Some(Arc::clone(ddoc))
    }

    fn sent_again(&mut self, text: &Text) -> Option<Arc<Ddoc>> {
        let name = self.by_text.get(text)?.clone();
        self.get(&name)
    }

    fn add(&mut self, name: Name, text: Option<Text>, ddoc: Arc<Ddoc>) {
        self.uses += 1;
        self.bytes += bytes_of(&name, &ddoc);
        self.by_use.insert(self.uses, name.clone());
        if let Some(text) = text {
            self.by_text.insert(text, name.clone());
        }
        self.ddocs.insert(name, (ddoc, self.uses));
    }

    fn evict(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some((_, name)) = self.by_use.pop_first()
            && let Some((ddoc, _)) = self.ddocs.remove(&name)
        {
            self.bytes -= bytes_of(&name, &ddoc);
            let text = (Arc::clone(&name.0), ddoc.key.clone());
            if self.by_text.get(&text) == Some(&name) {
                self.by_text.remove(&text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ddoc(id: &str, more: &str) -> String {
        format!(r#"{{"_id":"{id}","x":"{more}"}}"#)
    }

    fn keep(known: &KnownDdocs, db: &str, text: &str) -> Arc<Ddoc> {
        known.keep(&db.into(), Ddoc::parse(text).unwrap(), text)
    }

    fn find(known: &KnownDdocs, db: &str, text: &str) -> Option<Arc<Ddoc>> {
        let id = Ddoc::parse(text).unwrap().key.id;
        known.find(&db.into(), id, Sha256::digest(text).into())
    }

    #[test]
    fn a_digest_finds_the_very_document_that_was_sent_for_its_database() {
        let known = KnownDdocs::default();
        let (one, other) = (ddoc("_design/a", "1"), ddoc("_design/a", "2"));
        let kept = keep(&known, "shop", &one);
        assert!(Arc::ptr_eq(&kept, &keep(&known, "shop", &one)));
        assert!(Arc::ptr_eq(&kept, &find(&known, "shop", &one).unwrap()));
        assert!(find(&known, "shop", &other).is_none());
        assert!(find(&known, "till", &one).is_none());
        keep(&known, "till", &other);
        assert!(find(&known, "shop", &other).is_none());
        assert!(find(&known, "till", &one).is_none());
    }

    #[test]
    fn texts_taught_alike_are_each_found_by_their_own_digest() {
        let known = KnownDdocs::default();
        let plain = r#"{"_id":"_design/a","x":1}"#;
        let detailed = r#"{"_id":"_design/a","_local_seq":7,"x":1}"#;
        for text in [detailed, plain, detailed] {
            let kept = keep(&known, "shop", text);
            assert!(Arc::ptr_eq(&kept, &find(&known, "shop", text).unwrap()));
            assert_eq!(kept.key.text.as_str(), plain);
        }
        assert_eq!(lock(&known.kept).ddocs.len(), 2);
    }

    #[test]
    fn the_least_recently_used_document_is_evicted_first_and_completely() {
        let texts = ["a", "b", "c"].map(|id| ddoc(id, "1"));
        let room = 2 * (texts[0].len() + "shop".len() + 1 + ENTRY_BYTES);
        let known = KnownDdocs::of(room);
        keep(&known, "shop", &texts[0]);
        keep(&known, "shop", &texts[1]);
        assert!(find(&known, "shop", &texts[0]).is_some());
        keep(&known, "shop", &texts[2]);
        let found = texts
            .each_ref()
            .map(|text| find(&known, "shop", text).is_some());
        assert_eq!(found, [true, false, true]);
        // A document that exceeds the limit evicts nothing.
        let long = ddoc("d", &"x".repeat(room));
        assert_eq!(&*keep(&known, "shop", &long).key.id, "d");
        assert!(find(&known, "shop", &long).is_none());
        let kept = lock(&known.kept);
        assert_eq!(kept.bytes, room);
        assert_eq!(
            [kept.ddocs.len(), kept.by_text.len(), kept.by_use.len()],
            [2; 3]
        );
    }
}
