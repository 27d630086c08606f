"""Attribute metadata: read, searched and edited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Select, Text, column, func, insert, or_, select, tuple_, update, values
from sqlalchemy.orm import Session

from idgraph.model.attributes import (
    AttributeDefinition,
    AttributeMetadata,
    AttributeStatus,
    Classification,
    DataType,
    EncryptionLevel,
)
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import BadQueryError, RefusedRequestError, UnknownSubjectError
from metadata_service.attributes.rules import check_attribute, classification_levels
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import AttributeRow, AttributeVersionRow, ChangeRow

MOST_KNOWN = 100_000
PATHS_A_QUERY = 1000  # well below what every database takes as parameters


FACETS = ("status", "source", "owner", "tag", "encryption", "classification", "data_type")


class AttributeFilter(NamedTuple):
    """The filters of a search; every part that is given must hold, of several values one.

    `words` stand, in any order and case, in path, name, description, owner, tags, source or classification; `prefix` begins
    the path. `proposed` are discovered ones for which a detector proposes a policy that nobody decided on.
    """

    words: str = ""
    prefix: str = ""
    source: Collection[str] = ()
    owner: Collection[str] = ()
    tag: Collection[str] = ()
    status: Collection[AttributeStatus] = ()
    classification: Collection[Classification] = ()
    encryption: Collection[EncryptionLevel] = ()
    data_type: Collection[DataType] = ()
    proposed: bool = False

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """All that must hold."""
        yield from self.without_facets()
        for name in FACETS:
            wanted = getattr(self, name)
            if wanted and name == "tag":
                tags = (f"\n{each}\n" for each in wanted)  # not LIKE: see the prefix
                yield or_(*(func.replace(AttributeRow.tag, tag, "") != AttributeRow.tag for tag in tags))
            elif wanted:
                yield getattr(AttributeRow, name).in_([str(value) for value in wanted])

    def without_facets(self) -> Iterator[ColumnElement[bool]]:
        """All but the facets."""
        for word in self.words.casefold().split():
            yield AttributeRow.search_text.contains(_without_nul(word), autoescape=True)
        if self.proposed:
            yield AttributeRow.status == str(AttributeStatus.DISCOVERED)
            yield AttributeRow.proposed.is_(True)
        if self.prefix:
            # Not LIKE: it ignores case on SQLite. No character is above this one.
            prefix = _without_nul(self.prefix)
            yield AttributeRow.path >= prefix
            yield AttributeRow.path <= prefix + "\U0010ffff"


class AttributeFacets(BaseModel):
    """Numbers of attributes that match a filter and, by facet and value, of those that match all but that facet."""

    total: int
    facets: dict[str, dict[str, int]]


def get_attribute(session: Session, path: str) -> str:
    """The latest version as JSON. Raises UnknownSubjectError."""
    document = session.scalar(latest_documents().where(AttributeRow.path == path))
    if document is None:
        raise UnknownSubjectError("no attribute has this path")
    return document


def find_attributes(session: Session, paths: Iterable[str]) -> Iterator[AttributeMetadata]:
    """The latest versions of those that exist, in any order."""
    wanted = list(paths)
    for start in range(0, len(wanted), PATHS_A_QUERY):
        some = wanted[start : start + PATHS_A_QUERY]
        for document in session.scalars(latest_documents().where(AttributeRow.path.in_(some))):
            yield AttributeMetadata.model_validate_json(document)


def find_within(session: Session, path: str) -> Iterator[AttributeMetadata]:
    """The latest versions of the attributes below a path."""
    # A slash is the character behind a dot.
    below = (AttributeRow.path >= f"{path}.") & (AttributeRow.path < f"{path}/")
    for document in session.scalars(latest_documents().where(below)):
        yield AttributeMetadata.model_validate_json(document)


def first_below(session: Session, paths: Iterable[str]) -> dict[str, str]:
    """The first attribute below each of these paths that has one."""
    wanted = list(paths)
    first: dict[str, str] = {}
    for start in range(0, len(wanted), PATHS_A_QUERY):
        rows = [(path,) for path in wanted[start : start + PATHS_A_QUERY]]
        above = values(column("path", Text), name="above").data(rows).cte("above")
        # A slash is the character behind a dot.
        is_below = (AttributeRow.path >= above.c.path + ".") & (AttributeRow.path < above.c.path + "/")
        query = (
            select(above.c.path, func.min(AttributeRow.path))
            .join(AttributeRow, is_below)
            .group_by(above.c.path)
        )
        first |= dict(map(tuple, session.execute(query)))
    return first


def known_types(session: Session) -> dict[str, str]:
    """The type of each attribute that is not retired, by path; of very many, of the first ones."""
    query = select(AttributeRow.path, AttributeRow.data_type).where(AttributeRow.status != "retired")
    found = session.execute(query.order_by(AttributeRow.path).limit(MOST_KNOWN))
    return {path: data_type for path, data_type in found}  # noqa: C416 - rows are no pairs to a type checker


def discovered_since(session: Session, version: int, most: int) -> list[str]:
    """The paths that events revealed after a snapshot and that are known, the newest first."""
    query = (
        select(ChangeRow.subject)
        .join(AttributeRow, AttributeRow.path == ChangeRow.subject)
        .where(ChangeRow.snapshot_version > version, ChangeRow.kind == "attribute")
        .where(ChangeRow.action == "discovered")
        .order_by(ChangeRow.id.desc())
        .limit(most)
    )
    return list(dict.fromkeys(session.scalars(query)))


def last_versions(session: Session, paths: Iterable[str]) -> dict[str, int]:
    """The last versions of those of these paths that ever were in the catalogue."""
    wanted = list(paths)
    found: dict[str, int] = {}
    for start in range(0, len(wanted), PATHS_A_QUERY):
        query = select(AttributeVersionRow.path, func.max(AttributeVersionRow.version))
        some = AttributeVersionRow.path.in_(wanted[start : start + PATHS_A_QUERY])
        for path, version in session.execute(query.where(some).group_by(AttributeVersionRow.path)):
            found[path] = version
    return found


def search_attributes(
    session: Session, wanted: AttributeFilter, paging: PageRequest, sort: str = "path"
) -> ListPage[AttributeMetadata]:
    """Attributes in the order of their paths, or of a facet and then of their paths; with `-` before it, reversed."""
    by, is_reversed = sort.removeprefix("-"), sort.startswith("-")
    keys: list[ColumnElement[str]] = [AttributeRow.path.expression]
    if by != "path":
        keys.insert(0, func.coalesce(getattr(AttributeRow, by), ""))
    if wanted._replace(prefix="") != AttributeFilter():
        # Not in the order of the index of paths, which would read row after row until enough match.
        keys[-1] = AttributeRow.path + ""
    query = select(AttributeRow.path).where(*wanted.conditions()).limit(paging.one_more)
    query = query.order_by(*(key.desc() if is_reversed else key for key in keys))
    after = paging.after(str)
    if after is not None:
        last = [after] if by == "path" else after.split("\0")
        if len(last) != len(keys):
            raise BadQueryError("the cursor belongs to another order; start again without one")
        place, known = tuple_(*keys), tuple_(*last)
        query = query.where(place < known if is_reversed else place > known)

    def key(attribute: AttributeMetadata) -> str:
        # Neither a path nor a facet holds NUL.
        return attribute.path if by == "path" else f"{getattr(attribute, by) or ''}\0{attribute.path}"

    paths = list(session.scalars(query))
    found = {attribute.path: attribute for attribute in find_attributes(session, paths)}
    return paging.page((found[path] for path in paths), key)


def count_attributes(session: Session, wanted: AttributeFilter) -> AttributeFacets:
    """The facets of a search."""
    columns: list[ColumnElement[str]] = [getattr(AttributeRow, name) for name in FACETS]
    if wanted.words:
        # Not in the order of the index of facets, which has no text.
        columns[0] = AttributeRow.status + ""
    query = select(*columns, func.count()).where(*wanted.without_facets()).group_by(*columns)
    total = 0
    found: dict[str, dict[str, int]] = {name: defaultdict(int) for name in FACETS}
    for *row, count in session.execute(query):
        shown = {name: [value] for name, value in zip(FACETS, row, strict=True)}
        shown["tag"] = (shown["tag"][0] or "").strip("\n").split("\n")
        missed = {
            name for name in FACETS if getattr(wanted, name) and not {*getattr(wanted, name)} & {*shown[name]}
        }
        total += 0 if missed else count
        for name in FACETS:
            if missed <= {name}:
                for each in filter(None, shown[name]):
                    found[name][each] += count
    return AttributeFacets(
        total=total, facets={name: dict(sorted(each.items())) for name, each in found.items()}
    )


def total_attributes(session: Session, wanted: AttributeFilter, most: int | None = None) -> int:
    """The number of matches; counted up to `most`, if it is given."""
    found = select(AttributeRow.path).where(*wanted.conditions()).limit(most).subquery()
    return session.scalar(select(func.count()).select_from(found)) or 0


class PlannedAttribute(NamedTuple):
    """An attribute as it is, with its document, and as an edit makes it; the same object if it changes nothing."""

    before: AttributeMetadata | None
    document: str | None
    after: AttributeMetadata


def plan_attribute(
    edit: Edit, definition: AttributeDefinition, precondition: Callable[[str | None], None]
) -> PlannedAttribute:
    """The attribute after a definition. Writes nothing.

    Encryption, indexable and authorization level are what the classification level means where they are left
    out. The fields that events gave (first event, conflicts, proposal, and the source unless another is stated) stay. A
    sealed attribute is not opened by leaving its encryption out.
    `precondition` sees the present document and raises to stop. Raises RefusedError.
    """
    levels = classification_levels(edit.session)
    unstated = levels.unstated(definition, definition.classification)
    check_attribute(definition.model_copy(update=unstated))
    document = edit.session.scalar(latest_documents().where(AttributeRow.path == definition.path))
    precondition(document)
    stated = {field: getattr(definition, field) for field in AttributeDefinition.model_fields} | unstated
    if document is None:
        version = last_versions(edit.session, [definition.path]).get(definition.path, 0) + 1
        return PlannedAttribute(None, None, AttributeMetadata(**stated, version=version, created=edit.at))
    known = AttributeMetadata.model_validate_json(document)
    if "source" not in definition.model_fields_set:
        stated["source"] = known.source
    if all(getattr(known, field) == value for field, value in stated.items()):
        return PlannedAttribute(known, document, known)
    opened = known.is_protected and stated["encryption"] is EncryptionLevel.NONE
    if opened and "encryption" not in definition.model_fields_set:
        raise RefusedRequestError(
            "the attribute is sealed, so its definition must state `encryption`, even if that is none",
            "/encryption",
        )
    changed = known.model_copy(
        update=stated | {"version": known.version + 1, "conflicts": (), "sealed_for_review": False}
    )
    conflicts = tuple(seen for seen in known.conflicts if not changed.accepts(seen.data_type))
    return PlannedAttribute(known, document, changed.model_copy(update={"conflicts": conflicts}))


def carry_out(edit: Edit, planned: PlannedAttribute) -> tuple[str, bool]:
    """Store what was planned in this edit; gives the document and whether the path is new."""
    before, document, after = planned
    if after is before and document is not None:
        return document, False
    created, changed = ([after], []) if before is None else ([], [after])
    write_versions(edit, created, changed)
    edit.record("attribute", after.path, after.version, "saved")
    return after.model_dump_json(), before is None


def write_versions(
    edit: Edit, created: Sequence[AttributeMetadata], changed: Sequence[AttributeMetadata]
) -> None:
    """Store new versions of new and of known attributes. The change log is the caller's."""
    versions = [
        {
            "path": attribute.path,
            "version": attribute.version,
            "snapshot_version": edit.version,
            "document": attribute.model_dump_json(),
        }
        for attribute in (*created, *changed)
    ]
    edit.session.execute(insert(AttributeVersionRow), versions)
    if created:
        edit.session.execute(insert(AttributeRow), [_searchable(attribute) for attribute in created])
    if changed:
        edit.session.execute(update(AttributeRow), [_searchable(attribute) for attribute in changed])


def latest_documents() -> Select[str]:
    """The documents of the latest versions, as JSON."""
    return select(AttributeVersionRow.document).join(
        AttributeRow,
        (AttributeRow.path == AttributeVersionRow.path)
        & (AttributeRow.version == AttributeVersionRow.version),
    )


_COLUMNS = {"path", "version", "data_type", "status", "classification", "encryption", "source"}


def _searchable(attribute: AttributeMetadata) -> dict[str, str | int | None]:
    tags = "\n".join(attribute.tags)
    more = f"{attribute.source or ''}\n{attribute.classification}\n{attribute.owner}\n{tags}"
    text = f"{attribute.path}\n{attribute.name}\n{attribute.description}\n{more}"
    return attribute.model_dump(include=_COLUMNS) | {
        "proposed": attribute.proposal is not None,
        "owner": attribute.owner or None,
        "tag": f"\n{tags}\n" if tags else None,
        "search_text": _without_nul(text.casefold()),
    }


def _without_nul(text: str) -> str:
    return text.replace("\x00", " ")  # PostgreSQL's text has no NUL
