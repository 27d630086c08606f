"""Searches are paid for by what they cost: one too costly is refused by every route, and a caller's rate is charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from idgraph.model import queries
from idgraph.model.queries import Query, Range
from idgraph.model.query_cost import MOST_COST
from idgraph.web.limits import RateLimit
from idgraph.web.server import serving
from profile_service.api.app import create_app
from tests.profile_service.api.conftest import Served, problem

MISTYPED = [{"words": {"words": "johanna jonsson maria schmidt", "edits": 2}}] * 200
RANGES = queries.to_json(Query((Range("demographics.age", lower=20), Range("demographics.age", upper=60))))


@pytest.mark.parametrize("route", ["", "/count", "/facets"])
def test_a_search_that_costs_too_much_is_refused_before_it_runs(served: Served, route: str) -> None:
    paths: dict[str, Any] = {"paths": ["activity.platform"]} if route == "/facets" else {}
    for name in ("everything", "none"):
        answer = served.client(name).post(f"/v1/search{route}", json={"query": MISTYPED, **paths})
        detail = problem(answer, 400)["detail"]
        assert f"{MOST_COST:,}" in detail


def test_many_facets_of_one_search_cost_as_many_searches(everything: httpx.Client) -> None:
    body: dict[str, Any] = {"query": RANGES * 4, "paths": ["activity.platform"]}
    assert everything.post("/v1/search/facets", json=body).status_code == 200
    problem(everything.post("/v1/search/facets", json=body | {"paths": [f"a{n}" for n in range(20)]}), 400)


def test_words_of_a_caller_who_does_not_see_all_are_refused_before_they_are_spread(
    none: httpx.Client,
) -> None:
    problem(none.get("/v1/search/count", params={"q": "a " * 4900}), 400)


@pytest.fixture
def limited(served: Served) -> Iterator[tuple[httpx.Client, RateLimit]]:
    """A service in which a caller has 100 requests, and none again for a long time."""
    limit = RateLimit(0.001, 100)
    with ExitStack() as stack:
        url = stack.enter_context(serving(create_app(served.service, limit)))
        headers = {"Authorization": "Bearer everything"}
        yield (
            stack.enter_context(httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60)),
            limit,
        )


def _left(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.headers["RateLimit-Remaining"])


def test_the_rate_is_charged_by_cost(limited: tuple[httpx.Client, RateLimit]) -> None:
    client, _ = limited
    assert _left(client.get("/v1/search/count", params={"q": "activity.platform=ios"})) == 99
    assert _left(client.post("/v1/search/count", json={"query": RANGES})) == 99 - 1 - 8
    # The last one is granted with a debt, so that nothing depends on the moment at which it comes.
    assert _left(client.post("/v1/search/count", json={"query": RANGES * 12})) == 0
    refused = client.get("/v1/search/count")
    problem(refused, 429)
    assert int(refused.headers["Retry-After"]) > 0
