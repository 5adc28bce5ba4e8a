//! Makes tests of the cases of [the suite](super).

/// Makes a test of each case. Takes what makes a place, and what has to live as long as it.
#[doc(hidden)]
#[macro_export]
macro_rules! store_suite {
    ($place:expr) => {
        $crate::store_suite! {
            $place;
            who_writes_must_know_the_last_revision
            a_deleted_document_stays_as_its_last_revision_and_can_be_made_again
            edits_of_one_request_see_those_before_them
            changes_have_each_document_once_in_the_order_of_its_last_update
            the_last_changes_are_all_changes_read_from_the_end
            a_change_is_made_to_what_is_there_at_that_moment_or_not_at_all
            local_documents_count_their_updates_and_are_nowhere_else
            the_order_of_members_and_the_digits_of_numbers_stay
            what_was_written_is_there_for_every_handle
            of_fifty_writers_of_one_revision_one_wins
            followers_miss_no_update_of_twenty_writers
            watchers_hear_of_the_writes_of_other_handles_in_their_order
            an_export_has_each_document_once_with_what_is_kept_of_its_job
            an_export_has_what_was_there_when_it_began
            an_import_writes_what_is_not_there_and_leaves_what_is
            deleted_documents_are_purged_after_their_time_and_no_live_one_ever
        }
    };
    ($place:expr; $($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            let (place, _kept) = $place;
            $crate::suite::$case(&place).await;
        }
    )*};
}
