"""Identity rules: how they are checked before they are saved."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.orm import Session

from idgraph.model.callers import Role
from idgraph.model.errors import SpecError
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.model.records import RulesRecord
from idgraph.web.refusals import RefusedRequestError
from metadata_service.storage.versions import VersionedDocuments


def find_problems(rules: IdentityRules) -> list[SpecError]:
    """Faults that no rule shows by itself, each with its JSON pointer."""
    return [*_unknown_namespaces(rules), *_never_applied(rules)]


def check_rules(rules: IdentityRules) -> None:
    """Raises RefusedRequestError, with the place, for the first of these problems."""
    for problem in find_problems(rules):
        raise RefusedRequestError(problem.message, problem.pointer, problem.hint)


def _unknown_namespaces(rules: IdentityRules) -> Iterator[SpecError]:
    named: list[tuple[str, str | None]] = []
    for number, blocked in enumerate(rules.blocked):
        named.append((f"/blocked/{number}/namespace", blocked.namespace))
    for number, limit in enumerate(rules.limits):
        named.append((f"/limits/{number}/namespace", limit.namespace))
        named += [(f"/limits/{number}/namespaces/{at}", name) for at, name in enumerate(limit.namespaces)]
    for name, namespace in rules.namespaces.items():
        named += [(f"/namespaces/{name}/connects/{other}", other) for other in namespace.connects]
    for pointer, meant in named:
        if meant is not None and meant not in rules.namespaces:
            hint = f'add `"{meant}": {{}}` to `namespaces` if it is one'
            yield SpecError("this namespace has no entry in `namespaces`", pointer, hint)


def _never_applied(rules: IdentityRules) -> Iterator[SpecError]:
    for number, blocked in enumerate(rules.blocked):
        if blocked.value is not None and blocked.value != blocked.value.strip():
            message = "values are compared without outer blanks, so this one never matches"
            yield SpecError(message, f"/blocked/{number}/value")
    for number, limit in enumerate(rules.limits):
        if len(set(limit.namespaces)) < len(limit.namespaces):
            yield SpecError("a namespace is named twice", f"/limits/{number}/namespaces")


def _checked(_session: Session, rules: IdentityRules) -> IdentityRules:
    check_rules(rules)
    return rules


RULES = VersionedDocuments(
    "identity_rules",
    IdentityRules,
    IdentityRules,
    _checked,
    default=DEFAULT_RULES,
    record=RulesRecord,
    as_stated=True,
    checkers=(Role.ANALYST, Role.PUBLISHER, Role.PRIVACY),
)
