"""The leaves that name an event: its id, its order, its name, and the identifiers of the person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from idgraph.model.specs import IDENTIFIER_TYPE_PATTERN
from metadata_service.drafting.sample import NAMES, Sample, SampleLeaf, words


class Guess(NamedTuple):
    """A leaf in a role. `confidence` is from 0 to 1."""

    leaf: SampleLeaf
    reason: str
    confidence: float
    name: str = ""
    """The type of an identifier."""
    is_fallback: bool = False


_IDS, _OF_EVENTS, _ENVELOPES, _PERSONS, _DEVICES, _TRANSPORT, _PHONES, _OTHERS, _BUSINESSES = (
    frozenset(NAMES[each])
    for each in (
        "ids",
        "of events",
        "envelopes",
        "persons",
        "devices",
        "transport",
        "phones",
        "other persons",
        "businesses",
    )
)
_TIMES, _NAMES = ([tuple(name.split()) for name in NAMES[each]] for each in ("times", "event names"))
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
MOST_NAMES = 50
_UNSURE = 9
_UNITS = {"text": "", "text without offset": ", read as UTC since it states no offset"}


def is_transport(leaf: SampleLeaf) -> bool:
    """Whether it says how the event travelled."""
    return bool(leaf.around & _TRANSPORT)


def event_id(sample: Sample, source: str) -> Guess | None:
    """A leaf that is another one in each event and whose name says that it names the event. The id of a part, as of a cart,
    may differ in each event too: it names the part."""
    found: list[Guess] = []
    uuids: list[Guess] = []
    sent = [_singular(word) for word in words(source)]
    for leaf in _of_the_event(sample):
        if leaf.count < sample.size or len(leaf.distinct) < 0.9 * sample.size:
            continue
        if leaf.texts(_UUID) and len(leaf.distinct) == sample.size > 1:
            uuids.append(Guess(leaf, "the only UUID that is another one in each event", 0.6))
        if not _is_id(leaf):
            continue
        rest = set(leaf.words) - _IDS
        if leaf.words[-1] == "id" and not rest:
            found.append(Guess(leaf, "the event's own id, another one in each event", 0.85))
        elif rest and rest <= _OF_EVENTS:
            found.append(Guess(leaf, "its name says so, and each event has another one", 0.95))
        elif rest and rest in (set(sent), set(sent[-1:])):
            found.append(Guess(leaf, f"named as what {source} sends, and each event has another one", 0.9))
    return max(found or uuids[: len(uuids) == 1], key=lambda guess: guess.confidence, default=None)


def ordinal(sample: Sample) -> Guess | None:
    """A time that each event has; not when it was sent or received."""
    times = [
        leaf
        for leaf in _of_the_event(sample)
        if leaf.count == sample.size and leaf.time and not is_transport(leaf)
    ]
    found = []
    for leaf in times:
        rank = next((n for n, name in enumerate(_TIMES) if set(name) <= set(leaf.words)), len(_TIMES))
        unit = _UNITS.get(leaf.time or "", f", in {leaf.time}")
        if rank < len(_TIMES):
            reason = f"a time in each event{unit}, when it happened by its name"
            found.append(Guess(leaf, reason, (0.65 if "UTC" in unit else 0.95) - 0.03 * rank))
        elif len(times) == 1:
            found.append(Guess(leaf, f"the only time that each event has{unit}", 0.5))
    return max(found, key=lambda guess: guess.confidence, default=None)


def event_name(sample: Sample) -> Guess | None:
    """A text with few values, or one word for each, that says what happened."""
    for place, name in enumerate(_NAMES):
        for leaf in _of_the_event(sample):
            is_few = is_frequent(leaf, sample) or leaf.texts(r"[A-Za-z][\w.:-]*")
            is_name = leaf.words == name and leaf.type == "string" and len(leaf.distinct) <= MOST_NAMES
            if is_name and is_few and 2 * leaf.count > sample.size and leaf.texts(r".{1,100}"):
                return Guess(leaf, "few values, and its name says so", 0.9 - 0.05 * place)
    return None


def is_frequent(leaf: SampleLeaf, sample: Sample) -> bool:
    """Whether each of its values is there twice or more, on average."""
    return len(leaf.distinct) <= max(1, sample.size // 2)


def identifiers(sample: Sample, namespaces: Mapping[str, str]) -> list[Guess]:
    """One leaf for each type of identifier, the primary one first: what is a person's own, then e-mail and phone, then devices.
    `namespaces` are the types that specs use already."""
    found: dict[str, tuple[int, Guess]] = {}
    for leaf in sorted(sample.leaves, key=lambda each: (-each.count, len(each.keys))):
        rank, guess = _identifier(leaf, namespaces)
        if guess is not None and (guess.name not in found or rank < found[guess.name][0]):
            found[guess.name] = rank, guess
    ordered = sorted(found.values(), key=lambda each: each[0])
    sure = [guess for rank, guess in ordered if rank < _UNSURE]
    return sure or [guess for _, guess in ordered[:1]]


def _identifier(leaf: SampleLeaf, namespaces: Mapping[str, str]) -> tuple[int, Guess | None]:
    of, parent = leaf.words, words(leaf.keys[-2]) if len(leaf.keys) > 1 else ()
    name = "_".join((*parent, *of) if len(of) == 1 and of[0] in _IDS else of)
    owner = set(name.split("_")) - _IDS
    if any(isinstance(part, dict | list) for each in leaf.values if isinstance(each, list) for part in each):
        return _UNSURE, None
    if any(_BUSINESSES.intersection(words(key)) for key in leaf.keys[:-1]):
        return _UNSURE, None  # The telephone of a shop is that of all who buy there.
    if leaf.looks_like == "email" or (of[-1:] == ("email",) and leaf.texts(r"\s*\S+@\S+\s*")):
        return 1, Guess(leaf, "its values are e-mail addresses", 0.95, "email")
    if leaf.looks_like == "phone" or (_PHONES.intersection(of) and leaf.texts(r"\s*\+?[\d\s()/.-]{6,}")):
        return 2, Guess(leaf, "its values are phone numbers", 0.8, "phone")
    if not _is_id(leaf) or owner <= _OF_EVENTS or re.fullmatch(IDENTIFIER_TYPE_PATTERN, name) is None:
        return _UNSURE, None
    known = ", as in specs that are in force" if name in namespaces else ""
    if owner <= _PERSONS:
        return 0, Guess(leaf, f"its name says whose number it is{known}", 0.97 if known else 0.9, name)
    if owner <= _DEVICES:
        return 3, Guess(leaf, f"names a device, which may move{known}", 0.95 if known else 0.85, name, True)
    if known:
        return 4, Guess(leaf, "a type of identifier of specs in force", 0.7, name)
    ending = "_".join(of[-2:])
    if ending in namespaces and len(of) > 2 and not _OTHERS.intersection(leaf.around):
        return 4, Guess(
            leaf, f"ends as {ending} does, a type of identifier of specs in force: look", 0.6, ending
        )
    return _UNSURE, Guess(leaf, "no leaf surely names a person; this is an id in most events", 0.2, name)


def _of_the_event(sample: Sample) -> Iterable[SampleLeaf]:
    return (
        leaf
        for leaf in sample.leaves
        if len(leaf.keys) == 1 or (len(leaf.keys) == 2 and set(words(leaf.keys[0])) <= _ENVELOPES)
    )


def _is_id(leaf: SampleLeaf) -> bool:
    return leaf.words[-1] in _IDS and leaf.type in ("string", "integer")


def _singular(word: str) -> str:
    return word[:-3] + "y" if word.endswith("ies") else word.removesuffix("s")
