"""The kinds of sensitive data: what each is classified as, and proposals of it."""

from __future__ import annotations

from idgraph.model.classification import Classification, Proposal, SensitiveKind

LEVELS = {
    SensitiveKind.EMAIL: Classification.CONFIDENTIAL,
    SensitiveKind.PHONE: Classification.CONFIDENTIAL,
    SensitiveKind.PAYMENT_CARD: Classification.RESTRICTED,
    SensitiveKind.BANK_ACCOUNT: Classification.RESTRICTED,
    SensitiveKind.NATIONAL_ID: Classification.RESTRICTED,
    SensitiveKind.STREET_ADDRESS: Classification.CONFIDENTIAL,
    SensitiveKind.DATE_OF_BIRTH: Classification.CONFIDENTIAL,
    SensitiveKind.ADVERTISING_ID: Classification.CONFIDENTIAL,
    SensitiveKind.DEMOGRAPHIC: Classification.CONFIDENTIAL,
    SensitiveKind.IP_ADDRESS: Classification.CONFIDENTIAL,
    SensitiveKind.GEOLOCATION: Classification.CONFIDENTIAL,
    SensitiveKind.SECRET: Classification.RESTRICTED,
}


def proposal(kind: SensitiveKind, reason: str, confidence: float) -> Proposal:
    """A proposal of a name or of a value."""
    return Proposal(kind=kind, classification=LEVELS[kind], reason=reason, confidence=confidence)


def by_value(kind: SensitiveKind, what: str, confidence: float) -> Proposal:
    """The proposal of a value test."""
    return proposal(kind, f"a value has {what}", confidence)
