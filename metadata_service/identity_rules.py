"""Identity rules as they are stored: one document, a new version for each edit, checked before it is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from idgraph.model.errors import SpecError
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.model.records import RulesRecord, RulesVersionRecord
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import DocumentVersionRow
from metadata_service.storage.versions import add_document, newest_document, versions_of

KIND: Literal["identity_rules"] = "identity_rules"


def find_problems(rules: IdentityRules) -> list[SpecError]:
    """What each rule by itself cannot show to be wrong, each with its JSON pointer."""
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


def newest_rules(session: Session) -> RulesRecord:
    """Those in force; version 0 are the default rules, which hold until somebody changes them."""
    row = newest_document(session, KIND)
    return RulesRecord(version=0, document=DEFAULT_RULES) if row is None else _record(row)


def stated_rules(session: Session, since: int) -> tuple[int, str | None]:
    """The version in force, and its text if it was saved after the snapshot `since`."""
    row = newest_document(session, KIND)
    if row is None:
        return 0, None
    return row.version, row.document if row.snapshot_version > since else None


def rules_version(session: Session, version: int) -> RulesVersionRecord:
    """Raises UnknownSubjectError."""
    for record in _versions(session, PageRequest(None, 1), DocumentVersionRow.version == version):
        return record
    raise UnknownSubjectError(f"there is no version {version} of the identity rules")


def rules_versions(session: Session, wanted: PageRequest) -> ListPage[RulesVersionRecord]:
    """All versions that were saved, the newest first."""
    return wanted.page(_versions(session, wanted), lambda record: record.version)


def save_rules(edit: Edit, rules: IdentityRules, precondition: Callable[[str], None]) -> RulesRecord:
    """Put rules in force that `check_rules` let pass; the same again makes no new version."""
    known = newest_rules(edit.session)
    precondition(known.stated)
    if rules == known.document:
        return known
    stated = rules.model_dump_json(exclude_unset=True)
    row = add_document(edit, KIND, "", known.version + 1, stated)
    edit.session.flush()
    return _record(row)


def _record(row: DocumentVersionRow) -> RulesRecord:
    return RulesRecord(version=row.version, document=IdentityRules.model_validate_json(row.document))


def _versions(
    session: Session, wanted: PageRequest, *of: ColumnElement[bool]
) -> Iterator[RulesVersionRecord]:
    row = DocumentVersionRow
    for found, edit in versions_of(session, row, wanted, row.kind == KIND, *of):
        yield RulesVersionRecord(**dict(_record(found)), **edit.provenance())
