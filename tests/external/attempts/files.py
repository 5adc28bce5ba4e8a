import fcntl
import stat
import struct


def opens(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags))
    return path


def reads(path):
    with open(path, "rb") as file:
        if not file.read(64):
            raise Refused("empty")
    return path


def makes(path):
    """Writes a file, and removes it again."""
    with open(path, "wb") as file:
        file.write(b"written")
    os.unlink(path)
    return path


def of_service(doc, name):
    return f"/proc/{doc['service']}/{name}"


# Opening it is proof enough; it is not read.
def cannot_open_the_password_hashes_of_the_machine(doc):
    return opens("/etc/shadow")


def cannot_read_the_accounts_of_the_machine(doc):
    return reads("/etc/passwd")


def cannot_read_the_store(doc):
    return reads(doc["store"])


def cannot_read_the_configuration(doc):
    return reads(doc["config"])


def cannot_read_the_password_of_the_administrator(doc):
    return reads(doc["password"])


def cannot_read_a_neighbours_home(doc):
    return reads(doc["private"])


def cannot_list_a_neighbours_home(doc):
    return os.listdir(os.path.dirname(doc["private"]))


def cannot_list_the_root(doc):
    return len(os.listdir("/"))


def cannot_run_a_program_from_elsewhere(doc):
    def runs():
        os.execv(doc["elsewhere"], ["true"])

    return in_a_child(runs)


