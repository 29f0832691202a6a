"""What only a race or a loss makes a function do, and the tests that have it do it."""

from __future__ import annotations

from typing import NamedTuple

from tests.template.conftest import NAMES
from tests.template.spark_jobs import SPARK_JOB

COMMITS = (
    "ingest",
    "plan_table",
    "split_partition",
    "compact",
    "collect_garbage",
    "purge_rows",
    SPARK_JOB,
)
ITEMS = ("-deltas", "-snapshots")
SEND = ("sqs:SendMessage", "sqs:GetQueueUrl")
FEATURES = "tests/unit/features/"
BLOBS = "tests/contract/test_blobs.py::"
SNAPSHOT = "tests/unit/statestore/test_maintenance.py::"
PINNING = "tests/unit/statestore/test_pinning.py::"
STATE = "tests/contract/test_state_store.py::"


class Rare(NamedTuple):
    """A test as ``path::name``, and what it has whom do: to what, by how its name ends."""

    test: str
    roles: tuple[str, ...]
    actions: tuple[str, ...]
    endings: tuple[str, ...]

    def needs(self, role: str, action: str, resource: str) -> bool:
        """Return whether a role needs a grant for it."""
        asked = role in self.roles and action in self.actions
        return asked and resource.endswith(self.endings)


KEYS = "tests/contract/test_column_keys.py::"
SUBJECTS = "tests/contract/test_subjects.py::"
UPLOADS = "tests/contract/test_uploads.py::"

