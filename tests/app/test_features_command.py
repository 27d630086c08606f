"""`idgraph features`: labels with derived attributes as of their times; docs/behaviour.md does what it says."""

from __future__ import annotations

import doctest
import json
import re
import stat
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import idgraph as library
from idgraph.app import wiring
from idgraph.app.adapters.shared_state import open_documents
from idgraph.app.entrance import local_operator
from idgraph.app.jobs.context import LocalJobContext
from idgraph.app.profile_server import application
from idgraph.app.settings.document import Settings
from idgraph.jobs.features.served import ServedLookups
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.errors import QueryError
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import Term
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.spark.spread import Answer
from ingestion.spark.workers import WorkerPlan
from metadata_service.behaviour import derived_paths
from tests.app.conftest import CommandLine, filled_by, keep_snapshot
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import EXAMPLE, Pipeline, attribute, durable_keys, records, snapshot

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "behaviour.md"
ORDERS, SESSIONS = "behaviour.orders30d", "behaviour.sessions.count"
PERSON, EMAIL = "user_id:1540", "email:aimee.moore@example.com"
MADE_BY = (b'"1540"', b"aimee.moore@example.com")


def known() -> MetadataSnapshot:
    """The example's own, with its activities and derived attributes."""
    content = json.loads((EXAMPLE / "behaviour.json").read_bytes())
    derived = [DerivedDocument(**each, version=1) for each in content["derived_attributes"]]
    elsewhere = segment("elsewhere", Term("address.shipping.country", "XX"))
    made = with_segments(snapshot(), segment("everybody"), elsewhere)
    declared = {
        each.path: each for each in (*snapshot().attributes, attribute("demographics.age", "integer"))
    }
    declared |= {path: attribute(path, kind) for each in derived for path, kind in derived_paths(each, {})}
    return made.model_copy(
        update={
            "activities": tuple(ActivityDocument(**each, version=1) for each in content["activities"]),
            "derived_attributes": tuple(derived),
            "attributes": tuple(declared.values()),
            "behaviour_version": 1,
        }
    )


def fill(settings: Settings) -> None:
    found = known()
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=found)
        pipeline.process(
            each for each in records(80_000) if any(part in each.value.lower() for part in MADE_BY)
        )
        pipeline.data_keys.close()
    keep_snapshot(settings, found)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(filled_by(fill, tmp_path_factory.mktemp("shop")))


def labels(**more: Any) -> pa.Table:
    at = [pd.Timestamp(f"2024-03-0{day}T00:00:00Z") for day in (8, 1, 3, 3)]
    return pa.table({"identifier": [PERSON, PERSON, "user_id:0", PERSON], "time": at, **more})


