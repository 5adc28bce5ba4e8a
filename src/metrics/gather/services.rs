//! The metrics of services: sockets whose connections are each lent one process.

use std::sync::Arc;

use super::super::service::ServiceMetrics;
use super::super::snapshot::Sample;
use super::{List, each, sample};
use crate::query_server::status::{DaemonStatus, ServiceStatus};

/// The services that are there, before which pools.
pub(super) fn services_now(list: &mut List, status: &DaemonStatus) {
    let labels = &["service", "pool"];
    let each_service = |value: fn(&ServiceStatus) -> Option<f64>| -> Vec<Sample> {
        let services = status.services.iter();
        services
            .filter_map(|service| Some(sample(&[&service.name, &service.pool], value(service)?)))
            .collect()
    };
    list.gauge(
        "service_limit",
        labels,
        "The most processes that the pool of a service may have now",
        each_service(|service| service.limit.map(f64::from)),
    );
    list.seconds(
        "service_throttled",
        labels,
        "For how long the pool of a service starts no process, because a start failed; 0 otherwise",
        each_service(|service| Some(seconds(service.throttled_ms))),
    );
    list.seconds(
        "service_stressed",
        labels,
        "For how long processes of a service are started with stress on; 0 otherwise",
        each_service(|service| Some(seconds(service.stressed_ms))),
    );
}

fn seconds(milliseconds: Option<u64>) -> f64 {
    milliseconds.unwrap_or(0) as f64 / 1e3
}

/// The services.
pub(super) fn services(list: &mut List, services: &[Arc<ServiceMetrics>]) {
    let labels = &["service"];
    let each_service = |count: fn(&ServiceMetrics) -> u64| -> Vec<Sample> {
        let services = services.iter();
        services
            .map(|service| sample(&[service.name()], count(service)))
            .collect()
    };
    list.gauge(
        "service_connections",
        labels,
        "Connections of a service that were accepted and are there",
        each_service(|service| service.connections().connected.get()),
    );
    list.counter(
        "service_accepted",
        labels,
        "Connections of a service that were ever accepted",
        each_service(|service| service.connections().accepted.get()),
    );
    list.counter(
        "service_received_bytes",
        labels,
        "What clients of a service sent",
        each_service(|service| service.connections().received_bytes.get()),
    );
    list.counter(
        "service_sent_bytes",
        labels,
        "What was sent to clients of a service",
        each_service(|service| service.connections().sent_bytes.get()),
    );
    list.gauge(
        "service_listening",
        labels,
        "1 while a service accepts connections, 0 while they wait in the system's queue",
        each_service(|service| service.listening.get()),
    );
    list.counter(
        "service_limit_reached",
        labels,
        "Times that a service stopped accepting because all of its processes were lent",
        each_service(|service| service.limit_reached.get()),
    );
    list.counter(
        "service_ends",
        &["service", "reason"],
        "Ends of a service's connections, each counted once: client, gone (its client went away \
         with something in hand), refused (there was no process), exit (the process ended), \
         protocol (it broke it), timeout (it did not answer in time), idle (its client asked it \
         nothing for too long), unread (its client did not take what it was answered), session (it \
         lasted as long as it may), too_much (its client sent too much), shutdown (of the service)",
        each(services, ServiceMetrics::name, ServiceMetrics::ends),
    );
}
