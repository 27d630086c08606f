"""From the definition of a derived attribute to a function of a person's attributes and timelines at a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from idgraph.model import paths
from idgraph.model.behaviour import AppliedModel, DerivedDocument, Pattern
from idgraph.model.errors import SpecError, TransformError
from idgraph.model.timelines import Entry
from transforms.behaviour.models import LoadModel, ModelDerivation, no_models
from transforms.behaviour.patterns.derivation import PatternDerivation
from transforms.behaviour.sessions import SessionsDerivation
from transforms.behaviour.windows import BehaviourSpan, Derived, WindowDerivation, leaves_of, span
from transforms.schema import data_types
from transforms.spec.budget import start
from transforms.spec.jmespath.compilation import compile_expression
from transforms.spec.jmespath.growth import all_read
from transforms.spec.limits import DEFAULT_LIMITS, measure

__all__ = ["Derivation", "Derived", "compile_derived", "derive", "spans"]

Timelines: TypeAlias = Mapping[str, Sequence[Entry]]
_Function: TypeAlias = Callable[[Timelines, Mapping[str, Any], int, Mapping[str, int]], Derived]


class Derivation:
    """One definition, compiled. Pure: the same arguments give the same result on each machine."""

    def __init__(
        self, definition: DerivedDocument, function: _Function, stage: int = 0, reads: Iterable[str] = ()
    ) -> None:
        self.definition = definition
        self.stage = stage
        """0 reads timelines, 1 attributes and results of 0, 2 also those of 1."""
        self.reads = tuple(reads)
        """The paths at or below which all attributes stand that it reads; the empty path: anywhere."""
        self._function = function
        self._begin = span("all" if definition.window is None else definition.window.over).begin

    def reads_from(self, now: int) -> int | None:
        """The time from which entries matter as of `now` and later: older ones change nothing, and need not be read. None: all may."""
        return self._begin(now)

    def of(
        self,
        timelines: Timelines,
        attributes: Mapping[str, Any],
        now: int,
        whole_from: Mapping[str, int] | None = None,
    ) -> Derived:
        """The value as of `now` (epoch milliseconds).

        `timelines` have by activity its entries, sorted by `Entry.order`; those count whose time is less than `now`.
        `attributes` are the profile as nested objects. `whole_from` has by activity the least time from which every entry that
        came is in the timeline; an activity that it does not have dropped nothing and was recorded from the first event on.

        For each `t` with `now <= t < changes_at` the leaves as of `t` are the same.
        """
        return self._function(timelines, attributes, now, whole_from or {})


def derive(
    derivations: Sequence[Derivation],
    timelines: Timelines,
    attributes: Mapping[str, Any],
    now: int,
    whole_from: Mapping[str, int] | None = None,
) -> list[Derived]:
    """The results of all derivations of a person, in their order; the arguments are those of `Derivation.of`.

    Expressions read what is derived from timelines beside the attributes, models what expressions give too. A result is
    incomplete if one that it reads is.
    """
    results: dict[int, Derived] = {}
    known: Mapping[str, Any] = attributes
    incomplete: list[str] = []
    stages = [[at for at, each in enumerate(derivations) if each.stage == stage] for stage in range(3)]
    for stage, members in enumerate(stages):
        if stage and members and results:
            known = _with_derived(
                attributes, {derivations[at].definition.path: results[at] for at in results}
            )
        for at in members:
            each = derivations[at]
            derived = each.of(timelines, known, now, whole_from)
            if any(
                paths.is_within(one, path) or paths.is_within(path, one)
                for one in each.reads
                for path in incomplete
            ):
                derived = derived._replace(is_complete=False)
            results[at] = derived
        incomplete += [derivations[at].definition.path for at in members if not results[at].is_complete]
    return [results[at] for at in range(len(derivations))]


def _with_derived(attributes: Mapping[str, Any], derived: Mapping[str, Derived]) -> dict[str, Any]:
    """Attributes as nested objects, with the values of derived ones at their paths."""
    tree = _copied(attributes)
    for path, result in derived.items():
        for below, value in result.leaves.items():
            *above, last = (*paths.split(path), *(paths.split(below) if below else ()))
            node = tree
            for key in above:
                if type(node.get(key)) is not dict:
                    node[key] = {}
                node = node[key]
            node[last] = value
    return tree


def _copied(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if type(value) is dict else value for key, value in tree.items()}


def compile_derived(definition: DerivedDocument, load_model: LoadModel = no_models) -> Derivation:
    """`load_model` gives the bytes of the model with a digest, and raises KeyError if there is none. Raises SpecError with a
    pointer into the definition."""
    if definition.window is not None:
        return Derivation(
            definition, _of_one("window", definition.window.activity, WindowDerivation, definition.window)
        )
    if definition.sessions is not None:
        return Derivation(
            definition,
            _of_one("sessions", definition.sessions.activity, SessionsDerivation, definition.sessions),
        )
    if definition.pattern is not None:
        return Derivation(definition, _pattern(definition.pattern))
    if definition.model is not None:
        inputs = (each.path for each in definition.model.inputs)
        return Derivation(definition, _model(definition.model, load_model), 2, inputs)
    return _expression(definition, definition.expression or "")


def spans(definition: DerivedDocument, timelines: Timelines, now: int) -> list[BehaviourSpan]:
    """All sessions or matches as of `now`, the oldest first; of another kind none. Raises SpecLimitError."""
    if definition.sessions is not None:
        entries = timelines.get(definition.sessions.activity, ())
        return SessionsDerivation(definition.sessions).spans(entries, now)
    if definition.pattern is not None:
        return PatternDerivation(definition.pattern).spans(timelines, now)
    return []


def _of_one(kind: str, activity: str, make: Callable[[Any], Any], part: Any) -> _Function:
    try:
        of = make(part).of
    except SpecError as error:
        raise error.under(f"/{kind}") from None

    def function(
        timelines: Timelines, _attributes: Mapping[str, Any], now: int, whole_from: Mapping[str, int]
    ) -> Derived:
        derived: Derived = of(timelines.get(activity, ()), now, whole_from.get(activity))
        return derived

    return function


def _pattern(pattern: Pattern) -> _Function:
    try:
        of = PatternDerivation(pattern).of
    except SpecError as error:
        raise error.under("/pattern") from None
    return lambda timelines, _attributes, now, whole_from: of(timelines, now, whole_from)


def _model(model: AppliedModel, load_model: LoadModel) -> _Function:
    try:
        of = ModelDerivation(model, load_model).of
    except SpecError as error:
        raise error.under("/model") from None
    return lambda _timelines, attributes, _now, _whole_from: of(attributes)


def _expression(definition: DerivedDocument, text: str) -> Derivation:
    try:
        evaluate, _, tree = compile_expression(text)
    except SpecError as error:
        raise error.under("/expression") from None

    def function(
        _timelines: Timelines, attributes: Mapping[str, Any], _now: int, _whole_from: Mapping[str, int]
    ) -> Derived:
        start(DEFAULT_LIMITS)
        try:
            value = evaluate(attributes)
            measure(value, DEFAULT_LIMITS)
        except TransformError as error:
            return Derived({}, problem=error.message)
        problem = data_types.problem(value)
        return Derived({}, problem=f"the result is {problem}") if problem else Derived(dict(leaves_of(value)))

    return Derivation(definition, function, 1, map(paths.join, all_read(tree)))
