"""The one form of an identifier's value in which it is compared, hashed and stored.

Each form accepts what is one and keeps what is none: a text that is no e-mail address or no phone number is equal to
nothing but itself. The forms are our own code, not `email.utils`, whose answers differ between versions of Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from idgraph.model.identity_rules import NamespaceRules, Normalisation

_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]+"
)
"""Control and format characters, and what Unicode lets a display ignore. Written out, so that every version of Python
drops the same."""

_NOT_DIGITS = re.compile(r"[^0-9]+")
_LEADING_ZEROS = re.compile(r"\A0+(?=[0-9])")
_LARGE_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?[eE][+-]?[0-9]+")
"""`4.9E+11`: a number whose digits a spreadsheet or a float has lost."""
_WHOLE_NUMBER = re.compile(r"(\+?[0-9]+)[.,]0{1,2}")
"""`4930901820.0`, as data frames and spreadsheets write a whole number."""

_LABEL = r"[^\s\x00-\x2c/\x3a-\x40\x5b-\x60\x7b-\x7f.]+"
_BARE = rf"""[^\s()<>\[\]\\,;:@"]+@{_LABEL}(?:\.{_LABEL})*"""
_ADDRESS = re.compile(
    rf"""
    (?P<name> "(?:[^"\\]|\\.)*"\s* | [^<>]* ) <\s* (?:mailto:)? (?P<named>{_BARE}) \.? \s*>
    | mailto: (?P<linked>{_BARE}) \.? (?:\?[^@]*)?
    | (?P<bare>{_BARE}) \.? (?:\s*\([^()@]*\))?
    | (?P<quote>["']) (?P<quoted>{_BARE}) \.? (?P=quote)
    """,
    re.VERBOSE,
)
"""`address`, `Name <address>`, `<address>`, `mailto:address`, `address (name)` or an address in quotes."""

_PLAIN_ADDRESS = re.compile(r"[a-z0-9._%-]+@[a-z0-9.-]*[a-z0-9]")
"""Most addresses: nothing is to be done."""

_BETWEEN_ADDRESSES = " \t\r\n,;"
_PUNYCODE = "xn--"
_LONGEST_LABEL = 63
"""The length of a domain, in ASCII; to read a longer one as Punycode takes a time that grows with its square."""

_PHONE = re.compile(
    r"(?:tel:)?(?P<plus>\(?(?:\+|00))?"
    r"(?P<number>[^\S\r\n]*+[0-9\-./()]++(?:[^\S\r\n]++[0-9\-./()]++)*+)"
    r"(?:\s*+(?:;\s*+ext=|,?\s*+(?:ext(?:ension)?|x)[.:]?)\s*+[0-9]{1,11})?",
    re.IGNORECASE,
)
"""No part of it is tried in two ways: anybody may send a long text that is no phone number."""
_PHONE_CHARACTERS = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\uff0d\u30fc", "-")
    | {"\uff0b": "+", "\uff08": "(", "\uff09": ")", "\uff0e": ".", "\u2044": "/", "\uff0f": "/"}
)


def text_of(value: str) -> str:
    """The text that a reader sees: composed (NFC), without invisible characters and outer blanks. Idempotent."""
    if not (value.isascii() and value.isprintable()):
        value = unicodedata.normalize("NFC", _INVISIBLE.sub("", value))
    return value.strip()


def normalise(value: str, rules: NamespaceRules) -> str:
    """The form of a value in which it is compared, hashed and stored; empty where nothing is left of it.

    Idempotent: `normalise(normalise(v)) == normalise(v)`. Used for events, look-up, search, erasure and pins alike.
    """
    text, form = text_of(value), form_of(rules)
    return text if form is None else form(text, rules)


def form_of(rules: NamespaceRules) -> Callable[[str, NamespaceRules], str] | None:
    """The function that makes the same of a text as `text_of` gives it; None where that stays as it is."""
    return _FORMS.get(rules.normalise)


