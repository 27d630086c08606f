"""Searches whose bounds follow the clock, over HTTP."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.profile_service.api.conftest import problem

SEEN = "activity.lastSeenAt"


def count(client: httpx.Client, **body: Any) -> int:
    answer = client.post("/v1/search/count", json=body)
    assert answer.status_code == 200, answer.text
    assert "warnings" not in answer.json()
    return int(answer.json()["count"])


def test_a_search_by_the_clock_is_one_by_the_moment(everything: httpx.Client) -> None:
    newest = everything.get("/v1/search", params={"sort": f"-{SEEN}", "limit": 1}).json()["items"][0]
    seen = newest["attributes"]["activity"]["lastSeenAt"]
    ago = (time.time_ns() // 1_000_000 - seen) // 1000
    assert (
        count(everything, q=f"{SEEN}>=now-{ago + 3600}s")
        == count(everything, q=f"{SEEN}>={seen - 3600_000}")
        > 0
    )
    assert count(everything, words=[f"{SEEN}>=now-{ago - 3600}s"]) == 0
    older = count(everything, query=[{"moment": {"path": SEEN, "upper": "today-1d"}}])
    assert older == count(everything, q=f"{SEEN}=*") > 0
    answer = everything.get("/v1/search", params={"q": f"{SEEN}<now-30d", "limit": 3}).json()
    assert (len(answer["items"]), answer["warnings"]) == (3, [])
    rest = everything.get("/v1/search", params={"q": f"{SEEN}<now-30d", "limit": 3, "cursor": answer["next"]})
    assert not {each["id"] for each in rest.json()["items"]} & {each["id"] for each in answer["items"]}


@pytest.mark.parametrize(
    "path", ["/v1/search", "/v1/search/count", "/v1/search/facets?path=activity.platform"]
)
def test_a_time_zone_is_one_that_exists(everything: httpx.Client, path: str) -> None:
    asked = httpx.URL(path).copy_merge_params({"q": f"{SEEN}<today", "time_zone": "Europe/Berlin"})
    assert everything.get(asked).status_code == 200
    answer = everything.get(asked.copy_set_param("time_zone", "Nowhere/City"))
    assert "Nowhere/City" in str(problem(answer, 422))
    answer = everything.get(asked.copy_set_param("q", f"{SEEN}<today@Nowhere/City"))
    assert "Nowhere/City" in str(problem(answer, 400))


def test_a_hidden_time_is_unknown(none: httpx.Client) -> None:
    answer = none.post("/v1/search/count", json={"q": "demographics.age<now-30d"}).json()
    other = none.post("/v1/search/count", json={"q": "demographics.agf<now-30d"}).json()
    assert answer["count"] == other["count"] == 0
