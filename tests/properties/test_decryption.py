"""Whatever order a service answers in, records keep theirs, and no more are in progress than there is room for."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.decryption import Decrypted
from idgraph.model.events import DecryptedRecord, RawRecord
from idgraph.model.sources import DecryptorConfig, FileSource
from ingestion.sources.files.lines import DamagedRecord
from ingestion.stages.decrypt import Decryption, Decryptors
from tests.lanes import examples


class Answering:
    """A service that answers what it has in an order of chance; what begins with `x` it refuses."""

    def __init__(self, seed: int) -> None:
        self.most = 0
        self._chance = random.Random(seed)
        self._waiting: list[tuple[bytes, Future[Decrypted]]] = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, content: bytes, _position: str) -> Future[Decrypted]:
        answer: Future[Decrypted] = Future()
        with self._changed:
            self._waiting.append((content, answer))
            self.most = max(self.most, len(self._waiting))
            self._changed.notify()
        return answer

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                # Until as many wait as may.
                self._changed.wait(0.0005)
                content, answer = self._waiting.pop(self._chance.randrange(len(self._waiting)))
            answer.set_result(Decrypted(None, "refused") if content[:1] == b"x" else Decrypted(content[::-1]))

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["plain", "small", "large"]), st.sampled_from([b"a1", b"x1", b"b22"])),
        max_size=40,
    ),
    st.integers(0, 2**16),
)
def test_order_is_kept_and_room_is_bounded(arriving: list[tuple[str, bytes]], seed: int) -> None:
    sources = {"plain": FileSource(name="plain", path=Path("plain"))}
    for name, capacity in (("small", 2), ("large", 7)):
        config = DecryptorConfig(url=f"https://{name}/", capacity=capacity, on_failure="dead_letter")
        sources[name] = FileSource(name=name, path=Path(name), decryptor=config)
    opened: dict[str, Answering] = {}

    def opening(config: DecryptorConfig) -> Answering:
        return opened.setdefault(config.url, Answering(seed))

    decryptors = Decryptors(opening)
    records = [RawRecord(source, f"file:{n}", content) for n, (source, content) in enumerate(arriving)]
    decryption = Decryption(sources, decryptors)
    got = list(decryption.run(records))
    decryptors.close()
    assert len(got) == len(records)
    for before, after in zip(records, got, strict=True):
        if before.source == "plain":
            assert after is before
        elif before.value[:1] == b"x":
            assert isinstance(after, DamagedRecord)
            assert after.record == before
        else:
            assert isinstance(after, DecryptedRecord)
            assert (after.position, after.value) == (before.position, before.value[::-1])
            assert after.as_arrived() == before.value
    assert all(each.most <= (2 if "small" in url else 7) for url, each in opened.items())
    counts = decryption.taken()
    encrypted = [record for record in records if record.source != "plain"]
    assert counts.undecrypted == sum(record.value[:1] == b"x" for record in encrypted)
    assert counts.decrypted + counts.undecrypted == len(encrypted)
