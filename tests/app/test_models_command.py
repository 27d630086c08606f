"""`idgraph models`; docs/behaviour.md goes from features to a score that a look-up shows."""

from __future__ import annotations

import doctest
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from idgraph.app import checks, metadata_access, profile_server, wiring
from idgraph.app.metadata_server import serving_here
from idgraph.projection import behaviour
from tests.app.conftest import CommandLine, configured
from tests.docs.test_behaviour_doc import EXAMPLES, given
from tests.retail import EXAMPLE, Pipeline, durable_keys, records

pytestmark = pytest.mark.slow
for needed in ("onnxruntime", "skl2onnx", "pandas"):
    pytest.importorskip(needed, reason=f"needs {needed}: requirements-dev.lock")

PAGE = Path(__file__).parents[2] / "docs" / "behaviour.md"
[SECTION] = re.findall(r"^## Models\n(.*?)(?=^## )", PAGE.read_text(encoding="utf-8"), re.M | re.S)
SHOWN = "user_id:3474"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The example's metadata in a service that runs, and events of some persons in the store."""
    with configured(tmp_path_factory.mktemp("shop")) as shell:
        assert shell("keys", "init").exit_code == 0
        with serving_here(shell.settings()) as url, pytest.MonkeyPatch.context() as patch:
            patch.setenv("IDGRAPH_METADATA__URL", url)
            steps: tuple[tuple[str | Path, ...], ...] = (
                ("attributes", "apply", EXAMPLE / "attributes.json"),
                ("specs", "apply", *sorted((EXAMPLE / "specs").glob("*.json"))),
                ("behaviour", "apply", EXAMPLE / "behaviour.json"),
            )
            for words in steps:
                applied = shell(*words)
                assert applied.exit_code == 0, applied.output
            fill(shell)
            yield shell


def fill(shell: CommandLine) -> None:
    settings = shell.settings()
    known = metadata_access.snapshot_to_read_by(settings).snapshot
    some = [
        each
        for each in records(80_000)
        if SHOWN.encode()[8:] in each.value or (each.source == "orders" and is_of_some(each.value))
    ]
    with wiring.opened(settings) as resources, closing(durable_keys(settings.directory)) as keys:
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        pipeline.process(some)
        pipeline.data_keys.close()


def is_of_some(order: bytes) -> bool:
    """Whether an order is one of a tenth of the customers."""
    return crc32(json.loads(order)["customer"]["email"].lower().encode()) % 10 == 0


@pytest.fixture(scope="module")
def trained(shop: CommandLine) -> dict[str, Any]:
    """What the page's program leaves behind."""
    demo = shop.folder / ".idgraph" / "demo-retail"
    demo.symlink_to(shop.folder)
    [program] = re.findall(r"```python\n(.*?)```", SECTION, re.S)
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shop.folder)
        exec(program, names)
    return names


def commands() -> list[list[str]]:
    [block] = re.findall(r"```\n(idgraph .*?)```", SECTION, re.S)
    return [shlex.split(line)[1:] for line in block.splitlines()]


