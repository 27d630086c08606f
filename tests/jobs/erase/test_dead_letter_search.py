"""The search for a person's dead letters: certain ones and guesses."""

from __future__ import annotations

import functools
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from idgraph.app.adapters.inputs import open_decryptor
from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch, FoundDeadLetter, names
from idgraph.model.dead_letters import FRAGMENT, DeadLetter, DeadLetterReason
from idgraph.model.errors import DecryptionError
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import DecryptorConfig, FileSource, ValuePlace
from idgraph.model.specs import IdentifierPlace, SpecDocument
from ingestion.stages.dead_letters import DeadLetterWriter
from ingestion.stages.decrypt import Decryptors
from merge.commit import CommitFailure
from tests.retail import Pipeline, order, raw, snapshot, spec, states_of
from tests.servers.decryption_service import decryption_service, encrypted, status

HELPDESK = FileSource(name="helpdesk", path=Path("inbox"), type=ValuePlace(path="event"))
TICKETS = spec(
    "orders",
    name="tickets",
    source="helpdesk",
    event_type="ticket.opened",
    operations=[{"operation": "shift", "spec": {"who": "identity.customer", "at": "_event.ordinal"}}],
    identifiers=(IdentifierPlace(type="customer", path="identity.customer", primary=True),),
)
OPENED = {"event": "ticket.opened", "at": "soon"}
GOES, STAYS = True, False


def search(pipeline: Pipeline, *specs: SpecDocument) -> DeadLetterSearch:
    known: MetadataSnapshot = snapshot(specs=list(specs))
    resources = pipeline.resources()
    return DeadLetterSearch({"helpdesk": HELPDESK}, known, resources.blind_index, resources.sealer.open)


def dead_letter_of(
    pipeline: Pipeline, record: bytes, name: str = "1", position: str = "file:x#1"
) -> DeadLetter:
    sealed = pipeline.resources().sealer.seal(record, name, position)
    return DeadLetter(
        name, DeadLetterReason.NO_SPEC, "map", "", "helpdesk", position, None, 1, "f/1", "a", sealed, 0
    )


def found(pipeline: Pipeline, record: bytes, *identifiers: str) -> list[FoundDeadLetter]:
    return list(search(pipeline, TICKETS).find([dead_letter_of(pipeline, record)], [], identifiers))


@pytest.mark.parametrize("hashed", [False, True], ids=["plain", "hashed"])
@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        ({"number": "T-99", "customer": None, "minutes": 480}, STAYS),
        ({"number": "T-97", "customer": "999", "minutes": 480}, STAYS),
        ({"number": "T-97", "customer": {"id": "999"}, "ids": [480]}, STAYS),
        ({"minutes": [{"480": 1}]}, STAYS),
        ('{"customer": "999", "minutes": 480, "subj', STAYS),
        ("customer=999&minutes=480", STAYS),
        ({**OPENED, "who": "999", "minutes": 480}, STAYS),
        ({**OPENED, "who": 480}, GOES),
        ({"event": "call.logged", "who": 480}, STAYS),
        ({"event": "call.logged", "customer": " 480 "}, GOES),
        ({"Customer-ID": 480}, GOES),
        ({"customers": 1, "customer": {"id": 480}}, GOES),
        ({"customer": ["481", "480"]}, GOES),
        ('{"minutes": 480, "customer": "480", "subj', GOES),
        ('{"customer": {"id": 480, "subj', GOES),
        ('"{\\"customer\\": \\"480\\", ', GOES),
        ("minutes=3&customer=480", GOES),
    ],
)
def test_a_short_number_is_proof_where_its_identifier_is_read(
    tmp_path: Path, record: dict[str, Any] | str, verdict: bool, hashed: bool
) -> None:
    pipeline = Pipeline(tmp_path)
    name = Identifier("customer", "480")
    wanted = pipeline.resources().blind_index.identifier(name) if hashed else name
    payload = record if isinstance(record, str) else json.dumps(record)
    (dead_letter,) = found(pipeline, payload.encode(), str(wanted))
    assert dead_letter.certain is verdict
    assert "customer" in dead_letter.why
    assert "480" not in dead_letter.why


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("a@b.co", GOES),
        ("canary-user-4711", GOES),
        ("1000040055", GOES),
        ("+44 20 7946 0958", GOES),
        ("b3c9e0f2-7a41-4c5e", GOES),
        ("12345", STAYS),
        ("T-99", STAYS),
        ("2026-03-06", STAYS),
        ("springfield", STAYS),
    ],
)
def test_what_hardly_anybody_else_has_is_proof_anywhere(tmp_path: Path, value: str, verdict: bool) -> None:
    record = json.dumps({"note": value}).encode()
    (dead_letter,) = found(Pipeline(tmp_path), record, f"login:{value}")
    assert dead_letter.certain is verdict


