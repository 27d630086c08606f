"""What watches idgraph names metrics that there are: alerts, dashboard, the page of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from profile_service.api.rights import Rights
from tests.app.test_observation import World, got, report
from tests.profile_service.api.conftest import served_here
from tests.retail import Pipeline

ROOT = Path(__file__).parents[2]
OF_SERVICES = "idgraph_metadata_", "idgraph_profiles_"
_NAME = re.compile(r"\b(?:idgraph|process)_\w+")


def watched() -> set[str]:
    """The metrics that the alerts and the dashboard name."""
    return _of_dashboard() | _of_alerts()


def _of_dashboard() -> set[str]:
    dashboard = json.loads((ROOT / "deploy/grafana/idgraph.json").read_bytes())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return set(_NAME.findall(" ".join(shown)))


def _of_alerts() -> set[str]:
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
    expressions = re.findall(r"^ *expr: (.*)$", alerts, re.MULTILINE)
    reasons = re.findall(r"^ *reason: .{40,}$", alerts, re.MULTILINE)
    assert len(expressions) == len(reasons) == alerts.count("- alert:"), (
        "each says why its threshold is what it is"
    )
    return set(_NAME.findall(" ".join(expressions)))


def _of_page() -> set[str]:
    page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    return set(_NAME.findall(page))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """All metrics of a flow and of both services."""
    folder = tmp_path_factory.mktemp("watched")
    world = World()
    (folder / ".idgraph").mkdir()
    with world.observed(folder, '[[sources]]\nname = "till"\npath = "till"\n') as (url, show_report):
        show_report(report())
        # The depth of the outbox and the lag of the projection are asked for by and by.
        texts = [got(f"{url}/metrics")[1]]
    with serving(create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))) as url:
        texts.append(httpx.get(f"{url}/metrics", trust_env=False).text)
    (folder / "profiles").mkdir()
    with served_here(Pipeline(folder / "profiles"), [], rights=Rights()) as served:
        texts.append(httpx.get(f"{served.url}/metrics", trust_env=False).text)
    helped = set(re.findall(r"^# HELP (\w+)", "\n".join(texts), re.MULTILINE))
    helped |= {"idgraph_outbox_entries", "idgraph_projection_lag_seconds"}
    histograms = {each for each in helped if each.endswith(("_request_seconds", "_batch_seconds"))}
    return helped | {f"{each}_{part}" for each in histograms for part in ("bucket", "count", "sum")}


@pytest.mark.parametrize("named", [_of_dashboard, _of_alerts, _of_page])
def test_what_watches_names_what_there_is(named: object, there: set[str]) -> None:
    assert callable(named)
    names = named()
    assert len(names) > 10
    assert names - there == set()


def test_the_page_has_all_metrics(there: set[str]) -> None:
    own = {
        each
        for each in there
        if each.startswith("idgraph_") and not each.endswith(("_bucket", "_count", "_sum"))
    }
    assert {each for each in own if not each.endswith("_created")} - _of_page() == set()


def test_alerts_are_for_each_flow_source_and_service() -> None:
    """Each gauge and counter of a flow that says of trouble has an alert."""
    assert {
        "idgraph_ready",
        "idgraph_paused",
        "idgraph_source_held",
        "idgraph_input_lag_seconds",
        "idgraph_source_last_event_timestamp_seconds",
        "idgraph_source_dead_letters_total",
        "idgraph_disk_free_bytes",
        "idgraph_jvm_heap_used_bytes",
        "idgraph_profiles_jobs",
        "idgraph_profiles_feed_lag_seconds",
        "idgraph_metadata_database_up",
    } <= _of_alerts()
