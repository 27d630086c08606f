"""Records whose persons are known: what quality is measured on.

Each record has an identifier of its own, and the identifiers that it shows beside it. `data` is the folder with `er`,
`openstack` and `retail`, of which the repository has only the last one.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.workload import EXAMPLE, SOURCES, events
from idgraph.app.identity_documents import read_records
from idgraph.app.settings.document import load
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from merge.identity.evidence import Moment, SeenEvent
from merge.identity.rules import Rules


class Labelled(NamedTuple):
    """`seen` are the events; `truth` has the person of each record; `named` the identifier that finds a record. `records`
    are what a model may compare, by the text form of a record's identifier; `compared` their columns."""

    rules: Rules
    seen: list[SeenEvent]
    truth: dict[str, str]
    named: dict[str, Identifier]
    records: dict[str, dict[str, str]]
    compared: tuple[str, ...]


def febrl(folder: Path) -> Labelled:
    """1,000 synthetic records of 500 persons: a social security number, and a name with a date of birth."""
    rows = _rows(folder / "febrl1.csv")
    return _of_rows(
        rows,
        truth={row["rec_id"]: row["rec_id"].split("-")[1] for row in rows},
        keys={
            "soc_sec_id": ("soc_sec_id",),
            "name_birth": ("given_name", "surname", "date_of_birth"),
            "name_address": ("given_name", "surname", "address_1", "postcode"),
        },
        rules={"soc_sec_id": {"unique": True, "priority": 1}},
        compared=("given_name", "surname", "address_1", "suburb", "postcode", "date_of_birth", "soc_sec_id"),
    )


def fake(folder: Path) -> Labelled:
    """1,000 synthetic records of 251 persons, most with mistakes: an e-mail address, and a name with a date of birth."""
    rows = [{**row, "rec_id": row["unique_id"]} for row in _rows(folder / "fake_1000.csv")]
    return _of_rows(
        rows,
        truth={row["rec_id"]: row["cluster"] for row in rows},
        keys={
            "email": ("email",),
            "name_birth": ("first_name", "surname", "dob"),
            "birth_city": ("surname", "dob", "city"),
        },
        rules={"email": {"max": 5, "priority": 1, "normalise": "email"}},
        compared=("first_name", "surname", "dob", "city", "email"),
    )


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as stream:
        return [
            {name.strip(): value.strip() for name, value in row.items()} for row in csv.DictReader(stream)
        ]


def _of_rows(
    rows: list[dict[str, str]],
    truth: dict[str, str],
    keys: Mapping[str, tuple[str, ...]],
    rules: dict[str, Any],
    compared: tuple[str, ...],
) -> Labelled:
    document = IdentityRules.model_validate({"namespaces": rules, "hub_limit": 50})
    ready = Rules(document)
    seen = []
    for number, row in enumerate(rows):
        shown = [("record", row["rec_id"])]
        shown += [
            (name, " ".join(row[each] for each in columns))
            for name, columns in keys.items()
            if all(row[each] for each in columns)
        ]
        seen.append(SeenEvent(Moment(number, "rows", row["rec_id"]), ready.identifiers(shown)))
    named = {each: Identifier("record", each) for each in truth}
    records = {f"record:{row['rec_id']}": {each: row[each] for each in compared if row[each]} for row in rows}
    return Labelled(ready, seen, truth, named, records, compared)


OPENSTACK_RULES = {
    "namespaces": {
        "email": {"max": 8, "priority": 1, "normalise": "email"},
        "name": {"priority": 2, "normalise": "lower"},
    },
    "blocked": [
        {"namespace": "name", "pattern": "(?i)^(?:root|ubuntu|jenkins|zuul|.*bot)$"},
        {"namespace": "email", "pattern": "(?i)@review\\.open(?:stack|dev)\\.org$|^review@openstack\\.org$"},
    ],
    "hub_limit": 8,
}


def openstack(folder: Path) -> Labelled:
    """E-mail addresses in commits, each with the name beside it. The member directory says whose they are; a commit does not."""
    owner = _members(folder)
    rules = Rules(IdentityRules.model_validate(OPENSTACK_RULES))
    seen: list[SeenEvent] = []
    names: dict[str, set[str]] = defaultdict(set)
    for number, commit in enumerate(_commits(folder)):
        for role in ("author", "committer"):
            person = commit["payload"][role]
            shown = rules.identifiers((("email", person["email"]), ("name", person["name"])))
            seen.append(SeenEvent(Moment(number, "git", f"{commit['id']} {role}"), shown))
            for each in shown:
                if each.type == "email":
                    names[each.value].add(person["name"])
    truth = {email: owner[email] for email in names if email in owner}
    named = {email: Identifier("email", email) for email in truth}
    records = {
        f"email:{email}": {
            "name": min(some, key=lambda each: (-len(each), each)),
            "local": email.partition("@")[0],
        }
        for email, some in names.items()
    }
    return Labelled(rules, seen, truth, named, records, ("name", "local"))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file) as stream:
        for line in stream:
            yield json.loads(line)


