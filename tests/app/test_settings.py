"""The configuration file: what it says, what overrides it, and how a mistake in it is reported."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from idgraph.app.adapters.indexes import place
from idgraph.app.adapters.stores import worker_config
from idgraph.app.settings.document import Settings, load
from idgraph.app.settings.tables import ProfilesSettings
from idgraph.model.errors import ConfigError
from idgraph.model.sources import FileSource


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor a variable of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IDGRAPH_CONFIG", raising=False)


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "idgraph.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, text))
    return str(caught.value)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = load()
    assert settings.directory == tmp_path.resolve() / ".idgraph"
    assert settings.sources == ()
    assert settings.metadata.url == "http://127.0.0.1:8410"


def test_the_file_beside_is_found_then_the_variable_then_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "named", "given"):
        written(tmp_path / name, f'directory = "{name}"')
    monkeypatch.chdir(tmp_path / "here")
    assert load().directory.name == "here"
    monkeypatch.setenv("IDGRAPH_CONFIG", str(tmp_path / "named" / "idgraph.toml"))
    assert load().directory.name == "named"
    assert load(tmp_path / "given" / "idgraph.toml").directory.name == "given"


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml")
    monkeypatch.setenv("IDGRAPH_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load()


@pytest.mark.parametrize(
    ("text", "line", "place", "hint"),
    [
        ('directry = "x"', 1, "directry", "directory"),
        ('[metadata]\nulr = "x"', 2, "metadata.ulr", "url"),
        ("[flow]\n\n# more\npartition = 2", 4, "flow.partition", "partitions"),
        ("[flow.dead_letters]\nmax_ratio = 1", 2, "flow.dead_letters.max_ratio", "max_rate"),
        ('[[sources]]\nname = "a"\npath = "a"\nordnal = { path = "t" }', 4, "sources.0.ordnal", "ordinal"),
        ('[[sources]]\nname = "a"\npath = "a"\ntype = { pth = "t" }', 4, "sources.0.type.pth", "path"),
        ("[flwo]\npartitions = 2", 1, "flwo", "flow"),
    ],
)
def test_an_unknown_key_is_reported_with_its_line_and_the_nearest_right_one(
    text: str, line: int, place: str, hint: str, tmp_path: Path
) -> None:
    message = refused(tmp_path, text)
    assert f"idgraph.toml, line {line}: {place}: unknown key; did you mean {hint!r}?" in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[metadata]\nurl = "http://127.0.0.1:1"\n[index]\nurl = "nonsense"', "line 4: index.url"),
        (
            '[[sources]]\nname = "a"\npath = "a"\n# [[sources]]\n[[sources]]\npath = "b"\nname = "b b"',
            "line 7: sources.1.name",
        ),
        ('index.kind = "sqlite"\nindex.url = "nonsense"', "line 2: index.url"),
    ],
)
def test_a_mistake_is_reported_with_the_line_of_its_own_table(text: str, line: str, tmp_path: Path) -> None:
    assert line in refused(tmp_path, text)


def test_what_is_wrong_with_the_whole_is_reported_without_a_key(tmp_path: Path) -> None:
    both = '[[sources]]\nname = "a"\npath = "a"\n[[sources]]\nname = "b"\ntopic = "b"\n[kafka]\nbootstrap_servers = "x:1"'
    assert ": :" not in refused(tmp_path, both)


def test_a_key_like_no_other_gets_no_hint(tmp_path: Path) -> None:
    assert refused(tmp_path, "zzzz = 1").endswith("line 1: zzzz: unknown key")


@pytest.mark.parametrize("key", ["_env_prefix", "_cli_parse_args", "_secrets_dir"])
def test_no_key_reaches_the_machinery_behind(key: str, tmp_path: Path) -> None:
    assert refused(tmp_path, f'{key} = "x"').endswith(f"line 1: {key}: unknown key")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('[flow]\npartitions = "two"', "line 2: flow.partitions: .*integer"),
        ("[flow]\npartitions = 0", "line 2: flow.partitions: .*greater"),
        ("[metadata]\nmax_updates = 0", "line 2: metadata.max_updates: .*greater"),
        ('[[sources]]\nname = "a"\npath = "in/*.{json,jsonl}"', "line 3: sources.0.path: .*no braces"),
        ('[[sources]]\nname = "a b"\npath = "a"', "line 2: sources.0.name: .*pattern"),
        ('[[sources]]\nname = "a"', "sources.0.path: Field required"),
        ('[[sources]]\nname = "a"\npath = "a"\nid = { const = 1 }', "id cannot be the same"),
        ('[[sources]]\nname = "a"\npath = "a"\nordinal = { content = true }', "only id can"),
        ('[[sources]]\nname = "a"\npath = "a"\ntype = { path = "t", const = "c" }', "exactly one of"),
        ('[[sources]]\nname = "a"\npath = ""', "line 3: sources.0.path: it is empty"),
        ('directory = ""', "line 1: directory: it is empty"),
        (
            "[flow]\nmax_future_skew_seconds = 9999999999999999",
            "line 2: flow.max_future_skew_seconds: .*less",
        ),
        ("[flow]\npartitions = true", "line 2: flow.partitions: .*valid integer"),
        ('[flow]\npartitions = "3"\ntrigger_seconds = "1"', "(?s)line 2: .*line 3: .*: .*valid number"),
        ("[flow]\nmax_event_bytes = 77.0", "line 2: flow.max_event_bytes: .*valid integer"),
        ("[flow.dead_letters]\nmax_rate = false", "line 2: flow.dead_letters.max_rate: .*valid number"),
        ('[spark]\nshared_files = "yes"', "line 2: spark.shared_files: .*valid boolean"),
        (
            '[[sources]]\nname = "a"\npath = "a"\nhash_file_names = "no"',
            "line 4: sources.0.hash_file_names: .*valid boolean",
        ),
        ("flow = 3", "line 1: flow"),
        ("[flow", "not TOML"),
        ("[flow]\npartitions = 'x'\nsplit_bytes = 'y'", "(?s)partitions.*\n.*split_bytes"),
    ],
)
def test_a_wrong_value_is_reported_with_its_place(text: str, reported: str, tmp_path: Path) -> None:
    assert re.search(reported, refused(tmp_path, text))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="line 1: not UTF-8"):
        load(file)


def test_no_message_quotes_what_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "s3cr3t" not in refused(tmp_path, '[metadata]\ntoken = ["s3cr3t"]')
    monkeypatch.setenv("IDGRAPH_METADATA", '{"token": ["s3cr3t"]}')
    with pytest.raises(ConfigError) as caught:
        load()
    assert "s3cr3t" not in str(caught.value)


def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    two = '[[sources]]\nname = "a"\npath = "x"\n[[sources]]\nname = "a"\npath = "y"'
    assert "two sources have the same name" in refused(tmp_path, two)


def test_a_variable_that_is_not_utf_8_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDGRAPH_DIRECTORY", os.fsdecode(b"folder-\xff"))
    with pytest.raises(ConfigError, match="the environment, IDGRAPH_DIRECTORY: directory"):
        load(written(tmp_path, ""))


def test_the_environment_overrides_single_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, '[metadata]\nurl = "https://a"\nmax_updates = 7\n[flow]\npartitions = 3')
    monkeypatch.setenv("IDGRAPH_METADATA__URL", "https://b")
    monkeypatch.setenv("IDGRAPH_FLOW__DEAD_LETTERS__MAX_RATE", "0.5")
    settings = load(file)
    assert (settings.metadata.url, settings.metadata.max_updates) == ("https://b", 7)
    assert (settings.flow.partitions, settings.flow.dead_letters.max_rate) == (3, 0.5)


def test_numbers_and_choices_of_variables_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "[flow]\npartitions = 2\ntrigger_seconds = 3\n")
    monkeypatch.setenv("IDGRAPH_FLOW__PARTITIONS", "4")
    monkeypatch.setenv("IDGRAPH_SPARK__SHARED_FILES", "true")
    settings = load(file)
    assert (settings.flow.partitions, settings.flow.trigger_seconds) == (4, 3.0)
    assert settings.spark.shared_files


@pytest.mark.parametrize(
    ("variable", "offsets"),
    [("latest", "latest"), ('{"shop": {"0": 5}}', {"shop": {"0": 5}})],
)
def test_a_variable_for_a_choice_or_a_table_is_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, offsets: object
) -> None:
    monkeypatch.setenv("IDGRAPH_KAFKA__STARTING_OFFSETS", variable)
    assert load(written(tmp_path, "")).kafka.starting_offsets == offsets


def test_a_wrong_value_of_a_variable_is_not_reported_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_FLOW__PARTITIONS", "abc")
    assert refused(tmp_path, "[flow]\nname = 'a'").startswith(
        "the environment, IDGRAPH_FLOW__PARTITIONS: flow.partitions:"
    )


def test_two_sources_of_one_path_are_refused(tmp_path: Path) -> None:
    """One of them took all the files, and what the other's specs were for mapped to nothing."""
    for other in ("in/a", "in/../in/a"):
        text = f'[[sources]]\nname = "crm"\npath = "in/a"\n[[sources]]\nname = "till"\npath = "{other}"\n'
        assert "sources crm and till have the same path" in refused(tmp_path, text)
    load(written(tmp_path, text.replace('"in/../in/a"', '"in/a/b"')))


