"""Secrets and tokens: by the prefixes that issuers give them, as JSON web tokens, by name, by high entropy."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections import Counter
from itertools import pairwise
from math import log2

from idgraph.model.classification import Proposal, SensitiveKind
from transforms.schema.detection.kinds import by_value

_WEB_TOKEN = by_value(SensitiveKind.SECRET, "the form of a JSON web token", 0.98)
_ISSUED = by_value(SensitiveKind.SECRET, "the prefix of an issuer's keys or tokens", 0.95)
_RANDOM = by_value(SensitiveKind.SECRET, "the randomness of a key or token", 0.5)

_SHORTEST = 15
_WEB_TOKEN_SHAPE = re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{4,}\.[\w-]*", re.ASCII)
_ISSUED_SHAPE = re.compile(
    r"(?<![^\W_])(?:"
    r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![^\W_])"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}"  # GitHub, GitLab
    r"|xox[abeoprs]-[\w-]{10,}"  # Slack
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{16,}"  # Stripe
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}"  # Google
    r"|sk-(?:proj-|ant-)?[\w-]{20,}|hf_[A-Za-z]{30,}"  # model providers
    r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|dop_v1_[a-f0-9]{64}|SG\.[\w-]{16,}\.[\w-]{16,}|dapi[a-f0-9]{32}"
    r")|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY"
    r"|\b(?:Bearer|Basic) [A-Za-z0-9+/=._~-]{16,}"
    r"|://[^\s/:@]{1,64}:[^\s/:@]{1,64}@"  # a password within an address
)
_BEGINNINGS = re.compile(
    r"AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox|k_(?:live|test)_|whsec_|AIza|ya29|GOCSPX|sk-|hf_|npm_|pypi-|"
    r"dop_v1_|SG\.|dapi|PRIVATE KEY|Bearer |Basic |://[^/\s]*@"
)

# With all three of small letters, capitals and digits.
_RANDOM_SHAPE = re.compile(
    r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/_=-]{24,512}", re.ASCII
)
_BITS_A_CHARACTER = 4.1


def secret(text: str) -> Proposal | None:
    """A text that holds a token of a known form, or is as random as one."""
    if len(text) < _SHORTEST:
        return None
    if "eyJ" in text and _WEB_TOKEN_SHAPE.search(text):
        return _WEB_TOKEN
    if _BEGINNINGS.search(text) and _ISSUED_SHAPE.search(text):
        return _ISSUED
    if _RANDOM_SHAPE.fullmatch(text) and _is_random(text) and not _says_something(text):
        return _RANDOM
    return None


def _is_random(text: str) -> bool:
    # Words and paths are mostly small letters, ids in one case or hexadecimal: a key mixes all three
    # classes, changes between them often, and repeats few characters.
    classes = [
        0 if character.isdigit() else 1 if character.islower() else 2 if character.isupper() else 3
        for character in text[:128]
    ]
    if "/" in text[:2]:
        return False
    changes = sum(one != other for one, other in pairwise(classes))
    return changes * 2.4 > len(classes) and _entropy(text[:128]) >= min(
        _BITS_A_CHARACTER, 0.88 * log2(len(text[:128]))
    )


def _says_something(text: str) -> bool:
    # Many systems write their ids as base64 of a text that names type and number.
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return False
    return all(32 <= byte < 127 for byte in content)


def _entropy(text: str) -> float:
    """Bits a character."""
    return -sum(count / len(text) * log2(count / len(text)) for count in Counter(text).values())
