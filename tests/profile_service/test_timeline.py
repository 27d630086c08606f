"""A person's timeline, page by page."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.client import ProfilesClient
from idgraph.model.stamps import read_moment
from profile_service.timeline import TimelineRequest, timeline_of
from tests.profile_service.api.conftest import caller, problem, served_here
from tests.projection.test_behaviour import PERSON, at, with_behaviour
from tests.retail import NOW, Pipeline, order

NOW_MS = int(NOW * 1000)


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_give_every_entry_once_the_newest_first(tmp_path: Path, limit: int) -> None:
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour())
    days = [60, 41, 40.5, 40, 12, 12, 12, 3.2, 3.1, 3, 1]
    pipeline.process(
        [
            order(1, number, order_id=f"R{number}", created_at=at(days_ago))
            for number, days_ago in enumerate(days)
        ]
    )
    reader = pipeline.reader()
    (person,) = reader.owners(PERSON).persons

    def walked(**bounds: int) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            page = timeline_of(reader, person, TimelineRequest((), limit=limit, cursor=cursor, **bounds))
            assert len(page.items) <= limit
            found += [each["event"] for each in page.items]
            cursor = page.next
            if cursor is None:
                return found

    expected = [f"R{number}" for number in (10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)]
    assert walked() == expected
    begin, end = (NOW_MS - days_ago * 86_400_000 for days_ago in (41, 3))
    assert walked(since=begin) == expected[:10]
    assert walked(until=end) == expected[2:]
    assert walked(since=begin, until=end) == expected[2:10]


def test_a_period_is_given_in_milliseconds_or_as_rfc_3339(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour())
    pipeline.process(
        [order(1, number, order_id=f"R{number}", created_at=at(5 - number)) for number in range(4)]
    )
    with served_here(pipeline, [caller("all", 100)]) as served:
        client = served.client("all")

        def found(since: int | str, until: int | str) -> list[str]:
            params = {"since": since, "until": until}
            answer = client.get(f"/v1/profiles/{PERSON}/timeline", params=params).raise_for_status()
            return [each["event"] for each in answer.json()["items"]]

        assert found(at(4), at(2)) == ["R2", "R1"]
        assert found(read_moment(at(4)), read_moment(at(2))) == ["R2", "R1"]
        refused = client.get(f"/v1/profiles/{PERSON}/timeline?since=2026-03-01")
        assert "an RFC 3339 time with an offset" in str(problem(refused, 422))
        with ProfilesClient(served.url, "all") as profiles:
            assert [each["event"] for each in profiles.timeline(str(PERSON), since=at(3))] == ["R3", "R2"]