def _commits(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((folder / "commits").glob("*.jsonl.gz")):
        yield from _lines(file)


def _members(folder: Path) -> dict[str, str]:
    """The member of each e-mail address that belongs to one member at the end."""
    members: dict[str, dict[str, Any]] = {}
    for event in _lines(folder / "member-directory.jsonl.gz"):
        profile = event["profile"]
        key = str(profile.get("launchpad_id") or sorted(profile["emails"]))
        if event["type"] == "profile_removed":
            members.pop(key, None)
        else:
            members[key] = profile
    owners: dict[str, set[str]] = defaultdict(set)
    for key, profile in members.items():
        for email in profile["emails"]:
            owners[email.strip().lower()].add(key)
    return {email: min(keys) for email, keys in owners.items() if len(keys) == 1}


def shop(without_email: bool = False) -> Labelled:
    """A month of the shop, mapped by its specs, with the default rules. A record is an event.

    The data has no labels. The person of an event is its user; without one, the user of its device; of an order, the user of
    the cart, else the only user with its e-mail address and name. A guest is the address and name of the order that has the
    cart.
    """
    rules = Rules(DEFAULT_RULES)
    settings = load(EXAMPLE / "idgraph.toml")
    seen = [
        event
        for source in SOURCES
        for event in read_records(
            rules,
            EXAMPLE / "data" / f"{source}.jsonl.gz",
            EXAMPLE / "specs" / f"{source}.json",
            settings.file_source(source),
        ).events
    ]
    if without_email:
        seen = [
            each._replace(
                identifiers=tuple(name for name in each.identifiers if name.type != "email")
                or each.identifiers
            )
            for each in seen
        ]
    truth = _shop_truth()
    named = {
        f"{each.moment.source} {each.moment.event_id}": each.identifiers[0]
        for each in seen
        if each.identifiers
    }
    return Labelled(rules, seen, {key: truth[key] for key in named}, named, {}, ())


def _shop_truth() -> dict[str, str]:
    visits = [("segment", each) for each in events("segment")] + [
        ("amplitude", each) for each in events("amplitude")
    ]
    carts: dict[str, set[str]] = defaultdict(set)
    by_name: dict[tuple[str, str], set[str]] = defaultdict(set)
    by_device: dict[str, set[str]] = defaultdict(set)
    cart_devices: dict[str, str] = {}
    for source, each in visits:
        device, user, cart, traits = _visit(source, each)
        if cart:
            cart_devices.setdefault(cart, device)
        if user:
            by_device[device].add(user)
            if cart:
                carts[cart].add(user)
            if "email" in traits:
                by_name[traits["email"].strip().lower(), traits["name"]].add(user)
    truth: dict[str, str] = {}
    for each in events("orders"):
        customer = each["customer"]
        who = customer["email"].strip().lower(), f"{customer['name']['first']} {customer['name']['last']}"
        users = carts[each["cart"]["id"]] or by_name[who]
        person = min(users) if len(users) == 1 else " ".join(who)
        truth[f"orders {each['order_id']}"] = person
        bought_on = cart_devices.get(each["cart"]["id"])
        if bought_on is not None:
            by_device[bought_on] = by_device[bought_on] or {person}
    for source, each in visits:
        device, user, _, _ = _visit(source, each)
        event_id = each["messageId" if source == "segment" else "insert_id"]
        truth[f"{source} {event_id}"] = user or min(by_device[device], default=device)
    return truth


def _visit(source: str, event: dict[str, Any]) -> tuple[str, str, str, dict[str, Any]]:
    """Device, user, cart and traits of an event of the web site or of the app."""
    if source == "segment":
        user, device = event.get("userId"), event["anonymousId"]
        cart, traits = event.get("properties", {}).get("cartId"), event.get("traits", {})
    else:
        user, device = event.get("user_id"), event["device_id"]
        cart, traits = event.get("event_properties", {}).get("cartId"), event.get("user_properties", {})
    return device, (user or "").lstrip("0"), cart or "", traits
