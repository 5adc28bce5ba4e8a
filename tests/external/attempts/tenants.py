import json
import sys
import threading

server = sys.modules["__main__"]


def keeps(line):
    server.kept = getattr(server, "kept", []) + [str(line)]


def spies_by_its_loop(doc):
    answer = server.answer

    def spying(*line):
        keeps(line)
        return answer(*line)

    server.answer = spying
    return "planted"


def spies_by_its_input(doc):
    class Spying:
        def __init__(self, inner):
            self.inner = inner

        def readline(self):
            line = self.inner.readline()
            keeps(line)
            return line

    sys.stdin = Spying(sys.stdin)
    return "planted"


def spies_by_its_json(doc):
    loads = json.loads

    def spying(text):
        keeps(text)
        return loads(text)

    json.loads = spying
    return "planted"


def spies_by_a_thread(doc):
    """Inspects the local variables of the server's thread continuously."""
    busy_with = threading.get_ident()

    def looks():
        while True:
            frame = sys._current_frames().get(busy_with)
            while frame:
                if "another tenant" in repr(frame.f_locals):
                    keeps("another tenant")
                frame = frame.f_back

    sys.setswitchinterval(0.0001)
    threading.Thread(target=looks, daemon=True).start()
    return "planted"


def spies_by_a_tracer(doc):
    def looks(frame, event, argument):
        keeps(frame.f_locals)

    sys.setprofile(looks)
    return "planted"


def falsifies_by_its_output(doc):
    class Falsifying:
        def __init__(self, inner):
            self.inner = inner

        def write(self, text):
            return self.inner.write(text.replace("42", "43"))

        def flush(self):
            self.inner.flush()

    sys.stdout = Falsifying(sys.stdout)
    return "planted"


def tells(doc):
    """Succeeds if anything of the other tenant was kept."""
    sys.setprofile(None)
    if not any("another tenant" in line for line in getattr(server, "kept", [])):
        raise Refused("nothing was kept")
    return "it was kept"
