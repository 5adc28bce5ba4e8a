//! A control group for each cell: limits memory, processes and processor time of all its processes together.
//!
//! SUMMARY   [`Cgroup::make`] makes the cell's groups, next to the launcher's own (version 2) or below it (version 1),
//!           and writes the limits. The cell's first process is started inside or enters them itself.
//! PROMISES  Limits not in force are reported. The groups are removed with the cell; the next launcher removes
//!           those of killed launchers, as does the service at its end and start. Services in several pid namespaces
//!           may share a hierarchy: none touches another's groups.
//! SOURCE    cgroups(7). Version 2 is used if a part of the hierarchy was delegated to the service: it runs in a leaf,
//!           which it makes if the service manager does not, and the cells are next to it. Version 1 is used if
//!           writable.
//! LIMITS    Moving a process by its number takes 15 ms, because the kernel waits for all others. So with version 1 a
//!           process enters itself, and with version 2 it is started inside, or enters itself if systemd's
//!           `RestrictNamespaces=` refuses `clone3`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use super::CellSpec;
use super::layers::Layer;
use super::report::MetLimit;

/// The root of the hierarchies.
pub(super) const ROOT: &str = "/sys/fs/cgroup";

/// The leaf that a service makes for itself, named as systemd's manual suggests for `DelegateSubgroup=`.
const LEAF: &str = "service";

/// Prefix of each group's name; followed by the inode of the launcher's pid namespace and the launcher's pid.
const PREFIX: &str = "settee-cell-";

/// The period of the processor limit, in microseconds.
const PERIOD_US: u64 = 100_000;

/// A cell's weight when processors are contended: a tenth of the service's. Not set with version 1, where a cell may
/// compete with all the machine's processes and would get too little.
const WEIGHT_V2: u32 = 10;

/// Controllers needed for the limits.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Poll interval while a control group empties.
const ROUND: Duration = Duration::from_millis(10);

/// Processes in the group besides the command's: the cell's first one, which reports to the launcher.
const OWN_PROCESSES: u64 = 1;