def _lower(value: str, _: object = None) -> str:
    """Lower case, composed after it: what lower case takes apart may have a composed form."""
    value = value.lower()
    return value if value.isascii() else unicodedata.normalize("NFC", value)


def _email(value: str, rules: NamespaceRules) -> str:
    """One address. Two addresses, or a text without one, stay as they are."""
    value = _lower(value)
    if _PLAIN_ADDRESS.fullmatch(value) and _PUNYCODE not in value:
        return value
    found = _ADDRESS.fullmatch(value.strip(_BETWEEN_ADDRESSES))
    if found is None:
        return value
    address = found["named"] or found["linked"] or found["bare"] or found["quoted"]
    name = (found["name"] or "").strip(" '\"")
    local, _, domain = address.rpartition("@")
    if "@" in name and name != address:
        return value
    if _PUNYCODE in domain:
        domain = ".".join(map(_unicode_label, domain.split(".")))
    if rules.normalise is Normalisation.EMAIL_PLUS:
        local = local.partition("+")[0] or local
    return f"{local}@{domain}"


def _unicode_label(label: str) -> str:
    """A label of a domain as people write it: `bücher` for `xn--bcher-kva`."""
    if not label.startswith(_PUNYCODE) or len(label) > _LONGEST_LABEL:
        return label
    try:
        found = label.removeprefix(_PUNYCODE).encode("ascii").decode("punycode")
        is_the_same = found.encode("punycode").decode("ascii") == label.removeprefix(_PUNYCODE)
    except UnicodeError:
        return label
    is_text = not found.isascii() and _lower(text_of(found)) == found
    return found if is_text and is_the_same and re.fullmatch(_LABEL, found) else label


def _phone(value: str, rules: NamespaceRules) -> str:
    """E.164, without an extension. A text that is no possible phone number stays as it is, or is nothing without a
    digit."""
    written = value if value.isascii() else _ascii_digits(value.translate(_PHONE_CHARACTERS))
    whole = _WHOLE_NUMBER.fullmatch(written)
    found = _PHONE.fullmatch(whole[1] if whole and not whole[1].startswith("0") else written)
    if found is None or _is_fraction(found["plus"], found["number"]):
        return value if any(map(str.isdigit, value)) else ""
    import phonenumbers

    region = phonenumbers.region_code_for_country_code(int(rules.country))
    number = ("+" if found["plus"] else "") + _NOT_DIGITS.sub("", found["number"])
    # The library may take a zero more away when it reads its own form: each is then the same number.
    while True:
        try:
            parsed = phonenumbers.parse(number, region)
        except phonenumbers.NumberParseException:
            return value
        if not phonenumbers.is_possible_number(parsed):
            return value
        normal = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
        if normal == number:
            return str(normal)
        number = normal


def _is_fraction(plus: str | None, number: str) -> bool:
    """Whether the last dot of a number is a decimal point, and no separator: as in `4930901820.5` or `030 901820.0`."""
    before, _, last = number.strip().rpartition(".")
    if last == "0":
        return True
    return before.isdigit() and last.isdigit() and not (plus or before.startswith("0"))


def _digits(value: str, _: object) -> str:
    value = value if value.isascii() else _ascii_digits(value)
    if _LARGE_NUMBER.fullmatch(value):
        return value
    whole = _WHOLE_NUMBER.fullmatch(value)
    return _NOT_DIGITS.sub("", whole[1] if whole else value)


def _ascii_digits(value: str) -> str:
    """The digits of other scripts as 0 to 9."""
    return "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in value)


def _zero_padded(value: str, _: object) -> str:
    return _LEADING_ZEROS.sub("", value) if value.isascii() and value.isdigit() else value


_FORMS: dict[Normalisation, Callable[[str, NamespaceRules], str]] = {
    Normalisation.LOWER: _lower,
    Normalisation.EMAIL: _email,
    Normalisation.EMAIL_PLUS: _email,
    Normalisation.PHONE: _phone,
    Normalisation.DIGITS: _digits,
    Normalisation.ZERO_PADDED: _zero_padded,
}
"""All but `exact`."""
