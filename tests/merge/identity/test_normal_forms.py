"""One form of a value, by cases that are data (`forms.json`), and that it is one, by values of every kind."""

from __future__ import annotations

import json
import sys
import unicodedata
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules, NamespaceRules, Normalisation
from merge.identity.normal_forms import normalise
from merge.identity.rules import Rules

HERE = Path(__file__).parent
FORMS: dict[str, dict[str, Any]] = json.loads((HERE / "forms.json").read_text())
PLACEHOLDERS: dict[str, dict[str, list[str]]] = json.loads((HERE / "placeholders.json").read_text())
SAME = [(name, group) for name, each in FORMS.items() for group in each["same"]]
KEPT = [(name, text) for name, each in FORMS.items() for text in each["kept"]]
ALL = [
    NamespaceRules(normalise=each, country=country)
    for each in Normalisation
    for country in (("1", "49", "39") if each is Normalisation.PHONE else ("1",))
]


def rules_of(name: str) -> NamespaceRules:
    form, _, country = name.partition(" of country ")
    return NamespaceRules(normalise=Normalisation(form), country=country or "49")


@pytest.mark.parametrize(("name", "group"), SAME)
def test_one_value_however_it_is_written(name: str, group: list[str]) -> None:
    assert {normalise(each, rules_of(name)) for each in group} == {group[0]}


@pytest.mark.parametrize(("name", "text"), KEPT)
def test_what_is_none_stays_as_it_is(name: str, text: str) -> None:
    assert normalise(text, rules_of(name)) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("phone", "1" + " " * 400 + "y"),
        ("phone", "+1" + "\xa0 " * 300 + ", z"),
        ("phone", "0" + " 1" * 300 + " ext. none"),
        ("email", "a@xn--" + "z9a" * 9000),
    ],
)
def test_a_long_text_that_is_none_is_read_once(name: str, text: str) -> None:
    """Found by review: a phone number of 1,000 blanks took 37 s. In such a time each of these takes hours."""
    assert normalise(text, rules_of(name)) == text


def test_different_values_stay_different() -> None:
    for name, each in FORMS.items():
        found = [
            normalise(text, rules_of(name)) for text in (*(group[0] for group in each["same"]), *each["kept"])
        ]
        assert not [pair for pair in combinations(found, 2) if pair[0] == pair[1]]


SIGNS = ["<", ">", "@", ",", ";", '"', "'", "+", "00", "0", ".", ".0", " ", "(", ")", "/", "-", "\\", "\n"]
WORDS = [
    "ann",
    "x.org",
    "mailto:",
    "tel:",
    "ext. 1",
    ";ext=",
    "x1",
    "E+11",
    "xn--",
    "xn--bcher-kva",
    "+49 30 901820",
    "4930901820",
]
LETTERS = [
    "\u0338",
    "\u0345",
    "Σ",
    "İ",
    "\u212a",
    "\u200b",
    "\x00",
    "\ufeff",
    "\u0660",
    "²",
    "\uff0b",
    "\u3164",
    "\u0307",
]
pieces = st.sampled_from([*SIGNS, *WORDS, *LETTERS])
texts = st.text() | st.lists(pieces, max_size=12).map("".join)


@given(texts, st.sampled_from(ALL))
@example("Σ<aΣ@x.org>", NamespaceRules(normalise=Normalisation.EMAIL))
@example("a<\u0338b@x.org>", NamespaceRules(normalise=Normalisation.EMAIL))
@example("\u200b \u200b", NamespaceRules())
def test_the_form_of_a_form_is_the_form(value: str, rules: NamespaceRules) -> None:
    once = normalise(value, rules)
    assert normalise(once, rules) == once
    assert once == once.strip()


def test_no_character_changes_twice_or_is_invisible() -> None:
    forms = [NamespaceRules(normalise=each) for each in (Normalisation.EXACT, Normalisation.EMAIL)]
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        is_invisible = unicodedata.category(character) == "Cf"
        for rules in forms:
            once = normalise(f"a{character}b@x", rules)
            assert normalise(once, rules) == once
            assert not is_invisible or once == "ab@x"


BLOCKED = [(kind, each) for kind, values in PLACEHOLDERS["blocked"].items() for each in values]
FREE = [(kind, each) for kind, values in PLACEHOLDERS["free"].items() for each in values]


@pytest.mark.parametrize(("kind", "value"), BLOCKED)
def test_a_placeholder_is_nobodys_by_default(kind: str, value: str) -> None:
    assert Rules(DEFAULT_RULES).identifier(kind, value) is None


@pytest.mark.parametrize(("kind", "value"), FREE)
def test_a_value_that_looks_like_a_placeholder_is_not_blocked(kind: str, value: str) -> None:
    assert Rules(DEFAULT_RULES).identifier(kind, value) is not None


def test_patterns_of_every_kind_find_what_each_finds_alone() -> None:
    """They are joined into as few as possible."""
    blocked = [
        {"pattern": each}
        for each in ("(?i)^guest$", "tmp", "(?i)DRAFT", "^(?P<a>x)y", "^(?P<a>z)$", "(?m)^second$")
    ]
    rules = Rules(IdentityRules.model_validate({"blocked": [*blocked, {"value": "Null\u200b"}]}))
    values = ["Guest", "guests", "a tmp", "draft 1", "xyz", "z", "zz", "first\nsecond", "TMP", "null", "Null"]
    free = [each for each in values if rules.identifier("k", each) is not None]
    assert free == ["guests", "zz", "TMP", "null"]
    assert rules.identifier("k", "zz") == Identifier("k", "zz")
