"""What every store of wrapped data keys promises (`transforms.keys.DataKeyStore`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from model.errors import StoreError
from tests.contracts.implementations import DATA_KEYS, Implementation
from tests.contracts.processes import finish, start
from transforms.keys import DataKeyStore, WrappedKey

DURABLE = [each for each in DATA_KEYS if each.durable]
KEY = WrappedKey(1, b"\x00wrapped\xff")
OTHER = WrappedKey(2, b"other")


def name(implementation: Implementation[DataKeyStore]) -> str:
    return implementation.name


@pytest.fixture(params=DATA_KEYS, ids=name)
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DataKeyStore]:
    opened: DataKeyStore = request.param.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=DURABLE, ids=name)
def durable(request: pytest.FixtureRequest) -> Implementation[DataKeyStore]:
    implementation: Implementation[DataKeyStore] = request.param
    return implementation


def test_the_first_key_of_a_fragment_stays(keys: DataKeyStore) -> None:
    assert keys.put_absent({"a:1": KEY}) == {"a:1": KEY}
    assert keys.put_absent({"a:1": OTHER, "a:2": OTHER}) == {"a:1": KEY, "a:2": OTHER}
    assert keys.get(["a:1", "a:2", "a:3"]) == {"a:1": KEY, "a:2": OTHER}


def test_nothing_to_do_is_no_error(keys: DataKeyStore) -> None:
    assert keys.get([]) == {}
    assert keys.put_absent({}) == {}
    assert keys.delete([]) == 0
    assert keys.delete(["a:1"]) == 0


def test_a_deleted_key_is_gone_and_may_be_made_anew(keys: DataKeyStore) -> None:
    keys.put_absent({"a:1": KEY, "a:2": KEY})
    assert keys.delete(["a:1", "a:3"]) == 1
    assert keys.get(["a:1", "a:2"]) == {"a:2": KEY}
    assert keys.put_absent({"a:1": OTHER}) == {"a:1": OTHER}


def test_many_keys_and_odd_ids(keys: DataKeyStore) -> None:
    many = {f"a:{number}": WrappedKey(number, str(number).encode()) for number in range(3000)}
    many |= dict.fromkeys(["quote:'\"", "é:1", "e\u0301:1", "\U0001f600:1", "long:" + "x" * 1024], KEY)
    assert keys.put_absent(many) == many
    assert keys.get(list(many)) == many
    assert keys.delete(list(many)) == len(many)
    assert keys.get(list(many)) == {}


def test_threads_that_create_at_once_go_on_with_the_same_key(keys: DataKeyStore) -> None:
    def create(worker: int) -> list[WrappedKey]:
        return [
            keys.put_absent({f"a:{number}": WrappedKey(worker, b"%d" % worker)})[f"a:{number}"]
            for number in range(50)
        ]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(create, range(4)))
    assert all(result == results[0] for result in results)


def test_closed_keys_say_so(keys: DataKeyStore) -> None:
    keys.close()
    keys.close()
    for use in (
        lambda: keys.get(["a:1"]),
        lambda: keys.put_absent({"a:1": KEY}),
        lambda: keys.delete(["a:1"]),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


_CREATE = """
import json, sys
from pathlib import Path
from tests.contracts.implementations import DATA_KEYS
from transforms.keys import WrappedKey
keys = next(each for each in DATA_KEYS if each.name == sys.argv[1]).open(Path(sys.argv[2]))
worker = int(sys.argv[3])
mine = {}
for number in range(100):
    asked = {f"a:{number}:{each}": WrappedKey(worker, b"x") for each in range(10)}
    mine.update({fragment: key.kek_version for fragment, key in keys.put_absent(asked).items()})
keys.close()
print(json.dumps(mine))
"""


def test_processes_that_create_at_once_go_on_with_the_same_key(
    durable: Implementation[DataKeyStore], tmp_path: Path
) -> None:
    running = [start(_CREATE, durable.name, tmp_path, str(number)) for number in range(3)]
    results = [json.loads(finish(process)) for process in running]
    assert len(results[0]) == 1000
    assert results[0] == results[1] == results[2]


def test_keys_are_there_when_opened_again(durable: Implementation[DataKeyStore], tmp_path: Path) -> None:
    first = durable.open(tmp_path)
    first.put_absent({"a:1": KEY})
    first.close()
    second = durable.open(tmp_path)
    assert second.get(["a:1"]) == {"a:1": KEY}
    second.close()


def test_no_byte_of_a_deleted_key_is_left_in_a_file(
    durable: Implementation[DataKeyStore], tmp_path: Path
) -> None:
    secret = b"the only copy of this key"
    keys = durable.open(tmp_path)
    keys.put_absent(
        {f"a:{number}": WrappedKey(1, secret if number == 500 else b"x" * 60) for number in range(1000)}
    )
    assert any(secret in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    keys.delete(["a:500"])
    assert not any(secret in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    keys.close()
