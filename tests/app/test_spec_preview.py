"""The preview of a mapping spec over a source's own files: its numbers, what it refuses to show, and that it changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.jobs.context import LocalJobContext
from idgraph.files import write_atomically
from idgraph.jobs.spec_preview.job import SpecPreviewJob, SpecPreviewParameters
from idgraph.model.events import RawRecord
from idgraph.model.jobs import Progress, Requester
from idgraph.model.spec_use import SpecUse
from idgraph.model.specs import SpecDefinition, SpecDocument
from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE, Pipeline, definition, durable_keys, order, raw, records, snapshot, spec

pytestmark = pytest.mark.slow


EMAIL = re.compile(r"[\w.]+@\w+\.\w+")


def give(
    idgraph: CommandLine, events: Iterable[RawRecord], specs: Iterable[SpecDocument] | None = None
) -> None:
    """Let the flow take events, and have them in its sources' files."""
    settings = idgraph.settings()
    given = list(events)
    known = snapshot(specs=None if specs is None else list(specs))
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        pipeline.process(given)
        pipeline.data_keys.close()
    kept = {"etag": '"1"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())
    for source in ("segment", "amplitude", "orders"):
        folder = idgraph.folder / "inbox" / source
        folder.mkdir(parents=True, exist_ok=True)
        lines = [each.value for each in given if each.source == source]
        (folder / "x.jsonl").write_bytes(b"\n".join(lines))


def orders(**changed: Any) -> SpecDefinition:
    """The spec of orders with some paths of its output changed; None takes one away."""
    content = json.loads(definition("orders").model_dump_json())
    content["operations"][0]["spec"] |= changed
    spec = {path: each for path, each in content["operations"][0]["spec"].items() if each is not None}
    content["operations"][0]["spec"] = spec
    return SpecDefinition(**content)


def previewed(idgraph: CommandLine, stated: SpecDefinition, *words: str) -> Any:
    file = idgraph.folder / "draft.json"
    file.write_text(stated.model_dump_json(exclude_defaults=True))
    result = idgraph("specs", "preview", file, "--json", *words)
    assert result.stdout, result.output
    found = json.loads(result.stdout)
    attributes = found["attributes"]
    is_harmful = bool(attributes["exposed"] or found["errors"] or found["identifiers_opened"])
    assert result.exit_code == is_harmful
    assert not EMAIL.search(result.stdout)
    return found


def numbers(found: dict[str, Any]) -> dict[str, int]:
    return {name: each["number"] for name, each in found["figures"].items() if each["number"]}


def changes(found: dict[str, Any]) -> dict[str, str]:
    return {each["path"]: each["change"] for each in found["attributes"]["changes"]}


def folder_bytes(idgraph: CommandLine) -> dict[str, bytes]:
    database = idgraph.settings().directory / "profiles.db"
    return {"profiles": database.read_bytes()}


def test_the_spec_in_force_changes_nothing(with_keys: CommandLine) -> None:
    give(with_keys, records(80))
    found = previewed(with_keys, definition("segment"))
    assert (found["looked_at"], found["events"], found["is_exact"]) == (40, 40, True)
    assert numbers(found) == {}
    assert found["attributes"]["changes"] == found["examples"] == found["errors"] == []


def test_what_differs_is_counted_and_nothing_protected_is_shown(with_keys: CommandLine) -> None:
    many = [order(number, number) for number in range(1, 21)]
    give(with_keys, [*many, order(21, 21, created_at="soon")])
    before = folder_bytes(with_keys)
    changed = orders(
        **{
            "contact": {
                "mail": "customer.email",
                "who": "customer.name.first",
                "note": "join(' ', ['to', customer.name.first, customer.name.last])",
            },
            "orders.count": "cart.items",
            "orders.last": {"id": "order_id", "total": "cart.total", "at": "epoch_ms(created_at)"},
        }
    )
    withheld = previewed(with_keys, changed)
    assert withheld["withheld"] == {"events": 21, "places": ["/operations/0 at 'contact.note'"]}
    assert numbers(withheld) == {"exposed": 21}
    assert changes(withheld) == {"contact.note": "exposes", "contact.who": "exposes"}
    assert (withheld["examples"], withheld["persons"]) == ([], {"merged": [], "split": []})
    found = previewed(with_keys, changed, "--reveal")
    assert found["looked_at"] == 21
    assert changes(found) == {
        "contact.mail": "added",
        "contact.note": "exposes",
        "contact.who": "exposes",
        "orders.count": "added",
        "orders.last.guest": "removed",
        "orders.last.items": "removed",
        "orders.last.total": "retyped",
    }
    figures = numbers(found)
    assert (figures["events_changed"], figures["exposed"], figures["errors_before"]) == (20, 20, 1)
    about = {each["path"]: each for each in found["attributes"]["changes"]}
    assert about["contact.note"]["exposes"] == ["identity.name.first", "identity.name.last"]
    assert (about["contact.mail"]["is_protected"], about["contact.mail"]["exposes"]) == (True, [])
    shown = {each["path"]: each for example in found["examples"] for each in example["values"]}
    assert shown["orders.last.total"]["before"]["value"] != shown["orders.last.total"]["after"]["value"]
    for path in ("contact.mail", "contact.note", "contact.who"):
        assert shown[path]["after"] == {"type": "string", "is_protected": True}
    assert folder_bytes(with_keys) == before


def test_what_is_made_of_a_protected_value_is_not_shown(with_keys: CommandLine) -> None:
    """Found by review: a draft that put a letter behind a protected name had it shown."""
    give(with_keys, [order(1, 1, customer={"email": "p1@example.com", "name": {"first": "Zebulon"}})])
    made = {
        "who": "join('', [customer.name.first, 'x'])",
        "city": "shipping.city",
        "total": "to_number(cart.total)",
    }
    found = previewed(with_keys, orders(contact=made), "--reveal")
    (example,) = found["examples"]
    shown = {each["path"]: each["after"] for each in example["values"]}
    assert shown["contact.who"] == {"type": "string", "is_protected": True}
    assert shown["contact.city"]["value"] == "Springfield"
    assert float(shown["contact.total"]["value"]) == 12.5
    assert "zebulon" not in json.dumps(found).casefold()


NAME = "customer.name.first"
STARTS = f"starts_with({NAME}, 'Z')"
GUESSES: list[dict[str, Any]] = [
    {"contact": {"flag": STARTS}},
    {"contact": {"city": f"{STARTS} && shipping.city || shipping.country"}},
    {"contact": {"there": f"({STARTS} || null) && 'yes'"}},
    {"contact": {"number": f"to_number_exact({STARTS} && 'x' || '1')"}},
    {"contact": {"length": f"length({NAME})"}},
    {"contact": {"all": "length(to_string(customer))"}},
    {"identity.name": {"first": f"{STARTS} && {NAME} || customer.name.last"}},
    {"identity.name": {"first": "'Zebulon'", "last": "customer.name.last"}},
    {"identity.name": {"first": "customer.name.last", "last": "customer.name.last"}},
    {"contact": {"list": "'Zebulon Anna Bob'"}},
    {"orders.last": {"id": "order_id", "cartId": f"{STARTS} && 'a' || 'b'"}},
    {"orders.last": {"id": "order_id", "cartId": NAME}},
    {"_event.ordinal": f"length({NAME})"},
]
"""What a draft can be asked by: each would be answered by a value, a path, an error, a count or a merge."""


@pytest.mark.parametrize("guess", GUESSES)
def test_no_draft_finds_out_a_protected_value(with_keys: CommandLine, guess: dict[str, Any]) -> None:
    """Found by review: the preview says the same of two persons who differ in a protected value alone."""
    given = {"email": "p1@example.com", "name": {"first": "Zebulon", "last": "Foo"}}
    found = []
    for name in ("Zebulon", "Annabel"):
        one = order(1, 1, customer=given | {"name": {"first": name, "last": "Foo"}})
        give(with_keys, [one])
        found.append(previewed(with_keys, orders(**guess)))
    assert found[0] == found[1]


def test_new_errors_have_their_place(with_keys: CommandLine) -> None:
    give(with_keys, [order(1, 1), order(2, 2, cart={"total": "x"}), order(3, 3, customer={})])
    total = {
        "at": "epoch_ms(created_at)",
        "total": "to_number_exact(cart.total)",
        "items": "length(cart.items)",
    }
    found = previewed(with_keys, orders(**{"orders.last": total}))
    (error,) = found["errors"]
    assert error["pointer"].startswith("/operations/0")
    assert (error["events"], numbers(found)["errors_new"]) == (len(error["positions"]), error["events"])


def test_a_sample_says_how_far_off_it_may_be(with_keys: CommandLine) -> None:
    give(with_keys, [order(number, number) for number in range(1, 101)])
    found = previewed(with_keys, orders(**{"orders.count": "cart.items"}), "--sample", "25")
    assert (found["looked_at"], found["events"], found["is_exact"]) == (25, 100, False)
    changed = found["figures"]["events_changed"]
    assert (changed["number"], changed["share"], changed["error"]) == (25, 1.0, pytest.approx(3 / 25))
    again = previewed(with_keys, orders(**{"orders.count": "cart.items"}), "--sample", "25")
    assert again == found


def identify(user: int, email: str, line: int) -> RawRecord:
    content = {
        "type": "identify",
        "messageId": f"m{line}",
        "userId": str(user),
        "timestamp": "2024-03-01T00:00:00Z",
        "traits": {"email": email},
    }
    return raw(content, line, "segment")


def without_email() -> dict[str, Any]:
    return {"identifiers": [each for each in spec("segment").identifiers if each.type != "email"]}


def test_persons_who_would_be_split_or_merged(with_keys: CommandLine) -> None:
    # p1 is joined by an event of the spec; p2 too, and p3 has one fragment.
    events = [
        order(1, 1),
        order(2, 2),
        order(3, 3),
        identify(1, "p1@example.com", 1),
        identify(2, "p2@example.com", 2),
    ]
    give(with_keys, events)
    found = previewed(with_keys, definition("segment", **without_email()))
    assert (numbers(found)["persons_split"], numbers(found)["events_changed"]) == (2, 2)
    assert [len(each["into"]) for each in found["persons"]["split"]] == [2, 2]


def test_persons_who_would_be_merged(with_keys: CommandLine) -> None:
    events = [order(1, 1), order(3, 3), identify(1, "p1@example.com", 1), identify(7, "p7@example.com", 2)]
    give(with_keys, events, [spec("segment", **without_email()), spec("orders")])
    found = previewed(with_keys, definition("segment"))
    assert numbers(found)["persons_merged"] == 1
    assert "persons_split" not in numbers(found)
    assert found["identifiers_opened"] == {}


def test_a_new_spec_and_what_is_missing(with_keys: CommandLine) -> None:
    give(with_keys, [order(1, 1)], [spec("segment")])
    found = previewed(with_keys, definition("orders"))
    assert (found["version_in_force"], numbers(found)["errors_gone"]) == (None, 1)
    file = with_keys.folder / "draft.json"
    file.write_text(definition("orders", source="nowhere").model_dump_json())
    refused = with_keys("specs", "preview", file)
    assert refused.exit_code == 2
    assert "nowhere" in refused.output


def test_people_read_it_too(with_keys: CommandLine) -> None:
    give(with_keys, [order(1, 1)])
    file = with_keys.folder / "draft.json"
    file.write_text(orders(**{"contact.who": "customer.name.first"}).model_dump_json())
    printed = with_keys("specs", "preview", file)
    assert printed.exit_code == 1
    assert "contact.who" in printed.stdout
    (job, *_) = with_keys.json("jobs", "list", "--kind", "preview", "--json")
    assert (job["state"], job["what"]["spec"]) == ("done", "shop-orders")


def test_an_erased_person_is_left_out(with_keys: CommandLine) -> None:
    give(with_keys, [order(1, 1), order(2, 2)])
    assert with_keys("erase", "email:p1@example.com", "--yes").exit_code == 0
    found = previewed(with_keys, definition("orders"))
    assert (found["looked_at"], found["erased"]) == (1, 1)


def test_the_health_of_specs_is_listed(served: CommandLine) -> None:
    for each in ("segment", "orders"):
        assert served("specs", "apply", EXAMPLE / "specs" / f"{each}.json").exit_code == 0
    said = {"version": 1, "errors": 2, "last_used": 1_709_251_200_000}
    uses = [
        SpecUse(spec="shop-orders", source="orders", events=1234, fields={"/cart/coupon": False}, **said),
        SpecUse(spec=None, source="amplitude", **said),
    ]
    with metadata_access.flow_client(served.settings()) as client:
        client.send_uses(uses)
    printed = served("specs", "health").stdout
    for each in ("shop-orders@1 orders", "1,234", "shop-segment@1: not used yet", "amplitude"):
        assert each in printed
    (found,) = served.json("specs", "health", "--json")
    assert found["specs"][0]["uses"][0]["unread"] == ["/cart/coupon"]
    assert [each["events"] for each in found["unmapped"]] == [2]


def test_it_can_be_stopped_between_pages(with_keys: CommandLine) -> None:
    give(with_keys, [order(1, 1)])
    settings = with_keys.settings()
    with LocalJobContext(settings, Requester("ada")) as context:
        job = SpecPreviewJob(SpecPreviewParameters(definition=definition("orders")), context)
        job.plan({})
        pages = sum(1 for _ in job.pages(Progress(), {}))
    assert pages >= 2