@pytest.fixture(scope="module")
def applied(shop: CommandLine, trained: dict[str, Any]) -> list[str]:
    """What the page's commands print."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shop.folder)
        results = [shop(*each) for each in commands()]
    assert [each.exit_code for each in results] == [0] * len(results), [each.output for each in results]
    assert results[0].stdout == f"{digest_of(trained)}\n"
    return [each.stdout for each in results]


def digest_of(trained: dict[str, Any]) -> str:
    return hashlib.sha256(trained["model"]).hexdigest()


@pytest.mark.filterwarnings("ignore")
def test_the_documentation_goes_from_features_to_a_score(
    shop: CommandLine, trained: dict[str, Any], applied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tried, _, looked_up = applied
    assert re.match(r"churn: of (\d+) persons \1 change, \1 gain a value, 0 lose theirs\n", tried)
    assert re.search(rf"churn: 0\.\d+  model:{digest_of(trained)}, spec derived:churn@1", looked_up)
    monkeypatch.chdir(shop.folder)
    [example] = re.findall(r"```pycon\n(.*?)```", SECTION, re.S)
    parsed = doctest.DocTestParser().get_doctest(example, {}, "models", str(PAGE), 0)
    assert doctest.DocTestRunner().run(parsed) == (0, 4)
    [listed] = shop.json("models", "list", "--json")
    assert (listed["digest"], listed["name"], listed["used_by"]) == (digest_of(trained), "churn", ["churn"])
    assert listed["actor"] in shop("models", "list").stdout


@pytest.mark.filterwarnings("ignore")
def test_every_reader_has_the_same_score(
    shop: CommandLine, trained: dict[str, Any], applied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = score(shop)
    assert profile["provenance"]["behaviour.churn"]["source"] == f"model:{digest_of(trained)}"
    with profile_server.serving_here(shop.settings()) as url:
        monkeypatch.setenv("IDGRAPH_PROFILES__URL", url)
        assert score(shop)["attributes"]["behaviour"] == profile["attributes"]["behaviour"]
        monkeypatch.chdir(shop.folder)
        (tried,) = shop.json("models", "try", "churn.json", "--persons", "3", "--json")
        assert (tried["persons"], tried["changed"]) == (3, 0)
        monkeypatch.delenv("IDGRAPH_PROFILES__URL")
    exported = {each["id"]: each for each in shop.json("export", "--provenance")}
    assert exported[profile["id"]]["provenance"]["behaviour.churn"]["source"].startswith("model:")
    assert shop("reindex").exit_code == 0
    assert shop("search", "behaviour.churn>=0", "--count").stdout == f"{len(exported)}\n"


def score(shop: CommandLine) -> dict[str, Any]:
    (found,) = shop.json("lookup", SHOWN, "--json")
    assert 0 < found["attributes"]["behaviour"]["churn"] < 1
    return dict(found)


@pytest.mark.filterwarnings("ignore")
def test_without_the_extra_all_else_is_shown_and_the_reason_is_named(
    shop: CommandLine, applied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    behaviour._COMPILED.clear()
    shown = shop("lookup", SHOWN)
    behaviour._COMPILED.clear()
    assert "churn" not in shown.stdout
    assert "orders30d" in shown.stdout
    assert "behaviour.churn has no value: models need onnxruntime: pip install" in shown.stderr
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    lines = [json.loads(line) for line in shop("doctor", "--json").stdout.splitlines()]
    [found] = [each for each in lines if each["check"] == "metadata service"]
    assert "onnxruntime is missing here" in found["text"]
    assert found["command"].startswith("pip install 'idgraph[models]'")


@pytest.mark.filterwarnings("ignore")
def test_the_example_of_the_page_is_of_its_model(trained: dict[str, Any]) -> None:
    [example] = [each for each in EXAMPLES if "model" in each]
    content = trained["model"]
    digest = digest_of(trained)
    given(example | {"model": example["model"] | {"digest": digest}}, {digest: content})


def test_a_definition_is_tried_before_it_is_in_force_and_rolled_back(
    shop: CommandLine, tmp_path: Path
) -> None:
    def stated(over: str) -> dict[str, Any]:
        window = {"activity": "order", "function": "count", "over": over}
        return {"name": "orders-of-late", "path": "behaviour.ordersOfLate", "window": window}

    def write(content: Any) -> Path:
        (tmp_path / "file.json").write_text(json.dumps(content))
        return tmp_path / "file.json"

    [tried] = shop.json("models", "try", write(stated("all")), "--persons", "50", "--json")
    assert (tried["persons"], tried["changed"], tried["gained"], tried["lost"]) == (50, 50, 50, 0)
    [numbers] = tried["numbers"]
    assert (numbers["path"], numbers["before"]) == ("behaviour.ordersOfLate", None)
    spread = numbers["after"]
    assert spread["persons"] == 50
    figures = [spread[each] for each in ("least", "lower_quartile", "median", "upper_quartile", "greatest")]
    assert figures == sorted(figures)
    assert figures[0] < figures[-1]
    assert all(each["after"] for each in tried["examples"])
    for over in ("all", "1d"):
        assert shop("behaviour", "apply", write({"derived_attributes": [stated(over)]})).exit_code == 0
    rolled = shop("models", "rollback", "orders-of-late", "1", "--reason", "it was better")
    assert rolled.stdout == "derived attribute orders-of-late: version 3, as version 1 was\n"
    definitions = {
        each["document"]["name"]: each["document"] for each in shop.json("behaviour", "list", "--json")
    }
    assert definitions["orders-of-late"]["window"]["over"] == "all"
    assert shop("models", "rollback", "orders-of-late", "9").exit_code
    refused = shop("models", "try", write(stated("all") | {"window": {"activity": "none"}}))
    assert refused.exit_code
    assert "there is no activity none" in refused.output


def test_a_file_that_is_no_model_is_refused(shop: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "file.onnx"
    assert "No such file" in shop("models", "add", file).output
    file.write_bytes(b"no model")
    refused = shop("models", "add", file)
    assert refused.exit_code
    assert "the file is no valid ONNX model" in refused.output
