import fcntl
import signal
import subprocess

PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 0, 16, 17, 0x4206
KILL_NOBODY = 0


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def vectors(own, address):
    return ctypes.byref(Vector(ctypes.addressof(own), 1)), ctypes.byref(Vector(address, 1))


def nobody_there():
    return refused_with(errno.ESRCH)


def cannot_signal_the_service(doc):
    with nobody_there():
        return os.kill(doc["service"], KILL_NOBODY)


def cannot_signal_a_neighbour(doc):
    with nobody_there():
        return os.kill(doc["neighbour"], KILL_NOBODY)


def cannot_signal_the_group_of_the_service(doc):
    with nobody_there():
        return os.killpg(doc["group"], KILL_NOBODY)


def cannot_signal_every_process(doc):
    with nobody_there():
        return os.kill(-1, KILL_NOBODY)


def cannot_signal_a_thread_of_the_service(doc):
    with nobody_there():
        return call(234, doc["service"], doc["service"], KILL_NOBODY)


def cannot_queue_a_signal_to_a_neighbour(doc):
    information = (ctypes.c_int * 32)(0, 0, -1)
    with nobody_there():
        return call(129, doc["neighbour"], KILL_NOBODY, ctypes.byref(information))


def cannot_signal_the_service_by_a_handle(doc):
    with nobody_there():
        return signal.pidfd_send_signal(os.pidfd_open(doc["service"]), KILL_NOBODY)


def cannot_stop_a_neighbour(doc):
    with nobody_there():
        os.kill(doc["neighbour"], signal.SIGSTOP)
        return os.kill(doc["neighbour"], signal.SIGCONT)


# The owner of a descriptor gets a signal when data arrives.
def cannot_have_the_kernel_signal_a_neighbour(doc):
    own, other = os.pipe()
    with nobody_there():
        return fcntl.fcntl(own, fcntl.F_SETOWN, doc["neighbour"])


def cannot_attach_to_the_service(doc):
    def attaches():
        call(101, PTRACE_SEIZE, doc["service"], 0, 0)

    with nobody_there():
        return in_a_child(attaches)


def cannot_attach_to_a_neighbour(doc):
    def attaches():
        call(101, PTRACE_ATTACH, doc["neighbour"], 0, 0)
        os.waitpid(doc["neighbour"], 0x40000000)
        call(101, PTRACE_DETACH, doc["neighbour"], 0, 0)

    with nobody_there():
        return in_a_child(attaches)


def cannot_attach_to_a_process_of_its_own(doc):
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        return in_a_child(lambda: call(101, PTRACE_SEIZE, child.pid, 0, 0))
    finally:
        child.communicate()


def cannot_have_itself_traced(doc):
    return in_a_child(lambda: call(101, PTRACE_TRACEME, 0, 0, 0))


def cannot_copy_memory_out_of_the_service(doc):
    own = ctypes.create_string_buffer(1)
    local, remote = vectors(own, doc["address"])
    with nobody_there():
        return call(310, doc["service"], local, 1, remote, 1, 0)


# Overwrites the byte with its present value.
def cannot_copy_memory_into_a_neighbour(doc):
    own = ctypes.create_string_buffer(bytes([doc["neighbour_byte"]]), 1)
    local, remote = vectors(own, doc["neighbour_address"])
    with nobody_there():
        return call(311, doc["neighbour"], local, 1, remote, 1, 0)


def cannot_take_a_handle_on_the_service(doc):
    with nobody_there():
        return os.close(os.pidfd_open(doc["service"]))


def cannot_take_a_descriptor_of_the_service(doc):
    with nobody_there():
        return os.close(call(438, os.pidfd_open(doc["service"]), 2, 0))


# Even one of its own: a handle received from another process would work the same way.
def cannot_take_a_descriptor_through_a_handle(doc):
    return os.close(call(438, os.pidfd_open(os.getpid()), 0, 0))


def cannot_compare_itself_with_the_service(doc):
    with nobody_there():
        return call(312, os.getpid(), doc["service"], 0, 0, 0)


