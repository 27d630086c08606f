"""The preview of identity rules by Spark: the report of this process, to the letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import load
from idgraph.files import write_atomically
from idgraph.model.identity_rules import IdentityRules
from merge.identity.rules import Rules
from sinks.keyring.provider import KeyringFile
from tests.installation import Installation, Shop
from tests.jobs.test_rules_preview import CROWD, OTHERWISE, crowd
from tests.merge.identity.test_persons import Installation as Scenario
from tests.retail import snapshot


def test_spark_reports_as_this_process_does(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    shop = Shop("http://127.0.0.1:9", "none", tmp_path / "keyring.json")
    installation = Installation(tmp_path / "shop", shop)
    settings = load(installation.config)
    wiring.prepare_directory(settings)
    rules = IdentityRules.model_validate(CROWD)
    known = snapshot().model_copy(update={"identity_rules": rules, "identity_rules_version": 1})
    kept = {"etag": '"1"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())
    events, pins = crowd(600)
    with wiring.opened(settings) as resources:
        scenario = Scenario({"rules": CROWD})
        scenario.rules, scenario.store = Rules(rules), resources.store
        scenario.take(events)
        scenario.pin(pins)
    (file := tmp_path / "rules.json").write_text(json.dumps(OTHERWISE))

    def previewed(by_spark_from: int) -> dict[str, Any]:
        done = installation.command(
            *("rules", "preview", str(file), "--json"), IDGRAPH_SPARK__PREVIEW_FROM=str(by_spark_from)
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    by_spark = previewed(1)
    scratch = settings.directory / "preview"
    assert (scratch / "spark.log").exists()
    (scratch / "spark.log").unlink()
    assert by_spark == previewed(1_000_000)
    assert not (scratch / "spark.log").exists(), "this process did it"
    assert by_spark["looked_at"] == by_spark["fragments"] > 300
    for number in ("merges", "splits", "changed", "violations_new", "violations_gone", "changed_attributes"):
        assert by_spark[number], number
