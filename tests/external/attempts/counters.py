import builtins
import fcntl
import mmap
import select
import signal
import socket
import threading

# `takes_NAME` takes as much of a resource as it can get, and keeps it; `needs_NAME` takes a little, and returns it.

# More than the limits of these tests' namespaces and users allow.
MOST = 500

# The resources that this process has taken, its children, and actions that remove what would outlive the process.
# In `builtins` they survive when the query server forgets its functions.
if not hasattr(builtins, "kept"):
    builtins.kept, builtins.children, builtins.undo = [], [], []

IPC_CREAT, IPC_RMID, IPC_PRIVATE = 0o1000, 0, 0


def gives_back(doc):
    """Kills the children, removes whatever would outlive the process, and ends it."""
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for action in undo:
        action()
    os._exit(0)


def as_many(take, most=MOST):
    """Takes until the system refuses, and returns the number taken; raises the system's error if it is 0."""
    taken = 0
    try:
        while taken < most:
            kept.append(take())
            taken += 1
    except OSError:
        if not taken:
            raise
    return taken


def child_that(action):
    """Starts a process that runs the action, and lives for as long as this one."""
    gate, opened = os.pipe()
    done, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(opened)
        os.close(done)
        try:
            action()
            os.close(tells)
            os.read(gate, 1)
        finally:
            os._exit(0)
    children.append(child)
    os.close(gate)
    os.close(tells)
    os.read(done, 1)
    os.close(done)
    return opened


# ---- what the kernel counts by user


def timer():
    made = ctypes.c_void_p()
    if libc.timer_create(1, None, ctypes.byref(made)):
        raise OSError(ctypes.get_errno(), "timer_create")
    return made


def takes_timers(doc):
    return as_many(timer)


def needs_timers(doc):
    libc.timer_delete(timer())
    return 1


def takes_pending_signals(doc):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    for _ in range(MOST):
        os.kill(os.getpid(), signal.SIGRTMIN)
    return MOST


def needs_pending_signals(doc):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    os.kill(os.getpid(), signal.SIGRTMIN)
    # A signal for which the queue has no room arrives without its sender.
    if not signal.sigtimedwait({signal.SIGRTMIN}, 0).si_pid:
        raise OSError(errno.EAGAIN, "kill")
    return 1


def large_pipe():
    ends = os.pipe()
    set_size = 1031
    fcntl.fcntl(ends[0], set_size, 1 << 20)
    return ends


def takes_pages_by_large_pipes(doc):
    return as_many(large_pipe) + as_many(os.pipe, 30)


def needs_pages_by_large_pipes(doc):
    """A pipe holds 64 KiB unless its user has too many pages in pipes."""
    ends = os.pipe()
    try:
        os.set_blocking(ends[1], False)
        written = os.write(ends[1], bytes(1 << 16))
    finally:
        for end in ends:
            os.close(end)
    if written < 1 << 16:
        raise Refused(f"a pipe with only {written} bytes")
    return written


def takes_pages_by_many_pipes(doc):
    pipes = lambda: as_many(os.pipe, 110)
    return as_many(lambda: child_that(pipes), 12)


needs_pages_by_many_pipes = needs_pages_by_large_pipes


def takes_sockets_in_flight(doc):
    """Descriptors that are sent but not received count against the user, up to the limit of open files."""
    one, other = socket.socketpair()
    one.setblocking(False)
    kept.extend((one, other))
    return as_many(lambda: socket.send_fds(one, [b"x"], [0] * 200), 20)


def needs_sockets_in_flight(doc):
    one, other = socket.socketpair()
    with one, other, refused_with(errno.ETOOMANYREFS):
        return socket.send_fds(one, [b"x"], [0])


def takes_watches_of_epoll(doc):
    with refused_with(errno.EMFILE):
        ends = [os.pipe()[0] for _ in range(150)]
        for _ in range(150):
            polled = select.epoll()
            kept.append(polled)
            for end in ends:
                polled.register(end)
    return len(ends) * 150


def needs_watches_of_epoll(doc):
    ends = os.pipe()
    try:
        with select.epoll() as polled:
            polled.register(ends[0])
    finally:
        for end in ends:
            os.close(end)
    return 1


