"""Calls that schemathesis makes from what the services say of themselves: no crash, and no answer that is not described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from idgraph.web import guard
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from tests.lanes import examples
from tests.profile_service.api.every_part import ALL, EveryPart, every_part, filled
from tests.tokens import give_token

pytestmark = pytest.mark.slow


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


Operation = APIOperation[Any, Any, Any, Any]

MOST_REFUSED = 8
"""Operations that generated calls may not meet with 2xx: one job of a kind runs at a time, a code is used once."""


class Generated(NamedTuple):
    """A service, the token for each path, and calls that it answers with 2xx, if they are known."""

    url: str
    token: Callable[[str], str] = lambda _: TOKEN
    whole: EveryPart | None = None


@contextmanager
def metadata(folder: Path) -> Iterator[Generated]:
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    give_token(app.state.service.database, "generated", Role.ADMIN, TOKEN)
    with serving(app) as url:
        yield Generated(url)


@contextmanager
def profiles(folder: Path) -> Iterator[Generated]:
    with every_part(filled(folder)) as whole:
        yield Generated(
            whole.served.url, lambda each: whole.person if "/v1/me/" in f"{each}/" else ALL, whole
        )


def described(asked: Generated) -> list[Operation]:
    load_all_checks()
    found = schemathesis.openapi.from_url(f"{asked.url}/openapi.json").get_all_operations()
    return [each.ok() for each in found if isinstance(each, Ok)]


def checked(asked: Generated, case: Case[Any]) -> int:
    """Make a call and check its answer; gives the status."""
    label = case.operation.label
    more = ["negative_data_rejection"] if label == ITEM_BY_ITEM else []
    excluded: Any = CHECKS.get_by_names([*LEFT_OUT, *more])
    headers = {"Authorization": f"Bearer {asked.token(label)}"}
    answer = case.call_and_validate(headers=headers, excluded_checks=excluded, timeout=60)
    return int(answer.status_code)


@pytest.fixture(autouse=True)
def no_call_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Checks call without the token too: after many of them each would wait.
    monkeypatch.setattr(guard, "WRONG_TOKEN_SECONDS", 0.0)


def test_every_operation_succeeds_as_it_is_described(tmp_path: Path) -> None:
    """Found by review: two thirds of the operations were never answered with 2xx."""
    with profiles(tmp_path) as asked:
        assert asked.whole is not None
        for operation in described(asked):
            label = operation.label
            stated: dict[str, Any] = {"path_parameters": asked.whole.path(label)}
            if (content := asked.whole.content(label)) is not None:
                is_read = operation.method.upper() == "GET"
                stated |= {"query": content} if is_read else {"body": content}
            media_type = "application/json" if "body" in stated else None
            assert 200 <= checked(asked, operation.Case(media_type=media_type, **stated)) < 300, label


@pytest.mark.long
@pytest.mark.parametrize("service", [metadata, profiles])
def test_every_answer_is_described(
    service: Callable[[Path], AbstractContextManager[Generated]], tmp_path: Path
) -> None:
    found: list[str] = []
    successes: Counter[str] = Counter()
    with service(tmp_path) as asked:
        operations = described(asked)
        assert len(operations) > 20
        for operation in operations:
            try:
                successes[operation.label] += play(asked, operation)
            except (FailureGroup, BaseExceptionGroup) as failures:
                found += [f"{operation.label}: {each!r}" for each in failures.exceptions]
    assert not found, "\n\n".join(found)
    refused = {each.label for each in operations if not successes[each.label]}
    assert asked.whole is None or len(refused) <= MOST_REFUSED, refused


def play(asked: Generated, operation: Operation) -> int:
    """Make calls of one operation, half of them with what is known; gives how many of them were answered with 2xx."""
    whole, label, successes = asked.whole, operation.label, 0

    @settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(), is_known=booleans())
    def call(case: Case[Any], is_known: bool) -> None:
        nonlocal successes
        if whole is not None and is_known:
            values, content = whole.path(label), whole.content(label)
            case.headers.pop("if-match", None)
            case.path_parameters = {each: values[each] for each in case.path_parameters}
            if isinstance(case.body, dict) and content:
                case.body = case.body | content
            elif operation.method.upper() == "GET" and content:
                case.query = {**case.query, **content}
        successes += 200 <= checked(asked, case) < 300

    call()
    return successes
