//! Runs the test suite of all stores on the stores that need no server: a file, and memory.

#![allow(clippy::unwrap_used, reason = "tests")]

mod in_memory {
    use crate::suite::TestPlace;

    crate::store_suite!((TestPlace::memory(), ()));
}

mod in_a_file {
    use crate::suite::TestPlace;

    crate::store_suite!({
        let folder = tempfile::tempdir().unwrap();
        (TestPlace::file(&folder.path().join("s.redb")), folder)
    });
}
