//! The metrics of services: sockets whose connections are each lent one process.

use std::sync::Arc;

use super::super::service::ServiceMetrics;
use super::super::snapshot::Kind;
use super::{List, Own, by_reason, each, sample};
use crate::query_server::status::{DoorStatus, ServiceStatus};

/// Something of a service.
type Count = fn(&ServiceMetrics) -> u64;

/// What the pool of a service is like.
type Now = fn(&DoorStatus) -> Option<f64>;

/// The services that are there, before which pools.
pub(super) fn services_now(list: &mut List, status: &ServiceStatus) {
    let gauges: [(&str, &str, &str, &str, Now); 3] = [
        (
            "service_limit",
            "service_limit",
            "",
            "The most processes that the pool of a service may have now",
            |service| service.limit.map(f64::from),
        ),
        (
            "service_throttled",
            "service_throttled_seconds",
            "s",
            "For how long the pool of a service starts no process, because a start failed; 0 otherwise",
            |service| Some(seconds(service.throttled_ms)),
        ),
        (
            "service_stressed",
            "service_stressed_seconds",
            "s",
            "For how long processes of a service are started with stress on; 0 otherwise",
            |service| Some(seconds(service.stressed_ms)),
        ),
    ];
    for (stats, prometheus, unit, help, value) in gauges {
        let own = Own {
            stats,
            prometheus,
            kind: Kind::Gauge,
            unit,
            labels: &["service", "pool"],
            help,
        };
        let samples = status
            .services
            .iter()
            .filter_map(|service| Some(sample(&[&service.name, &service.pool], value(service)?)));
        list.settee(own, samples);
    }
}

fn seconds(milliseconds: Option<u64>) -> f64 {
    milliseconds.unwrap_or(0) as f64 / 1e3
}

/// The services.
pub(super) fn services(list: &mut List, services: &[Arc<ServiceMetrics>]) {
    let counts: [(&str, &str, Kind, &str, &str, Count); 6] = [
        (
            "service_connections",
            "service_connections",
            Kind::Gauge,
            "",
            "Connections of a service that were accepted and are there",
            |service| service.connections().connected.get(),
        ),
        (
            "service_accepted",
            "service_accepted_total",
            Kind::Counter,
            "",
            "Connections of a service that were ever accepted",
            |service| service.connections().accepted.get(),
        ),
        (
            "service_received_bytes",
            "service_received_bytes_total",
            Kind::Counter,
            "bytes",
            "What clients of a service sent",
            |service| service.connections().received_bytes.get(),
        ),
        (
            "service_sent_bytes",
            "service_sent_bytes_total",
            Kind::Counter,
            "bytes",
            "What was sent to clients of a service",
            |service| service.connections().sent_bytes.get(),
        ),
        (
            "service_listening",
            "service_listening",
            Kind::Gauge,
            "",
            "1 while a service accepts connections, 0 while they wait in the system's queue",
            |service| service.listening.get(),
        ),
        (
            "service_limit_reached",
            "service_limit_reached_total",
            Kind::Counter,
            "",
            "Times that a service stopped accepting because all of its processes were lent",
            |service| service.limit_reached.get(),
        ),
    ];
    for (stats, prometheus, kind, unit, help, value) in counts {
        let own = Own {
            stats,
            prometheus,
            kind,
            unit,
            labels: &["service"],
            help,
        };
        let samples = services
            .iter()
            .map(|service| sample(&[service.name()], value(service)));
        list.settee(own, samples);
    }
    by_reason(
        list,
        ("service_ends", "service_ends_total"),
        &["service", "reason"],
        "Ends of a service's connections, each counted once: client, gone (its client went away \
         with something in hand), refused (there was no process), exit (the process ended), \
         protocol (it broke it), timeout (it did not answer in time), idle (its client asked it \
         nothing for too long), unread (its client did not take what it was answered), session (it \
         lasted as long as it may), too_much (its client sent too much), shutdown (of the service)",
        each(services, ServiceMetrics::name, ServiceMetrics::ends),
    );
}