RARE = (
    Rare(
        f"{UPLOADS}test_a_part_that_cannot_be_sent_ends_the_upload_and_leaves_nothing",
        ("ingest", "compact", SPARK_JOB),
        ("s3:AbortMultipartUpload",),
        ("/data/*",),
    ),
    Rare(
        f"{UPLOADS}test_an_upload_that_always_conflicts_with_others_raises_and_leaves_nothing",
        ("ingest", SPARK_JOB),
        ("s3:AbortMultipartUpload",),
        ("/rejected/*",),
    ),
    Rare(
        f"{FEATURES}queries/test_sinks.py::test_what_is_not_ended_leaves_neither_file_nor_parts",
        ("answer_query",),
        ("s3:AbortMultipartUpload",),
        (f"{NAMES.results_bucket}/queries/*",),
    ),
    Rare(
        f"{FEATURES}export/test_export_uploads.py::"
        "test_a_task_that_fails_between_two_parts_leaves_neither_file_nor_parts",
        ("export_rows", SPARK_JOB),
        ("s3:AbortMultipartUpload",),
        (f"{NAMES.results_bucket}/*",),
    ),
    Rare(
        f"{FEATURES}sweep/test_unfinished_uploads.py::"
        "test_an_audit_deletes_what_was_sent_of_shards_whose_run_died_and_of_no_other",
        ("sweep",),
        ("s3:AbortMultipartUpload",),
        ("/data/*",),
    ),
    Rare(
        f"{FEATURES}sweep/test_unfinished_uploads.py::"
        "test_of_a_deleted_table_no_part_of_a_shard_is_left",
        ("administer",),
        ("s3:AbortMultipartUpload",),
        ("/data/*",),
    ),
    Rare(
        f"{FEATURES}sweep/test_storage_classes.py::"
        "test_a_shard_that_has_lasted_is_marked_once_and_read_as_before",
        ("sweep",),
        ("s3:PutObjectTagging",),
        ("/data/*",),
    ),
    Rare(
        f"{FEATURES}test_flow.py::"
        "test_a_compaction_whose_message_was_lost_is_sent_again_by_the_sweep",
        ("sweep",),
        ("sqs:SendMessage",),
        ("-compaction-jobs",),
    ),
    Rare(
        f"{FEATURES}rebuild/test_rebuild.py::"
        "test_a_purged_leaf_stays_empty_and_its_neighbour_keeps_its_rows",
        ("compact",),
        ("s3:PutObject",),
        ("/run-markers/*",),
    ),
    Rare(
        "tests/unit/shards/test_run_markers.py::"
        "test_a_run_is_not_completed_with_other_shards_than_its_marker_lists",
        ("compact", SPARK_JOB),
        ("s3:GetObject",),
        ("/run-markers/*",),
    ),
    Rare(
        f"{FEATURES}administration/test_replies_after_crashes.py::test_expired_objects_of_requests_are_deleted",
        ("sweep",),
        ("s3:DeleteObject",),
        ("/requests/*",),
    ),
    Rare(
        f"{STATE}test_versions_go_on_over_the_ends_of_pages",
        tuple(role for role in COMMITS if role != "purge_rows"),
        ("dynamodb:PutItem",),
        ("-state",),
    ),
    Rare(
        f"{PINNING}test_a_pinned_version_outlives_every_delay_and_is_freed_with_its_pin",
        (
            *("ingest", "split_partition", "compact", "purge_rows", SPARK_JOB),
            *("dispatch_spark", "track_spark", "measure", "publish_iceberg"),
        ),
        ("dynamodb:Query",),
        ("-state",),
    ),
    *(
        Rare(
            "tests/functions/test_many_tables.py::"
            "test_a_table_for_which_the_time_is_too_short_goes_to_the_end_of_the_queue",
            (role,),
            SEND,
            (f":dormouse-test-{queue}",),
        )
        for role, queue in (("plan_table", "table-changes"), ("publish_iceberg", "iceberg-changes"))
    ),
    Rare(
        f"{FEATURES}publishing/test_publish_iceberg.py::"
        "test_the_audit_withdraws_what_a_default_turned_off",
        ("sweep",),
        ("sqs:SendMessage",),
        (":dormouse-test-iceberg-changes",),
    ),
    Rare(
        "tests/unit/shards/test_writing.py::"
        "test_another_run_of_the_job_adopts_the_shard_that_is_there",
        ("ingest",),
        ("s3:GetObject",),
        ("/data/*",),
    ),
    Rare(
        f"{FEATURES}export/test_export_faults.py::"
        "test_a_death_at_any_call_of_a_storage_is_made_good_by_the_redelivery",
        ("export_rows",),
        ("s3:GetObject",),
        (f"{NAMES.results_bucket}/*",),
    ),
    Rare(
        "tests/unit/statestore/test_manifests.py::"
        "test_old_segments_go_with_the_snapshots_that_needed_them",
        ("plan_table",),
        ("s3:DeleteObject",),
        ("/state/*",),
    ),
    Rare(
        "tests/contract/test_pages.py::test_deleted_pages_are_gone_and_those_of_other_tables_are_not",
        ("plan_table",),
        ("dynamodb:BatchWriteItem",),
        ("-state",),
    ),
    Rare(
        f"{SNAPSHOT}test_a_snapshotter_that_slept_never_moves_the_newest_back",
        ("plan_table",),
        ("dynamodb:PutItem",),
        ("-snapshots",),
    ),
    Rare(
        f"{BLOBS}test_what_is_below_the_mark_and_not_needed_is_deleted_and_nothing_else",
        ("plan_table",),
        ("dynamodb:BatchWriteItem",),
        ITEMS,
    ),
    Rare(
        f"{BLOBS}test_all_parts_of_a_large_blob_are_deleted_and_those_of_a_needed_one_stay",
        ("sweep",),
        ("dynamodb:BatchWriteItem",),
        ("-snapshots",),
    ),
    Rare(
        f"{FEATURES}spark/test_spark.py::test_an_instance_without_spark_has_functions_do_it",
        ("dispatch_spark",),
        SEND,
        ("-ingest-jobs", "-compaction-jobs", "-exports"),
    ),
    Rare(
        f"{FEATURES}spark/test_spark_failed.py::"
        "test_a_job_that_cannot_be_started_for_now_waits_longer_and_longer",
        ("dispatch_spark",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}spark/test_spark.py::"
        "test_a_batch_of_so_many_bytes_goes_to_spark_and_a_smaller_one_does_not",
        ("batch_files",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}spark/test_spark.py::"
        "test_a_compaction_of_so_many_bytes_goes_to_spark_and_again_when_it_is_lost",
        ("plan_table",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}spark/test_spark_requested.py::"
        "test_what_a_purge_rewrites_is_sparks_by_its_size_and_a_functions_below",
        ("purge_rows",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}spark/test_spark_requested.py::"
        "test_a_purges_job_whose_message_was_lost_is_sent_to_spark_again",
        ("purge_rows",),
        ("s3:GetObject", "s3:PutObject"),
        ("/spark/*",),
    ),
    Rare(
        f"{FEATURES}spark/test_spark_requested.py::"
        "test_a_compaction_requested_with_spark_goes_to_spark_even_if_its_message_was_lost",
        ("administer",),
        ("s3:GetObject", "s3:PutObject"),
        ("/spark/*",),
    ),
    Rare(
        f"{FEATURES}compaction/test_compact_in_steps.py::"
        "test_a_compaction_larger_than_a_function_does_is_done_in_steps_with_one_commit",
        ("compact",),
        ("s3:GetObject", "s3:PutObject", *SEND),
        ("/jobs/*", "-compaction-jobs"),
    ),
    Rare(
        f"{FEATURES}compaction/test_compact_in_steps.py::"
        "test_a_compaction_that_crashed_twice_goes_to_spark_and_to_no_function_again",
        ("compact",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}ingest/test_isolate_files.py::test_with_spark_a_file_that_crashed_twice_alone_is_sparks",
        ("ingest",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}export/test_export_crashes.py::"
        "test_with_spark_an_export_one_of_whose_tasks_crashed_twice_is_sparks",
        ("export_rows",),
        SEND,
        ("-spark-jobs",),
    ),
    Rare(
        f"{FEATURES}ingest/test_isolate_files.py::"
        "test_a_file_that_no_function_survives_takes_no_others_along",
        ("ingest",),
        SEND,
        ("-ingest-jobs",),
    ),
    Rare(
        f"{FEATURES}export/test_export.py::test_a_task_without_time_goes_on_by_another_message",
        ("export_rows",),
        SEND,
        ("-exports",),
    ),
    Rare(
        f"{FEATURES}ingest/test_batch_files.py::test_few_files_wait_and_go_with_those_that_come_later",
        ("batch_files",),
        SEND,
        ("-files",),
    ),
    Rare(
        "tests/contract/test_dead_letters.py::"
        "test_received_dead_letters_are_whole_and_invisible_to_others_until_released",
        ("administer",),
        ("sqs:ChangeMessageVisibility",),
        ("-dead",),
    ),
    Rare(
        f"{KEYS}test_a_table_on_aws_has_data_keys_of_kms",
        ("administer",),
        ("kms:Encrypt",),
        ("key/*",),
    ),
    Rare(
        f"{KEYS}test_a_table_on_aws_has_data_keys_of_kms",
        ("ingest", "compact", "serve_http", SPARK_JOB),
        ("kms:Decrypt",),
        ("key/*",),
    ),
    Rare(
        f"{KEYS}test_a_file_that_was_ingested_is_removed_with_its_version",
        ("collect_garbage", SPARK_JOB),
        ("s3:DeleteObjectVersion", "s3:ListBucketVersions"),
        (f"{NAMES.ingest_bucket}/*", NAMES.ingest_bucket),
    ),
    Rare(f"{KEYS}test_a_table_on_aws_has_data_keys_of_kms", ("ingest",), SEND, ("-gc-candidates",)),
    Rare(
        f"{SUBJECTS}test_a_table_on_aws_has_keys_of_subjects_and_forgets_them",
        ("ingest", SPARK_JOB),
        ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem"),
        ("-subjects",),
    ),
    Rare(
        f"{SUBJECTS}test_a_table_on_aws_has_keys_of_subjects_and_forgets_them",
        ("compact", "serve_http"),
        ("dynamodb:GetItem", "dynamodb:BatchGetItem"),
        ("-subjects",),
    ),
    Rare(
        f"{SUBJECTS}test_a_table_on_aws_has_keys_of_subjects_and_forgets_them",
        ("administer",),
        (
            "dynamodb:GetItem",
            "dynamodb:BatchGetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:BatchWriteItem",
        ),
        ("-subjects",),
    ),
    Rare(
        f"{SUBJECTS}test_all_of_a_table_is_deleted_and_nothing_of_another",
        ("sweep",),
        ("dynamodb:Query", "dynamodb:BatchWriteItem"),
        ("-subjects",),
    ),
)
