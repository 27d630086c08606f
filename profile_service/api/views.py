"""Views under one snapshot: compiled once each, when first asked for.

Attributes that a caller may not see are removed before a view looks at a profile: its expressions never meet
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.model.errors import SpecError, TransformError
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.views import ViewDocument
from idgraph.web.refusals import BadQueryError

if TYPE_CHECKING:
    from transforms.spec.chain import Transform


class View(NamedTuple):
    """A view that can be applied. `sources` are the paths at or below which it reads. `parts` gives one
    shape for each attribute of the view."""

    document: ViewDocument
    sources: tuple[str, ...]
    shape: Transform
    parts: Callable[[], list[Transform]]

    def of(self, body: dict[str, Any]) -> dict[str, Any]:
        """A profile as JSON has it, with the attributes of the view, but for those that an expression refuses: `problem` names
        their places and no value."""
        named: dict[str, Any] = {"name": self.document.name, "version": self.document.version}
        try:
            attributes = self.shape(body["attributes"]) or {}
        except TransformError:
            attributes, problems = {}, []
            for part in self.parts():
                try:
                    attributes = _merged(attributes, part(body["attributes"]) or {})
                except TransformError as error:
                    problems.append(error.message)
            named["problem"] = "; ".join(problems)
        return body | {"attributes": attributes, "view": named}


class Views:
    """The views of one snapshot. Safe for several threads."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self.documents = {each.name: each for each in snapshot.views}
        self._compiled: dict[str, View] = {}

    def __getitem__(self, name: str) -> View:
        """Raises BadQueryError."""
        document = self.documents.get(name)
        if document is None:
            raise BadQueryError("no view has this name; `GET /v1/views` lists them")
        if name not in self._compiled:
            self._compiled[name] = _compiled(document)
        return self._compiled[name]


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {key: _merged(one[key], value) if key in one else value for key, value in other.items()}


def _parts(attributes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in attributes.items():
        yield from ({key: each} for each in (_parts(value) if isinstance(value, dict) else [value]))


def _compiled(document: ViewDocument) -> View:
    # Late: most services have no views, and the compiler is large.
    from transforms.spec.compiler import compile_spec
    from transforms.spec.jmespath.operation import all_sources

    def shaped(attributes: dict[str, Any]) -> Transform:
        return compile_spec({"operation": "jmespath", "spec": attributes})

    try:
        shape = shaped(document.attributes)
    except SpecError:
        raise BadQueryError("this idgraph cannot read the view; save it again") from None
    sources = tuple(sorted(all_sources(document.attributes)))
    return View(document, sources, shape, cache(lambda: list(map(shaped, _parts(document.attributes)))))