SHOP = IdentityRules.model_validate(
    {
        "namespaces": {
            "customer": {"normalise": "zero_padded"},
            "email": {"normalise": "email"},
            "phone": {"normalise": "phone", "country": "44"},
        }
    }
)


@pytest.mark.parametrize("hashed", [False, True], ids=["plain", "hashed"])
@pytest.mark.parametrize(
    ("record", "kind", "verdict"),
    [
        ({"from": "Lena <Lena.B@shop.example>"}, "email", GOES),
        ({"from": "mailto:LENA.B@shop.example"}, "email", GOES),
        ({"from": "lena.b@\u200bshop.example"}, "email", GOES),
        ({"call": "+44 20 7946 0811"}, "phone", GOES),
        ({"call": "0044 (0)20 7946 0811"}, "phone", GOES),
        ({"call": "020 7946 0811"}, "phone", GOES),
        ({"call": 442079460811}, "phone", GOES),
        ({"call": 442079460811.0}, "phone", GOES),
        ({"customer": "00481"}, "customer", GOES),
        ({"minutes": "00481"}, "customer", STAYS),
        ("call=+44 20 7946 0811&", "phone", STAYS),
        ({"to": "Tom <tom@shop.example>, Lena <lena.b@shop.example>"}, "email", STAYS),
        ({"note": "Ask LENA.B@shop.example, she knows."}, "email", STAYS),
        ({"note": "rang 020 7946 0811 twice"}, "phone", STAYS),
        ({"from": "lena.b2@shop.example", "call": "+44 20 7946 08110", "customer": "4810"}, "email", None),
    ],
)
def test_a_value_is_found_in_every_form_of_its_namespace(
    tmp_path: Path, record: dict[str, Any] | str, kind: str, verdict: bool | None, hashed: bool
) -> None:
    pipeline = Pipeline(tmp_path)
    resources = pipeline.resources()
    known = snapshot(specs=[TICKETS]).model_copy(update={"identity_rules": SHOP})
    letters = [dead_letter_of(pipeline, (record if isinstance(record, str) else json.dumps(record)).encode())]
    looking = DeadLetterSearch({"helpdesk": HELPDESK}, known, resources.blind_index, resources.sealer.open)
    for asked in (
        ["email:lena.b@shop.example", "phone:+442079460811", "customer:481"],
        ["email:Lena B. <LENA.B@SHOP.EXAMPLE>", "phone:020 7946-0811", "customer:0481"],
    ):
        is_hashed = hashed and "<" not in asked[0]
        names_of = [resources.blind_index.identifier(Identifier.parse(each)) for each in asked]
        found = list(looking.find(letters, [], map(str, names_of) if is_hashed else asked))
        assert [each.certain for each in found] == ([] if verdict is None else [verdict])
        assert all(kind in each.why for each in found)


