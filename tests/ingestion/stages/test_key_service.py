"""The stages while the service that holds the keys is away or refuses: stopped or set aside, never in the clear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import KeyServiceError
from idgraph.model.sources import FlowConfig
from ingestion.spark.worker_errors import error_of_worker, may_pass_again
from tests.replaying import replay
from tests.retail import Pipeline, order, raw, states_of
from tests.servers.kms import Kms, running_kms
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.privacy.sealing import DataKeys

if TYPE_CHECKING:
    from sinks.kms import KmsEnvelope

PLAIN = {"user_id": "1", "time": 1, "insert_id": "i", "event_type": "View", "platform": "iOS"}
CANARY = "Canary-Holly"


@pytest.fixture(scope="module")
def kms() -> Kms:
    return running_kms()


class Disabling:
    """A keyring in KMS that knows the keys of its past for no time."""

    def __init__(self, kms: Kms) -> None:
        self.kms, self.key = kms, kms.new_key()

    def envelope(self) -> KmsEnvelope:
        from sinks.kms import KmsEnvelope

        return KmsEnvelope(self.key, keep_uses=1, retry_seconds=0.2)

    def disable(self) -> None:
        self.kms.disable(self.key)

    def enable(self) -> None:
        self.kms.enable(self.key)


@pytest.fixture
def disabling(kms: Kms, monkeypatch: pytest.MonkeyPatch) -> Disabling:
    monkeypatch.setattr("sinks.keyring.provider.REFUSED_SECONDS", 0.0)
    return Disabling(kms)


def canary(number: int) -> dict[str, object]:
    return {"email": f"p{number}@example.com", "name": {"first": CANARY, "last": CANARY}}


def test_a_flow_that_is_to_stop_gives_its_batch_back(disabling: Disabling, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, envelope=disabling.envelope())
    disabling.disable()
    with pytest.raises(KeyServiceError, match="the key is disabled") as caught:
        pipeline.map(order(1, 1, customer=canary(1)), raw(PLAIN, 2, "amplitude"))
    assert may_pass_again(caught.value)
    assert pipeline.store.count() == 0
    disabling.enable()
    pipeline.process([order(1, 1, customer=canary(1)), raw(PLAIN, 2, "amplitude")])
    assert pipeline.store.count() == 2


def test_a_worker_reports_the_driver_which_error_it_was() -> None:
    reported = error_of_worker(
        "Traceback...\nidgraph.model.errors.KeyServiceError: KMS key k: the key is disabled\n at x"
    )
    assert type(reported) is KeyServiceError


def test_a_flow_that_goes_on_sets_aside_what_it_cannot_seal(disabling: Disabling, tmp_path: Path) -> None:
    keys = MemoryDataKeys()
    pipeline = Pipeline(
        tmp_path, keys, flow=FlowConfig(on_key_service_failure="dead_letter"), envelope=disabling.envelope()
    )
    pipeline.map(order(1, 1, customer=canary(1)))
    disabling.disable()
    # The first one's key is in the cache, that of the second would be new, the third's is none that it needs.
    output = pipeline.map(
        order(1, 2, customer=canary(1)), order(2, 3, customer=canary(2)), raw(PLAIN, 4, "amplitude")
    )
    (dead_letter,) = output.dead_letters
    assert (dead_letter.reason, dead_letter.position[-2:]) == (DeadLetterReason.KEY_UNAVAILABLE, "#3")
    assert dead_letter.detail.endswith("the key is disabled")
    assert len(output.fragments) == 2
    leaving = b"".join(state.encode() for state in states_of(output).values())
    leaving += b"".join(dead_letter.payload for dead_letter in output.dead_letters)
    assert CANARY.encode() not in leaving

    # In another process not even the first one's.
    pipeline.data_keys = DataKeys(pipeline.provider, keys)
    again = pipeline.map(order(1, 2, customer=canary(1)))
    assert [each.reason for each in again.dead_letters] == [DeadLetterReason.KEY_UNAVAILABLE]

    dead_letters = [*output.dead_letters, *again.dead_letters]
    resources = pipeline.resources()
    resources.dead_letters.put(dead_letters)
    disabling.enable()
    report = replay(
        dead_letters, pipeline.plan(), resources, pipeline.snapshot, pipeline.sealer.open, lambda _: None
    )
    assert (report.replayed, report.still_dead) == (2, 0)
    assert list(resources.dead_letters.scan()) == []
    assert pipeline.store.count() == 2, "nothing was lost"
    assert CANARY.encode() not in pipeline.export()
    assert CANARY.encode() in pipeline.export(reveal=True)
    resources.dead_letters.close()
