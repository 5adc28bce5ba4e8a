//! Named invariants, one predicate each.
