"""The promises of every store of wrapped data keys (`transforms.privacy.keys.DataKeyStore`)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idgraph.model.errors import ClosedVersionError, StoreError
from tests.contracts.implementations import DATA_KEYS, Implementation
from tests.contracts.processes import finish, start
from transforms.privacy.keys import DataKeyStore, WrappedKey

DURABLE = [each for each in DATA_KEYS if each.durable]
KEY = WrappedKey(1, b"\x00wrapped\xff")
OTHER = WrappedKey(2, b"other")


@pytest.fixture(params=DATA_KEYS, ids=str)
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DataKeyStore]:
    implementation: Implementation[DataKeyStore] = request.param
    with implementation.opened(tmp_path) as keys:
        yield keys


@pytest.fixture
def many_keys(request: pytest.FixtureRequest) -> int:
    return next(3 * each.many for each in DATA_KEYS if each.name in request.node.name)


@pytest.fixture(params=DURABLE, ids=str)
def durable(request: pytest.FixtureRequest) -> Implementation[DataKeyStore]:
    implementation: Implementation[DataKeyStore] = request.param
    implementation.require()
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


def test_what_is_kept_is_not_deleted(keys: DataKeyStore) -> None:
    keys.put_absent({"a:1": KEY, "a:2": KEY, "a:3": KEY})
    assert keys.delete(["a:1", "a:2"], lambda: {"a:2", "a:3"}) == 1
    assert keys.delete(["a:2"], lambda: ["a:2"]) == 0
    assert keys.get(["a:1", "a:2", "a:3"]).keys() == {"a:2", "a:3"}


def test_held_keys_are_given_and_what_fails_lets_them_go(keys: DataKeyStore) -> None:
    keys.put_absent({"a:1": KEY})
    with keys.hold(["a:1", "a:2"]) as held:
        assert held == {"a:1": KEY}
    with pytest.raises(StoreError, match="away"), keys.hold(["a:1"]):
        raise StoreError("away")
    assert keys.delete(["a:1"]) == 1


def test_no_key_goes_while_it_is_held(keys: DataKeyStore) -> None:
    """Whoever deletes asks what to keep only after the holder is done."""
    keys.put_absent({"a:1": KEY})
    written: list[str] = []
    begun = threading.Event()

    def work() -> None:
        with keys.hold(["a:1"]) as held:
            begun.set()
            time.sleep(0.1)
            written.extend(held)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(work)
        assert begun.wait(60)
        assert keys.delete(["a:1"], lambda: list(written)) == 0
        holder.result()
    assert keys.get(["a:1"]) == {"a:1": KEY}


def test_many_keys_and_odd_ids(keys: DataKeyStore, many_keys: int) -> None:
    many = {f"a:{number}": WrappedKey(number, str(number).encode()) for number in range(many_keys)}
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


def test_a_key_is_replaced_where_it_is_still_the_same(keys: DataKeyStore) -> None:
    keys.put_absent({"same": KEY, "changed": OTHER, "version": KEY._replace(kek_version=3)})
    new = WrappedKey(9, b"new")
    wanted = dict.fromkeys(["same", "changed", "version", "gone"], (KEY, new))
    assert keys.replace(wanted) == 1
    assert keys.get(list(wanted)) == {"same": new, "changed": OTHER, "version": KEY._replace(kek_version=3)}
    assert keys.replace(wanted) == 0
    assert keys.replace({}) == 0


def test_keys_are_found_by_version_in_pages(keys: DataKeyStore) -> None:
    odd = ["a:1", "A:1", "e\u0301:1", "\uffff:1", "\U0001f600:1", "~:1", "z" * 300]
    mine = dict.fromkeys([*odd, *(f"b:{number}" for number in range(40))], KEY)
    keys.put_absent({**mine, **dict.fromkeys([f"{name}x" for name in mine], OTHER)})
    assert keys.counts() == {1: len(mine), 2: len(mine)}
    seen: list[str] = []
    while page := keys.wrapped_by(1, seen[-1] if seen else "", 7):
        assert len(page) <= 7
        assert set(page.values()) == {KEY}
        seen += page
    assert sorted(seen) == sorted(mine)
    assert len(seen) == len(set(seen))
    assert keys.wrapped_by(3, "", 7) == {}
    few = keys.some(7)
    assert len(few) == 7
    assert keys.some(1000) == keys.get([*mine, *(f"{name}x" for name in mine)])
    assert few.items() < keys.some(1000).items()


def test_nothing_is_counted_in_an_empty_store(keys: DataKeyStore) -> None:
    assert keys.counts() == {}
    assert keys.wrapped_by(1, "", 1) == {}
    assert keys.some(1) == {}


def test_a_closed_version_comes_in_no_more(keys: DataKeyStore) -> None:
    keys.put_absent({"a:1": KEY, "a:2": OTHER})
    keys.close_versions([1, 7])
    keys.close_versions([1])
    keys.close_versions([])
    with pytest.raises(ClosedVersionError, match="key version 1 was rotated out"):
        keys.put_absent({"a:3": KEY, "a:4": OTHER})
    with pytest.raises(ClosedVersionError, match="key version 7 was rotated out"):
        keys.replace({"a:2": (OTHER, WrappedKey(7, b"x"))})
    assert keys.get(["a:1", "a:2", "a:3", "a:4"]) == {"a:1": KEY, "a:2": OTHER}, (
        "none is stored, none is lost"
    )
    assert keys.put_absent({"a:1": OTHER, "a:3": OTHER}) == {"a:1": KEY, "a:3": OTHER}
    assert keys.replace({"a:1": (KEY, OTHER)}) == 1
    assert keys.counts() == {2: 3}


def test_a_closed_version_stays_closed(durable: Implementation[DataKeyStore], tmp_path: Path) -> None:
    first, second = durable.open(tmp_path), durable.open(tmp_path)
    second.get([])
    first.close_versions([1])
    for keys in (second, durable.open(tmp_path)):
        with pytest.raises(ClosedVersionError):
            keys.put_absent({"a:1": KEY})
        keys.close()
    first.close()


def test_closed_keys_say_so(keys: DataKeyStore) -> None:
    keys.close()
    keys.close()
    for use in (
        lambda: keys.get(["a:1"]),
        lambda: keys.put_absent({"a:1": KEY}),
        lambda: keys.delete(["a:1"]),
        keys.compact,
        lambda: keys.replace({"a:1": (KEY, OTHER)}),
        lambda: keys.wrapped_by(1, "", 1),
        keys.counts,
        lambda: keys.some(1),
        lambda: keys.close_versions([1]),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


_CREATE = """
import json, sys
from pathlib import Path
from tests.contracts.implementations import DATA_KEYS
from transforms.privacy.keys import WrappedKey
keys = next(each for each in DATA_KEYS if each.name == sys.argv[1]).open(Path(sys.argv[2]))
worker = int(sys.argv[3])
mine = {}
for number in range(int(sys.argv[4])):
    asked = {f"a:{number}:{each}": WrappedKey(worker, b"x") for each in range(10)}
    mine.update({fragment: key.kek_version for fragment, key in keys.put_absent(asked).items()})
