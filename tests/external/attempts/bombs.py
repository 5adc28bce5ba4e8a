import mmap
import signal
import threading

PROCESSES = 150
THREADS = 150
DESCRIPTORS = 600
# More than memory_max, which is 128 MiB in these tests.
MEBIBYTES = 256


def cannot_start_processes_without_end(doc):
    """Each waits until the last was started, so all live at a time."""
    gate, opened = os.pipe()
    children = []
    try:
        while len(children) < PROCESSES:
            child = os.fork()
            if child == 0:
                os.close(opened)
                os.read(gate, 1)
                os._exit(0)
            children.append(child)
    finally:
        os.close(opened)
        for child in children:
            os.waitpid(child, 0)
    return len(children)


def cannot_start_daemons_without_end(doc):
    """The same with grandchildren in sessions of their own, which nobody waits for."""
    gate, opened = os.pipe()
    done, tells = os.pipe()
    started = 0
    try:
        while started < PROCESSES:
            child = os.fork()
            if child == 0:
                os.setsid()
                status = 0
                try:
                    if os.fork() == 0:
                        os.close(opened)
                        os.read(gate, 1)
                        os._exit(0)
                except OSError as error:
                    status = error.errno
                os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status:
                raise OSError(status, os.strerror(status))
            started += 1
    finally:
        os.close(opened)
    return started


def cannot_start_threads_without_end(doc):
    threading.stack_size(64 * 1024)
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait, daemon=True) for _ in range(THREADS)]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:
        raise Refused(str(error)) from error
    finally:
        gate.set()
    return THREADS


def keeps(doc, memory):
    """Has it for a while: where no control group counts, what a cell has is looked at now and then."""
    time.sleep(doc["keeps"])
    return memory


def touched(mebibytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
    """Takes memory, and writes on each page of it."""
    with refused_with(errno.ENOMEM):
        memory = mmap.mmap(-1, mebibytes << 20, flags=flags)
    for page in range(0, mebibytes << 20, 4096):
        memory[page] = 1
    return memory


def cannot_take_memory_without_end(doc):
    return len(touched(MEBIBYTES))


def cannot_take_shared_memory_without_end(doc):
    return len(keeps(doc, touched(MEBIBYTES, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)))


def cannot_take_memory_by_the_heap_without_end(doc):
    try:
        pieces = [b"x" * (1 << 20) for _ in range(MEBIBYTES)]
    except MemoryError as error:
        raise Refused("out of memory") from error
    return len(pieces)


def cannot_take_memory_with_many_processes(doc):
    """Each takes less than one may, and all have it at a time."""
    gate, opened = os.pipe()
    done, tells = os.pipe()
    children = []
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                os.close(opened)
                os.close(done)
                try:
                    has = touched(MEBIBYTES // 8)
                    os.write(tells, b"1")
                    os.close(tells)
                    os.read(gate, 1)
                finally:
                    os._exit(0)
            children.append(child)
        os.close(tells)
        ready = 0
        while ready < 8:
            told = os.read(done, 8)
            if not told:
                raise Refused(f"only {ready} of 8 had their memory")
            ready += len(told)
        if any(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) for child in children):
            raise Refused("some were killed")
        return keeps(doc, ready)
    finally:
        os.close(opened)
        for child in children:
            os.waitpid(child, 0)


def cannot_take_memory_by_memory_files(doc):
    file = os.memfd_create("settee")
    with refused_with(errno.EFBIG):
        for _ in range(MEBIBYTES):
            os.write(file, b"x" * (1 << 20))
    return os.fstat(file).st_size


def cannot_open_descriptors_without_end(doc):
    with refused_with(errno.EMFILE):
        return len([os.dup(0) for _ in range(DESCRIPTORS)])


def cannot_fill_the_disk(doc):
    with open(scratch(doc), "wb") as file:
        for _ in range(32):
            file.write(b"x" * (1 << 20))
    return os.stat(scratch(doc)).st_size
