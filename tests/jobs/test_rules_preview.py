"""The preview of identity rules: its numbers are those of all profiles by the one and the other rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from idgraph.jobs.rules_preview import CountEstimate, RulesPreview
from idgraph.model.identity_events import IdentityEvent, PinDocument
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.jobs import Progress
from merge.identity.components import Person
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from merge.resolution import shown
from tests.merge.identity.test_persons import CASES, Installation, usable

STRICT = {"least_strength": 2}
"""By these nothing joins."""
LOOSE: dict[str, Any] = {}


def previewed(
    installation: Installation, rules: IdentityRules, page: int = 1000, sample: int | None = None
) -> tuple[RulesPreview, Progress]:
    both = installation.rules, Rules(rules)
    job = RulesPreview(installation.store, both, str, {}, sample, page)
    progress = Progress()
    job.plan({})
    for _ in job.pages(progress, {}):
        pass
    return job, progress


def by_hand(installation: Installation, rules: IdentityRules) -> Counter[str]:
    """The same from all persons at once."""
    sides = []
    for ready in (installation.rules, Rules(rules)):
        found = Persons(installation.store, ready).around(list(installation.store.ids()))
        refused = {violation for component in found.components for violation in component.violations}
        sides.append((found.persons(), refused))
    (before, refused), (after, refused_then) = sides
    counts = Counter(
        {
            "profiles_before": len(before),
            "profiles_after": len(after),
            "violations_before": len(refused),
            "violations_after": len(refused_then),
            "merges": sum(len(set(map(owners(before).get, members(each)))) > 1 for each in after),
            "splits": sum(len(set(map(owners(after).get, members(each)))) > 1 for each in before),
        }
    )
    counts.update(f"violations_new/{each.rule}" for each in refused_then - refused)
    counts.update(f"violations_gone/{each.rule}" for each in refused - refused_then)
    old = {each.id: each for each in before}
    for each in after:
        if each.id in old and members(old[each.id]) != members(each):
            counts["changed"] += 1
            values = [{leaf.path: leaf for leaf in shown(p.state(), {})} for p in (old[each.id], each)]
            paths = values[0].keys() | values[1].keys()
            counts.update(f"attribute/{path}" for path in paths if values[0].get(path) != values[1].get(path))
    return +counts


def members(person: Person) -> list[str]:
    return [each.stored.id for each in person.members]


def owners(persons: list[Person]) -> dict[str, str]:
    return {name: each.id for each in persons for name in members(each)}


@pytest.mark.parametrize(
    "case", [each for each in CASES if usable(each)][::3], ids=lambda case: str(case["name"])
)
def test_numbers_are_those_of_all_profiles(case: dict[str, Any]) -> None:
    installation = Installation(case)
    installation.take(IdentityEvent.model_validate(each) for each in case["events"])
    before = list(installation.store.scan()), installation.store.outbox()
    for document in (LOOSE, STRICT, case["rules"]):
        rules = IdentityRules.model_validate(document)
        expected = by_hand(installation, rules)
        for page in (1, 1000):
            job, progress = previewed(installation, rules, page)
            assert progress.done == job.fragments == installation.store.count()
            assert +progress.counts == expected
    assert expected["merges"] == expected["splits"] == expected["changed"] == 0
    assert (list(installation.store.scan()), installation.store.outbox()) == before


CROWD: dict[str, Any] = {
    "namespaces": {
        "user": {"unique": True, "priority": 1, "hub_limit": 100},
        "email": {"owner": "none", "hub_limit": 3},
        "phone": {"hub_limit": 4},
        "device": {"moves": "latest", "counted": False},
    },
    "blocked": [{"namespace": "phone", "value": "0"}],
}
OTHERWISE: dict[str, Any] = {
    "namespaces": {
        "user": {"max": 2, "priority": 1, "hub_limit": 100},
        "email": {"hub_limit": 8},
        "phone": {"hub_limit": 3},
        "device": {"moves": "latest"},
    },
    "blocked": [{"namespace": "email", "value": "0"}],
    "hub_limit": 6,
}
"""By these some hubs are none and others become hubs."""


def crowd(events: int) -> tuple[list[IdentityEvent], list[PinDocument]]:
    """Events of persons who share addresses, phones and devices, and decisions on some."""
    chance = random.Random(11)
    names = {"user": events // 2, "email": events // 4, "phone": events // 5, "device": events // 2}

    def some(namespace: str) -> tuple[str, str]:
        # Of a few there are many.
        return namespace, str(int(names[namespace] * chance.random() ** 3))

    found = [
        {
            "id": str(number),
            "t": f"2026-03-{1 + number % 28:02}T09:00:00Z",
            "source": chance.choice(("web", "crm")),
            "ids": list(map(some, chance.sample(sorted(names), chance.choice((1, 2, 2, 3))))),
        }
        for number in range(events)
    ]
    pins = [
        {
            "pair": [some("user"), some(chance.choice(("user", "email")))],
            "decision": chance.choice(("always", "never")),
            "t": "2026-04-01T09:00:00Z",
            "who": "jo",
            "why": "",
        }
        for _ in range(events // 20)
    ]
    return list(map(IdentityEvent.model_validate, found)), list(map(PinDocument.model_validate, pins))


@pytest.mark.parametrize("turn", [1, -1])
def test_parts_add_up_however_the_fragments_are_spread(turn: int) -> None:
    rules, others = (CROWD, OTHERWISE)[::turn]
    installation = Installation({"rules": rules})
    events, pins = crowd(300)
    installation.take(events)
    installation.pin(pins)
    other = IdentityRules.model_validate(others)
    whole, progress = previewed(installation, other)
    expected = by_hand(installation, other)
    assert +progress.counts == expected
    for kind in ("merges", "splits", "changed", "violations_new/hub", "violations_gone/hub"):
        assert expected[kind], kind
    ids = list(installation.store.ids())
    for tasks in (1, 2, 7):
        of_task = {name: random.Random(name).randrange(tasks) for name in ids}

        def spread(
            tasks: int = tasks, of_task: dict[str, int] = of_task
        ) -> Iterator[tuple[int, list[bytes]]]:
            for task in range(tasks):
                job = RulesPreview(installation.store, (installation.rules, Rules(other)), str, {})
                part = job.part([each for each in ids if of_task[each] == task])
                yield (task + 1) * len(ids) // tasks, [part]

        job = RulesPreview(installation.store, (installation.rules, Rules(other)), str, {}, spread=spread)
        job.plan({})
        spread_progress = Progress()
        assert len(list(job.pages(spread_progress, {}))) == tasks
        assert (spread_progress.done, spread_progress.counts) == (len(ids), progress.counts)
        assert (job.examples, job.fragments) == (whole.examples, whole.fragments)


def couples(number: int) -> Installation:
    """So many users, each with one order under her address."""
    rules = {"namespaces": {"user": {"priority": 1}, "email": {"priority": 2}}}
    installation = Installation({"rules": rules})
    for each in range(number):
        for event, ids in enumerate(
            ([["user", str(each)], ["email", f"{each}@x.org"]], [["email", f"{each}@x.org"]])
        ):
            content = {"id": f"{each}-{event}", "t": "2026-03-01T09:00:00Z", "source": "web", "ids": ids}
            installation.take([IdentityEvent.model_validate(content)])
    return installation


def test_a_sample_estimates_the_whole_within_its_error() -> None:
    installation = couples(200)
    rules = IdentityRules.model_validate(STRICT)
    job, progress = previewed(installation, rules, sample=100)
    assert progress.done == 100
    for name, number in by_hand(installation, rules).items():
        found = job.estimate(progress, name)
        assert 0 < found.error < 100
        assert abs(found.number - number) <= found.error, name
    absent = job.estimate(progress, "merges")
    assert (absent.number, absent.error) == (0, 12.0), "three in a hundred of 400"
    whole, progress = previewed(installation, rules, sample=1000)
    assert whole.estimate(progress, "splits") == CountEstimate(200, 0)
    assert len(whole.examples["splits"]) == 5


def test_a_sample_meets_refused_pairs_of_two_hubs_once() -> None:
    """Found by review: these were multiplied as if each drawn fragment had pairs of its own."""
    installation = Installation({"rules": {"namespaces": {"user": {"priority": 1}}}})
    for user in range(300):
        ids = [["user", str(user)], ["email", f"{user % 10}@x.org"], ["phone", str(user % 10)]]
        content = {"id": str(user), "t": "2026-03-01T09:00:00Z", "source": "web", "ids": ids}
        installation.take([IdentityEvent.model_validate(content)])
    rules = IdentityRules.model_validate({"namespaces": {"user": {"priority": 1}}, "hub_limit": 5})
    truth = by_hand(installation, rules)
    job, progress = previewed(installation, rules, sample=100)
    for name in ("violations_after", "violations_new/hub"):
        found = job.estimate(progress, name)
        assert (truth[name], found.number) == (610, 610), name
        assert 0 < found.error < 20
