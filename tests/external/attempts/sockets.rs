//! Sockets: a cell without a network can create none but connected pairs.

use super::attempt::{Group, attempts};

pub const GROUP: Group = Group {
    source: include_str!("sockets.py"),
    layer: "network",
    network: false,
};

attempts! { GROUP;
    cannot_connect_outward_by_tcp.by("connects_outward_by_tcp");
    cannot_send_by_udp.by("sends_by_udp");
    cannot_make_an_ipv6_tcp_socket;
    cannot_call_the_service_on_its_socket;
    cannot_ask_the_service_over_http;
    cannot_ask_the_service_at_another_loopback_address;
    cannot_ask_the_service_through_an_ipv6_socket;
    cannot_log_in_at_the_tcp_port_of_the_service;
    cannot_ask_the_service_by_fast_open;
    cannot_ask_the_service_by_multipath_tcp;
    cannot_listen_for_tcp;
    cannot_listen_for_tcp_without_binding;
    cannot_listen_for_multipath_tcp;
    cannot_connect_to_a_unix_socket_by_path;
    cannot_connect_to_an_abstract_unix_socket;
    cannot_send_to_an_abstract_unix_socket;
    cannot_listen_on_an_abstract_unix_socket;
    cannot_bind_one_of_a_socket_pair_to_an_abstract_name;
    cannot_bind_a_port;
    cannot_make_a_netlink_socket;
    cannot_make_a_packet_socket;
    cannot_make_a_vsock_socket;
    cannot_make_a_raw_socket;
    cannot_make_a_kernel_crypto_socket;
    cannot_make_an_express_data_path_socket;
    cannot_make_a_socket_by_32_bit_calls.may_end_it();
}
