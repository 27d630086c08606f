"""Calls that schemathesis makes from what the services say of themselves: no crash, and no answer that is not described."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok

from idgraph.app.dead_letter_desk import LocalDeadLetterDesk
from idgraph.model.callers import Scope
from idgraph.web import guard
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from profile_service.api.rights import Rights
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.lanes import examples
from tests.metadata_service.ui.operations import ScriptedOperations
from tests.profile_service.api.conftest import caller, served_here
from tests.profile_service.api.every_part import reported_flow
from tests.retail import Pipeline, order, raw, records, snapshot
from tests.tokens import give_token

TOKEN = "a-token-for-generated-calls"
ITEM_BY_ITEM = "PATCH /v1/schema"
"""Each change is accepted or refused by itself, so one that is malformed does not make the whole call wrong."""
LEFT_OUT = (
    # Rules among several values, the search language and ETags are in no schema.
    "positive_data_acceptance",
    # They call other operations on their own, without the token.
    "ignored_auth",
    "ensure_resource_availability",
    "use_after_free",
)


@contextmanager
def metadata(folder: Path) -> Iterator[str]:
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    give_token(app.state.service.database, "generated", Role.ADMIN, TOKEN)
    with serving(app) as url:
        yield url


@contextmanager
def profiles(folder: Path) -> Iterator[str]:
    pipeline = Pipeline(folder, snapshot=snapshot())
    pipeline.process(records(100))
    callers = [caller(TOKEN, 100, may_reveal=True, scopes=[Scope.RULES, Scope.LINKS, Scope.OPERATE])]
    with closing(SqliteDeadLetters(folder / "dead-letters.db")) as store:
        store.put(pipeline.map(order(order_id=None), raw(b"{")).dead_letters)
        flows = reported_flow(folder)
        desk = LocalDeadLetterDesk(store, pipeline.sealer, pipeline.sources, pipeline.formats, lambda *_: [])
        rights = Rights(dead_letters=desk, flows=flows, operations=ScriptedOperations(snapshot))
        with served_here(pipeline, callers, rights=rights) as served:
            yield served.url


@pytest.mark.parametrize("service", [metadata, profiles])
def test_every_answer_is_described(
    service: Callable[[Path], AbstractContextManager[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Checks call without the token too: after many of them each would wait.
    monkeypatch.setattr(guard, "WRONG_TOKEN_SECONDS", 0.0)
    load_all_checks()
    found: list[str] = []
    with service(tmp_path) as url:
        described = schemathesis.openapi.from_url(f"{url}/openapi.json")
        operations = [each.ok() for each in described.get_all_operations() if isinstance(each, Ok)]
        assert len(operations) > 20
        for operation in operations:
            more = ["negative_data_rejection"] if operation.label == ITEM_BY_ITEM else []
            try:
                play(operation.as_strategy(), CHECKS.get_by_names([*LEFT_OUT, *more]))
            except (FailureGroup, BaseExceptionGroup) as failures:
                found += map(str, failures.exceptions)
    assert not found, "\n\n".join(found)


def play(strategy: SearchStrategy[Case[Any]], excluded: Any) -> None:
    """Make the calls of one operation."""

    @settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def call(case: Case[Any]) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        case.call_and_validate(headers=headers, excluded_checks=excluded, timeout=60)

    call()