@pytest.mark.parametrize("given", ["split_bytes = 99999999999999999999", "max_files_per_batch = 99999999999"])
def test_what_spark_could_not_take_is_refused_with_its_line(tmp_path: Path, given: str) -> None:
    assert "line 2: flow." in refused(tmp_path, f"[flow]\n{given}")


@pytest.mark.parametrize(
    ("variable", "is_its_own"),
    [('{"max_event_bytes": 5000}', False), ('{"partitions": "ab"}', True), ("[3]", True)],
)
def test_what_a_variable_leaves_out_is_reported_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, is_its_own: bool
) -> None:
    monkeypatch.setenv("IDGRAPH_FLOW", variable)
    assert ("environment, IDGRAPH_FLOW" in refused(tmp_path, '[flow]\npartitions = "abc"')) is is_its_own


def test_a_mistake_in_the_environment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDGRAPH_METADATA__ULR", "http://b")
    with pytest.raises(
        ConfigError,
        match=r"the environment, IDGRAPH_METADATA__ULR: metadata\.ulr: unknown key; did you mean 'url'",
    ):
        load()
    monkeypatch.delenv("IDGRAPH_METADATA__ULR")
    monkeypatch.setenv("IDGRAPH_SOURCES", "no json")
    with pytest.raises(ConfigError, match=r"the environment.*sources.*not JSON"):
        load()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("IDGRAPH_DIRECTRY", "IDGRAPH_DIRECTORY"),
        ("IDGRAPH_METADATA_URL", "IDGRAPH_METADATA__URL"),
        ("IDGRAPH_FLOWS__PARTITIONS", "IDGRAPH_FLOW__PARTITIONS"),
    ],
)
def test_a_variable_that_sets_nothing_is_reported_with_the_nearest_right_one(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, "s3cr3t")
    with caplog.at_level(logging.WARNING):
        load()
    assert caplog.messages == [f"the environment: {name} sets nothing; did you mean {meant}?"]


