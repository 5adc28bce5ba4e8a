import fcntl


def call_by_number(doc):
    """Succeeds even if the arguments are invalid: the call itself was permitted."""
    try:
        return call(doc["number"], *doc["arguments"])
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            raise
        return errno.errorcode[error.errno]


def told_of_a_pipe(command, argument):
    ends = os.pipe()
    try:
        return fcntl.fcntl(ends[0], command, argument)
    finally:
        for end in ends:
            os.close(end)


# The owner of a descriptor gets a signal when it becomes ready.
def cannot_set_the_owner_of_a_descriptor(doc):
    return told_of_a_pipe(fcntl.F_SETOWN, os.getpid())


def cannot_set_the_signal_of_a_descriptor(doc):
    set_signal = 10
    return told_of_a_pipe(set_signal, 0)


# The kernel limits the pages of all pipes of a user.
def cannot_enlarge_a_pipe(doc):
    set_size = 1031
    return told_of_a_pipe(set_size, 1 << 17)


# While a file is locked, other processes wait to lock it.
def cannot_lock_a_file_of_its_program(doc):
    with open(doc["link_target"]) as file:
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def cannot_lock_a_part_of_a_file_of_its_program(doc):
    with open(doc["link_target"]) as file:
        return fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def cannot_adopt_the_orphans_of_its_cell(doc):
    set_child_subreaper = 36
    return in_a_child(lambda: call(157, set_child_subreaper, 1, 0, 0, 0))


def cannot_make_32_bit_calls(doc):
    return old_call(20)


def cannot_make_x32_calls(doc):
    return call(0x40000000 | 39)


def makes_a_namespace(flag):
    return in_a_child(lambda: call(272, flag))


def cannot_make_a_user_namespace(doc):
    return makes_a_namespace(0x10000000)


def cannot_make_a_mount_namespace(doc):
    return makes_a_namespace(0x00020000)


def cannot_make_a_network_namespace(doc):
    return makes_a_namespace(0x40000000)


def cannot_make_a_pid_namespace(doc):
    return makes_a_namespace(0x20000000)


def clones(number, *arguments):
    child = call(number, *arguments)
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)[1]


def cannot_clone_into_a_user_namespace(doc):
    return clones(56, 0x10000000 | 17, 0, 0, 0, 0)


def cannot_clone_into_a_user_namespace_by_the_newer_call(doc):
    arguments = (ctypes.c_uint64 * 11)()
    arguments[0], arguments[4] = 0x10000000, 17
    return clones(435, ctypes.byref(arguments), 88)


def cannot_change_its_root(doc):
    return in_a_child(lambda: os.chroot(doc["folder"]))


def cannot_run_a_program_from_memory(doc):
    """Copies a program into an unnamed file in memory, and runs it from there."""
    file = os.memfd_create("settee", 0)
    with open("/bin/true", "rb") as program, refused_with(errno.EFBIG):
        os.write(file, program.read())

    def runs():
        # `os.execve` accepts a descriptor, like fexecve.
        os.execve(file, ["true"], {})

    return in_a_child(runs)


def cannot_set_the_clock(doc):
    """Sets the length of a clock tick to its present value."""
    timex = (ctypes.c_long * 32)()
    set_tick = 0x4000
    call(159, ctypes.byref(timex))
    timex[0] = set_tick
    return call(159, ctypes.byref(timex))
