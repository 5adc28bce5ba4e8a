//! Cells with `network = true`: they can connect outward, but not to the service.

use serde_json::json;

use super::attempt::{Group, Outcome, attempts};
use super::site::{Mode, Site};

pub const GROUP: Group = Group {
    source: include_str!("sockets.py"),
    layer: "network",
    network: true,
};

attempts! { GROUP;
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

fn works_with_network(function: &str) {
    let site = Site::shared(Mode::Standard, true);
    let outcome = site.run(
        GROUP.source,
        &json!({"attempt": function, "function": function}),
    );
    assert!(matches!(outcome, Outcome::Did(_)), "{outcome:?}");
}

#[test]
fn connects_outward_by_tcp() {
    works_with_network("connects_outward_by_tcp");
}

#[test]
fn sends_by_udp() {
    works_with_network("sends_by_udp");
}
