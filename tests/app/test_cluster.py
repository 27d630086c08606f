"""Files that a cluster cannot share are refused before anything starts; Spark's options that idgraph needs are its
own."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.app.flow_runner import require_shared
from idgraph.app.package import write_archive
from idgraph.app.settings.document import load
from idgraph.model.errors import ConfigError
from idgraph.model.spark import REFUSED
from ingestion.spark.session_options import session_options

DYNAMODB = '[store]\nkind = "dynamodb"\nregion = "eu-central-1"\n'
ELASTICSEARCH = '[index]\nkind = "elasticsearch"\n'
FILES = '[[sources]]\nname = "web"\npath = "inbox"\n'
TOPIC = '[[sources]]\nname = "web"\nkind = "kafka"\ntopics = ["web"]\n'
SHARED = "[spark]\nshared_files = true\n"
MASTER = "spark://10.0.0.1:7077"


def require(folder: Path, master: str, *tables: str) -> None:
    file = folder / "idgraph.toml"
    file.write_text(f'[flow]\nmaster = "{master}"\n' + "".join(tables))
    require_shared(load(file))


@pytest.mark.parametrize("master", [MASTER, "k8s://https://10.0.0.1:443", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize(
    ("tables", "reported"),
    [
        ([TOPIC], r"cannot share SQLite files; set \[store\] kind to dynamodb"),
        ([DYNAMODB, TOPIC], r"cannot share an SQLite file; set \[index\] kind to elasticsearch"),
        ([DYNAMODB, ELASTICSEARCH, FILES], "read from Kafka"),
        (
            [DYNAMODB, ELASTICSEARCH, '[spark]\narchive = "code.tgz"\n', TOPIC],
            "there is no .*code.tgz; make it with `idgraph package .*code.tgz`",
        ),
    ],
)
def test_what_executors_could_not_reach_is_refused(
    tmp_path: Path, master: str, tables: list[str], reported: str
) -> None:
    with pytest.raises(ConfigError, match=reported):
        require(tmp_path, master, *tables)


def test_what_all_machines_reach_is_taken(tmp_path: Path) -> None:
    require(tmp_path, "local[2]", FILES)
    require(tmp_path, "local", FILES)
    require(tmp_path, MASTER, DYNAMODB, ELASTICSEARCH, TOPIC)
    require(tmp_path, MASTER, DYNAMODB, ELASTICSEARCH, SHARED, FILES)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("spark.io.encryption.enabled", "shuffle blocks are sealed"),
        ("spark.master", r"it is `\[flow\] master`"),
        ("spark.network.crypto.enabled", "wherever spark.authenticate is"),
        ("spark.executorEnv.PYTHONPATH", "archive` is unpacked"),
        ("executor.memory", "no option of Spark"),
    ],
)
def test_options_that_idgraph_needs_are_its_own(tmp_path: Path, name: str, reported: str) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text(f'[spark.options]\n"{name}" = "a secret"\n')
    with pytest.raises(ConfigError, match=reported) as refused:
        load(file)
    assert "a secret" not in str(refused.value)


def test_executors_are_reported_where_the_code_is(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text(
        f'[flow]\nmaster = "{MASTER}"\n[spark]\narchive = "code.tgz"\ndriver_host = "driver"\n'
        '[spark.options]\n"spark.executor.memory" = "2g"\n'
    )
    settings = load(file)
    options = session_options(settings.flow, settings.spark, tmp_path, tmp_path)
    assert options["spark.archives"] == f"file://{tmp_path}/code.tgz#idgraph"
    assert options["spark.executorEnv.PYTHONPATH"] == "idgraph"
    assert options["spark.driver.host"] == "driver"
    assert "spark.driver.bindAddress" not in options
    assert "spark.executor.memory" not in options, "it goes by a file"
    here = session_options(
        settings.flow.model_copy(update={"master": "local[2]"}), settings.spark, tmp_path, tmp_path
    )
    assert here["spark.driver.host"] == here["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.archives" not in here


def test_what_is_set_for_a_cluster_cannot_be_reported_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text(f'[flow]\nmaster = "{MASTER}"\n[spark]\narchive = "code.tgz"\ndriver_host = "driver"\n')
    settings = load(file)
    ours = session_options(settings.flow, settings.spark, tmp_path, tmp_path)
    here = session_options(
        settings.flow.model_copy(update={"master": "local"}), settings.spark, tmp_path, tmp_path
    )
    of_cluster = {name for name in ours if name not in here} | {"spark.driver.host"}
    assert of_cluster <= REFUSED.keys()
    # Whether processes know a common secret is a setting there.
    assert "spark.authenticate" not in REFUSED


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("code.zip", "Spark unpacks .tar, .tar.gz and .tgz"),
        ("nowhere/code.tar", "nowhere/code.tar: No such file or directory"),
    ],
)
def test_an_archive_is_whole_or_not_there(tmp_path: Path, name: str, reported: str) -> None:
    with pytest.raises(ConfigError, match=reported):
        write_archive(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