def cannot_read_a_device(doc):
    return opens("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)


def cannot_write_in_the_temporary_folder(doc):
    return makes(f"/tmp/settee-{doc['attempt']}-{doc['service']}")


def cannot_write_in_shared_memory(doc):
    return makes(f"/dev/shm/settee-{doc['attempt']}-{doc['service']}")


def cannot_write_beside_its_program(doc):
    return makes(os.path.join(doc["folder"], doc["attempt"]))


def cannot_make_an_unnamed_file(doc):
    return opens(doc["spare"], os.O_TMPFILE | os.O_RDWR)


def cannot_append_to_the_configuration(doc):
    return opens(doc["config"], os.O_WRONLY | os.O_APPEND)


def cannot_truncate_a_file(doc):
    os.truncate(doc["spoil"], 0)
    return "truncated"


def cannot_remove_a_file(doc):
    victim = os.path.join(doc["spoils"], "removed")
    os.unlink(victim)
    return victim


def cannot_rename_a_file(doc):
    os.rename(os.path.join(doc["spoils"], "renamed"), scratch(doc))
    return "renamed"


def cannot_link_a_file_into_its_folder(doc):
    os.link(doc["private"], scratch(doc))
    return reads(scratch(doc))


def cannot_make_a_folder(doc):
    os.mkdir(scratch(doc))
    return "made"


def cannot_remove_a_folder(doc):
    os.rmdir(os.path.join(doc["spoils"], "folder"))
    return "removed"


def cannot_make_a_named_pipe(doc):
    os.mkfifo(scratch(doc))
    return "made"


def cannot_make_a_device(doc):
    os.mknod(scratch(doc), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return "made"


def cannot_make_a_symbolic_link(doc):
    os.symlink(doc["config"], scratch(doc))
    return reads(scratch(doc))


def cannot_follow_a_symbolic_link_to_the_configuration(doc):
    return reads(doc["link"])


def cannot_leave_its_folder_by_a_relative_path(doc):
    above = os.path.relpath(doc["private"], doc["folder"])
    return reads(os.path.join(doc["folder"], above))


def cannot_open_a_hidden_file_relative_to_a_folder(doc):
    folder = os.open(os.path.dirname(doc["private"]), os.O_PATH)
    return os.close(os.open(os.path.basename(doc["private"]), os.O_RDONLY, dir_fd=folder))


def cannot_change_the_mode_of_a_file(doc):
    os.chmod(doc["spoil"], 0o666)
    return "changed"


def cannot_change_the_mode_of_a_file_by_a_descriptor(doc):
    handle = os.open(doc["link_target"], os.O_RDONLY)
    os.fchmod(handle, 0o640)
    return "changed"


# fchmodat2 is newer than most lists of system calls.
def cannot_change_the_mode_of_a_file_by_fchmodat2(doc):
    return call(452, -100, ctypes.c_char_p(doc["spoil"].encode()), 0o640, 0)


def cannot_change_the_owner_of_a_file(doc):
    os.chown(doc["spoil"], os.getuid(), os.getgid())
    return "changed"


def cannot_change_the_times_of_a_file(doc):
    os.utime(doc["spoil"], (1, 1))
    return "changed"


def cannot_set_an_attribute_of_a_file(doc):
    with refused_with(errno.ENOTSUP):
        os.setxattr(doc["spoil"], "user.settee", b"1")
    return "changed"


def cannot_remove_an_attribute_of_a_file(doc):
    # The file has no such attribute: without a cell the call fails for no other reason.
    try:
        os.removexattr(doc["spoil"], "user.settee.none")
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
    return "looked for"


# Landlock denies opening the file, but does not restrict this call.
def cannot_list_the_attributes_of_a_file(doc):
    return len(os.listxattr(doc["private"]))


def cannot_change_the_flags_of_a_file(doc):
    """Sets the flags to their present value, for which a file opened for reading is enough."""
    get_flags, set_flags = 0x80086601, 0x40086602
    file = os.open(doc["link_target"], os.O_RDONLY)
    flags = fcntl.ioctl(file, get_flags, b"\0" * 8)
    return len(fcntl.ioctl(file, set_flags, flags))


def cannot_watch_a_file(doc):
    watch = libc.inotify_init()
    if watch < 0:
        raise OSError(ctypes.get_errno(), "inotify_init")
    if libc.inotify_add_watch(watch, doc["config"].encode(), 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return os.close(watch)


def told(path, command, argument):
    """Calls `fcntl` for a file that the cell may read; closing the file undoes its effect."""
    file = os.open(path, os.O_RDONLY)
    try:
        return fcntl.fcntl(file, command, argument)
    finally:
        os.close(file)


# A write lease would delay the next open of the file, and so the next start of the program. This read lease delays
# only an open for writing, and nobody writes the file.
def cannot_lease_a_file_of_its_program(doc):
    return told(doc["link_target"], fcntl.F_SETLEASE, fcntl.F_RDLCK)


def cannot_watch_a_folder(doc):
    return told(doc["folder"], fcntl.F_NOTIFY, fcntl.DN_CREATE)


def cannot_open_a_file_by_its_handle(doc):
    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_char * 128)]

    handle, mount = Handle(128), ctypes.c_int()
    path = ctypes.c_char_p(doc["private"].encode())
    call(303, -100, path, ctypes.byref(handle), ctypes.byref(mount), 0)
    within = os.open(os.path.dirname(doc["private"]), os.O_RDONLY)
    return call(304, within, ctypes.byref(handle), os.O_RDONLY)


def cannot_list_its_own_descriptors(doc):
    return os.listdir("/proc/self/fd")


def cannot_reach_files_through_its_own_root(doc):
    return reads(f"/proc/self/root{doc['private']}")


def cannot_write_its_own_memory_through_proc(doc):
    return opens("/proc/self/mem", os.O_RDWR)


def cannot_change_its_oom_score(doc):
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    return "changed"


def cannot_see_other_processes(doc):
    return len([name for name in os.listdir("/proc") if name.isdigit()])


def cannot_read_the_environment_of_the_service(doc):
    return opens(of_service(doc, "environ"))


def cannot_read_the_memory_of_the_service(doc):
    handle = os.open(of_service(doc, "mem"), os.O_RDONLY)
    return len(os.pread(handle, 4, doc["address"]))


def cannot_write_the_memory_of_the_service(doc):
    return opens(of_service(doc, "mem"), os.O_RDWR)


def cannot_read_the_memory_map_of_the_service(doc):
    return reads(of_service(doc, "maps"))


def cannot_read_the_command_line_of_the_service(doc):
    return reads(of_service(doc, "cmdline"))


def cannot_reach_files_through_the_root_of_the_service(doc):
    return reads(of_service(doc, "root") + doc["private"])


def cannot_reach_files_through_the_folder_of_the_service(doc):
    return len(os.listdir(of_service(doc, "cwd")))


def cannot_find_out_the_working_folder_of_the_service(doc):
    return os.readlink(of_service(doc, "cwd"))


def cannot_find_out_what_the_service_has_open(doc):
    return os.readlink(of_service(doc, "fd/2"))


def cannot_list_the_descriptors_of_the_service(doc):
    return os.listdir(of_service(doc, "fd"))


def cannot_write_into_the_log_of_the_service(doc):
    handle = os.open(of_service(doc, "fd/2"), os.O_WRONLY)
    return os.write(handle, b"this was not the service\n")


def cannot_change_the_oom_score_of_the_service(doc):
    with open(of_service(doc, "oom_score_adj"), "r+") as file:
        value = file.read()
        file.seek(0)
        file.write(value)
    return value


def cannot_change_a_setting_of_the_kernel(doc):
    return opens("/proc/sys/kernel/core_pattern", os.O_WRONLY)


def cannot_move_itself_into_another_cgroup(doc):
    return opens("/sys/fs/cgroup/pids/cgroup.procs", os.O_WRONLY)