@pytest.mark.parametrize(
    "name",
    [
        "IDGRAPH_SERVICE_HOST",
        "IDGRAPH_METRICS_PORT_9464_TCP",
        "IDGRAPH_PORT_8410_TCP",
        "IDGRAPH_CONFIG",
        "HOME",
    ],
)
def test_variables_of_others_are_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, "")
    with caplog.at_level(logging.WARNING):
        load()
    assert caplog.messages == []


@pytest.mark.parametrize("url", ["localhost:8410", "127.0.0.1", "ftp://nowhere", "http://", "http://a:b", ""])
def test_a_url_of_no_service_is_reported_by_its_key(url: str, tmp_path: Path) -> None:
    assert "line 2: metadata.url: not a URL of a service; it looks like http://HOST:PORT" in refused(
        tmp_path, f'[metadata]\nurl = "{url}"'
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sqlite:///state/m.db", "sqlite:///{base}/state/m.db"),
        ("sqlite+pysqlite:///m.db?timeout=3", "sqlite+pysqlite:///{base}/m.db?timeout=3"),
        ("sqlite:////var/m.db", "sqlite:////var/m.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql+psycopg://db/idgraph", "postgresql+psycopg://db/idgraph"),
    ],
)
def test_a_database_file_is_relative_to_the_configuration(given: str, meant: str, tmp_path: Path) -> None:
    settings = load(written(tmp_path / "etc", f'[metadata]\ndatabase = "{given}"'))
    assert settings.database_url() == meant.format(base=(tmp_path / "etc").resolve())


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert load(written(tmp_path, '\ufeffdirectory = "d"')).directory.name == "d"


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = (
        'directory = "d"\nkeyring = "k.json"\n[metadata]\ntoken_file = "t"\n'
        '[[sources]]\nname = "a"\npath = "in/a"\n[[sources]]\nname = "b"\npath = "/abs/*.jsonl"'
    )
    settings = load(written(tmp_path / "etc", text))
    base = (tmp_path / "etc").resolve()
    assert settings.directory == base / "d"
    assert settings.keyring_file() == base / "k.json"
    assert settings.token_file() == base / "t"
    assert [source.path for source in settings.sources if isinstance(source, FileSource)] == [
        base / "in/a",
        Path("/abs/*.jsonl"),
    ]
    assert settings.flow_state() == base / "d/flows/main"
    assert settings.database_url() == f"sqlite:///{base}/d/metadata.db"