def process():
    return child_that(lambda: None)


def takes_processes(doc):
    return as_many(process)


def needs_processes(doc):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return 1


def started_thread(target):
    thread = threading.Thread(target=target, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    return thread


def takes_threads(doc):
    threading.stack_size(64 * 1024)
    return as_many(lambda: started_thread(threading.Event().wait))


def needs_threads(doc):
    started_thread(lambda: None).join()
    return 1


def takes_instances_of_inotify(doc):
    return as_many(lambda: call(294, 0))


def needs_instances_of_inotify(doc):
    os.close(call(294, 0))
    return 1


def takes_watches_of_inotify(doc):
    made = call(294, 0)
    kept.append(made)
    return call(254, made, doc["folder"].encode(), 2)


def takes_groups_of_fanotify(doc):
    by_identifier = 0x200
    return as_many(lambda: call(300, by_identifier, 0))


def needs_groups_of_fanotify(doc):
    by_identifier = 0x200
    os.close(call(300, by_identifier, 0))
    return 1


def key(name, length):
    of_the_process = -2
    return call(248, b"user", name.encode(), bytes(length), length, of_the_process)


def takes_keys(doc):
    return as_many(lambda: key(f"settee-{os.getpid()}-{len(kept)}", 1))


def needs_keys(doc):
    of_the_process, unlink = -2, 9
    call(250, unlink, key("settee-needed", 1000), of_the_process)
    return 1


def takes_bytes_of_keys(doc):
    return as_many(lambda: key(f"settee-{os.getpid()}-{len(kept)}", 1000))


needs_bytes_of_keys = needs_keys


def queue(messages, length):
    name = f"settee-{os.getpid()}-{len(kept)}".encode()
    attributes = (ctypes.c_long * 8)(0, messages, length)
    made = call(240, name, os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(attributes))
    # The queue exists for as long as it is open.
    call(241, name)
    return made


def takes_bytes_of_message_queues(doc):
    return as_many(lambda: queue(10, 1024))


def needs_bytes_of_message_queues(doc):
    os.close(queue(10, 1024))
    return 1


def takes_message_queues(doc):
    return as_many(lambda: queue(1, 8))


def needs_message_queues(doc):
    os.close(queue(1, 8))
    return 1


def segment(length):
    made = call(29, IPC_PRIVATE, length, IPC_CREAT | 0o600)
    undo.append(lambda: call(31, made, IPC_RMID, 0))
    return made


def needs_segment(length):
    call(31, call(29, IPC_PRIVATE, length, IPC_CREAT | 0o600), IPC_RMID, 0)
    return 1


def takes_locked_segments(doc):
    lock = 11
    return as_many(lambda: call(31, segment(1 << 14), lock, 0))


def needs_locked_segments(doc):
    lock = 11
    made = call(29, IPC_PRIVATE, 1 << 14, IPC_CREAT | 0o600)
    try:
        with refused_with(errno.ENOMEM):
            return call(31, made, lock, 0)
    finally:
        call(31, made, IPC_RMID, 0)


def takes_locked_memory(doc):
    return call(149, ctypes.addressof(ctypes.create_string_buffer(1)), 1)


def takes_memory_of_performance_events(doc):
    """Maps a page for records of an event that counts the process's own time."""
    attributes = (ctypes.c_uint32 * 32)(1, 128)
    # Excludes the kernel and the hypervisor.
    attributes[10] = 0x60
    made = call(298, ctypes.byref(attributes), 0, -1, -1, 0)
    kept.append(mmap.mmap(made, 2 * mmap.PAGESIZE))
    return made


# ---- what the kernel counts for a namespace, or for the machine


def takes_segments_of_shared_memory(doc):
    return as_many(lambda: segment(1))


def needs_segments_of_shared_memory(doc):
    return needs_segment(1)


def takes_pages_of_shared_memory(doc):
    return as_many(lambda: segment(20 * mmap.PAGESIZE))


def needs_pages_of_shared_memory(doc):
    return needs_segment(20 * mmap.PAGESIZE)


def semaphores():
    made = call(64, IPC_PRIVATE, 1, IPC_CREAT | 0o600)
    undo.append(lambda: call(66, made, 0, IPC_RMID, 0))
    return made


def takes_semaphores(doc):
    return as_many(semaphores)


def needs_semaphores(doc):
    call(66, call(64, IPC_PRIVATE, 1, IPC_CREAT | 0o600), 0, IPC_RMID, 0)
    return 1


def old_queue():
    made = call(68, IPC_PRIVATE, IPC_CREAT | 0o600)
    undo.append(lambda: call(71, made, IPC_RMID, 0))
    return made


def takes_queues_of_system_v(doc):
    return as_many(old_queue)


def needs_queues_of_system_v(doc):
    call(71, call(68, IPC_PRIVATE, IPC_CREAT | 0o600), IPC_RMID, 0)
    return 1


def takes_asynchronous_operations(doc):
    context = ctypes.c_ulong()
    kept.append(context)
    return call(206, 8, ctypes.byref(context))


def terminal():
    with refused_with(errno.ENOENT):
        return os.openpty()


def takes_terminals(doc):
    return as_many(terminal)


def needs_terminals(doc):
    with refused_with(errno.ENOSPC):
        for end in os.openpty():
            os.close(end)
    return 1


def port():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("0.0.0.0", 0))
    return made


