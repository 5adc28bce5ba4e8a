import mmap
import signal
import threading

PROCESSES = 150
THREADS = 150
DESCRIPTORS = 600
# More than memory_max, which is 128 MiB in these tests.
MEBIBYTES = 256


def cannot_start_processes_without_limit(doc):
    """Each process waits until the last has started, so that all are alive at once."""
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


def cannot_start_daemons_without_limit(doc):
    """Starts grandchildren in their own sessions, which nobody waits for; all are alive at once."""
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


def cannot_start_threads_without_limit(doc):
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
    """Keeps memory for a while: without a control group, the memory of a cell is only sampled."""
    time.sleep(doc["keeps"])
    return memory


def touched(mebibytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
    """Allocates memory, and writes to each page of it."""
    with refused_with(errno.ENOMEM):
        memory = mmap.mmap(-1, mebibytes << 20, flags=flags)
    for page in range(0, mebibytes << 20, 4096):
        memory[page] = 1
    return memory


def cannot_take_memory_without_limit(doc):
    return len(touched(MEBIBYTES))


def cannot_take_shared_memory_without_limit(doc):
    return len(keeps(doc, touched(MEBIBYTES, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)))


def cannot_take_heap_memory_without_limit(doc):
    try:
        pieces = [b"x" * (1 << 20) for _ in range(MEBIBYTES)]
    except MemoryError as error:
        raise Refused("out of memory") from error
    return len(pieces)


def cannot_take_memory_with_many_processes(doc):
    """Each process takes less than the limit; all of them together exceed it."""
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


def cannot_open_descriptors_without_limit(doc):
    with refused_with(errno.EMFILE):
        return len([os.dup(0) for _ in range(DESCRIPTORS)])


def cannot_fill_the_disk(doc):
    with open(scratch(doc), "wb") as file:
        for _ in range(32):
            file.write(b"x" * (1 << 20))
    return os.stat(scratch(doc)).st_size