def test_the_documentation_does_what_it_says(shop: CommandLine, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / ".idgraph").mkdir()
    (tmp_path / ".idgraph" / "demo-retail").symlink_to(shop.folder)
    monkeypatch.chdir(tmp_path)
    (section,) = re.findall(r"^## Features for training\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    examples = doctest.DocTestParser().get_doctest(section, {}, "features", str(PAGE), 0)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL).run(
        examples
    )
    assert result.attempted > 5
    assert result.failed == 0


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_the_command_writes_what_a_program_gets(
    shop: CommandLine, tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, out = tmp_path / f"labels.{form}", tmp_path / f"out.{form}"
    table = labels(bought=[1, 0, 0, 1])
    if form == "csv":
        csv.write_csv(table, given)
    else:
        parquet.write_table(table, given)
    columns = f"{ORDERS}, {SESSIONS},latest:demographics.age"
    result = shop("features", given, "--columns", columns, "-o", out)
    assert result.exit_code == 0, result.output
    assert "1 label belongs to nobody" in caplog.text
    found = csv.read_csv(out) if form == "csv" else parquet.read_table(out)
    assert found.column_names == ["identifier", "time", "bought", *columns.replace(" ", "").split(",")]
    assert found["bought"].to_pylist() == [1, 0, 0, 1]
    with library.open(shop.folder) as profiles:
        made = profiles.features(table, columns.replace(" ", "").split(","))
    assert made.without_profile == 1
    assert (
        found.select(found.column_names[3:]).to_pylist()
        == made.to_arrow().select(found.column_names[3:]).to_pylist()
    )
    late, early, nobody, between = made.to_arrow()[ORDERS].to_pylist()
    assert (early, nobody) == (0, None)
    assert late > between > 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert shop("features", given, "--columns", ORDERS, "-o", out).exit_code == 2


def test_a_file_is_written_a_few_rows_at_a_time(
    shop: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "labels.parquet"
    given.mkdir()
    table = labels(bought=pa.array([1, 0, None, 1], pa.int8()))
    for part in range(2):
        parquet.write_table(table.slice(2 * part, 2), given / f"part-{part}.parquet", row_group_size=1)

    def written(name: str, at_once: int) -> bytes:
        monkeypatch.setattr("idgraph.jobs.features.job.LABELS_AT_ONCE", at_once)
        monkeypatch.setattr("idgraph.jobs.features.files.ROW_GROUP", 1)
        result = shop("features", given, "--complete", "--columns", ORDERS, "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
        return (tmp_path / name).read_bytes()

    assert written("whole.parquet", 100) == written("parts.parquet", 3)
    found = parquet.read_table(tmp_path / "parts.parquet")
    assert found["bought"].to_pylist() == [1, 0, None, 1]
    assert found[f"{ORDERS}:is_complete"].to_pylist() == [True, True, None, True]
    (job,) = (each for each in shop.json("jobs", "list", "--json") if "parts" in each["what"]["output"])
    assert (job["kind"], job["done"], job["counts"]) == ("features", 4, {"without_profile": 1})
    assert job["what"]["columns"] == [ORDERS]


def test_tasks_give_the_same_file(
    shop: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark is not started: tests/spark/test_features.py does."""
    many = pa.concat_tables([labels(bought=[1, 0, None, 1]), labels(bought=[2, 3, 4, 5])])
    email = pa.array([PERSON, EMAIL, None, EMAIL, "user_id:0", "email:a@b.c", PERSON, EMAIL])
    parquet.write_table(many.set_column(0, "identifier", email), given := tmp_path / "labels.parquet")
    sealed: list[bytes] = []

    def answered(
        _: Any, plan: WorkerPlan, parts: list[bytes], answer: Answer
    ) -> Iterator[list[bytes] | None]:
        yield None
        sealed.extend(parts)
        tools = plan.open_resources(plan.settings)
        with closing(tools.store):
            yield [answer(tools, place, part) for place, part in enumerate(parts)]

    monkeypatch.setattr("ingestion.spark.spread.answered", answered)
    monkeypatch.setattr("ingestion.spark.spread.tasks_of", lambda _: 3)
    monkeypatch.setattr(LocalJobContext, "spark", lambda *_: nullcontext())
    monkeypatch.setattr("idgraph.jobs.features.job.SPREAD_AT_ONCE", 5)

    def written(spread_from: int, *options: str) -> tuple[bytes, str]:
        monkeypatch.setenv("IDGRAPH_SPARK__PREVIEW_FROM", str(spread_from))
        caplog.clear()
        out = tmp_path / f"{spread_from}-{len(options)}.csv"
        columns = f"{ORDERS},{SESSIONS},latest:demographics.age"
        result = shop("features", given, "--columns", columns, "-o", out, "--complete", *options)
        assert result.exit_code == 0, result.output
        return out.read_bytes(), caplog.text

    for options in ((), ("--segment", "elsewhere")):
        here = written(1_000, *options)
        assert not sealed
        assert written(1, *options) == here
        assert len(sealed) == 6
        assert not any(part in each for each in sealed for part in (b"1540", b"aimee"))
        sealed.clear()


def test_an_empty_file_has_the_columns(shop: CommandLine, tmp_path: Path) -> None:
    parquet.write_table(labels().slice(0, 0), given := tmp_path / "none.parquet")
    assert shop("features", given, "--columns", ORDERS, "-o", tmp_path / "out.parquet").exit_code == 0
    found = parquet.read_table(tmp_path / "out.parquet")
    assert (found.column_names, len(found)) == (["identifier", "time", ORDERS], 0)


class OtherFrame:
    """A data frame of a library that gives and takes Arrow streams, as that of Polars."""

    def __init__(self, source: Any) -> None:
        self.table = pa.RecordBatchReader.from_stream(source).read_all()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def test_frames_of_other_libraries_are_read_and_made(shop: CommandLine) -> None:
    with library.open(shop.folder) as profiles:
        found = profiles.features(OtherFrame(labels()), [ORDERS])
        assert OtherFrame(found).table == profiles.features(labels(), [ORDERS]).to_arrow()
        assert list(found.to_pandas().columns) == ["identifier", "time", ORDERS]


def test_look_ups_that_were_noted_are_checked(shop: CommandLine) -> None:
    settings = shop.settings()
    missing = shop("features", "check")
    assert (missing.exit_code, "checked_share" in missing.output) == (3, True)
    assert "look up whole profiles" in " ".join(missing.output.split())

    def note(change: dict[str, Any]) -> None:
        with wiring.opened_to_read(settings) as resources, closing(open_documents(settings)) as documents:
            reader = wiring.profile_reader(settings, resources)
            log = ServedLookups(documents, wiring.served_hashes(settings), 1.0)
            (profile,) = reader.lookup(Identifier.parse(PERSON))
            begun = log.begin(reader, local_operator(), Identifier.parse(PERSON), known())
            assert begun is not None
            log.end(begun, profile.attributes() | change)
            log.flush()

    note({})
    (found,) = shop.json("features", "check", "--json")
    assert (found["noted"], found["same"], found["share_that_differs"]) == (1, 1, 0)
    note({"behaviour": {"orders30d": 7_000}})
    differing = shop("features", "check", "--json")
    assert differing.exit_code == 6
    found = json.loads(differing.stdout)
    assert (found["differs"], found["share_that_differs"]) == (1, 0.5)
    assert found["attributes"][ORDERS] == 1
    assert found["examples"][0]["profile"] == PERSON
    assert "differs" in shop("features", "check").output
    (sampled,) = shop.json("features", "check", "--json", "--sample", "1")
    assert sampled["looked_at"] == 1


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_service_notes_look_ups_on_request(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setenv("IDGRAPH_PROFILES__CHECKED_SHARE", str(share))
    with application(served.settings()) as service:
        assert (service.state.service.served is not None) is bool(share)


def test_a_data_frame_keeps_its_index_and_columns(shop: CommandLine) -> None:
    frame = labels(score=[0.5, None, 1.0, 2.0]).to_pandas().set_index(pd.Index([7, 5, 5, 1]))
    with library.open(shop.folder) as profiles:
        made = profiles.features(frame, [ORDERS]).to_pandas()
        pd.testing.assert_frame_equal(made[list(frame.columns)], frame)
        assert made.columns[-1] == ORDERS
        with pytest.raises(QueryError, match="a column score already"):
            profiles.features(frame, ["score"])


def test_only_members_of_a_segment_have_features(shop: CommandLine) -> None:
    with library.open(shop.folder) as profiles:
        whole = profiles.features(labels(), [ORDERS]).to_arrow()
        assert profiles.features(labels(), [ORDERS], segment="everybody").to_arrow() == whole
        table = profiles.features(labels(), [ORDERS], segment="elsewhere")
        assert (table.outside, table.without_profile) == (3, 1)
        assert table.to_arrow()[ORDERS].null_count == 4
        with pytest.raises(QueryError, match="no segment is called nobody"):
            profiles.features(labels(), [ORDERS], segment="nobody")


def test_an_export_is_of_one_moment(shop: CommandLine) -> None:
    def orders_at(*options: str) -> int:
        lines = map(json.loads, shop("export", *options).stdout.splitlines())
        return sum(each["attributes"]["behaviour"]["orders30d"] for each in lines)

    early, between, late = (orders_at("--as-of", f"2024-03-0{day}T02:00:00+02:00") for day in (1, 3, 8))
    assert early < between < late
    assert orders_at() == 0
    assert shop("export", "--as-of", "2024-03-08T00:00:00").exit_code == 2
    assert shop("export", "--as-of", "2024-03-08T00:00:00Z", "--segment", "everybody").exit_code == 2
