//! The rules of `monitoring/alerts.yml` use metrics that a service serves, and name documentation that exists.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::json;

use crate::support::http_client::Web;

fn read(path: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    std::fs::read_to_string(format!("{root}/{path}")).unwrap()
}

/// The text of each rule, from its name on.
fn rules(text: &str) -> Vec<&str> {
    text.split("- alert: ").skip(1).collect()
}

fn found<'a>(pattern: &str, text: &'a str) -> Vec<[&'a str; 3]> {
    let pattern = Regex::new(pattern).unwrap();
    let found = pattern.captures_iter(text);
    let group = |captures: &regex::Captures<'a>, at| captures.get(at).map_or("", |at| at.as_str());
    found
        .map(|captures| [1, 2, 3].map(|at| group(&captures, at)))
        .collect()
}

#[test]
fn alerts_use_only_metrics_labels_and_values_that_a_service_serves() {
    let web = Web::start("");
    let body = json!({"db": "d", "lang": "javascript", "docs": [{"_id": "a"}],
        "funs": ["function(doc) { emit(doc._id, 1); }"]});
    let mapped = web.send("POST", "/_query/map", &body.to_string());
    assert_eq!(mapped.status, 200, "{}", mapped.body);
    let served = web.get("/metrics").body;
    let text = read("monitoring/alerts.yml");
    let has = |metric: &str, label: &str| {
        let mut samples = served.lines().filter(|line| line.starts_with(metric));
        samples.any(|line| line.contains(label))
    };
    let rules = rules(&text);
    assert!(rules.len() >= 8, "{}", rules.len());
    for rule in rules {
        let (_, rest) = rule.split_once("expr:").unwrap();
        let (expr, _) = rest.split_once("labels:").unwrap();
        let metrics: BTreeSet<_> = found("(settee_[a-z_]+)", rule).into_iter().collect();
        assert!(!metrics.is_empty(), "{rule}");
        for [metric, ..] in &metrics {
            let there = format!("# TYPE {metric} ");
            assert!(served.contains(&there), "{metric} is not served: {rule}");
        }
        for [metric, label, values] in found(r#"(settee_[a-z_]+)\{([a-z]+)=~?"([^"]+)"\}"#, expr) {
            for value in values.split('|') {
                let label = format!("{label}=\"{value}\"");
                assert!(has(metric, &label), "{metric} has no {label}");
            }
        }
        let asked = found(r"(?:by|on) \(([^)]*)\)", expr);
        let asked = asked.iter().flat_map(|[labels, ..]| labels.split(", "));
        // Prometheus adds these to every sample that it scrapes.
        for label in asked.filter(|label| !["job", "instance"].contains(label)) {
            for [metric, ..] in found("(settee_[a-z_]+)", expr) {
                let label = format!("{label}=\"");
                assert!(has(metric, &label), "{metric} has no {label}");
            }
        }
    }
    web.service.stop();
}

#[test]
fn every_alert_is_documented_and_names_an_existing_section() {
    let text = read("monitoring/alerts.yml");
    let metrics = read("docs/metrics.md");
    let (_, table) = metrics.split_once("\n## Alerts\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let documented = found("\n\\| `(Settee[A-Za-z]+)` \\| ([a-z]+) \\|", table);
    let names = |[name, severity, _]: &[&str; 3]| (name.to_string(), severity.to_string());
    let rules = rules(&text);
    let own = rules.iter().map(|rule| {
        let [[name, severity, _]] = found(r"(?s)^([A-Za-z]+)\n.*severity: ([a-z]+)", rule)[..]
        else {
            panic!("{rule}");
        };
        names(&[name, severity, ""])
    });
    let own: Vec<_> = own.collect();
    assert_eq!(documented.iter().map(names).collect::<Vec<_>>(), own);
    for rule in &rules {
        let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
        let [[page, section, _]] =
            found("See (docs/[a-z]+[.]md), section \"([^\"]+)\"[.]", &rule)[..]
        else {
            panic!("not exactly one section: {rule}");
        };
        let page = read(page);
        let title = |line: &str| line.trim_start_matches('#').trim().replace('`', "") == section;
        let mut titles = page.lines().filter(|line| line.starts_with('#'));
        assert!(titles.any(title), "{section}");
    }
}