def test_an_empty_file_counts_as_one_for_relative_paths(tmp_path: Path) -> None:
    assert load(written(tmp_path / "etc", "")).directory == (tmp_path / "etc").resolve() / ".idgraph"


def test_an_unknown_source_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    settings = load(written(tmp_path, '[[sources]]\nname = "web"\npath = "x"'))
    assert settings.source("web").name == "web"
    with pytest.raises(ConfigError, match="no source is called 'wbe'; configured: web"):
        settings.source("wbe")


def test_every_key_is_documented() -> None:
    missing = []

    def look(model: type, at: str) -> None:
        for name, field in model.model_fields.items():  # type: ignore[attr-defined]
            kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
            inner = [kind for kind in kinds if hasattr(kind, "model_fields")]
            if not (field.description or inner):
                missing.append(f"{at}{name}")
            for kind in inner:
                look(kind, f"{at}{name}.")

    look(Settings, "")
    assert missing == []


def test_the_index_is_reported_by_places_and_never_by_secrets(tmp_path: Path) -> None:
    pytest.importorskip("elasticsearch", reason="elasticsearch is not installed")
    file = written(
        tmp_path,
        '[index]\nkind = "elasticsearch"\nurl = "https://search:9200"\napi_key_file = "key"\nca_file = "ca.pem"',
    )
    (tmp_path / "key").write_text("secret")
    reported = json.dumps(worker_config(load(file)))
    assert "secret" not in reported
    where = place(json.loads(reported))
    assert (where.url, where.name) == ("https://search:9200", "idgraph")
    assert (where.api_key_file, where.ca_file) == (str(tmp_path / "key"), str(tmp_path / "ca.pem"))


@pytest.mark.parametrize("place", ["index.url", "keys.endpoint", "store.endpoint"])
@pytest.mark.parametrize(
    "url", ["https://user:secret@search:9200", "https://user@search:9200", "search:9200"]
)
def test_a_url_that_workers_are_given_holds_no_password(url: str, place: str, tmp_path: Path) -> None:
    section, key = place.split(".")
    with pytest.raises(ConfigError, match=rf"line 2: {section}\.{key}: ") as reported:
        load(written(tmp_path, f'[{section}]\n{key} = "{url}"'))
    assert "secret" not in str(reported.value)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("trigger_seconds = inf", "finite number"),
        ('driver_memory = "1x"', "a size such as 1g or 1500m is needed"),
        ('driver_memory = "10m"', "of 512m at least"),
        ('master = "lokal"', "no master of Spark"),
        ('master = "local[0]"', "no master of Spark"),
    ],
)
def test_what_spark_would_not_start_with_is_refused_with_its_line(
    tmp_path: Path, line: str, reported: str
) -> None:
    message = refused(tmp_path, f"[flow]\n{line}\n")
    assert reported in message
    assert "line 2" in message or ":2" in message
    for master in (
        "local",
        "local[*]",
        "local[4,2]",
        "spark://10.0.0.1:7077",
        "k8s://https://api:6443",
        "yarn",
    ):
        load(written(tmp_path, f'[flow]\nmaster = "{master}"\ndriver_memory = "1500m"\n'))


@pytest.mark.parametrize(
    "origin", ["*", "shop.example", "https://shop.example/", "https://shop.example/a", "https://a@b", "null"]
)
def test_what_is_no_origin_of_a_web_page_is_refused(origin: str) -> None:
    assert ProfilesSettings(allowed_origins=("https://shop.example:8443", "http://localhost:3000"))
    with pytest.raises(ValidationError):
        ProfilesSettings(allowed_origins=(origin,))


def test_a_source_in_a_folder_without_a_configuration_is_said_to_want_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"idgraph\.toml"):
        load().source("crm")
    (tmp_path / ".idgraph").mkdir()
    with pytest.raises(ConfigError, match="crm"):
        load().source("crm")