/// A limit.
struct Limit {
    layer: Layer,
    controller: &'static str,
    /// Files and their values, for both versions. Only the first file is required.
    v1: Vec<(&'static str, String)>,
    v2: Vec<(&'static str, String)>,
}

fn limits(spec: &CellSpec) -> Vec<Limit> {
    let mut limits = Vec::new();
    if spec.memory_max > 0 {
        let bytes = spec.memory_max.to_string();
        limits.push(Limit {
            layer: Layer::Memory,
            controller: "memory",
            v1: vec![
                ("memory.limit_in_bytes", bytes.clone()),
                ("memory.memsw.limit_in_bytes", bytes.clone()),
            ],
            v2: vec![("memory.max", bytes), ("memory.swap.max", "0".into())],
        });
    }
    if spec.processes_max > 0 {
        let count = (u64::from(spec.processes_max) + OWN_PROCESSES).to_string();
        limits.push(Limit {
            layer: Layer::ProcessCount,
            controller: "pids",
            v1: vec![("pids.max", count.clone())],
            v2: vec![("pids.max", count)],
        });
    }
    if spec.cpu_max > 0 {
        let quota = u64::from(spec.cpu_max) * PERIOD_US / 100;
        limits.push(Limit {
            layer: Layer::Cpu,
            controller: "cpu",
            v1: vec![
                ("cpu.cfs_quota_us", quota.to_string()),
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
            ],
            v2: vec![
                ("cpu.max", format!("{quota} {PERIOD_US}")),
                ("cpu.weight", WEIGHT_V2.to_string()),
            ],
        });
    }
    limits
}

/// The groups of one cell.
#[derive(Default)]
pub(super) struct Cgroup {
    folders: Vec<PathBuf>,
    /// A process that writes `0` into each of them enters the groups.
    entrances: Vec<File>,
    /// Version 2: the group's folder; processes are started inside the group.
    pub(super) start_in: Option<File>,
    /// Version 2: the entrance for a process that cannot be started inside. Opened as the service, whose rights the
    /// write needs.
    entrance_v2: Option<File>,
    pub(super) held: Vec<Layer>,
    pub(super) missing: BTreeMap<Layer, String>,
}

impl Cgroup {
    /// Makes the groups of this launcher's cell.
    pub(super) fn make(own: &OwnGroups, launcher: u32, spec: &CellSpec) -> Self {
        let mut made = Self::default();
        let limits = limits(spec);
        let name = name_of(launcher);
        if let Some(base) = own.delegated() {
            made.make_v2(&base.join(name), &limits);
        } else {
            for limit in &limits {
                made.make_v1(own, &name, limit);
            }
        }
        made
    }

    fn make_v1(&mut self, own: &OwnGroups, name: &str, limit: &Limit) {
        let Some(base) = own.v1(limit.controller) else {
            self.missing.insert(
                limit.layer,
                format!("there is no control group for {} here", limit.controller),
            );
            return;
        };
        let folder = base.join(name);
        let entrance = make_folder(&folder)
            .and_then(|()| write_limits(&folder, &limit.v1))
            .and_then(|()| open_to_write(&folder.join("tasks")));
        match entrance {
            Ok(entrance) => {
                self.folders.push(folder);
                self.entrances.push(entrance);
                self.held.push(limit.layer);
            }
            Err(error) => {
                drop(fs::remove_dir(&folder));
                self.missing.insert(limit.layer, cannot(&folder, &error));
            }
        }
    }

    fn make_v2(&mut self, folder: &Path, limits: &[Limit]) {
        let made = make_folder(folder).and_then(|()| File::open(folder));
        match made {
            Ok(start_in) => self.start_in = Some(start_in),
            Err(error) => {
                return self.missing.extend(
                    limits
                        .iter()
                        .map(|limit| (limit.layer, cannot(folder, &error))),
                );
            }
        }
        self.entrance_v2 = open_to_write(&folder.join("cgroup.procs")).ok();
        self.folders.push(folder.to_owned());
        for limit in limits {
            match write_limits(folder, &limit.v2) {
                Ok(()) => self.held.push(limit.layer),
                Err(error) => drop(self.missing.insert(limit.layer, cannot(folder, &error))),
            }
        }
    }

    /// Moves the calling process to the groups that it was not started in.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.entrances
            .iter()
            .try_for_each(|mut entrance: &File| io::Write::write_all(&mut entrance, b"0"))
    }

    /// Returns which limits the cell's processes reached.
    pub(super) fn met(&self, spec: &CellSpec) -> Vec<MetLimit> {
        let counts = |file: &str, event: &str| {
            let mut folders = self.folders.iter();
            folders.any(|folder| count_of(&folder.join(file), event) > 0)
        };
        let is_out_of_memory =
            || counts("memory.events", "oom_kill") || counts("memory.oom_control", "oom_kill");
        let mut met = Vec::new();
        if spec.memory_max > 0 && is_out_of_memory() {
            met.push(MetLimit::Memory(spec.memory_max));
        }
        if spec.processes_max > 0 && counts("pids.events", "max") {
            met.push(MetLimit::Processes(spec.processes_max));
        }
        met
    }

    /// After a failed start inside: lets the process enter itself if the system has no `clone3`; otherwise abandons
    /// version 2, and its limits are missing.
    pub(super) fn give_up_start(&mut self, error: &io::Error) {
        self.start_in = None;
        let is_unknown = error.raw_os_error() == Some(Errno::NOSYS.raw_os_error());
        if let Some(entrance) = self.entrance_v2.take().filter(|_| is_unknown) {
            return self.entrances.push(entrance);
        }
        let why = format!("no process can be started in a control group: {error}");
        let held = std::mem::take(&mut self.held);
        self.missing
            .extend(held.into_iter().map(|layer| (layer, why.clone())));
        self.remove();
    }

    /// Removes the groups. All processes in them have ended.
    pub(super) fn remove(&mut self) {
        for folder in self.folders.drain(..) {
            drop(fs::remove_dir(folder));
        }
    }

    /// Removes the groups of launchers that have ended: a killed launcher cannot remove its own.
    pub(super) fn remove_abandoned(&self) {
        for base in self.folders.iter().filter_map(|folder| folder.parent()) {
            remove_abandoned_in(base);
        }
    }
}

/// The control groups that a process is in.
pub struct OwnGroups {
    root: PathBuf,
    /// The text of `/proc/self/cgroup`.
    own: String,
    /// The effective user of the process.
    user: u32,
}

impl OwnGroups {
    /// Returns those of this process, as they are now.
    pub fn read() -> Self {
        Self {
            root: ROOT.into(),
            own: fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            user: geteuid().as_raw(),
        }
    }

    /// Returns whether the processor limit has throttled this launcher's cell so far.
    pub(crate) fn has_held_back(&self, launcher: u32) -> bool {
        let cell = format!("{}/cpu.stat", name_of(launcher));
        [self.v1("cpu"), self.above_own_v2()]
            .into_iter()
            .flatten()
            .any(|base| count_of(&base.join(&cell), "nr_throttled") > 0)
    }

