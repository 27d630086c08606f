"""A flow's observation, without Spark: every count of a report is a metric; health; logs as JSON."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from idgraph.app.observation import json_logs
from idgraph.app.observation.flow_observation import OUTBOX_COUNTED, observed
from idgraph.app.settings.document import load
from idgraph.model.errors import ConfigError, SourceUnavailableError, SparkStoppedError, StoreError
from idgraph.model.flows import FlowPause, FlowReport, Flows, HeldSources, SourceHold
from idgraph.model.topics import Behind
from ingestion.stages.outcomes import MAX_REPORTED_DEAD_LETTERS, BatchReport, SetAside, StageReport
from sinks.document_folder import DocumentFolder
from tests.installation import until
from tests.support.patience import eventually
from tests.support.processes import free_port

ROOT = Path(__file__).parents[2]
OUTBOX = "idgraph_outbox_entries"

NUMBERS = {
    name: number
    for number, name in enumerate(StageReport.__struct_fields__, 1)
    if name
    not in ("dead", "changes", "sights", "set_aside", "dead_letters", "refused", "sources", "uses", "dead_of")
}


def report(number: int = 1, **more: Any) -> BatchReport:
    return BatchReport(
        number, 0.3, 7, 1, StageReport(**{**NUMBERS, "dead": {"no_spec": 2}, **more}), 3, "main/q/1"
    )


class World:
    """What the metrics look at."""

    def __init__(self) -> None:
        self.ready = True
        self.java = True
        self.fails = False
        self.reported: list[BatchReport] = []
        self.lag: dict[str, Behind] = {}
        self.looks: list[int] = []
        self.counted: list[int] = []
        self.answers = threading.Event()
        self.answers.set()

    def is_ready(self) -> bool:
        return self.ready

    def lag_seconds(self) -> float:
        return 2.5

    def heap_bytes(self) -> tuple[int, int]:
        if not self.java:
            raise SparkStoppedError("canary-java: gone")
        return 300, 1000

    def waiting(self) -> dict[str, Behind]:
        if self.fails:
            raise SourceUnavailableError("canary-broker: away")
        return self.lag

    def count_dead_letters(self) -> dict[str, int]:
        self.counted.append(1)
        return {"not_json": 4}

    def outbox(self, limit: int) -> list[int]:
        self.looks.append(limit)
        assert self.answers.wait(30)
        if self.fails:
            raise StoreError("canary-path: away")
        return list(range(min(limit, 12)))

    @contextmanager
    def observed(self, folder: Path, sources: str = "", port: int = 0) -> Iterator[tuple[str, Any]]:
        port = port or free_port()
        (folder / "idgraph.toml").write_text(f'[flow]\nname = "shop"\n[metrics]\nport = {port}\n{sources}')
        resources: Any = SimpleNamespace(
            store=self, dead_letters=SimpleNamespace(counts=self.count_dead_letters)
        )
        snapshots: Any = SimpleNamespace(
            current=lambda: SimpleNamespace(snapshot=SimpleNamespace(version=7)), age=lambda: math.inf
        )
        settings = load(folder / "idgraph.toml")
        with observed(
            settings,
            Flows(DocumentFolder(settings.directory)),
            resources,
            snapshots,
            None,
            self.waiting,
            [self],
            self.reported.append,
        ) as show_report:
            yield f"http://127.0.0.1:{port}", show_report


def got(url: str) -> tuple[int, str]:
    try:
        with urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(url: str) -> dict[str, float]:
    return samples(got(f"{url}/metrics")[1])


def samples(text: str) -> dict[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        " ".join(
            [each.name, *(f"{k}={v}" for k, v in sorted(each.labels.items()) if k != "flow")]
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_every_count_of_a_report_is_a_metric(tmp_path: Path) -> None:
    world = World()
    with world.observed(tmp_path) as (url, show_report):
        first = scraped(url)
        assert first["idgraph_events_total"] == 0
        until(lambda: OUTBOX in scraped(url), 60, "the depth of the outbox")
        assert "idgraph_last_batch_timestamp_seconds" not in first
        given = [report(1), report(2)]
        for each in given:
            show_report(each)
        text = got(f"{url}/metrics")[1]
    assert world.reported == given, "whom the reports are for gets them as well"
    found = samples(text)
    # All numbers differ, so each must be there, twice what one report says.
    values = set(found.values())
    assert [name for name, number in NUMBERS.items() if 2.0 * number not in values] == []
    assert found["idgraph_dead_letters_total reason=no_spec"] == 4
    assert (found["idgraph_batches_total"], found["idgraph_batch_retries_total"]) == (2, 4)
    assert found["idgraph_batch_seconds_bucket le=0.5"] == 2
    assert abs(found["idgraph_last_batch_timestamp_seconds"] - time.time()) < 60
    assert found["idgraph_snapshot_version"] == 7
    assert found["idgraph_snapshot_age_seconds"] == math.inf
    assert found[OUTBOX] == 12
    assert found["idgraph_dead_letters_waiting reason=not_json"] == 4
    assert found["idgraph_ready"] == 1
    assert 'flow="shop"' in text


def test_what_cannot_be_asked_for_is_reported_and_hides_nothing_else(tmp_path: Path) -> None:
    world = World()
    world.fails = True
    failed = "idgraph_scrape_failed what=outbox"
    with world.observed(tmp_path) as (url, _):
        until(lambda: scraped(url)[failed] == 1, 60, "the store that is away")
        found = scraped(url)
    assert OUTBOX not in found
    assert found["idgraph_scrape_failed what=snapshot"] == 0
    assert found["idgraph_snapshot_version"] == 7


def test_a_scrape_neither_waits_for_the_store_nor_looks_again(tmp_path: Path) -> None:
    world = World()
    world.answers.clear()
    with world.observed(tmp_path) as (url, _):
        assert OUTBOX not in scraped(url)
        world.answers.set()
        until(lambda: OUTBOX in scraped(url), 60, "the depth of the outbox")
        for _scrape in range(5):
            assert scraped(url)[OUTBOX] == 12
    assert world.looks == [OUTBOX_COUNTED]


KAFKA = """
[kafka]
bootstrap_servers = "nowhere:1"
[[sources]]
name = "crm"
kind = "kafka"
topics = ["crm.a-b"]
type = { const = "customer" }
"""


def test_the_lag_is_reported_once_something_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.app.observation.flow_observation.EARLY_SECONDS", 0.01)
    name = "idgraph_source_lag_records partition=3 topic=crm.a-b"
    world = World()
    with world.observed(tmp_path, KAFKA) as (url, _):
        assert name not in scraped(url)
        world.lag = {"crm.a-b/3": Behind(12, 4.5), "crm.a-b/4": Behind(1)}
        until(lambda: scraped(url).get(name) == 12, 60, "the lag")
        seconds = name.replace("records", "seconds")
        assert scraped(url)[seconds] == 4.5
        assert seconds.replace("=3", "=4") not in scraped(url)


def test_a_broker_that_is_away_is_reported(tmp_path: Path) -> None:
    world = World()
    world.fails = True
    failed = "idgraph_scrape_failed what=lag"
    with world.observed(tmp_path, KAFKA) as (url, _):
        until(lambda: scraped(url)[failed] == 1, 60, "the broker that is away")


def test_health(tmp_path: Path) -> None:
    world = World()
    world.ready = False
    with world.observed(tmp_path) as (url, _):
        assert got(f"{url}/health/live") == (200, '{"status": "ok"}')
        assert got(f"{url}/health/ready") == (503, '{"status": "unavailable"}')
        world.ready = True
        assert got(f"{url}/health/ready?verbose")[0] == 200
        assert got(f"{url}/")[0] == 404


def test_a_pause_and_a_source_that_waits_are_seen(tmp_path: Path) -> None:
    world = World()
    sources = "".join(f'[[sources]]\nname = "{name}"\npath = "{name}"\n' for name in ("till", "web"))
    folder = tmp_path / ".idgraph/flows/shop"
    paused, till = "idgraph_paused", "idgraph_source_held source=till"
    with world.observed(tmp_path, sources) as (url, show_report):
        first = scraped(url)
        assert (first[paused], first[till], first["idgraph_source_held source=web"]) == (0, 0, 0)
        folder.mkdir(parents=True)
        assert Flows(DocumentFolder(tmp_path / ".idgraph")).pause(
            "shop", FlowPause(who="ann", why="move", at_ms=1)
        )
        held = SourceHold(source="till", why="70 of 90", at_ms=1, batch=0, batch_name="f/q/0", specs=())
        HeldSources(DocumentFolder(folder), "").hold(held)
        show_report(report(sources={"till": 90, "web": 5}, dead_of={"till": {"no_spec": 70}}))
        found = scraped(url)
        status, ready = got(f"{url}/health/ready")
    assert (found[paused], found[till], found["idgraph_source_held source=web"]) == (1, 1, 0)
    # It takes no events.
    assert (first["idgraph_ready"], found["idgraph_ready"]) == (1, 0)
    assert found["idgraph_source_events_total source=till"] == 90
    assert found["idgraph_source_dead_letters_total reason=no_spec source=till"] == 70
    # Nothing that a restart would mend.
    assert (status, json.loads(ready)) == (200, {"status": "ok", "paused": True, "held": ["till"]})


def test_memory_disk_and_lag_are_metrics(tmp_path: Path) -> None:
    world = World()
    with world.observed(tmp_path) as (url, _):
        assert scraped(url)["idgraph_scrape_failed what=disk"] == 1
        (tmp_path / ".idgraph").mkdir()
        found = scraped(url)
        world.java = False
        without = scraped(url)
    assert (found["idgraph_jvm_heap_used_bytes"], found["idgraph_jvm_heap_max_bytes"]) == (300, 1000)
    assert found["idgraph_input_lag_seconds"] == 2.5
    assert 0 < found["idgraph_disk_free_bytes"] <= found["idgraph_disk_size_bytes"]
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert without["idgraph_scrape_failed what=heap"] == 1
    assert "idgraph_jvm_heap_used_bytes" not in without


def test_the_last_event_of_a_source_outlives_a_start(tmp_path: Path) -> None:
    sources = "".join(f'[[sources]]\nname = "{name}"\npath = "{name}"\n' for name in ("till", "web"))
    before = FlowReport.model_validate(
        {
            **{name: None for name, field in FlowReport.model_fields.items() if field.is_required()},
            **{"name": "shop", "state": "stopped", "set_aside_reasons": {}, "stages": [], "history": []},
            **dict.fromkeys(("started_ms", "written_ms", "snapshot_version"), 1),
            **dict.fromkeys(("window_seconds", "events_per_second"), 1.0),
            **dict.fromkeys(("set_aside_per_second", "set_aside_share", "set_aside_limit"), 0.0),
            "sources": [{"name": "till", "per_second": 0.0, "last_event_ms": 7000}],
        }
    )
    (tmp_path / ".idgraph/flows/shop").mkdir(parents=True)
    Flows(DocumentFolder(tmp_path / ".idgraph")).write(before)
    name = "idgraph_source_last_event_timestamp_seconds source="
    with World().observed(tmp_path, sources) as (url, show_report):
        first = scraped(url)
        show_report(report(sources={"web": 1}))
        then = scraped(url)
    assert first[f"{name}till"] == then[f"{name}till"] == 7
    assert f"{name}web" not in first
    assert abs(then[f"{name}web"] - time.time()) < 60


def test_without_a_port_nothing_listens(tmp_path: Path) -> None:
    (tmp_path / "idgraph.toml").write_text("")
    reported: list[BatchReport] = []
    nothing: Any = None
    with observed(
        load(tmp_path / "idgraph.toml"), nothing, nothing, nothing, None, dict, [], reported.append
    ) as show_report:
        assert show_report == reported.append


def test_an_address_that_is_taken_is_reported(tmp_path: Path) -> None:
    with World().observed(tmp_path) as (url, _):
        port = url.rpartition(":")[2]
        (tmp_path / "other").mkdir()
        with (
            pytest.raises(
                ConfigError, match=rf"\[metrics\]: cannot listen on 127.0.0.1:{port}: Address already"
            ),
            World().observed(tmp_path / "other", port=int(port)),
        ):
            pass


def test_a_log_is_one_json_object_a_line_without_what_an_exception_says() -> None:
    try:
        raise ValueError("canary\nin a message")
    except ValueError as error:
        record = logging.LogRecord(
            "idgraph.x", logging.ERROR, "f", 1, "it %s", ("failed",), (ValueError, error, error.__traceback__)
        )
    (line,) = json_logs.JsonFormatter().format(record).splitlines()
    reported = json.loads(line)
    assert (reported["level"], reported["logger"], reported["message"], reported["error"]) == (
        "ERROR",
        "idgraph.x",
        "it failed",
        "ValueError",
    )
    assert reported["at"][0].startswith("test_observation.py:")
    assert "canary" not in line


def test_a_batch_is_logged_with_the_positions_of_what_it_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    aside = [SetAside("ab12", "no_spec", "map", "file:orders/x.jsonl#3")]
    with caplog.at_level(logging.INFO, json_logs.BATCHES):
        json_logs.log_batch(report(set_aside=aside))
    lines = [json.loads(json_logs.JsonFormatter().format(record)) for record in caplog.records]
    assert [line["message"] for line in lines] == ["micro-batch done", "event set aside"]
    assert lines[0]["dead_letters"] == {"no_spec": 2}
    assert {
        key: lines[1][key] for key in ("batch", "position", "reason", "stage", "dead_letter", "level")
    } == {
        "batch": "main/q/1",
        "position": "file:orders/x.jsonl#3",
        "reason": "no_spec",
        "stage": "map",
        "dead_letter": "ab12",
        "level": "WARNING",
    }


def test_an_error_of_a_command_is_json_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "idgraph.app.cli", "-c", str(tmp_path / "none.toml")]
    for words, reported in (([], "error: "), (["--log-format", "json"], '{"time": ')):
        done = subprocess.run(
            [*command, *words, "run"], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(reported)
        assert "none.toml: cannot be read: No such file" in done.stderr
    line = json.loads(done.stderr)
    assert (line["level"], line["logger"]) == ("ERROR", "idgraph")


def test_only_so_many_are_reported_one_by_one() -> None:
    aside = [SetAside(str(n), "no_spec", "map", f"p#{n}") for n in range(70)]
    total = StageReport(set_aside=list(aside))
    total.add(StageReport(set_aside=list(aside)))
    total.add(StageReport(set_aside=list(aside)))
    assert len(total.set_aside) == MAX_REPORTED_DEAD_LETTERS


def test_dead_letters_in_dynamodb_are_not_counted_at_each_scrape(tmp_path: Path) -> None:
    counted = 'idgraph_dead_letters_waiting{flow="shop",reason="not_json"} 4'
    world = World()
    with world.observed(tmp_path) as (url, _):
        for _ in range(3):
            assert counted in got(f"{url}/metrics")[1]
    assert len(world.counted) == 3
    world = World()
    with world.observed(tmp_path, '[store]\nkind = "dynamodb"\nregion = "eu-central-1"\n') as (url, _):
        eventually(lambda: counted in got(f"{url}/metrics")[1])
        for _ in range(10):
            assert counted in got(f"{url}/metrics")[1]
    assert len(world.counted) == 1
