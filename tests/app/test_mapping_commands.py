"""`idgraph map` and `idgraph check`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from idgraph.model import canonical
from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE, lines

SEGMENT = EXAMPLE / "specs" / "segment.json"
RENAME = [{"operation": "shift", "spec": {"a": "b"}}]


def written(folder: Path, content: Any, name: str = "spec.json") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else canonical.encode(content))
    return file


def place_of(file: Path, key: str) -> str:
    """Line and column of a key in a file of one line."""
    return f"1:{file.read_text().index(json.dumps(key)) + 1}"


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


def test_map_reports_bad_lines_and_goes_on(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, [{"operation": "jmespath", "spec": {"n": "abs(a)"}}])
    given = b'{"a":-1}\n{"a": s3cr3t}\n{"a":"s3cr3t"}\n' + b"9" * 5000 + b'\n\xff\n{"a":-2}\n'
    result = idgraph("map", spec, given=given)
    assert (result.exit_code, result.stdout) == (1, '{"n":1}\n{"n":2}\n')
    reported = result.stderr.splitlines()
    assert [line.split(":")[0] for line in reported[:4]] == ["line 2", "line 3", "line 4", "line 5"]
    assert reported[-1] == "4 lines could not be mapped"
    assert "s3cr3t" not in result.stderr


def test_map_reports_all_errors_of_a_line(idgraph: CommandLine) -> None:
    targets = {"a": "to_number_exact(a)", "b": "trim(b)", "c": "c"}
    spec = written(idgraph.folder, [{"operation": "jmespath", "spec": targets}])
    done = idgraph("map", spec, given=b'{"a": "x", "b": 5, "c": 1}\n{"c": 2}\n')
    assert (done.exit_code, done.stdout) == (1, '{"c":2}\n')
    assert [line.partition(": at ")[0] for line in done.stderr.splitlines()[:2]] == ["line 1: /0"] * 2


@pytest.mark.parametrize("packed", [False, True])
def test_map_holds_no_line_without_bound(
    packed: bool, idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.app.payload_lines.MAX_LINE", 1 << 20)
    spec = written(idgraph.folder, RENAME)
    full = b'{"a":"' + b"x" * ((1 << 20) - 8) + b'"}'
    given = full + b"\n" + full + b" \n" + b"y" * (5 << 20) + b"\n" + b'{"a":1}\n' + b"z" * (3 << 20)
    data = written(idgraph.folder, gzip.compress(given) if packed else given, "data.jsonl")
    result = idgraph("map", spec, data)
    assert [len(line) for line in result.stdout.splitlines()] == [1 << 20, 7]
    assert result.stderr.splitlines() == [
        *(f"line {number}: longer than 1 MiB" for number in (2, 3, 5)),
        "3 lines could not be mapped",
    ]


def test_map_keeps_every_digit(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, RENAME)
    exact = b'{"b":12345678901234567890.123456789}\n'
    assert idgraph("map", spec, given=exact.replace(b"b", b"a")).stdout_bytes == exact


def test_map_in_a_pipe_that_closes_early(tmp_path: Path) -> None:
    spec = written(tmp_path, RENAME)
    program = (
        f"yes '{{\"a\":1}}' | head -n 100000 | {sys.executable} -m idgraph.app.cli map {spec} | head -n 1; "
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


def test_map_with_a_wrong_spec_reports_the_place(idgraph: CommandLine) -> None:
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
    assert result.exit_code == 2
    assert result.stdout == f"{SEGMENT}: ok\n"
    reported = result.stderr.splitlines()
    assert reported == [
        f"{wrong}:1:2: /0: the key 'spec' is missing",
        f"{no_json}:1:2: not JSON: Expecting property name enclosed in double quotes",
        f"{incomplete}:{place_of(incomplete, 'identifiers')}: /identifiers: exactly one identifier must be primary",
        "gone.json: No such file or directory",
    ]


def test_check_for_scripts(idgraph: CommandLine) -> None:
    wrong = written(idgraph.folder, [{"operation": "shfit", "spec": {}}])
    result = idgraph("check", "--json", SEGMENT, wrong)
    assert result.exit_code == 1
    fine, refused = (json.loads(line) for line in result.stdout.splitlines())
    assert fine == {"file": str(SEGMENT), "ok": True, "problems": [], "warnings": []}
    assert refused["ok"] is False
    (problem,) = refused["problems"]
    assert (problem["line"], problem["column"], problem["pointer"]) == (1, 15, "/0/operation")
    assert problem["hint"] == "did you mean 'shift'?"


def test_check_of_all_examples(idgraph: CommandLine) -> None:
    specs = sorted(EXAMPLE.parent.glob("*/specs/*.json"))
    result = idgraph("check", *specs)
    assert result.exit_code == 0
    # The settings of this test name no others.
    own = [line for line in result.stderr.splitlines() if "/openstack/" not in line]
    assert own == []


ATTRIBUTES = """[
  {"path": "total", "data_type": "string", "policy": "sum"},
  {"path": "identity.email", "data_type": "string", "encryption": "protectde"}
]"""


def test_check_of_attributes(idgraph: CommandLine) -> None:
    assert idgraph("check", EXAMPLE / "attributes.json").exit_code == 0
    wrong = written(idgraph.folder, ATTRIBUTES.encode(), "attributes.json")
    misspelled = idgraph("check", wrong)
    assert (misspelled.exit_code, misspelled.stdout) == (1, "")
    assert f"{wrong}:3:67: /1/encryption: " in misspelled.stderr
    assert "did you mean 'protected'" in misspelled.stderr
    wrong.write_text(ATTRIBUTES.replace("protectde", "protected"))
    assert idgraph("check", wrong).stderr.startswith(f"{wrong}:2:54: /0/policy: policy sum needs numbers")
    (reported,) = (json.loads(line) for line in idgraph("check", "--json", wrong).stdout.splitlines())
    assert [problem["pointer"] for problem in reported["problems"]] == ["/0/policy"]


def test_check_warns_of_attributes_that_look_like_patterns(idgraph: CommandLine) -> None:
    text = """[
  {"path": "q.*", "data_type": "string", "encryption": "protected"},
  {"path": "w.note ", "data_type": "string"},
  {"path": "z..g", "data_type": "string"}
]"""
    file = written(idgraph.folder, text.encode(), "attributes.json")
    result = idgraph("check", file)
    assert (result.exit_code, result.stdout) == (0, f"{file}: ok\n")
    assert result.stderr.splitlines() == [
        f"{file}:2:12: warning: /0/path: '*' stands for a key of this name, not for any "
        "(protection of 'q' reaches all below it)",
        f"{file}:3:12: warning: /1/path: a key begins or ends with white space",
        f"{file}:4:12: warning: /2/path: a key is empty (one dot stands between two keys)",
    ]


def test_check_warns_of_paths_that_no_operation_makes(idgraph: CommandLine) -> None:
    text = """{
  "name": "shop", "source": "orders", "id": "_event.id",
  "operations": [{ "operation": "shift", "spec": { "a": "identity.email" } }],
  "identifiers": [{ "type": "email", "path": "identity.emial", "primary": true }]
}"""
    file = written(idgraph.folder, text.encode())
    result = idgraph("check", file)
    assert (result.exit_code, result.stdout) == (0, f"{file}: ok\n")
    assert result.stderr.splitlines() == [
        f"{file}:2:45: warning: /id: no operation puts a value at '_event.id'",
        f"{file}:4:46: warning: /identifiers/0/path: no operation puts a value at 'identity.emial' "
        "(did you mean 'identity.email'?)",
    ]
    (reported,) = (json.loads(line) for line in idgraph("check", "--json", file).stdout.splitlines())
    assert reported["ok"]
    assert [warning["pointer"] for warning in reported["warnings"]] == ["/id", "/identifiers/0/path"]


def test_check_refuses_what_writes_to_the_path_of_a_derived_attribute(idgraph: CommandLine) -> None:
    spec = written(
        idgraph.folder,
        b"""{"name": "shop", "source": "orders", "id": "a", "identifiers": [{"type": "email", "path": "a", "primary": true}],
"operations": [{ "operation": "shift", "spec": { "a": ["a", "orders.number"] } }]}""",
    )
    behaviour = idgraph.folder / "behaviour.json"
    derived = {"name": "number", "path": "orders", "window": {"activity": "order"}}
    behaviour.write_text(json.dumps({"derived_attributes": [derived]}))
    result = idgraph("check", behaviour, spec)
    assert (result.exit_code, result.stdout) == (1, f"{behaviour}: ok\n")
    message = "/operations/0/spec/a: orders is the path of the derived attribute number"
    assert result.stderr.startswith(f"{spec}:2:"), result.stderr
    assert message in result.stderr
    assert idgraph("check", spec).exit_code == 0
    behaviour.write_text(json.dumps({"activities": [{"name": "order", "condition": "a["}]}))
    result = idgraph("check", behaviour)
    assert (result.exit_code, "/activities/0/condition: JMESPath" in result.stderr) == (1, True)
    # The metadata service has the model.
    score = {
        "name": "score",
        "path": "score",
        "model": {"digest": "0" * 64, "inputs": [{"path": "orders"}]},
    }
    behaviour.write_text(json.dumps({"derived_attributes": [score]}))
    assert idgraph("check", behaviour).exit_code == 0


def test_check_refuses_of_behaviour_what_apply_refuses(idgraph: CommandLine) -> None:
    behaviour = idgraph.folder / "behaviour.json"
    content = {
        "segments": [
            {"name": "a", "q": "(a=1"},
            {"name": "b", "q": "a=1"},
            {"name": "c", "query": [{"x": 1}]},
        ],
        "triggers": [
            {"name": "t", "when": {"q": "a>>1"}, "webhook": "crm"},
            {"name": "u", "when": {"segment": "b"}, "webhook": "crm"},
        ],
    }
    behaviour.write_text(json.dumps(content))
    (reported,) = (json.loads(line) for line in idgraph("check", "--json", behaviour).stdout.splitlines())
    places = [each["pointer"] for each in reported["problems"]]
    assert places == ["/segments/0/q", "/segments/2/query", "/triggers/0/when/q"]
    behaviour.write_text(json.dumps({"activites": [], "derivedAttributes": []}))
    said = idgraph("check", behaviour).stderr
    assert "there is no key 'activites' here (did you mean 'activities'?)" in said
    assert "there is no key 'derivedAttributes' here (did you mean 'derived_attributes'?)" in said


def test_check_warns_of_a_fragment_that_persons_share(idgraph: CommandLine) -> None:
    """Found by a new user: a sale with another customer's phone number became that customer's."""
    shift = {"operation": "shift", "spec": {"a": "phone", "b": "number"}}
    phone, number = {"type": "phone", "path": "phone"}, {"type": "customer_id", "path": "number"}
    spec = {"name": "till", "source": "orders", "operations": [shift]}
    said = []
    for identifiers in (
        [phone | {"primary": True}, number],
        [phone | {"fallback": True}, number | {"primary": True}],
    ):
        file = written(idgraph.folder, json.dumps(spec | {"identifiers": identifiers}).encode())
        (reported,) = (json.loads(line) for line in idgraph("check", "--json", file).stdout.splitlines())
        assert reported["ok"]
        said.append([(each["pointer"], each["message"]) for each in reported["warnings"]])
    assert said == [
        [("/identifiers/0", "several persons with one phone share a fragment, and see each other's values")],
        [],
    ]


def test_check_warns_beside_mistakes(idgraph: CommandLine) -> None:
    """Found by a new user: a mistake hid the warnings of the same file."""
    shift = {"operation": "shift", "spec": {"a": "identity.email"}}
    wrong = {"operation": "modify-overwrite-beta", "spec": {"a": "=toUpperr(@(1,b))"}}
    document = {
        **{"name": "shop", "source": "orders", "operations": [shift, wrong]},
        "identifiers": [{"type": "email", "path": "identity.emial", "primary": True}],
    }
    reported = json.loads(idgraph("check", written(idgraph.folder, document), "--json").stdout)
    assert len(reported["problems"]) == 1
    assert [warning["pointer"] for warning in reported["warnings"]] == ["/identifiers/0/path"]
    definitions = [
        {"path": "a..b", "data_type": "string"},
        {"path": "c", "data_type": "string", "encryption": "searchable"},
    ]
    definitions.append({"path": "d", "data_type": "boolean", "encryption": "searchable"})
    reported = json.loads(idgraph("check", written(idgraph.folder, definitions), "--json").stdout)
    assert [len(reported[kind]) for kind in ("problems", "warnings")] == [1, 1]


@pytest.mark.parametrize(
    ("source", "envelope", "warned"),
    [
        ("loyalti", "", True),
        ("loyalty", "", False),
        ("loy*", "", False),
        ("loyalty", 'source = { const = "crm" }', True),
        ("crm", 'source = { const = "crm" }', False),
        ("loyalti", 'source = { path = "system" }', False),
    ],
)
def test_check_warns_of_a_source_that_there_is_not(
    source: str, envelope: str, warned: bool, idgraph: CommandLine
) -> None:
    text = f'[[sources]]\nname = "loyalty"\npath = "inbox"\n{envelope}\n'
    (idgraph.folder / "idgraph.toml").write_text(text)
    document = {
        **{"name": "shop", "source": source, "operations": RENAME},
        "identifiers": [{"type": "email", "path": "b", "primary": True}],
    }
    done = idgraph("check", written(idgraph.folder, document))
    assert done.exit_code == 0
    assert ("/source: " in done.stderr) is warned


def test_check_reports_every_mistake_of_an_operation(idgraph: CommandLine) -> None:
    shift = {"operation": "shift", "spec": {"a": 5, "b": "&9", "c": {"d": "x.*", "e": "fine"}}}
    jmespath = {"operation": "jmespath", "spec": {"k": "trm(b)", "l": {"m": "b[", "n": "b"}}}
    result = idgraph("check", written(idgraph.folder, [shift, jmespath]), "--json")
    (reported,) = (json.loads(line) for line in result.stdout.splitlines())
    places = ["/0/spec/a", "/0/spec/b", "/0/spec/c/d", "/1/spec/k", "/1/spec/l/m"]
    assert [problem["pointer"] for problem in reported["problems"]] == places


def test_map_takes_the_operations_of_an_example_and_a_dash(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, {"operations": RENAME, "input": {}, "output": None})
    result = idgraph("map", spec, "-", given=b'{"a":1}\n')
    assert (result.exit_code, result.stdout) == (0, '{"b":1}\n')
    wrong = written(idgraph.folder, {"operations": [{"operation": "shfit", "spec": {}}]})
    assert f"{wrong}:1:29: /operations/0/operation: there is no operation" in idgraph("check", wrong).stderr


def test_events_are_objects_and_a_chain_takes_what_jolt_takes(idgraph: CommandLine) -> None:
    given = b'{"a":1}\n[7]\n5\nnull\n"\\ud800"\n'
    chain = written(idgraph.folder, [{"operation": "shift", "spec": {"*": "x.&"}}])
    result = idgraph("map", chain, given=given)
    assert result.stdout == '{"x":{"a":1}}\n{"x":{"0":7}}\n{"x":{"5":null}}\nnull\n'
    assert result.stderr.splitlines()[0] == "line 5: not JSON: a text holds half of a \\u pair"
    reported = idgraph("map", SEGMENT, given=given).stderr.splitlines()
    assert [line for line in reported if "expected" in line] == [
        "line 2: expected an object, found an array",
        "line 3: expected an object, found a number",
        "line 4: expected an object, found null",
    ]


def test_check_reports_every_mistake_with_its_place(idgraph: CommandLine) -> None:
    text = """{
  "nmae": "shop",
  "source": "orders",
  "status": "actve",
  "operations": [
    { "operation": "shift", "spec": { "a": "b", "deep": { "*": "x.&(1,3)" } } },
    { "operation": "com.acme.Mask", "spec": {} },
    { "operation": "jmespath",
      "spec": {
        "t": "lower(\\"e\\u00e4\\" | b.)"
      } }
  ],
  "identifiers": [{ "type": "1x", "path": "a", "primray": true }, 5],
  "priority": 5000
}
"""
    file = written(idgraph.folder, text.encode())
    result = idgraph("check", file)
    assert result.exit_code == 1
    reported = [line.removeprefix(f"{file}:") for line in result.stderr.splitlines()]
    assert [line[: line.index(" expected one of")] if "Java" in line else line for line in reported] == [
        "1:1: the key 'name' is missing",
        "2:11: /nmae: there is no key 'nmae' here (did you mean 'name'?)",
        "4:13: /status: expected 'draft', 'active' or 'retired', found \"actve\" (did you mean 'active'?)",
        "6:64: /operations/0/spec/deep/*: there is no group 3: the key it refers to has 0 '*' groups",
        "7:20: /operations/1/operation: 'com.acme.Mask' names a Java class; specs here cannot run Java code;",
        "10:37: /operations/2/spec/t: JMESPath, character 16: expected a key or '[' or '{', found ')'",
        "13:29: /identifiers/0/type: expected 1 to 64 letters, digits or '_', the first a letter, found \"1x\"",
        "13:59: /identifiers/0/primray: there is no key 'primray' here (did you mean 'primary'?)",
        "13:67: /identifiers/1: expected an object, found 5",
        "14:15: /priority: expected at most 1000, found 5000",
    ]


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b'{"operation":"shift",\n"spec":{"a":"b","a":"c"}}', "2:17: /spec/a: this key stands twice"),
        (b'{"operation":"shift",\n"spec":{"a":"\xff"}}', "2:14: expected UTF-8, found the byte 0xff"),
        ("[]".encode("utf-16"), "1:1: expected UTF-8, found UTF-16"),
        (b"[" * 100_000, "1:1: nested too deeply"),
        (b'{"operaton": "sort"}', "1:1: the key 'operation' is missing (is 'operaton' meant"),
        (
            b'{"operations": [], "priority": 1e99}',
            "1:32: /priority: expected an integer of fewer digits, found 1e+99",
        ),
        (
            b'{"operations": 5}',
            "1:16: /operations: expected an array of operations, or one operation, found 5",
        ),
        (
            canonical.encode(
                {
                    "name": "x",
                    "source": "s",
                    "specification_type": "jolt",
                    "operations": [{"operation": "jmespath", "spec": {"a": "b"}}],
                    "identifiers": [{"type": "x", "path": "a", "primary": True}],
                }
            ),
            "/operations/0/operation: a spec of type jolt holds no operation 'jmespath'",
        ),
    ],
)
def test_check_of_what_is_hard_to_read(content: bytes, reported: str, idgraph: CommandLine) -> None:
    result = idgraph("check", written(idgraph.folder, content))
    assert result.exit_code == 1
    assert reported in result.stderr


def test_map_of_a_file_that_its_disk_does_not_give(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, RENAME)
    refused = idgraph.folder / "data.jsonl"
    # To read it gives EIO, whoever asks.
    refused.symlink_to("/proc/self/mem")
    result = idgraph("map", spec, str(refused))
    assert result.exit_code == 2
    assert f"error: {refused}: Input/output error" in result.stderr


def test_a_byte_order_mark_and_gzip_are_read(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, b"\xef\xbb\xbf" + canonical.encode(RENAME))
    data = b'\xef\xbb\xbf{"a":1}\n{"a":2}\n'
    packed = written(idgraph.folder, gzip.compress(data), "data.jsonl.gz")
    expected = '{"b":1}\n{"b":2}\n'
    assert idgraph("check", spec).exit_code == 0
    assert idgraph("map", spec, packed).stdout == expected
    assert idgraph("map", spec, given=gzip.compress(data)).stdout == expected
    assert idgraph("map", spec, given=data).stdout == expected
    damaged = idgraph("map", spec, given=gzip.compress(data)[:-9])
    assert damaged.exit_code == 1
    assert "standard input: damaged gzip data" in damaged.stderr


def test_one_bad_line_is_one(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, {"operation": "jmespath", "spec": {"n": "abs(a)"}})
    result = idgraph("map", spec, given=b'{"a":"x"}\n')
    assert result.stderr.splitlines()[-1] == "1 line could not be mapped"


CHAIN = [
    {"operation": "shift", "spec": {"a": "b.&", "n": ["x.y", "l[]"]}},
    {"operation": "modify-overwrite-beta", "spec": {"b": {"a": "=toUpper"}, "k": "=toLong(7)"}},
    {"operation": "remove", "spec": {"x": ""}},
    {"operation": "sort"},
    {"operation": "default", "spec": {"k": 1}},
]
PAYLOAD = b'{"a":"s3cr3t","n":1.5}\n'
TRACE = """line 1
  /0 shift
    = b.a: "s3cr3t"
    = x.y: 1.5
    = l[0]: 1.5
  /1 modify-overwrite-beta
    ~ b.a: "s3cr3t" -> "S3CR3T"
    + k: 7
  /2 remove
    - x.y: 1.5
  /3 sort
    only the order of keys changed
  /4 default
    nothing changed
