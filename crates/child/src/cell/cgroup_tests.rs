use super::*;
use crate::cell::SandboxMode;

/// A pid that no process has: above Linux's maximum.
const GONE: u32 = i32::MAX as u32;

fn spec() -> CellSpec {
    CellSpec {
        mode: SandboxMode::Standard,
        user: None,
        user_range: None,
        read_paths: Vec::new(),
        hidden_paths: Vec::new(),
        network: false,
        refused_ports: Vec::new(),
        system_calls: Vec::new(),
        memory_max: 1 << 29,
        processes_max: 64,
        cpu_max: 50,
    }
}

/// Makes a hierarchy of plain files: these groups, each with these files.
fn hierarchy(groups: &[&str], files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for group in groups {
        fs::create_dir_all(root.path().join(group)).unwrap();
        for (file, text) in files {
            fs::write(root.path().join(group).join(file), text).unwrap();
        }
    }
    root
}

/// The groups of a process of this user in such a hierarchy.
fn own(root: &tempfile::TempDir, own: &str) -> OwnGroups {
    OwnGroups {
        root: root.path().into(),
        own: own.into(),
        user: geteuid().as_raw(),
    }
}

fn read(root: &tempfile::TempDir, file: &str) -> String {
    fs::read_to_string(root.path().join(file)).unwrap()
}

const V1: &str = "9:name=systemd:/\n4:memory:/service\n3:cpu,cpuacct:/\n8:pids:/\n0::/\n";

#[test]
fn version_1_limits_each_controller_in_a_group_below_the_launchers_own() {
    let cell = name_of(7);
    let groups = ["memory/service", "pids", "cpu"].map(|base| format!("{base}/{cell}"));
    let files = [
        ("memory.limit_in_bytes", ""),
        ("pids.max", ""),
        ("cpu.cfs_quota_us", ""),
        ("cpu.cfs_period_us", ""),
        ("tasks", ""),
    ];
    let root = hierarchy(&groups.each_ref().map(String::as_str), &files);
    let made = Cgroup::make(&own(&root, V1), 7, &spec());
    assert_eq!(made.missing, BTreeMap::new());
    assert_eq!(made.held, [Layer::Memory, Layer::ProcessCount, Layer::Cpu]);
    made.enter().unwrap();
    let memory = format!("memory/service/{cell}");
    assert_eq!(
        read(&root, &format!("{memory}/memory.limit_in_bytes")),
        "536870912"
    );
    assert_eq!(read(&root, &format!("{memory}/tasks")), "0");
    assert_eq!(read(&root, &format!("pids/{cell}/pids.max")), "65");
    assert_eq!(
        read(&root, &format!("cpu/{cell}/cpu.cfs_quota_us")),
        "50000"
    );
}

#[test]
fn the_cpu_group_shows_which_cell_was_throttled() {
    for (group, groups) in [
        ("cpu/service", "3:cpu,cpuacct:/service\n"),
        ("system.slice", "0::/system.slice/daemon\n"),
    ] {
        for (count, expected) in [(0, false), (3, true)] {
            let stat = format!("nr_periods 9\nnr_throttled {count}\nthrottled_time 5\n");
            let cell = format!("{group}/{}", name_of(7));
            let root = hierarchy(&[&cell], &[("cpu.stat", &stat)]);
            let own = own(&root, groups);
            assert_eq!(own.has_held_back(7), expected, "{group}");
            assert!(!own.has_held_back(8), "{group}");
        }
    }
}

#[test]
fn limits_without_a_group_are_reported_as_missing() {
    let root = hierarchy(&["memory/service"], &[]);
    let made = Cgroup::make(&own(&root, "4:memory:/service\n"), 7, &spec());
    assert_eq!(made.held, []);
    let missing: Vec<Layer> = made.missing.keys().copied().collect();
    assert_eq!(missing, [Layer::Memory, Layer::ProcessCount, Layer::Cpu]);
    assert!(made.missing[&Layer::Cpu].contains("no control group for cpu"));
    // The group that could not be limited is removed.
    assert!(!root.path().join("memory/service").join(name_of(7)).exists());
}

#[test]
fn without_limits_no_group_is_needed() {
    let unlimited = CellSpec {
        memory_max: 0,
        processes_max: 0,
        cpu_max: 0,
        ..spec()
    };
    let made = Cgroup::make(&own(&hierarchy(&[], &[]), V1), 7, &unlimited);
    assert!(made.held.is_empty() && made.missing.is_empty());
}

