//! The metrics of services: sockets whose connections are each lent one process.

use std::sync::Arc;

use super::super::service::ServiceMetrics;
use super::super::snapshot::Kind;
use super::{List, Own, by_reason, each, sample};

/// Something of a service.
type Count = fn(&ServiceMetrics) -> u64;

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
        "Ends of a service's connections, but for those that were cut: client, refused (there was no \
         process), exit (the process ended), protocol (it broke it), timeout (it did not answer in \
         time), idle (its client asked it nothing for too long), too_much (its client sent too \
         much), shutdown (of the service)",
        each(services, ServiceMetrics::name, ServiceMetrics::ends),
    );
}