"""


def test_trace_shows_each_operation(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, CHAIN)
    assert idgraph("map", "--trace", "--reveal-values", spec, given=PAYLOAD).stdout == TRACE


def test_trace_hides_values_unless_asked(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, CHAIN)
    shown = idgraph("map", "--trace", spec, given=PAYLOAD).stdout
    assert "= b.a: <text of 6>" in shown
    assert "- x.y: <decimal>" in shown
    for words in (["--trace"], ["--trace", "--json"]):
        assert "s3cr3t" not in idgraph("map", *words, spec, given=PAYLOAD).output.lower()


def test_trace_for_scripts(idgraph: CommandLine) -> None:
    document = json.loads(SEGMENT.read_bytes()) | {"operations": CHAIN}
    spec = written(idgraph.folder, document)
    data = written(idgraph.folder, PAYLOAD, "data.jsonl")
    (record,) = idgraph.json("map", "--trace", "--json", "--reveal-values", spec, data)
    assert (record["line"], record["error"]) == (1, None)
    assert [step["pointer"] for step in record["steps"]] == [f"/operations/{n}" for n in range(5)]
    modified = record["steps"][1]
    assert modified["operation"] == "modify-overwrite-beta"
    assert modified["value"] == {"b": {"a": "S3CR3T"}, "x": {"y": 1.5}, "l": [1.5], "k": 7}
    assert modified["added"] == {"k": 7}
    assert modified["changed"] == {"b.a": ["s3cr3t", "S3CR3T"]}
    assert record["steps"][2]["removed"] == {"x.y": 1.5}


def test_trace_shows_the_steps_before_a_failure(idgraph: CommandLine) -> None:
    spec = written(idgraph.folder, [*RENAME, {"operation": "jmespath", "spec": {"n": "abs(b)"}}])
    result = idgraph("map", "--trace", "--reveal-values", spec, given=b'{"a":"x"}\n{"a":-1}\n')
    assert result.exit_code == 1
    assert '= b: "x"' in result.stdout
    assert "= n: 1" in result.stdout
    assert "line 1: /1: at 'n'" in result.stderr


def test_options_of_a_trace_want_a_trace(idgraph: CommandLine) -> None:
    assert idgraph("map", "--json", written(idgraph.folder, RENAME)).exit_code == 2
