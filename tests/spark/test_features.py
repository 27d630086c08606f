"""Features by Spark's tasks: the file of this process, to the byte."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from idgraph.app import wiring
from idgraph.app.settings.document import load
from sinks.keyring.provider import KeyringFile
from tests.app.conftest import keep_snapshot
from tests.installation import Installation, Shop
from tests.jobs.test_features import AS_OF, drawn, email, labels_of, pipeline_of
from tests.retail import durable_keys


def test_spark_writes_what_this_process_does(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    shop = Shop("http://127.0.0.1:9", "none", tmp_path / "keyring.json")
    installation = Installation(tmp_path / "shop", shop)
    settings = load(installation.config)
    wiring.prepare_directory(settings)
    orders = drawn(1)
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = pipeline_of(tmp_path, orders, key_store=keys, store=resources.store, index=resources.index)
        pipeline.data_keys.close()
    keep_snapshot(settings, pipeline.snapshot)
    asked = labels_of(1, orders, 400)
    names = [email(each) if place % 50 else None for place, each in enumerate(asked["person"])]
    table = pa.table({"identifier": names, "time": asked["time"], "place": range(len(asked))})
    parquet.write_table(table, given := tmp_path / "labels.parquet")

    def made(by_spark_from: int) -> bytes:
        out = tmp_path / f"{by_spark_from}.parquet"
        words = (
            "--columns",
            ",".join([*AS_OF, "latest:behaviour.mixed"]),
            "--complete",
            "--output",
            str(out),
        )
        done = installation.command(
            "features", str(given), *words, IDGRAPH_SPARK__PREVIEW_FROM=str(by_spark_from)
        )
        assert b"belong to nobody" in done.stderr
        return out.read_bytes()

    by_spark = made(1)
    scratch = settings.directory / "features"
    assert (scratch / "spark.log").exists()
    (scratch / "spark.log").unlink()
    assert by_spark == made(1_000_000)
    assert not (scratch / "spark.log").exists(), "this process did it"
    assert parquet.read_table(tmp_path / "1.parquet")["behaviour.orders30d"].null_count < len(asked) / 2