#[test]
fn version_2_makes_one_group_beside_the_service_in_its_delegated_group() {
    let controllers = ("cgroup.controllers", "cpu memory pids\n");
    let root = hierarchy(
        &["system.slice/settee"],
        &[controllers, ("cgroup.subtree_control", "memory\n")],
    );
    let base = root.path().join("system.slice/settee");
    fs::create_dir_all(base.join("daemon")).unwrap();
    let folder = base.join(name_of(7));
    fs::create_dir_all(&folder).unwrap();
    let files = [
        "memory.max",
        "memory.swap.max",
        "pids.max",
        "cpu.max",
        "cpu.weight",
    ];
    for file in files {
        fs::write(folder.join(file), "").unwrap();
    }
    fs::write(folder.join("cgroup.procs"), "").unwrap();
    let own = own(&root, "0::/system.slice/settee/daemon\n");
    let mut made = Cgroup::make(&own, 7, &spec());
    assert_eq!(made.missing, BTreeMap::new());
    assert!(made.start_in.is_some());
    let written = files.map(|file| fs::read_to_string(folder.join(file)).unwrap());
    assert_eq!(written, ["536870912", "0", "65", "50000 100000", "10"]);
    // A plain file keeps the last write; a real one enables all controllers.
    assert!(read(&root, "system.slice/settee/cgroup.subtree_control").starts_with("+cpu"));
    // Under systemd's RestrictNamespaces= a process cannot start in the group: it enters later, with the same limits.
    made.give_up_start(&io::Error::from(Errno::NOSYS));
    assert_eq!(made.held, [Layer::Memory, Layer::ProcessCount, Layer::Cpu]);
    made.enter().unwrap();
    assert_eq!(
        fs::read_to_string(folder.join("cgroup.procs")).unwrap(),
        "0"
    );
}

#[test]
fn a_service_moves_to_a_leaf_only_if_its_group_is_delegated_to_it() {
    let unit = "system.slice/settee.service";
    let root = hierarchy(&[unit, &format!("{unit}/{LEAF}")], &[("cgroup.procs", "")]);
    let mut own = own(&root, &format!("0::/{unit}\n"));
    let moved = || !read(&root, &format!("{unit}/{LEAF}/cgroup.procs")).is_empty();
    // The parent group is the service's, too: a user session, or the service is in the leaf already.
    own.enter_leaf();
    // The group is another user's.
    own.user += 1;
    own.enter_leaf();
    assert!(!moved());
    if std::os::unix::fs::chown(root.path().join(unit), Some(own.user), None).is_err() {
        // Only root can change the owner.
        return;
    }
    own.enter_leaf();
    assert!(moved());
}

#[test]
fn only_groups_of_dead_launchers_are_removed() {
    let gone = format!("pids/{}", name_of(GONE));
    let alive = format!("pids/{}", name_of(std::process::id()));
    let foreign = format!("pids/{PREFIX}1-{GONE}");
    let root = hierarchy(&[&gone, &alive, &foreign, "pids/other"], &[]);
    let made = Cgroup {
        folders: vec![root.path().join("pids").join(name_of(7))],
        ..Cgroup::default()
    };
    made.remove_abandoned();
    let is_there = |group: &str| root.path().join(group).exists();
    assert!(!is_there(&gone));
    assert!(is_there(&alive) && is_there("pids/other"));
    assert!(is_there(&foreign), "of another pid namespace");
}

#[test]
fn a_service_removes_abandoned_groups_of_both_versions_and_of_every_controller() {
    let (gone, alive) = (name_of(GONE), name_of(std::process::id()));
    let bases = ["memory/service", "pids", "cpu", "part"];
    let groups: Vec<String> = bases
        .iter()
        .flat_map(|base| [&gone, &alive].map(|name| format!("{base}/{name}")))
        .collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let root = hierarchy(&groups, &[]);
    fs::write(root.path().join("cpu").join(&gone).join("tasks"), "7").unwrap();
    own(&root, &V1.replace("0::/\n", "0::/part/service\n")).remove_abandoned(1);
    for base in bases {
        let is_there = |name: &str| root.path().join(base).join(name).exists();
        // A group that is not empty stays.
        assert_eq!(is_there(&gone), base == "cpu", "{base}");
        assert!(is_there(&alive), "{base}");
    }
}
