import signal
import sys


def leaves_a_daemon(doc):
    """Starts a process that left every group and session, holds no pipe, and heeds no polite signal."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for polite in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(polite, signal.SIG_IGN)
        for number in range(64):
            try:
                os.close(number)
            except OSError:
                pass
        os.execv("/bin/sleep", ["sleep", doc["mark"]])
    os.waitpid(child, 0)
    return "left"


def leaves_a_daemon_and_crashes(doc):
    leaves_a_daemon(doc)
    os.abort()


def leaves_a_daemon_and_exits(doc):
    leaves_a_daemon(doc)
    os._exit(0)


def leaves_a_daemon_and_never_answers(doc):
    leaves_a_daemon(doc)
    while True:
        pass


def leaves_a_daemon_and_stops(doc):
    leaves_a_daemon(doc)
    os.kill(os.getpid(), signal.SIGSTOP)


def leaves_many_daemons(doc):
    for _ in range(10):
        leaves_a_daemon(doc)
    return "left"


def sends_its_parent(doc):
    """Signals its parent: the service, or in a cell the first process of the cell."""
    with refused_with(errno.ESRCH):
        return os.kill(os.getppid(), doc["signal"])
