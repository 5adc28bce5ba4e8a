//! Makes all failed logins take equally long.
//!
//! SUMMARY   Known names may have hashes of any cost. A failed login spends, for each hash function in use, as many
//!           iterations as the most expensive known hash, minus what its own hash has cost.
//! PROMISES  The duration of a failure does not reveal whether a name is known.

use crate::config::password::{Cost, PasswordHash};

/// Spends the missing time for a failed login on `decoy`, which nothing matches. `spent` is the hash that its password
/// was checked against, if any.
pub(super) fn spend<'a>(
    decoy: &PasswordHash,
    password: &str,
    spent: Option<&PasswordHash>,
    known: impl Iterator<Item = &'a PasswordHash>,
) {
    for cost in remaining(spent.map(PasswordHash::cost), known.map(PasswordHash::cost)) {
        decoy.at_cost(cost).matches(password);
    }
}

/// Returns the most expensive known cost of each hash function, minus the iterations spent.
fn remaining(spent: Option<Cost>, known: impl Iterator<Item = Cost>) -> Vec<Cost> {
    let mut most: Vec<Cost> = Vec::new();
    // Without any known name a wrong one still costs something.
    for cost in known.chain([Cost::PLAIN]) {
        match most.iter_mut().find(|other| other.prf == cost.prf) {
            Some(other) => other.iterations = other.iterations.max(cost.iterations),
            None => most.push(cost),
        }
    }
    for cost in &mut most {
        if let Some(spent) = spent.filter(|spent| spent.prf == cost.prf) {
            cost.iterations = cost.iterations.saturating_sub(spent.iterations);
        }
    }
    most.retain(|cost| cost.iterations > 0);
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(text: &str) -> Cost {
        PasswordHash::of_config(text).unwrap().cost()
    }

    /// The total cost by hash function.
    fn total(spent: Option<Cost>, known: &[Cost]) -> Vec<(String, u64)> {
        let mut all: std::collections::BTreeMap<String, u64> = Default::default();
        for cost in remaining(spent, known.iter().copied())
            .into_iter()
            .chain(spent)
        {
            *all.entry(format!("{:?}", cost.prf)).or_default() += u64::from(cost.iterations);
        }
        all.into_iter().collect()
    }

    #[test]
    fn every_failure_costs_what_the_most_expensive_known_hashes_cost() {
        let key = |bytes: usize| "ab".repeat(bytes);
        let known = [
            cost("plain"),
            cost(&format!("-pbkdf2-{},salt,400", key(20))),
            cost(&format!("-pbkdf2-{},salt,7", key(20))),
            cost(&format!("-pbkdf2:sha256-{},salt,600000", key(32))),
            cost(&format!("-pbkdf2:sha512-{},salt,9", key(64))),
            cost(&format!("-hashed-{},salt", key(20))),
        ];
        let unknown = total(None, &known);
        assert_eq!(
            unknown,
            [
                ("Sha1".to_owned(), 400),
                ("Sha256".to_owned(), 600_000),
                ("Sha512".to_owned(), 9)
            ]
        );
        for spent in known {
            assert_eq!(total(Some(spent), &known), unknown, "{spent:?}");
        }
        assert_eq!(total(None, &[]).len(), 1);
    }
}