keys.close()
print(json.dumps(mine))
"""


@pytest.mark.process
def test_processes_that_create_at_once_go_on_with_the_same_key(
    durable: Implementation[DataKeyStore], tmp_path: Path
) -> None:
    rounds = str(durable.many // 10)
    running = [start(_CREATE, durable.name, tmp_path, str(number), rounds) for number in range(3)]
    results = [json.loads(finish(process)) for process in running]
    assert len(results[0]) == durable.many
    assert results[0] == results[1] == results[2]


_REPLACE = """
import sys
from pathlib import Path
from tests.contracts.implementations import DATA_KEYS
from transforms.privacy.keys import WrappedKey
keys = next(each for each in DATA_KEYS if each.name == sys.argv[1]).open(Path(sys.argv[2]))
new = WrappedKey(int(sys.argv[3]), b"new")
print(sum(keys.replace({f"a:{number}": (WrappedKey(1, b"old"), new)}) for number in range(int(sys.argv[4]))))
keys.close()
"""


@pytest.mark.process
def test_of_processes_that_replace_at_once_one_wins_each_key(
    durable: Implementation[DataKeyStore], tmp_path: Path
) -> None:
    keys = durable.open(tmp_path)
    size = durable.many // 3
    keys.put_absent({f"a:{number}": WrappedKey(1, b"old") for number in range(size)})
    running = [start(_REPLACE, durable.name, tmp_path, str(number), str(size)) for number in (2, 3)]
    won = {number: int(finish(process)) for number, process in zip((2, 3), running, strict=True)}
    assert sum(won.values()) == size
    assert keys.counts() == {number: count for number, count in won.items() if count}
    keys.close()


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
    if not durable.in_files:
        pytest.skip("what it keeps is in no file of ours")
    secret = b"the only copy of this key"
    keys = durable.open(tmp_path)
    keys.put_absent(
        {f"a:{number}": WrappedKey(1, secret if number == 500 else b"x" * 60) for number in range(1000)}
    )
    assert any(secret in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    keys.delete(["a:500"])
    keys.compact()
    assert not any(secret in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    keys.close()
