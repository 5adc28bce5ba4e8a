//! Saves a comparison's progress in a file: `--resume FILE`.
//!
//! SUMMARY   The first line identifies the comparison, each further one is a [`Step`]. An interrupted comparison is
//!           read from its file, reported again and continued; a complete one removes its file.
//! PROMISES  Other files, and those of other comparisons, are not touched. An incomplete last line is ignored: its
//!           step is repeated.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::exit::{CliError, CliResult, Exit, IoAt};
use replication::seq::Seq;
use replication::verify::{Leaf, Step};

const FORMAT: u32 = 1;

/// Identifies a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compared {
    settee_verify: u32,
    /// The id of the replication: a hash of source, target and filter.
    replication: String,
    deep: bool,
}

impl Compared {
    pub(super) fn new(replication: String, deep: bool) -> Self {
        Self {
            settee_verify: FORMAT,
            replication,
            deep,
        }
    }
}

/// The file, if requested.
pub(super) struct ResumeFile(Option<(File, PathBuf)>);

/// Where to continue.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    pub(super) since: Option<Seq>,
    pub(super) suspects: Vec<Leaf>,
}

impl ResumeFile {
    /// Opens or creates the file. Passes its steps to `tell`.
    ///
    /// # Errors
    /// The file cannot be read or written, is damaged, or belongs to something else; or `tell` failed.
    pub(super) fn open(
        path: Option<&Path>,
        compared: &Compared,
        mut tell: impl FnMut(&Step) -> CliResult,
    ) -> CliResult<(Self, Resumed)> {
        let mut resumed = Resumed::default();
        let Some(path) = path else {
            return Ok((Self(None), resumed));
        };
        let failed = |error: io::Error| CliError::io(path.display(), &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        let mut lines = BufReader::new(&file);
        let (mut line, mut whole) = (Vec::new(), 0);
        while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 && line.ends_with(b"\n") {
            if whole == 0 {
                match serde_json::from_slice::<Compared>(&line) {
                    Ok(known) if known == *compared => {}
                    Ok(_) => return Err(none(path, "is of another comparison")),
                    Err(_) => return Err(none(path, "is not a file of a comparison")),
                }
            } else {
                let step: Step =
                    serde_json::from_slice(&line).map_err(|_| none(path, "is damaged"))?;
                tell(&step)?;
                match step.through {
                    Some(seq) => resumed.since = Some(seq),
                    None => resumed.suspects.clear(),
                }
                resumed.suspects.extend(step.suspects);
            }
            whole += line.len() as u64;
            line.clear();
        }
        // Another program's file without a line end.
        if whole == 0 && !line.is_empty() {
            return Err(none(path, "is not a file of a comparison"));
        }
        file.set_len(whole).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut opened = Self(Some((file, path.to_owned())));
        if whole == 0 {
            opened.note(compared)?;
        }
        Ok((opened, resumed))
    }

    /// Appends a line.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn note(&mut self, value: &impl Serialize) -> CliResult {
        let Some((file, path)) = &mut self.0 else {
            return Ok(());
        };
        let line =
            serde_json::to_string(value).expect("strings and numbers serialize to JSON") + "\n";
        file.write_all(line.as_bytes()).io_at(path.display())
    }

    /// The comparison is complete: removes the file.
    ///
    /// # Errors
    /// Removing it failed.
    pub(super) fn finish(self) -> CliResult {
        let Some((_, path)) = self.0 else {
            return Ok(());
        };
        std::fs::remove_file(&path).io_at(path.display())
    }
}

fn none(path: &Path, what: &str) -> CliError {
    CliError::new(
        Exit::Usage,
        format!("{} {what}", path.display()),
        "name another file, or remove that one to compare from the beginning",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(through: Option<&str>, suspects: &[&str]) -> Step {
        let leaf = |id: &&str| Leaf {
            id: (*id).to_owned(),
            rev: "1-x".to_owned(),
        };
        Step {
            through: through.and_then(|text| serde_json::from_str(text).ok()),
            suspects: suspects.iter().map(leaf).collect(),
            ..Step::default()
        }
    }

    #[test]
    fn an_interrupted_comparison_resumes_after_its_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let compared = Compared::new("a".to_owned(), false);
        let open = |tell: &mut dyn FnMut(&Step) -> CliResult| {
            ResumeFile::open(Some(&path), &compared, tell).unwrap()
        };
        let (mut file, resumed) = open(&mut |_| panic!("a new file has no steps"));
        assert_eq!((resumed.since, resumed.suspects.len()), (None, 0));
        file.note(&step(Some("\"1-x\""), &["a"])).unwrap();
        file.note(&step(None, &[])).unwrap();
        file.note(&step(Some("[2]"), &["b"])).unwrap();
        file.note(&step(Some("3"), &["c"])).unwrap();
        drop(file);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"through\":4,\"cou"].concat()).unwrap();
        let mut told = 0;
        let (file, resumed) = open(&mut |_| {
            told += 1;
            Ok(())
        });
        let ids: Vec<&str> = resumed.suspects.iter().map(|leaf| &*leaf.id).collect();
        assert_eq!(
            (resumed.since, ids, told),
            (serde_json::from_str::<Seq>("3").ok(), vec!["b", "c"], 4)
        );
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        file.finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_something_else_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let compared = Compared::new("a".to_owned(), false);
        let other = serde_json::to_string(&Compared::new("a".to_owned(), true)).unwrap() + "\n";
        for text in ["my notes", "my notes\n", &other] {
            std::fs::write(&path, text).unwrap();
            let opened = ResumeFile::open(Some(&path), &compared, |_| Ok(()));
            assert_eq!(opened.err().unwrap().code, Exit::Usage);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
