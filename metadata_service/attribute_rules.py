"""What an attribute's metadata must satisfy."""

from __future__ import annotations

from metadata_service.refusals import RefusedError
from model.attributes import IMPLEMENTED_POLICIES, AttributeDefinition, DataType, ReconciliationPolicy
from model.classification import Classification, EncryptionLevel
from model.paths import is_within, join, split

RESERVED = "_event"
MAX_PATH_BYTES = 2048  # an index entry of PostgreSQL holds little more

SEALED_POLICIES = frozenset(
    {ReconciliationPolicy.LATEST, ReconciliationPolicy.FIRST, ReconciliationPolicy.SOURCE_PRIORITY}
)
"""The policies that decide between two values without reading them."""


def check_attribute(definition: AttributeDefinition) -> None:
    """Raises RefusedError, with the place, if the definition cannot be carried out."""
    reason = path_problem(definition.path)
    if reason:
        raise RefusedError(reason, "/path")
    if "\x00" in (definition.source or ""):
        raise RefusedError("a source name holds no NUL character", "/source")
    _check_protection(definition)
    policy = definition.policy
    if definition.is_protected and policy not in SEALED_POLICIES:
        raise RefusedError(
            f"policy {policy} needs to read values, which encryption {definition.encryption} forbids",
            "/policy",
            f"sealed attributes take {_names(SEALED_POLICIES)}",
        )
    if policy not in IMPLEMENTED_POLICIES:
        raise RefusedError(
            f"policy {policy} is not implemented yet",
            "/policy",
            f"this version takes {_names(IMPLEMENTED_POLICIES)}",
        )


def policy_problem(
    classification: Classification, encryption: EncryptionLevel, indexable: bool
) -> str | None:
    """Why these do not go together, or None."""
    if classification is Classification.RESTRICTED and encryption is EncryptionLevel.NONE and indexable:
        return "plaintext of a restricted attribute does not go into the search index, which all may search"
    return None


def _check_protection(definition: AttributeDefinition) -> None:
    problem = policy_problem(definition.classification, definition.encryption, definition.indexable)
    if problem:
        raise RefusedError(
            problem, "/indexable", "say indexable false, or encryption searchable to find it by its value"
        )
    if definition.encryption is not EncryptionLevel.SEARCHABLE:
        return
    if definition.data_type is DataType.ARRAY:
        raise RefusedError(
            "an array has no blind index: searchable attributes are found by one whole value",
            "/encryption",
            "take protected",
        )
    if definition.data_type is DataType.BOOLEAN:
        raise RefusedError(
            "a blind index of true and false has two tokens, which tell everybody's value by their counts",
            "/encryption",
            "take protected",
        )


def path_problem(path: str) -> str | None:
    """Why this cannot be the path of an attribute, or None."""
    if is_within(path, RESERVED):
        return f"paths below {RESERVED} are reserved for the envelope and are never stored"
    if "\x00" in path:
        return "a path holds no NUL character"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"a path has at most {MAX_PATH_BYTES} bytes in UTF-8"
    if join(split(path)) != path:
        return "not a path: a backslash escapes only a dot or a backslash"
    return None


def _names(policies: frozenset[ReconciliationPolicy]) -> str:
    return ", ".join(sorted(policies))
