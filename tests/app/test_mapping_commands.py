"""`idgraph map` and `idgraph check`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model import canonical
from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE, lines

SEGMENT = EXAMPLE / "specs" / "segment.json"
RENAME = [{"operation": "shift", "spec": {"a": "b"}}]


def written(folder: Path, content: Any, name: str = "spec.json") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else canonical.encode(content))
    return file


def test_map_reads_standard_input_and_writes_lines(idgraph: CommandLine) -> None:
    result = idgraph("map", SEGMENT, given=b"\n".join(lines("segment", 3)) + b"\n")
    assert result.exit_code == 0, result.stderr
    mapped = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(mapped) == 3
    assert mapped[0]["identity"]["userId"] == "4493"


def test_map_reads_a_file_and_takes_bare_operations(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, RENAME)
    data = written(idgraph.folder, b'{"a":1}\n\n  \n{"c":1}\n{"a":[1.50]}', "data.jsonl")
    result = idgraph("map", spec, data)
    assert (result.exit_code, result.stdout) == (0, '{"b":1}\nnull\n{"b":[1.5]}\n')


def test_map_tells_bad_lines_and_goes_on(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, [{"operation": "jmespath", "spec": {"n": "abs(a)"}}])
    given = b'{"a":-1}\n{"a": s3cr3t}\n{"a":"s3cr3t"}\n' + b"9" * 5000 + b'\n\xff\n{"a":-2}\n'
    result = idgraph("map", spec, given=given)
    assert (result.exit_code, result.stdout) == (1, '{"n":1}\n{"n":2}\n')
    told = result.stderr.splitlines()
    assert [line.split(":")[0] for line in told[:4]] == ["line 2", "line 3", "line 4", "line 5"]
    assert told[-1] == "4 line(s) could not be mapped"
    assert "s3cr3t" not in result.stderr


def test_map_keeps_every_digit(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, RENAME)
    exact = b'{"b":12345678901234567890.123456789}\n'
    assert idgraph("map", spec, given=exact.replace(b"b", b"a")).stdout_bytes == exact


def test_map_in_a_pipe_that_closes_early(tmp_path: Path) -> None:
    spec = written(tmp_path, RENAME)
    program = (
        f"yes '{{\"a\":1}}' | head -n 100000 | {sys.executable} -m app.cli map {spec} | head -n 1; "
        "echo ended >&2"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(["sh", "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == '{"b":1}\n'
    assert done.stderr == "ended\n"


@pytest.mark.parametrize("where", ["spec", "data"])
def test_map_without_its_files(where: str, idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, RENAME)
    result = idgraph("map", "none.json") if where == "spec" else idgraph("map", spec, "none.jsonl")
    assert result.exit_code == 2
    assert "none.json" in result.stderr
    assert "No such file or directory" in result.stderr


def test_map_with_a_wrong_spec_tells_the_place(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, [*RENAME, {"operation": "shfit", "spec": {}}])
    result = idgraph("map", spec, given=b"{}")
    assert result.exit_code == 1
    assert "/1/operation" in result.stderr
    assert "shift" in result.stderr


def test_check_names_what_is_right_and_what_is_wrong(idgraph: CommandLine) -> None:
    wrong = written(idgraph.folder, [{"operation": "shift"}], "wrong.json")
    no_json = written(idgraph.folder, b"{", "no.json")
    document = json.loads(SEGMENT.read_bytes())
    document["identifiers"][0]["primary"] = False
    incomplete = written(idgraph.folder, document, "incomplete.json")
    result = idgraph("check", SEGMENT, wrong, no_json, incomplete, "gone.json")
    assert result.exit_code == 1
    assert result.stdout == f"{SEGMENT}: ok\n"
    told = result.stderr.splitlines()
    assert told[0].startswith(f"{wrong}: /0")
    assert told[1].startswith(f"{no_json}: (the whole spec): not JSON")
    assert "exactly one identifier must be primary" in told[2]
    assert told[3] == "gone.json: (the whole spec): No such file or directory"


def test_check_for_scripts(idgraph: CommandLine) -> None:
    wrong = written(idgraph.folder, [{"operation": "shfit", "spec": {}}])
    result = idgraph("check", "--json", SEGMENT, wrong)
    assert result.exit_code == 1
    fine, refused = (json.loads(line) for line in result.stdout.splitlines())
    assert fine == {"file": str(SEGMENT), "ok": True}
    assert (refused["ok"], refused["pointer"]) == (False, "/0/operation")


def test_check_of_all_examples(idgraph: CommandLine) -> None:
    specs = sorted(EXAMPLE.parent.glob("*/specs/*.json"))
    assert idgraph("check", *specs).exit_code == 0
