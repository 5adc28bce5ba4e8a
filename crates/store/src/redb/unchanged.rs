//! A file that redb opens without modifying it: writes are kept in memory.
//!
//! SUMMARY   redb writes even to files that it only reads: it marks a file as open, and repairs it after a service was
//!           killed. [`UnchangedFile`] diverts these writes.
//! PROMISES  No byte of the file changes. Locks work as usual: another holder is noticed, and others are refused.
//! CALLED    By an export of a store that no service uses; at each start, to verify the store first.
//! LIMITS    Diverted writes take memory, a block of [`BLOCK`] bytes each; opening and reading make few.

use std::fs::OpenOptions;
use std::io;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Mutex;

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};
use rustc_hash::FxHashMap;

use crate::lock;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Returns the number of the block at an offset, and the part of it that a range of this length covers from there.
fn first_part(at: u64, length: usize) -> (u64, Range<usize>) {
    let begin = (at % BLOCK) as usize;
    let end = begin.saturating_add(length).min(BLOCK as usize);
    (at / BLOCK, begin..end)
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct UnchangedFile {
    file: FileBackend,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// The length of the file's beginning that is still read; after it, blocks that are not in `blocks` are zeros.
    of_file: u64,
    blocks: FxHashMap<u64, Box<[u8]>>,
}

impl UnchangedFile {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        // The lock against writers requires a writable file.
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        Ok(Self {
            file: FileBackend::new(file)?,
            changes: Mutex::new(Changes {
                len,
                of_file: len,
                blocks: FxHashMap::default(),
            }),
        })
    }

    /// Reads the file's content, and zeros after it.
    fn read_file(&self, of_file: u64, at: u64, out: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(of_file.saturating_sub(at)).unwrap_or(usize::MAX);
        let (there, behind) = out.split_at_mut(there.min(out.len()));
        behind.fill(0);
        if there.is_empty() {
            Ok(())
        } else {
            self.file.read(at, there)
        }
    }
}

impl StorageBackend for UnchangedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.changes).len)
    }

    fn read(&self, mut at: u64, mut out: &mut [u8]) -> io::Result<()> {
        let changes = lock(&self.changes);
        if at.saturating_add(out.len() as u64) > changes.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !out.is_empty() {
            let (number, part) = first_part(at, out.len());
            let (piece, rest) = out.split_at_mut(part.len());
            match changes.blocks.get(&number) {
                Some(block) => piece.copy_from_slice(&block[part]),
                None => self.read_file(changes.of_file, at, piece)?,
            }
            at += piece.len() as u64;
            out = rest;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = lock(&self.changes);
        changes.blocks.retain(|block, _| block * BLOCK < len);
        if let Some(block) = changes.blocks.get_mut(&(len / BLOCK)) {
            block[(len % BLOCK) as usize..].fill(0);
        }
        changes.of_file = changes.of_file.min(len);
        changes.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, mut at: u64, mut data: &[u8]) -> io::Result<()> {
        let mut changes = lock(&self.changes);
        changes.len = changes.len.max(at.saturating_add(data.len() as u64));
        while !data.is_empty() {
            let (number, part) = first_part(at, data.len());
            let (piece, rest) = data.split_at(part.len());
            if !changes.blocks.contains_key(&number) {
                let mut block = vec![0; BLOCK as usize];
                self.read_file(changes.of_file, number * BLOCK, &mut block)?;
                changes.blocks.insert(number, block.into());
            }
            if let Some(block) = changes.blocks.get_mut(&number) {
                block[part].copy_from_slice(piece);
            }
            at += piece.len() as u64;
            data = rest;
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(from, to)
    }

    fn try_lock_shared_range(
        &self,
        from: Bound<u64>,
        to: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(from, to)
    }

    fn lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(from, to)
    }

    fn lock_shared_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(from, to)
    }

    fn unlock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(from, to)
    }

    fn query_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(from, to)
    }
}

#[cfg(test)]
mod tests {
    use test_support::TestRandom;

    use super::*;

    #[test]
    fn writes_are_read_back_and_the_file_is_unchanged() {
        let mut random = TestRandom::for_test("writes_are_read_back_and_the_file_is_unchanged");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for _ in 0..50 {
            let mut bytes =
                |count: usize| -> Vec<u8> { (0..count).map(|_| random.below(256) as u8).collect() };
            let before = bytes(3 * BLOCK as usize + 77);
            std::fs::write(&path, &before).unwrap();
            let file = UnchangedFile::open(&path).unwrap();
            let mut model = before.clone();
            for _ in 0..20 {
                let at = random.below(model.len() + 1);
                let length = random.below(2 * BLOCK as usize);
                match random.below(4) {
                    0 => {
                        model.resize(at + length, 0);
                        file.set_len(model.len() as u64).unwrap();
                    }
                    1 | 2 => {
                        let data = vec![random.below(256) as u8; length];
                        model.resize(model.len().max(at + length), 0);
                        model[at..at + length].copy_from_slice(&data);
                        file.write(at as u64, &data).unwrap();
                    }
                    _ => {
                        let length = length.min(model.len() - at);
                        let mut out = vec![1; length];
                        file.read(at as u64, &mut out).unwrap();
                        assert_eq!(out, model[at..at + length]);
                    }
                }
                assert_eq!(file.len().unwrap(), model.len() as u64);
            }
            let mut all = vec![1; model.len()];
            file.read(0, &mut all).unwrap();
            assert_eq!(all, model);
            assert!(file.read(1, &mut all).is_err(), "there is no more");
            assert_eq!(std::fs::read(&path).unwrap(), before);
        }
    }
}
