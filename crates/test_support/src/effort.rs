//! The effort of tests that could run forever.

/// Returns how much a random, load or chaos test does: `short`, or `long` if `SETTEE_TESTS=long` asks for all of it.
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
