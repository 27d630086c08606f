"""Checks of attribute metadata, and the documents that protect groups of attributes.

These are the discovery defaults and the classification levels.
"""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeDefinition, DataType, ReconciliationPolicy
from idgraph.model.callers import Role
from idgraph.model.classification import Classification, ClassificationLevels, EncryptionLevel
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults
from idgraph.web.refusals import RefusedRequestError
from metadata_service.storage.tables import AttributeRow
from metadata_service.storage.versions import VersionedDocuments

RESERVED = "_event"
MAX_PATH_BYTES = 2048  # an index entry of PostgreSQL holds little more

SEALED_POLICIES = frozenset(
    {
        ReconciliationPolicy.LATEST,
        ReconciliationPolicy.FIRST,
        ReconciliationPolicy.SOURCE_PRIORITY,
        ReconciliationPolicy.APPEND,
        ReconciliationPolicy.COUNT,
    }
)
"""The policies that decide without reading values."""

SEARCHABLE_POLICIES = SEALED_POLICIES | {ReconciliationPolicy.UNION}
"""Those that need no more than to know which values are equal, which their blind-index tokens report."""

_SUMMED = frozenset({DataType.INTEGER, DataType.NUMBER})


def check_attribute(definition: AttributeDefinition) -> None:
    """Raises RefusedError, with the place, if the definition cannot be carried out."""
    reason = path_problem(definition.path)
    if reason:
        raise RefusedRequestError(reason, "/path")
    if "\x00" in (definition.source or ""):
        raise RefusedRequestError("a source name holds no NUL character", "/source")
    _check_protection(definition)
    _check_policy(definition)
    allowed = _SUMMED if definition.time == "milliseconds" else {DataType.STRING}
    if definition.time is not None and definition.data_type not in allowed:
        raise RefusedRequestError(
            f"a time of data type {definition.data_type} has no {definition.time}",
            "/time",
            "milliseconds need data type integer or number, rfc3339 and date need string",
        )


def _check_policy(definition: AttributeDefinition) -> None:
    policy, encryption = definition.policy, definition.encryption
    allowed = SEARCHABLE_POLICIES if encryption is EncryptionLevel.SEARCHABLE else SEALED_POLICIES
    if definition.is_protected and policy not in allowed:
        raise RefusedRequestError(
            f"policy {policy} needs to read values, which encryption {encryption} forbids",
            "/policy",
            f"with encryption {encryption} the policies are {_names(allowed)}",
        )
    if policy is ReconciliationPolicy.SUM and definition.data_type not in _SUMMED:
        raise RefusedRequestError(
            f"policy sum needs numbers, and the data type is {definition.data_type}",
            "/policy",
            "say data type number or integer, or policy count to count events",
        )
    _check_sources(definition)


def _check_sources(definition: AttributeDefinition) -> None:
    ranked = definition.policy is ReconciliationPolicy.SOURCE_PRIORITY
    if ranked and not definition.sources:
        raise RefusedRequestError(
            "policy source_priority needs to know which source is trusted most",
            "/sources",
            "name the sources, the most trusted first",
        )
    if definition.sources and not ranked:
        raise RefusedRequestError("sources are ranked for policy source_priority only", "/sources")
    if len(set(definition.sources)) < len(definition.sources):
        raise RefusedRequestError("a source is named twice", "/sources")
    if any("\x00" in source for source in definition.sources):
        raise RefusedRequestError("a source name holds no NUL character", "/sources")


def policy_problem(
    classification: Classification, encryption: EncryptionLevel, indexable: bool
) -> str | None:
    """The reason why these do not go together, or None."""
    if classification is Classification.RESTRICTED and encryption is EncryptionLevel.NONE and indexable:
        return "plaintext of a restricted attribute does not go into the search index, which all may search"
    return None


def _check_protection(definition: AttributeDefinition) -> None:
    problem = policy_problem(definition.classification, definition.encryption, definition.indexable)
    if problem:
        raise RefusedRequestError(
            problem, "/indexable", "say indexable false, or encryption searchable to find it by its value"
        )
    if definition.encryption is not EncryptionLevel.SEARCHABLE:
        return
    if definition.data_type is DataType.ARRAY:
        raise RefusedRequestError(
            "an array has no blind index: searchable attributes are found by one whole value",
            "/encryption",
            "take protected",
        )
    if definition.data_type is DataType.BOOLEAN:
        raise RefusedRequestError(
            "a blind index of true and false has two tokens, and their counts reveal everybody's value",
            "/encryption",
            "take protected",
        )


