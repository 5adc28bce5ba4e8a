def found(value):
    if not value:
        raise Refused("nothing is there")
    return value


def cannot_see_a_secret_of_the_services_environment(doc):
    return found("SECRET_OF_THE_TESTS" in os.environ)


def cannot_see_the_library_path_of_the_service(doc):
    return found("LD_LIBRARY_PATH" in os.environ)


# Reads the variables that the C library has: `os.environ` is the interpreter's copy.
def cannot_find_the_environment_of_the_service_in_its_own_memory(doc):
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    first = []
    while environ[len(first)]:
        first.append(environ[len(first)])
    return found([1 for text in first if b"OF_THE_TESTS" in text])


def cannot_read_its_initial_environment_through_proc(doc):
    with open("/proc/self/environ", "rb") as file:
        return found(b"OF_THE_TESTS" in file.read())


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def cannot_use_a_descriptor_that_the_service_was_started_with(doc):
    return found([number for number in range(3, 1024) if is_open(number)])
