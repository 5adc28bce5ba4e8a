//! Configuration: types, loading, validation, reload as a difference.
