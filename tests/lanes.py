"""Which lane plays a test: `make check` what runs in memory, `make test` all that is not `long`, `make test-long` the rest.

Tests are marked by their place: `spark` by the modules themselves, `process` and `property` by what a module
uses, `long` by the table below. A test belongs to the long lane when it needs minutes, a server's fault or many variants of
one law; one run of each law stays in `make test`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EXAMPLES = "TEST_EXAMPLES"
SHORT = 15
"""Examples of a property outside of the long lane."""

LONG = (
    "app/test_cli.py::test_a_signal_ends_the_metadata_service_cleanly[2]",
    "app/test_cli.py::test_bench_passes_its_words_on",
    "app/test_cli.py::test_standard_streams_that_are_closed_are_as_dev_null[--version",
    "app/test_cli.py::test_standard_streams_that_are_closed_are_as_dev_null[map {spec}-2>&-]",
    "app/test_cli.py::test_standard_streams_that_are_closed_are_as_dev_null[map {spec}-<&-]",
    "app/test_cli.py::test_standard_streams_that_are_closed_are_as_dev_null[map {spec}->&-]",
    "app/test_cli.py::test_standard_streams_that_are_closed_are_as_dev_null[search",
    "app/test_cli.py::test_standard_streams_that_are_closed_are_as_dev_null[specs",
    "app/test_commands_killed.py",
    "app/test_erase_command.py::test_two_crashes_and_one_retry[data_keys-",
    "app/test_erase_command.py::test_two_crashes_and_one_retry[letters-",
    "app/test_erase_killed.py",
    "app/test_person_jobs.py::test_suggestions_are_found",
    "benchmarks/",
    "contracts/test_erasure.py::test_a_killed_erasure_leaves_each_fragment_whole_or_erased[dynamodb-",
    "contracts/test_profile_index.py::test_a_killed_writer_leaves_whole_documents[elasticsearch-",
    "contracts/test_profile_store.py::test_a_killed_writer_leaves_whole_fragments[dynamodb-",
    "contracts/test_profile_store.py::test_a_killed_writer_leaves_whole_fragments[sqlite-0.005]",
    "contracts/test_profile_store.py::test_a_killed_writer_leaves_whole_fragments[sqlite-0.017]",
    "contracts/test_profile_store.py::test_a_killed_writer_leaves_whole_fragments[sqlite-0.03]",
    "crashes/",
    "deploy/",
    "docs/test_policies_doc.py",
    "docs/test_protection.py",
    "docs/test_quickstart.py",
    "e2e/test_cluster.py",
    "metadata_service/ui/test_browser.py::test_a_person_is_found_by_an_identifier",
    "metadata_service/ui/test_browser.py::test_a_view_is_asked_for_and_its_end",
    "metadata_service/ui/test_browser.py::test_an_attribute_is_merged",
    "metadata_service/ui/test_browser.py::test_filters_are_in_the_address",
    "metadata_service/ui/test_browser.py::test_no_page_has_a_serious_barrier[dark]",
    "metadata_service/ui/test_browser.py::test_pages_fit_a_narrow_screen",
    "model/test_native.py::test_they_compile",
    "model/test_native.py::test_what_does_not_compile",
    "profile_service/api/test_away.py::test_an_answer_is_right_or_503",
    "profile_service/api/test_away.py::test_every_operation_is_right_or_503",
    "profile_service/api/test_topics.py",
    "properties/test_convergence.py::test_a_profile_that_loses",
    "properties/test_convergence.py::test_every_disorder_ends_so_in_dynamodb",
    "properties/test_elasticsearch_index.py",
    "properties/test_native_collector.py",
    "properties/test_policy_change.py",
    "properties/test_stores.py::test_dynamodb_store_equals_memory_store",
    "sinks/test_dynamo_client.py",
    "sinks/test_dynamo_profiles.py::test_decisions_that_a_killed_process",
    "sinks/test_dynamo_streams.py",
    "sinks/test_elasticsearch_index.py",
    "sinks/test_kms_envelope.py",
    "sinks/test_metadata_client.py::test_waiting_is_longer_than_the_timeout",
    "spark/test_convergence.py::test_every_event_twice",
    "spark/test_decryption.py",
    "spark/test_elasticsearch.py",
    "spark/test_erasure.py",
    "spark/test_erasure_beside_a_flow.py",
    "spark/test_full_disk.py",
    "spark/test_further_options.py",
    "spark/test_held_source.py",
    "spark/test_kafka.py",
    "spark/test_local_disk.py",
    "spark/test_metadata.py::test_without_the_service",
    "spark/test_missing_files.py",
    "spark/test_monitoring.py",
    "spark/test_pausing.py",
    "spark/test_policies.py",
    "spark/test_policy_change.py",
    "spark/test_refused_batch.py",
    "spark/test_sandbox.py",
    "spark/test_stopping.py",
    "transforms/test_benchmark_specs.py",
    "transforms/test_corpus.py",
    "transforms/test_hostile.py",
    "transforms/test_jolt_oracle.py",
    "transforms/test_machine.py::test_no_reference_is_left",
    "transforms/test_malformed_specs.py::test_mutations",
    "web/test_generated_calls.py::test_every_answer_is_described",
    "web/test_transport.py::test_half_a_head",
)
"""Beginnings of test ids, below `tests/`."""

LONG_VARIANTS = ("postgresql",)
"""Parameters: the suite's other variants are played by `make test`."""

SERVED = ("dynamodb", "elasticsearch")
"""In the names and parameters of tests that start a server."""

SLOW_FIRST = ("e2e/", "spark/", "contracts/", "metadata_service/ui/test_browser.py")
"""Begun last, these would leave all cores but one idle."""

TOGETHER = (
    ("spark/",),
    (
        "contracts/",
        "ingestion/test_reconciling.py",
        "ingestion/test_reindexing.py",
        "properties/test_stores.py",
        "sinks/test_dynamo",
        "sinks/test_elasticsearch",
    ),
)
"""Each of these shares servers, which every process that plays one of its files would start."""


def is_thorough() -> bool:
    """Whether properties play all their examples, and other ones in each run."""
    return os.environ.get(EXAMPLES) == "all"


def examples(many: int, short: int = SHORT) -> int:
    """How many examples a property plays: `many` in the long lane, at most `short` elsewhere."""
    return many if is_thorough() else min(many, short)


def place(item: pytest.Item) -> str:
    """`folder/file.py::test[parameters]`."""
    return f"{item.path.relative_to(TESTS).as_posix()}::{item.name}"


def unit(test_id: str) -> str:
    """The tests that one process plays one after the other: a file, or those of `TOGETHER`."""
    file = test_id.partition("::")[0]
    return next((files[0] for files in TOGETHER if file.removeprefix("tests/").startswith(files)), file)


def mark(item: pytest.Item) -> None:
    """Adds the marks of the lanes to a collected test."""
    name = place(item)
    _, _, parameters = name.partition("[")
    if name.startswith(LONG) or any(each in parameters for each in LONG_VARIANTS):
        item.add_marker("long")
    module = getattr(item, "module", None)
    values = vars(module) if module is not None else {}
    if (
        values.get("subprocess") is subprocess
        or any(_starts_processes(value) for value in values.values())
        or any(each in item.name for each in SERVED)
    ):
        item.add_marker("process")
    if "given" in values:
        item.add_marker("property")


def _starts_processes(value: object) -> bool:
    return getattr(value, "__module__", "") in ("tests.installation", "tests.contracts.processes")
