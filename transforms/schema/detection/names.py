"""Attribute names that show a kind of sensitive data, whatever the value.

The table compares the last keys of a path, as words in any spelling.

`eMail`, `E_MAIL`, `e-mail` and `email` are found by the names `e mail` and `email`. Abbreviations in capitals are one
word (`clientIPAddress` is `client ip address`), a plural is as good (`emails`, `IPs`), and numbers count for nothing
(`email2`, `IpAddressV4`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from idgraph.model.classification import Proposal, SensitiveKind
from transforms.schema.detection.kinds import proposal

TEXT = frozenset({str})
TEXT_OR_NUMBER = frozenset({str, int, float})


class NameRule(NamedTuple):
    """`listed` are words in lower case, as a path's last keys must end: `client ip` matches `clientIp`, `CLIENT_IP` and
    `client.ip`. `types` are the Python types of values that the name applies to."""

    kind: SensitiveKind
    what: str
    types: frozenset[type]
    listed: str
    confidence: float = 0.9

    def names(self) -> list[str]:
        """One by one."""
        return self.listed.split(", ")


NAME_RULES = (
    NameRule(
        SensitiveKind.EMAIL,
        "e-mail address",
        TEXT,
        "email, e mail, email address, mail address, email id, emailaddress, correo",
    ),
    NameRule(
        SensitiveKind.PHONE,
        "telephone number",
        TEXT_OR_NUMBER,
        "phone, telephone, phone number, phonenumber, telephone number, tel, mobile, mobile number, cell phone, "
        "cellphone, msisdn, fax, fax number, telefon, phone no, contact number, callback number",
    ),
    NameRule(
        SensitiveKind.PAYMENT_CARD,
        "payment card",
        TEXT_OR_NUMBER,
        "card number, credit card, creditcard, credit card number, cc number, ccnum, card no, pan, debit card, "
        "cardnumber, cvv, cvc, card verification code",
    ),
    NameRule(
        SensitiveKind.BANK_ACCOUNT,
        "bank account",
        TEXT_OR_NUMBER,
        "iban, bank account, bank account number, account iban, routing number, sort code, bban, bankaccount, "
        "swift account, kontonummer",
    ),
    NameRule(
        SensitiveKind.NATIONAL_ID,
        "national identity number",
        TEXT_OR_NUMBER,
        "ssn, social security number, social security, soc sec id, national id, nino, national insurance number, "
        "national identity number, passport number, passport, passport no, tax id, tax number, taxpayer id, dni, nif, "
        "nie, cpf, bsn, pesel, aadhaar, personnummer, codice fiscale, driver license number, curp, drivers license, "
        "driving licence, identity card number, nhs number, ahv number, tax file number, steuer id, nir, insee number, "
        "rrn, sin number, hetu",
    ),
    NameRule(
        SensitiveKind.STREET_ADDRESS,
        "street address",
        TEXT_OR_NUMBER,
        "street, street address, address line, street name, postal address, addr line, home address, mailing address, "
        "shipping address, billing address, line address, address street, address line one, residence, strasse, "
        "adresse, direccion, shipping line, billing line, delivery address, house number, street number",
    ),
    NameRule(
        SensitiveKind.STREET_ADDRESS,
        "a part of an address",
        TEXT_OR_NUMBER,
        "postcode, postal code, zip code, zipcode, zip, plz",
        0.6,
    ),
    NameRule(
        SensitiveKind.STREET_ADDRESS,
        "a part of an address",
        TEXT,
        "person address, customer address, user address, suburb",
        0.6,
    ),
    NameRule(
        SensitiveKind.DATE_OF_BIRTH,
        "date of birth",
        TEXT_OR_NUMBER,
        "dob, date of birth, birth date, birthdate, birthday, birth day, born, dateofbirth, day of birth, "
        "geburtsdatum, fecha nacimiento, birth year, year of birth, born on, date naissance, birth dt, birth",
    ),
    NameRule(
        SensitiveKind.ADVERTISING_ID,
        "advertising id",
        TEXT,
        "advertising id, advertisingid, advertising identifier, ad id, adid, ad tracking id, idfa, idfv, gaid, aaid, "
        "maid, rida, tifa, roku id, mobile ad id, google ad id, apple ad id, ifa, identifier for advertising",
    ),
    NameRule(
        SensitiveKind.DEMOGRAPHIC,
        "gender, belief, origin or the like",
        TEXT_OR_NUMBER,
        "gender, gender identity, sex, sexual orientation, geschlecht, pronouns, ethnicity, ethnic group, ethnic "
        "origin, religion, religious affiliation, marital status, maritalstatus, civil status, political affiliation, "
        "disability",
    ),
    NameRule(
        SensitiveKind.IP_ADDRESS,
        "IP address",
        TEXT,
        "ip, ip address, ipaddress, ip addr, ipaddr, client ip, remote addr, ipv, remote address, srcaddr, dstaddr, "
        "src addr, dst addr, remote ip, remoteip, aip, sourceip, source ip, destination ip, x forwarded for, "
        "external ip",
    ),
    NameRule(
        SensitiveKind.GEOLOCATION,
        "geographic coordinate",
        TEXT_OR_NUMBER,
        "lat, latitude, lng, lon, longitude, geo point, geopoint, coordinate, lat lng, lat lon, latlng, gps, "
        "geolocation, geo location, geo coordinate, location loc, geo loc",
    ),
    NameRule(
        SensitiveKind.SECRET,
        "secret or token",
        TEXT,
        "password, passwd, pwd, passphrase, secret, token, api key, apikey, access key, private key, client secret, "
        "authorization, cookie, credential, access key id, accesskeyid, session key, login key, auth key, bearer, "
        "session token, access token, refresh token, id token, shared key, otp, secret key, encryption key, signing "
        "key, accesstoken, org key, pin code",
    ),
)
NOT_NAMES = frozenset(
    {"place of birth", "city of birth", "country of birth", "maven coordinate"}
    | {"page token", "next token", "continuation token", "pagetoken", "nexttoken"}
)
"""Endings that are no such data although a rule matches."""

_WORDS = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_ODD_SPELLINGS = (
    (re.compile(r"IPv[46]"), "Ip"),
    (re.compile(r"(addr(?:ess)?)[ _-]?[123]$", re.IGNORECASE), r"\1 line"),
)
_KEYS_LOOKED_AT = 2
_CHARACTERS_LOOKED_AT = 100
NameFindings = dict[type, Proposal]
"""The strongest proposal for values of each type; none for a type that the name does not speak of."""

_BY_NAME: dict[str, list[tuple[frozenset[type], Proposal]]] = {}
for _rule in NAME_RULES:
    _found = proposal(_rule.kind, f"the name says {_rule.what}", _rule.confidence)
    for _name in _rule.names():
        _BY_NAME.setdefault(_name, []).append((_rule.types, _found))
_LONGEST = max(len(name.split()) for name in {*_BY_NAME, *NOT_NAMES})


def named(keys: Sequence[str]) -> NameFindings:
    """The proposals that a path's last keys make for values below it, by type. Takes time linear in the keys; worth
    remembering by path."""
    endings = _endings(keys)
    if not NOT_NAMES.isdisjoint(endings):
        return {}
    found: NameFindings = {}
    for types, each in (rule for ending in endings for rule in _BY_NAME.get(ending, ())):
        for kind in types:
            if each.is_stronger(found.get(kind)):
                found[kind] = each
    return found


def words(key: str) -> list[str]:
    """A key as words in lower case, numbers left out."""
    key = key[-_CHARACTERS_LOOKED_AT:]
    for odd, spelling in _ODD_SPELLINGS:
        key = odd.sub(spelling, key)
    return [word.lower() for word in _WORDS.findall(key)]


def _endings(keys: Sequence[str]) -> list[str]:
    spelt = [word for key in keys[-_KEYS_LOOKED_AT:] for word in words(key)]
    while spelt and spelt[-1] == "v":  # of `IpAddressV4`
        spelt.pop()
    some = spelt[-_LONGEST:]
    singular = [*some[:-1], _singular(some[-1])] if some else []
    return [" ".join(form[start:]) for form in (some, singular) for start in range(len(form))]


def _singular(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
