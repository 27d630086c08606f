"""The use of specs: counted beside the map stage, added up over a micro-batch, and sent to the metadata service."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from idgraph.model.errors import MetadataError
from idgraph.model.events import RawRecord
from idgraph.model.spec_use import SpecUse
from ingestion.metadata.spec_usage import SpecUsage
from ingestion.spark.tasks import _map_report
from ingestion.stages.outcomes import StageReport, Uses
from ingestion.stages.usage import SAMPLE
from tests.retail import Pipeline, order, records, snapshot, spec
from tests.support.patience import eventually


def reported(pipeline: Pipeline, given: Sequence[RawRecord]) -> StageReport:
    total = StageReport()
    for output in pipeline.map_stage().run(given):
        total.add(_map_report(output, []))
    return total


def test_events_and_errors_are_those_of_each_spec_and_source(tmp_path: Path) -> None:
    given = [*records(40), order(1, 70, order_id=None), order(2, 71, created_at="soon")]
    found = reported(Pipeline(tmp_path), given).uses.found
    assert {key: (use.events, use.errors) for key, use in found.items()} == {
        "shop-segment@1/segment": (20, 0),
        "shop-amplitude@1/amplitude": (10, 0),
        "shop-orders@1/orders": (12, 2),
    }


def test_a_sample_gives_the_numbers_of_many(tmp_path: Path) -> None:
    given = records(SAMPLE * 10)
    found = reported(Pipeline(tmp_path), given).uses.found
    counted = {use.source: round(use.events) for use in found.values()}
    assert counted == {name: sum(each.source == name for each in given) for name in counted}
    assert len(counted) == 3


def test_what_no_spec_maps_has_no_spec(tmp_path: Path) -> None:
    known = snapshot(specs=[spec("segment")])
    found = reported(Pipeline(tmp_path, snapshot=known), records(40)).uses.found
    assert found["@0/orders"].errors == 10
    assert (found["@0/orders"].spec, found["@0/orders"].events) == ("", 0)


def test_fields_that_nothing_reads_are_named_without_values(tmp_path: Path) -> None:
    stage, given = Pipeline(tmp_path).map_stage(), records(400)
    # As a worker that keeps its snapshot, chunk by chunk.
    uses = [use for _ in range(20) for output in stage.run(given) for use in output.uses.found.items()]
    found = dict(uses)
    fields = found["shop-segment@1/segment"].fields
    assert fields["/sentAt"] is False
    assert fields["/userId"] is True
    # The envelope reads it.
    assert "/type" not in fields
    assert not any(re.search(r"@|[0-9]{2}", path) for use in found.values() for path in use.fields)


class Service:
    """Keeps what it is sent, once it is there."""

    def __init__(self) -> None:
        self.is_away = True
        self.found: list[SpecUse] = []

    def send_uses(self, uses: list[SpecUse]) -> None:
        if self.is_away:
            raise MetadataError("away")
        self.found += uses


def some(events: float, **fields: bool) -> Uses:
    uses = Uses()
    use = uses.of("orders", 1, "shop")
    use.events, use.errors, use.fields = events, 1, fields
    return uses


def test_uses_are_added_up_while_the_service_is_away() -> None:
    service = Service()
    with SpecUsage(service, 0.01, lambda: 7.0) as usage:
        usage.add(some(2.4, a=False, b=False))
        usage.add(some(3.0, a=True))
        assert service.found == []
        service.is_away = False
        eventually(lambda: bool(service.found))
        (use,) = service.found
        assert (use.events, use.errors, use.last_used, use.fields) == (5, 2, 7000, {"a": True, "b": False})


def test_the_last_uses_are_sent_at_the_end() -> None:
    service = Service()
    service.is_away = False
    with SpecUsage(service, 3600) as usage:
        usage.add(some(1))
    assert [each.events for each in service.found] == [1]
