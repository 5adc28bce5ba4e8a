//! A macro that makes tests of the cases of [the suite](super).

/// Makes a test of each case. Takes an expression for a place and a guard that must outlive it.
#[doc(hidden)]
#[macro_export]
macro_rules! store_suite {
    ($place:expr) => {
        $crate::store_suite! {
            $place;
            a_write_must_name_the_last_revision
            a_deleted_document_keeps_its_last_revision_and_can_be_recreated
            edits_of_one_request_see_the_earlier_ones
            a_recreated_document_has_no_kept_value_of_the_deleted_one
            changes_list_each_document_once_in_the_order_of_its_last_update
            last_changes_returns_the_newest_changes_first
            a_change_applies_to_the_current_revision_or_not_at_all
            local_documents_count_their_updates_and_appear_nowhere_else
            the_order_of_members_and_the_digits_of_numbers_are_kept
            a_write_is_visible_to_every_handle
            one_of_fifty_concurrent_writers_of_one_revision_wins
            followers_miss_no_update_of_twenty_writers
            watchers_see_the_writes_of_other_handles_in_order
            an_export_has_each_document_once_with_the_kept_value_of_its_job
            an_export_does_not_have_changes_made_after_it_began
            an_import_writes_missing_documents_and_leaves_existing_ones
            only_deleted_documents_are_purged_after_their_time
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
