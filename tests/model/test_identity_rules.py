"""Identity rules as a document: patterns that stay cheap, a document that reads back as itself."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from idgraph.model.identity_rules import DEFAULT_RULES, BlockedValue, IdentityRules


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        r"^test@",
        r"\d+",
        r"@example\.(?:com|org)$",
        r".*@example\.com",
        r"^[^@]+@.*\.invalid$",
        r"^(?:ab|cd)*$",
        r"^\+?1?555\d{7}$",
        r"^(?![0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$)",
    ],
)
def test_a_pattern_that_stays_cheap_is_taken(pattern: str) -> None:
    assert BlockedValue(pattern=pattern).pattern == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "^(a|a)*$",
        "^(a|ab)*c",
        "^(?:a.|.a)*b$",
        "(?:(?:a*)*)*b",
        r"^(\w+\s?)*$",
        "(x+x+)+y",
        ".*.*.*x",
        "^a*b*c*d*$",
        "(?m)^a*b*c*",
        "^(?:(?=.*x).)*y",
        "(?:a{0,500}){0,500}",
        r"(a)\1",
        "(a)?(?(1)b|c)",
        "(",
    ],
)
def test_a_pattern_that_can_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError):
        BlockedValue(pattern=pattern)


def test_rules_read_back_from_all_that_they_are() -> None:
    assert IdentityRules.model_validate_json(DEFAULT_RULES.model_dump_json()) == DEFAULT_RULES
