//! The effort of tests that could run forever.

/// Returns the effort of a random, load or chaos test: `short`, or `long` with `SETTEE_TESTS=long`.
///
/// # Panics
/// The variable has another value.
pub fn effort<T>(short: T, long: T) -> T {
    match std::env::var("SETTEE_TESTS").as_deref() {
        Err(_) => short,
        Ok("long") => long,
        Ok(other) => panic!("SETTEE_TESTS must be 'long' or not set, and is '{other}'"),
    }
}