def takes_ports(doc):
    return as_many(port)


def needs_ports(doc):
    with refused_with(errno.EADDRINUSE):
        port().close()
    return 1


def name(number):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(f"\0settee-user-{number}")
    return made


def takes_abstract_socket_names(doc):
    """The service binds a socket with such a name to reserve the number of a cell's user."""
    return as_many(lambda: name(len(kept)), 10)


def needs_abstract_socket_names(doc):
    with refused_with(errno.EADDRINUSE):
        name(0).close()
    return 1


# ---- leases, locks and notices of files, and the room of file systems


def takes_a_lease(doc):
    """The next open of the file waits until the lease is returned."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(doc["module"], os.O_RDONLY)
    kept.append(file)
    set_lease = 1024
    return fcntl.fcntl(file, set_lease, fcntl.F_WRLCK)


def needs_a_lease(doc):
    with refused_with(errno.EWOULDBLOCK):
        os.close(os.open(doc["module"], os.O_RDONLY | os.O_NONBLOCK))
    return 1


def takes_a_lock(doc):
    file = open(doc["module"])
    kept.append(file)
    return fcntl.flock(file, fcntl.LOCK_SH)


def needs_a_lock(doc):
    with open(doc["module"]) as file, refused_with(errno.EWOULDBLOCK):
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def takes_a_lock_on_a_part(doc):
    file = open(doc["module"])
    kept.append(file)
    return fcntl.lockf(file, fcntl.LOCK_SH, 1)


def needs_a_lock_on_a_part(doc):
    with open(doc["module"], "r+") as file, refused_with(errno.EWOULDBLOCK, errno.EACCES):
        return fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)


def takes_folder_notifications(doc):
    folder = os.open(doc["folder"], os.O_RDONLY)
    kept.append(folder)
    notify, of_changes = 1026, 2
    return fcntl.fcntl(folder, notify, of_changes)


def fills(path):
    with open(path, "wb", buffering=0) as file:
        undo.append(lambda: os.unlink(path))
        return as_many(lambda: file.write(bytes(1 << 14)))


def needs_room(path):
    try:
        with refused_with(errno.ENOSPC), open(path, "wb", buffering=0) as file:
            return file.write(bytes(1 << 14))
    finally:
        if os.path.exists(path):
            os.unlink(path)


def takes_disk_space(doc):
    return fills(scratch(doc))


def needs_disk_space(doc):
    return needs_room(scratch(doc) + ".needed")


def takes_space_in_dev_shm(doc):
    return fills("/dev/shm/settee")


def needs_space_in_dev_shm(doc):
    return needs_room("/dev/shm/settee.needed")


def file_of_its_own(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    undo.append(lambda: os.unlink(path))


def takes_disk_inodes(doc):
    return as_many(lambda: file_of_its_own(f"{scratch(doc)}.{len(undo)}"))


def needs_disk_inodes(doc):
    with refused_with(errno.ENOSPC):
        path = scratch(doc) + ".needed"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)
    return 1
