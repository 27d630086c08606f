"""Persons of stores that the stages filled."""

from tests.support.fixtures import (  # noqa: F401
    each_spec_is_compiled_once,
    pipeline,
    resources,
    retries_wait_a_tenth,
    tasks_walk_no_objects,
)