def path_problem(path: str) -> str | None:
    """The reason why this cannot be the path of an attribute, or None."""
    if paths.is_within(path, RESERVED):
        return f"paths below {RESERVED} are reserved for the envelope and are never stored"
    if "\x00" in path:
        return "a path holds no NUL character"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"a path has at most {MAX_PATH_BYTES} bytes in UTF-8"
    if paths.join(paths.split(path)) != path:
        return "not a path: a backslash escapes only a dot or a backslash"
    return None


def _names(policies: frozenset[ReconciliationPolicy]) -> str:
    return ", ".join(sorted(policies))


def _planned_defaults(session: Session, stated: DiscoveryDefaults) -> DiscoveryDefaults:
    """The defaults, with the policies of their classification level in fields that were left out."""
    levels = classification_levels(session)
    defaults = stated.model_copy(update=levels.unstated(stated, stated.classification))
    problem = policy_problem(defaults.classification, defaults.encryption, defaults.indexable)
    if problem:
        raise RefusedRequestError(problem, "/indexable")
    return defaults


def _planned_levels(_session: Session, levels: ClassificationLevels) -> ClassificationLevels:
    for classification in Classification:
        policy = levels.policy(classification)
        problem = policy_problem(classification, policy.encryption, policy.indexable)
        if problem:
            raise RefusedRequestError(problem, f"/{classification}/indexable")
    return levels


def discovery_defaults(session: Session) -> DiscoveryDefaults:
    """Those in force."""
    return DEFAULTS.get(session)


def classification_levels(session: Session) -> ClassificationLevels:
    """Those in force."""
    return LEVELS.get(session)


class Protection(Protocol):
    """The protection of a value."""

    @property
    def encryption(self) -> EncryptionLevel: ...
    @property
    def authorization_level(self) -> int: ...


def weaker(what: str, was: Protection, becomes: Protection) -> list[str]:
    """The parts of a protection that another one weakens, each as `what: from to`."""
    opened = less_encrypted(what, was.encryption, becomes.encryption)
    if becomes.authorization_level < was.authorization_level:
        opened.append(
            f"{what}: authorization level {was.authorization_level} to {becomes.authorization_level}"
        )
    return opened


def less_encrypted(what: str, was: EncryptionLevel, becomes: EncryptionLevel) -> list[str]:
    """The same, of encryption alone."""
    return [f"{what}: {was} to {becomes}"] if becomes.strictness < was.strictness else []


def _opened_by_defaults(session: Session, after: DiscoveryDefaults) -> list[str]:
    """The paths that other discovery defaults open."""
    before = discovery_defaults(session)
    opened = weaker("attributes that nobody declared", before, after)
    if before.detection is DetectionMode.SEAL and after.detection is not DetectionMode.SEAL:
        opened.append(f"detection: {before.detection} to {after.detection}")
    opened += [
        f"keys made of values below {allowed}: refused to allowed"
        for allowed in after.value_keys
        if not any(paths.is_within(allowed, known) for known in before.value_keys)
    ]
    return opened if opened and knows_any(session) else []


def _opened_by_levels(session: Session, after: ClassificationLevels) -> list[str]:
    """The paths that other classification levels open."""
    before = classification_levels(session)
    opened = [
        opens
        for each in Classification
        for opens in weaker(f"level {each}", before.policy(each), after.policy(each))
    ]
    return opened if opened and knows_any(session) else []


DEFAULTS = VersionedDocuments(
    "discovery_defaults",
    DiscoveryDefaults,
    DiscoveryDefaults,
    _planned_defaults,
    opens=_opened_by_defaults,
    default=DiscoveryDefaults(),
    publishers=(Role.PRIVACY,),
    checkers=(Role.PRIVACY,),
)
LEVELS = VersionedDocuments(
    "classification_levels",
    ClassificationLevels,
    ClassificationLevels,
    _planned_levels,
    opens=_opened_by_levels,
    default=ClassificationLevels(),
    publishers=(Role.PRIVACY,),
    checkers=(Role.PRIVACY,),
)


def knows_any(session: Session) -> bool:
    """Whether there is any attribute."""
    return session.scalar(select(AttributeRow.path).limit(1)) is not None
