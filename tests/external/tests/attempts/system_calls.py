def call_by_number(doc):
    """Succeeds also when the arguments are at fault: then the call itself was let through."""
    try:
        return call(doc["number"], *doc["arguments"])
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            raise
        return errno.errorcode[error.errno]


def cannot_make_32_bit_calls(doc):
    return old_call(20)


def cannot_make_calls_of_the_x32_table(doc):
    return call(0x40000000 | 39)


def makes_a_namespace(flag):
    return in_a_child(lambda: call(272, flag))


def cannot_make_a_user_namespace(doc):
    return makes_a_namespace(0x10000000)


def cannot_make_a_mount_namespace(doc):
    return makes_a_namespace(0x00020000)


def cannot_make_a_network_namespace(doc):
    return makes_a_namespace(0x40000000)


def cannot_make_a_namespace_of_processes(doc):
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
    """Copies a program into an unnamed file of memory and runs it from there."""
    file = os.memfd_create("settee", 0)
    with open("/bin/true", "rb") as program, refused_with(errno.EFBIG):
        os.write(file, program.read())

    def runs():
        # execve takes a descriptor here: fexecve.
        os.execve(file, ["true"], {})

    return in_a_child(runs)


def cannot_set_the_clock(doc):
    """Sets the length of a tick of the clock to what it is."""
    timex = (ctypes.c_long * 32)()
    set_tick = 0x4000
    call(159, ctypes.byref(timex))
    timex[0] = set_tick
    return call(159, ctypes.byref(timex))
