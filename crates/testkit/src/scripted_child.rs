//! ScriptedChild: a script, the folder of its records, and what it recorded.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::script::Script;
use child::CommandSpec;
use child::cell::Cell;
use settee::languages::command::CommandLanguage;
use test_support::eventually;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A real child that follows its script; a pool may start it many times.
///
/// Cheap to clone. Its folder is removed with the last clone or with its pool; its records stay.
#[derive(Clone, Debug)]
pub struct ScriptedChild {
    folder: Arc<Folder>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Records, read when the folder is removed.
    records: OnceLock<[Vec<String>; RECORDS.len()]>,
}

/// Names of the record files.
const RECORDS: [&str; 3] = ["prompts", "started", "grandchildren"];

impl Folder {
    fn read(&self, name: &str) -> Vec<String> {
        String::from_utf8_lossy(&fs::read(self.path.join(name)).unwrap_or_default())
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // `TestPool::assert_gone` reports a leftover folder.
        drop(fs::remove_dir_all(&self.path));
    }
}

impl ScriptedChild {
    /// Writes the script's program into a new temporary folder.
    ///
    /// # Panics
    /// The folder or the program cannot be written.
    pub fn new(script: Script) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("settee-testkit-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("child.sh"), script.program(&folder)))
            .unwrap_or_else(|error| panic!("cannot write a script: {error}"));
        Self {
            folder: Arc::new(Folder {
                path: folder,
                records: OnceLock::new(),
            }),
        }
    }

    /// Returns the command as text for a configuration.
    pub fn command(&self) -> String {
        format!("/bin/sh {}", self.folder.path.join("child.sh").display())
    }

    /// Returns a language whose processes follow the script. Abilities are not probed: a probe would start one more
    /// process, and scripts count starts.
    pub fn language(&self) -> CommandLanguage {
        CommandLanguage::from_spec(CommandSpec {
            program: "/bin/sh".into(),
            arguments: vec![self.folder.path.join("child.sh").into()],
            environment: Vec::new(),
            cell: Cell::None,
        })
        .without_probes()
    }

    pub fn folder(&self) -> &std::path::Path {
        &self.folder.path
    }

    /// Removes the folder and keeps its records, which may be read later.
    pub(crate) fn remove_folder(&self) {
        self.folder
            .records
            .get_or_init(|| RECORDS.map(|name| self.folder.read(name)));
        drop(fs::remove_dir_all(&self.folder.path));
    }

    /// Returns every prompt that its processes read, in order, byte for byte, without the first `reset` of each.
    pub fn prompts(&self) -> Vec<String> {
        self.record("prompts")
    }

    /// Returns the PIDs of all started processes.
    pub fn started(&self) -> Vec<u32> {
        self.numbers("started")
    }

    /// Returns the PIDs of all processes that [`crate::Step::Grandchild`] started.
    pub fn grandchildren(&self) -> Vec<u32> {
        self.numbers("grandchildren")
    }

    /// Waits until one of its processes has reached `Mark(name)`.
    ///
    /// # Panics
    /// None does within [`PATIENCE`](crate::PATIENCE).
    pub async fn reached(&self, name: &str) {
        let mark = self.folder.path.join(format!("mark-{name}"));
        eventually(
            &format!("the child reaches the mark '{name}'"),
            async || mark.exists(),
        )
        .await;
    }

    /// Lets all its processes pass `Await(name)`, now and later.
    ///
    /// # Panics
    /// The folder is gone.
    pub fn release(&self, name: &str) {
        fs::write(self.folder.path.join(format!("release-{name}")), "")
            .unwrap_or_else(|error| panic!("cannot release '{name}': {error}"));
    }

    fn record(&self, name: &str) -> Vec<String> {
        self.folder
            .records
            .get()
            .and_then(|records| {
                let place = RECORDS.iter().position(|known| *known == name)?;
                Some(records[place].clone())
            })
            .unwrap_or_else(|| self.folder.read(name))
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        self.record(name)
            .iter()
            .filter_map(|line| line.parse().ok())
            .collect()
    }
}