@pytest.mark.parametrize("asked", ["email:p1@example.com", None])
def test_changes_of_a_fragment_are_found_by_the_name_in_the_clear(tmp_path: Path, asked: str | None) -> None:
    """As the machine of law 1 found: policy had hashed the names since, and nothing was stored under the hash."""
    pipeline = Pipeline(tmp_path)
    ((name, change),) = states_of(pipeline.map(order(1))).items()
    assert "@" not in name
    refused = CommitFailure(
        name,
        DeadLetterReason.REFUSED_BY_STORE,
        "",
        change,
    )
    dead_letters = DeadLetterWriter(pipeline.sealer).of_failures([refused], 1, pipeline.batch)
    fragments, identifiers = ([], [asked]) if asked else (["email:p1@example.com"], [])
    assert [each.certain for each in search(pipeline).find(dead_letters, fragments, identifiers)] == [True]
    assert list(search(pipeline).find(dead_letters, ["email:p2@example.com"], [])) == []


def test_others_are_not_found(tmp_path: Path) -> None:
    assert found(Pipeline(tmp_path), raw({"customer": 4800, "note": "480 x"}, 1).value, "customer:480") == []


@pytest.mark.parametrize(
    ("place", "kind", "named"),
    [
        (("userId", ""), "user_id", True),
        (("user", ""), "user_id", True),
        (("id", "user"), "user_id", True),
        (("id", "order"), "user_id", False),
        (("id", ""), "user_id", False),
        (("user", ""), "anonymous_user", False),
        (("", ""), "id", False),
        (("id", ""), "id", True),
    ],
)
def test_a_key_names_a_type(place: tuple[str, str], kind: str, named: bool) -> None:
    assert names(place, kind) is named


@pytest.mark.parametrize("on_failure", ["stop", "dead_letter", "pass_on"])
def test_dead_letters_that_arrived_encrypted_are_decrypted_together(tmp_path: Path, on_failure: str) -> None:
    pipeline = Pipeline(tmp_path)
    resources = pipeline.resources()
    theirs = json.dumps({**OPENED, "who": 480}).encode()
    with (
        decryption_service() as (url, service),
        closing(Decryptors(functools.partial(open_decryptor, 1 << 20))) as decryptors,
    ):
        service.seconds = lambda _: 0.1
        given = {"url": url, "capacity": 4, "retries": 0, "on_failure": on_failure}
        source = HELPDESK.model_copy(update={"decryptor": DecryptorConfig.model_validate(given)})
        searching = DeadLetterSearch(
            {"helpdesk": source},
            snapshot(specs=[TICKETS]),
            resources.blind_index,
            resources.sealer.open,
            decryptors=decryptors,
        )

        def found_in(*dead_letters: DeadLetter) -> list[tuple[str, bool]]:
            return [
                (each.id, each.certain)
                for each in searching.find(dead_letters, ["customer:480"], ["customer:480"])
            ]

        dead_letters = [dead_letter_of(pipeline, encrypted(theirs), str(n), f"file:x#{n}") for n in range(8)]
        unopened = dead_letters[2]._replace(payload=b"not sealed")
        named = unopened._replace(id="named", position=f"{FRAGMENT}customer:480")
        wanted = [(each.id, True) for each in dead_letters if each.id != "2"]
        assert found_in(*dead_letters[:2], unopened, *dead_letters[3:], named) == [*wanted, ("named", True)]
        assert service.most_at_once == 4

        service.faults.append(status(400))
        refused = dead_letter_of(pipeline, b'{"customer": "480"}')
        assert found_in(refused) == [("1", True)], "it is looked through as it arrived"
        service.faults.append(status(400))
        assert len(found_in(dead_letters[0], dead_letters[1])) == 1, (
            "whichever is refused, the other is looked through"
        )

        for away in (status(503), status(401)):
            service.faults.append(away)
            with pytest.raises(DecryptionError, match=r"^source helpdesk: file:x#1: the decryption service"):
                found_in(dead_letters[1])
