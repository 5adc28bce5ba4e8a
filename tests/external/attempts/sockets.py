import json
import socket

AF_ALG, AF_VSOCK, AF_XDP = 38, 40, 44
IPPROTO_MPTCP = 262
FAST_OPEN = 0x20000000


def meets(server, address):
    """Connects, and returns the greeting of the tests' listener."""
    with server:
        server.settimeout(10)
        server.connect(address)
        return server.recv(64).decode()


def made(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return "made"


def asks(server):
    """Sends the service an HTTP request on this connection, and returns the start of the answer."""
    with server:
        server.sendall(b"GET /_up HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return server.recv(64).decode()


def connects(port, address="127.0.0.1"):
    return socket.create_connection((address, port), timeout=10)


def calls_the_service(doc):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(doc["socket"])
        client.sendall(b'{"id":1,"call":"cancel","request":0}\n')
        return json.loads(client.recv(4096))


def connects_outward_by_tcp(doc):
    return meets(socket.socket(), ("127.0.0.1", doc["listener"]))


def sends_by_udp(doc):
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", doc["listener"]))


def cannot_make_an_ipv6_tcp_socket(doc):
    return made(socket.AF_INET6, socket.SOCK_STREAM)


def cannot_call_the_service_on_its_socket(doc):
    return calls_the_service(doc)


def cannot_ask_the_service_over_http(doc):
    return asks(connects(doc["http"]))


def cannot_ask_the_service_at_another_loopback_address(doc):
    return asks(connects(doc["http"], "0.0.0.0"))


def cannot_ask_the_service_through_an_ipv6_socket(doc):
    server = socket.socket(socket.AF_INET6)
    server.settimeout(10)
    server.connect(("::ffff:127.0.0.1", doc["http"]))
    return asks(server)


def cannot_log_in_at_the_tcp_port_of_the_service(doc):
    with connects(doc["tcp"]) as server:
        server.sendall(b'{"id":1,"call":"auth","name":"a","password":"b"}\n')
        return server.recv(64).decode()


# Fast open connects without a call to `connect`: `sendto` does it.
def cannot_ask_the_service_by_fast_open(doc):
    server = socket.socket()
    server.sendto(b"", FAST_OPEN, ("127.0.0.1", doc["http"]))
    return asks(server)


# Another protocol that speaks TCP on the wire.
def cannot_ask_the_service_by_multipath_tcp(doc):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    server.settimeout(10)
    server.connect(("127.0.0.1", doc["http"]))
    return asks(server)


# A bound name is unavailable to others, even if nobody listens on it.
def cannot_bind_one_of_a_socket_pair_to_an_abstract_name(doc):
    one, other = socket.socketpair()
    with one, other:
        one.bind(f"\0{doc['abstract_socket']}.of_a_pair")
        return one.getsockname().decode()


def cannot_bind_a_port(doc):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
        taker.bind(("127.0.0.1", 0))
        return taker.getsockname()[1]


def cannot_listen_for_tcp(doc):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        return server.getsockname()[1]


# Without a `bind`, `listen` chooses a port.
def cannot_listen_for_tcp_without_binding(doc):
    with socket.socket() as server:
        server.listen()
        return server.getsockname()[1]


def cannot_listen_for_multipath_tcp(doc):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        return server.getsockname()[1]


def cannot_connect_to_a_unix_socket_by_path(doc):
    return meets(socket.socket(socket.AF_UNIX), doc["path_socket"])


def cannot_connect_to_an_abstract_unix_socket(doc):
    return meets(socket.socket(socket.AF_UNIX), "\0" + doc["abstract_socket"])


def cannot_send_to_an_abstract_unix_socket(doc):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", "\0" + doc["abstract_datagrams"])


def cannot_listen_on_an_abstract_unix_socket(doc):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0settee-{doc['attempt']}-{doc['service']}")
        server.listen()
        return "listens"


def cannot_make_a_netlink_socket(doc):
    return made(socket.AF_NETLINK, socket.SOCK_RAW)


def cannot_make_a_packet_socket(doc):
    return made(socket.AF_PACKET, socket.SOCK_RAW, 0)


def cannot_make_a_vsock_socket(doc):
    return made(AF_VSOCK, socket.SOCK_STREAM)


def cannot_make_a_raw_socket(doc):
    return made(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def cannot_make_a_kernel_crypto_socket(doc):
    return made(AF_ALG, socket.SOCK_SEQPACKET)


def cannot_make_an_express_data_path_socket(doc):
    return made(AF_XDP, socket.SOCK_RAW)


def cannot_make_a_socket_by_32_bit_calls(doc):
    # socketcall(SYS_SOCKET, {AF_UNIX, SOCK_STREAM, 0}): the arguments have to lie below 4 GiB.
    return old_call(102, 1, words=[socket.AF_UNIX, socket.SOCK_STREAM, 0])