    /// Moves a service to a leaf of the group delegated to it: a group that contains processes cannot have limited
    /// subgroups. A delegated group belongs to the service's user, and its parent does not.
    pub fn enter_leaf(&self) {
        let Some(group) = self.own_v2() else {
            return;
        };
        let is_own =
            |folder: &Path| fs::metadata(folder).is_ok_and(|folder| folder.uid() == self.user);
        if is_own(&group) && !group.parent().is_some_and(is_own) {
            let leaf = group.join(LEAF);
            // Without it, layers are missing, and cells report why.
            drop(make_folder(&leaf).and_then(|()| write(&leaf.join("cgroup.procs"), "0")));
        }
    }

    /// Removes the groups of ended cells, at a service's start and end. Waits up to `rounds` times [`ROUND`] for groups
    /// whose processes are still ending.
    pub fn remove_abandoned(&self, rounds: u32) {
        let bases: Vec<PathBuf> = CONTROLLERS
            .iter()
            .filter_map(|name| self.v1(name))
            .chain(self.above_own_v2())
            .collect();
        for round in 0..=rounds {
            let left: usize = bases.iter().map(|base| remove_abandoned_in(base)).sum();
            if left == 0 || round == rounds {
                return;
            }
            thread::sleep(ROUND);
        }
    }

    /// Finds the folder of the process's own group in the hierarchy of a controller.
    fn v1(&self, controller: &str) -> Option<PathBuf> {
        let path = self.own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers
                .split(',')
                .any(|known| known == controller)
                .then_some(path)
        })?;
        let hierarchy = self.root.join(controller);
        Some(hierarchy.join(path.trim_start_matches('/')))
    }

    /// Finds the version 2 folder of the process's own group, unless that is the whole hierarchy.
    fn own_v2(&self) -> Option<PathBuf> {
        let path = self
            .own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))?;
        (!path.is_empty()).then(|| self.root.join(path))
    }

    /// Finds the version 2 folder above the process's own group.
    fn above_own_v2(&self) -> Option<PathBuf> {
        self.own_v2()?.parent().map(Path::to_owned)
    }

    /// Finds the version 2 folder that allows groups with limits: the one above the process's own, since a group with
    /// processes cannot have limited subgroups. Enables missing controllers.
    fn delegated(&self) -> Option<PathBuf> {
        let base = self.above_own_v2()?;
        let there = fs::read_to_string(base.join("cgroup.controllers")).ok()?;
        let control = base.join("cgroup.subtree_control");
        let on = fs::read_to_string(&control).ok()?;
        let is_in = |list: &str, name| list.split_whitespace().any(|known| known == name);
        for name in CONTROLLERS {
            if is_in(&there, name) && !is_in(&on, name) {
                write(&control, &format!("+{name}")).ok()?;
            }
        }
        is_in(&there, "memory").then_some(base)
    }
}

/// Removes the groups of launchers that have ended; returns how many remain, because they contain processes.
fn remove_abandoned_in(base: &Path) -> usize {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let own = own_prefix();
    let abandoned = entries.filter(|entry| {
        let name = entry.file_name();
        let launcher = name.to_str().and_then(|name| name.strip_prefix(&own));
        let launcher = launcher.and_then(|number| Pid::from_raw(number.parse().ok()?));
        launcher.is_some_and(|launcher| test_kill_process(launcher) == Err(Errno::SRCH))
    });
    abandoned
        .map(|entry| fs::remove_dir(entry.path()))
        .filter(Result::is_err)
        .count()
}

/// Returns an event's count from a file, each line of which is a name and a number.
fn count_of(file: &Path, event: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let count = lines.find(|(name, _)| *name == event);
    count.and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
}

fn name_of(launcher: u32) -> String {
    format!("{}{launcher}", own_prefix())
}

/// The name prefix of all groups of this pid namespace: elsewhere a number means another process.
fn own_prefix() -> String {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    format!("{PREFIX}{namespace}-")
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        // Left by a launcher with the same number.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Writes the first value, and the others if their files exist.
fn write_limits(folder: &Path, limits: &[(&str, String)]) -> io::Result<()> {
    for (index, (file, value)) in limits.iter().enumerate() {
        match write(&folder.join(file), value) {
            Err(error) if index > 0 && error.kind() == io::ErrorKind::NotFound => {}
            written => written?,
        }
    }
    Ok(())
}

/// The files of a hierarchy already exist and cannot be created.
fn write(file: &Path, value: &str) -> io::Result<()> {
    io::Write::write_all(&mut open_to_write(file)?, value.as_bytes())
}

fn open_to_write(file: &Path) -> io::Result<File> {
    File::options().write(true).open(file)
}

fn cannot(folder: &Path, error: &io::Error) -> String {
    format!(
        "the control group '{}' cannot be made: {error}",
        folder.display()
    )
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
