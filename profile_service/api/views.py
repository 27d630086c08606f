"""Views under one snapshot: compiled once each, when first asked for.

What a caller may not see is taken away before a view looks at a profile: to its expressions it never existed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.model.errors import SpecError, TransformError
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.views import ViewDocument
from idgraph.web.refusals import BadQueryError

if TYPE_CHECKING:
    from transforms.spec.chain import Transform


class View(NamedTuple):
    """A view that can be applied. `sources` are the paths at or below which all stands that it looks at."""

    document: ViewDocument
    sources: tuple[str, ...]
    shape: Transform

    def of(self, body: dict[str, Any]) -> dict[str, Any]:
        """A profile as JSON has it, with the attributes of the view. One that an expression refuses has none, and a
        `problem`, which names the place and no value."""
        problem = {}
        try:
            attributes = self.shape(body["attributes"]) or {}
        except TransformError as error:
            attributes, problem = {}, {"problem": error.message}
        named = {"name": self.document.name, "version": self.document.version}
        return body | {"attributes": attributes, "view": named | problem}


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


def _compiled(document: ViewDocument) -> View:
    # Late: most services have no views, and the compiler is large.
    from transforms.spec.compiler import compile_spec
    from transforms.spec.jmespath.operation import all_sources

    try:
        shape = compile_spec({"operation": "jmespath", "spec": document.attributes})
    except SpecError:
        raise BadQueryError("this idgraph cannot read the view; save it again") from None
    return View(document, tuple(sorted(all_sources(document.attributes))), shape)