def cannot_find_the_locks_of_the_service(doc):
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    with nobody_there():
        return call(274, doc["service"], ctypes.byref(head), ctypes.byref(length))


def cannot_read_the_limits_of_the_service(doc):
    limits = (ctypes.c_ulong * 2)()
    with nobody_there():
        return call(302, doc["service"], 7, 0, ctypes.byref(limits))


def cannot_change_the_priority_of_a_neighbour(doc):
    with nobody_there():
        return os.setpriority(os.PRIO_PROCESS, doc["neighbour"], 1)


def cannot_change_the_disk_priority_of_a_neighbour(doc):
    idle = 3 << 13
    with nobody_there():
        return call(251, 1, doc["neighbour"], idle)


def cannot_bind_a_neighbour_to_a_processor(doc):
    with nobody_there():
        return os.sched_setaffinity(doc["neighbour"], os.sched_getaffinity(doc["neighbour"]))


def cannot_change_how_a_neighbour_is_scheduled(doc):
    with nobody_there():
        return os.sched_setscheduler(doc["neighbour"], os.SCHED_BATCH, os.sched_param(0))


def cannot_move_the_memory_of_a_neighbour(doc):
    with nobody_there():
        return call(279, doc["neighbour"], 0, 0, 0, 0, 0)


def cannot_look_up_the_group_of_the_service(doc):
    with nobody_there():
        return os.getpgid(doc["service"])


def cannot_become_root(doc):
    with refused_with(errno.EINVAL):
        return in_a_child(lambda: os.setresuid(0, 0, 0))


def cannot_become_another_user(doc):
    with refused_with(errno.EINVAL):
        return in_a_child(lambda: os.setresuid(12345, 12345, 12345))


def cannot_take_another_group(doc):
    with refused_with(errno.EINVAL):
        return in_a_child(lambda: os.setgroups([12345]))


def runs(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip() or f"status {done.returncode}")
    return done.stdout


def cannot_become_another_user_with_su(doc):
    return runs("su", "-s", "/bin/sh", "-c", "id -u", "nobody")


def cannot_mount_with_the_mount_program(doc):
    folder = os.path.join(doc["spoils"], "mount")
    return runs("sh", "-c", f"mount -t tmpfs none {folder} && umount {folder}")


def cannot_get_capabilities(doc):
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    header, data = Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
    call(125, ctypes.byref(header), ctypes.byref(data))
    if not data[0] and not data[1]:
        raise Refused("it has none")
    return data[0]


def cannot_resume_itself_with_a_timer(doc):
    event, made = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), ctypes.c_void_p()
    call(222, 1, ctypes.byref(event), ctypes.byref(made))
    return call(226, made) == 0


def cannot_keep_capabilities_for_programs(doc):
    with open("/proc/self/status") as status:
        kept = next(line for line in status if line.startswith("CapBnd:"))
    if not int(kept.split()[1], 16):
        raise Refused("it has none")
    return kept


def raises(which, wanted):
    limits = (ctypes.c_ulong * 2)(wanted, wanted)
    return in_a_child(lambda: call(160, which, ctypes.byref(limits)))


def cannot_raise_its_limit_of_files(doc):
    return raises(7, 5000)


def cannot_raise_its_limit_of_written_bytes(doc):
    return raises(1, 1 << 30)


def cannot_raise_its_limit_of_core_dumps(doc):
    return raises(4, 1 << 30)


def cannot_raise_its_own_priority(doc):
    # Whatever the service's priority is: a priority that was lowered cannot be raised again.
    def takes_back():
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.setpriority(os.PRIO_PROCESS, 0, 18)

    return in_a_child(takes_back)


def cannot_run_in_real_time(doc):
    return in_a_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))


def cannot_raise_its_disk_priority(doc):
    first = 1 << 13
    return in_a_child(lambda: call(251, 1, 0, first))


def cannot_type_into_a_terminal(doc):
    def types():
        import termios

        other, terminal = os.openpty()
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        fcntl.ioctl(terminal, termios.TIOCSTI, b"x")

    return in_a_child(types)
