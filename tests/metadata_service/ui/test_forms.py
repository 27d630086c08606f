"""Forms made of models: a form shows a document, and what it was given makes that document again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from idgraph.app.demo.example import Example
from idgraph.model.behaviour import ActivityDefinition, DerivedDefinition
from idgraph.model.triggers import TriggerDefinition
from idgraph.model.views import SegmentDefinition, ViewDefinition
from metadata_service.documents.problems import Problem
from metadata_service.ui.forms import FormMember, at_their_places, filled, form_of

DERIVED = {
    "window": {"activity": "order", "function": "top_k", "field": "total", "k": 3, "condition": "total > `1`"},
    "sessions": {"activity": "order", "gap": "5m", "fields": ["total", "items"]},
    "pattern": {"activities": ["a", "b"], "pattern": "A B+", "define": {"A": "x", "B": "y > A.x"}, "skip": "to_first B"},
    "expression": "{a: b,\n c: d}",
    "model": {"digest": "0" * 64, "inputs": [{"path": "a", "default": 0.5}, {"path": "b"}], "column": 1},
}  # fmt: skip
TRIGGER = {
    "name": "a",
    "when": {"segment": "b", "on": "left"},
    "expires": None,
    "limits": [{"most": 1, "per": "7d"}, {"most": 2, "calendar": "month", "time_zone": "Europe/Berlin"}],
    "group": {"name": "g", "limits": [{"most": 1, "calendar": "day"}]},
    "quiet": {"from": "22:00", "to": "08:00"},
    "webhook": "crm",
}
DOCUMENTS: list[tuple[type[Any], dict[str, Any]]] = [
    *((DerivedDefinition, {"name": "a", "path": "b", kind: part}) for kind, part in DERIVED.items()),
    (DerivedDefinition, {"name": "a", "window": {"activity": "b", "over": {"calendar": "day"}}}),
    (ActivityDefinition, {"name": "a", "fields": {"total": "b.c", "items": "d"}, "most": 5}),
    (TriggerDefinition, TRIGGER),
    (SegmentDefinition, {"name": "a", "q": "b=1", "changes": True}),
    (SegmentDefinition, {"name": "a", "query": [{"term": {"path": "b", "value": 1}}]}),
    (ViewDefinition, {"name": "a", "attributes": {"b": "c", "d": {"e": "f"}}}),
    (ViewDefinition, {"name": "a", "attributes": {f"a{n}": "b" for n in range(100)}}),
    (ActivityDefinition, {"name": "a", "most": "many", "fields": {"": "b", "no": ""}}),
]


KINDS: tuple[tuple[str, type[Any]], ...] = (
    *(("activities", ActivityDefinition), ("derived_attributes", DerivedDefinition)),
    ("segments", SegmentDefinition),
)


def inputs(form: Iterable[FormMember]) -> Iterator[tuple[str, str]]:
    """What a browser sends of it."""
    for each in form:
        if each.kind in ("text", "choice"):
            yield each.name, each.value
        elif each.kind == "pair":
            yield f"{each.name}/key", each.label
            yield f"{each.name}/value", each.value
        yield from inputs(each.parts)


@pytest.mark.parametrize(("model", "document"), DOCUMENTS)
def test_what_a_form_was_given_comes_back(model: type[Any], document: dict[str, Any]) -> None:
    assert filled(model, document, dict(inputs(form_of(model, document)))) == document


@pytest.mark.parametrize(("model", "document"), DOCUMENTS)
def test_no_two_inputs_have_one_name(model: type[Any], document: dict[str, Any]) -> None:
    names = [name for name, _ in inputs(form_of(model, document))]
    assert len(names) == len(set(names))


def test_forms_keep_the_documents_of_the_example() -> None:
    stated = json.loads((Path(Example("retail").folder) / "behaviour.json").read_text())
    for kind, model in KINDS:
        for each in stated[kind]:
            assert filled(model, each, dict(inputs(form_of(model, each)))) == each


def test_typed_values_replace_and_empty_ones_remove() -> None:
    document = {"name": "a", "most": 5, "keep": "1d", "fields": {"b": "c"}, "odd": 1}
    typed = {"/most": " 7 ", "/keep": "", "/fields/0/key": "d", "/fields/0/value": "e.f", "/fields/1/key": ""}
    made = filled(ActivityDefinition, document, typed)
    assert made == {"name": "a", "most": 7, "fields": {"d": "e.f"}, "odd": 1}
    assert filled(ActivityDefinition, document, {}) == document


def test_of_a_duration_and_a_calendar_period_the_changed_one_holds() -> None:
    place = "/window/over"
    of = {"activity": "a"}
    duration, period = {"window": of | {"over": "30d"}}, {"window": of | {"over": {"calendar": "day"}}}
    to_period = {
        place: "30d",
        f"{place}/calendar": "month",
        f"{place}/time_zone": "",
        "/window/activity": "a",
    }
    made = filled(DerivedDefinition, duration, to_period)
    assert made["window"]["over"] == {"calendar": "month"}
    to_duration = {place: "7d", f"{place}/calendar": "day", f"{place}/time_zone": "", "/window/activity": "a"}
    assert filled(DerivedDefinition, period, to_duration)["window"]["over"] == "7d"


def test_problems_stand_at_the_innermost_member() -> None:
    form = form_of(
        DerivedDefinition, {"name": "a", "window": {"over": "x"}, "pattern": {"define": {"A": "("}}}
    )
    problems = [
        Problem(1, 1, pointer, message, None)
        for pointer, message in (
            ("/window/over", "expected a duration"),
            ("/window", "the key 'activity' is missing"),
            ("/pattern/define/A/x", "unclosed"),
            ("/odd", "there is no key 'odd' here"),
        )
    ]
    assert list(at_their_places(form, problems)) == [
        "/window/over",
        "/window/activity",
        "/pattern/define/A",
        "",
    ]
