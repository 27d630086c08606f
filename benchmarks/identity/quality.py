"""The quality of the rules' persons: pairwise and B-cubed, beside no rules and beside a probabilistic model alone.

`rules` is the product's `resolve`. `without rules` joins every link. `model` joins all pairs of Splink from a weight
on, and closes them transitively, as its own clustering does. `accepted` is rules with the pins of a reviewer who
accepts the right suggestions and no others; `all accepted`: with every suggestion, so what review is for is the
difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.identity.labelled import Labelled, fake, febrl, openstack, shop
from idgraph.jobs.suggestions import Suggestion, suggest
from idgraph.model.errors import ConfigError
from idgraph.model.identifiers import Identifier
from merge.identity.evidence import Pair, links
from merge.identity.resolve import Decision, Pin, resolve

LEAST_WEIGHT = 2.0
"""Odds of 4:1."""


def measure(data: Path | None) -> dict[str, Any]:
    """Scores by data set and method; the reason where one is left out."""
    figures: dict[str, Any] = {}
    sets = {"shop": partial(shop), "shop, no e-mail": partial(shop, without_email=True)}
    if data is None:
        figures["er, openstack"] = "left out: give the folder that has them with --data"
    else:
        er = data / "er"
        sets |= {"febrl1": partial(febrl, er), "fake_1000": partial(fake, er)}
        sets["openstack"] = partial(openstack, data / "openstack")
    for name, load in sets.items():
        labelled = load()
        for method, scores in _by_method(labelled).items():
            figures[f"{name}: {method}"] = scores
    return figures


def _by_method(labelled: Labelled) -> dict[str, Any]:
    records = {str(each): each for each in labelled.named.values()}
    found: dict[str, Any] = {
        "fragments": _scores(labelled, {each: str(each) for each in records.values()}),
        "without rules": _scores(
            labelled, _components(pair for each in labelled.seen for pair in each.sightings())
        ),
        "rules": _scores(labelled, _resolved(labelled)),
    }
    if not labelled.records:
        return found
    try:
        suggestions = suggest(labelled.records, labelled.compared, least_weight=LEAST_WEIGHT)
    except ConfigError as error:
        return {**found, "model": f"left out: {error}"}
    person = {str(name): labelled.truth[record] for record, name in labelled.named.items()}
    right = [
        each for each in suggestions if each.one in person and person[each.one] == person.get(each.other)
    ]
    found["model"] = _scores(labelled, _components(map(_pair, suggestions)))
    found["rules, accepted"] = _scores(labelled, _resolved(labelled, right))
    found["rules, all accepted"] = _scores(labelled, _resolved(labelled, suggestions))
    return found


def _pair(suggestion: Suggestion) -> Pair:
    return Pair.of(Identifier.parse(suggestion.one), Identifier.parse(suggestion.other))


def _resolved(labelled: Labelled, accepted: Sequence[Suggestion] = ()) -> dict[Identifier, str]:
    first: dict[Identifier, int] = {}
    for event in labelled.seen:
        for each in event.identifiers:
            first[each] = min(first.get(each, event.moment.ordinal), event.moment.ordinal)
    evidence = links(item for event in labelled.seen for item in event.sightings().items())
    pins = [Pin(_pair(each), Decision.ALWAYS, number) for number, each in enumerate(reversed(accepted))]
    partition = resolve(evidence, first, pins, labelled.rules).partition
    return {each: str(part[0]) for part in partition for each in part}


def _components(pairs: Iterable[Pair]) -> dict[Identifier, str]:
    """Connected components: every link joins."""
    neighbours: dict[Identifier, set[Identifier]] = defaultdict(set)
    for low, high in pairs:
        neighbours[low].add(high)
        neighbours[high].add(low)
    found: dict[Identifier, str] = {}
    for start in neighbours:
        waiting = [] if start in found else [start]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found[each] = str(start)
                waiting += neighbours[each]
    return found


def _scores(labelled: Labelled, persons: Mapping[Identifier, str]) -> dict[str, float]:
    predicted = {record: persons.get(name, str(name)) for record, name in labelled.named.items()}
    return scores(predicted, labelled.truth)


def scores(predicted: Mapping[str, str], truth: Mapping[str, str]) -> dict[str, float]:
    """Pairwise precision, recall and F1, and those of B-cubed, of the records of `truth`."""
    together = Counter((predicted[each], truth[each]) for each in truth)
    found, real = Counter(predicted[each] for each in truth), Counter(truth.values())
    right, claimed, wanted = (sum(n * (n - 1) for n in each.values()) for each in (together, found, real))
    precision, recall = right / claimed if claimed else 1.0, right / wanted if wanted else 1.0
    cubed_precision = sum(n * n / found[one] for (one, _), n in together.items()) / len(truth)
    cubed_recall = sum(n * n / real[other] for (_, other), n in together.items()) / len(truth)
    return {
        "precision": round(precision, 4),
        "recall": round(recall, 4),
        "f1": round(_harmonic(precision, recall), 4),
        "cubed_precision": round(cubed_precision, 4),
        "cubed_recall": round(cubed_recall, 4),
        "cubed_f1": round(_harmonic(cubed_precision, cubed_recall), 4),
    }


def _harmonic(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other else 0.0
