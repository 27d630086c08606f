"""From the definition of a derived attribute to a function of a person's attributes and timelines at a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from idgraph.model import paths
from idgraph.model.behaviour import AppliedModel, DerivedDocument, Pattern, SessionWindow, Window
from idgraph.model.durations import milliseconds
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

__all__ = ["Derivation", "Derived", "compile_derived", "derive", "derive_at_each", "spans"]

Timelines: TypeAlias = Mapping[str, Sequence[Entry]]
_AtEach: TypeAlias = Callable[[Timelines, Sequence[int], Mapping[str, int]], Iterator[Derived]]
_Function: TypeAlias = Callable[[Timelines, Mapping[str, Any], int, Mapping[str, int]], Derived]


class Derivation:
    """One definition, compiled. Pure: the same arguments give the same result on each machine."""

    def __init__(
        self,
        definition: DerivedDocument,
        function: _Function,
        stage: int = 0,
        reads: Iterable[str] = (),
        at_each: _AtEach | None = None,
    ) -> None:
        self.definition = definition
        self.stage = stage
        """0 reads timelines, 1 attributes and results of 0, 2 also those of 1."""
        self.reads = tuple(reads)
        """The paths at or below which all attributes stand that it reads; the empty path: anywhere."""
        self._function, self._at_each = function, at_each
        sessions = definition.sessions
        one = definition.window or sessions
        self._begin = span("all" if one is None else one.over).begin
        self._before = milliseconds(sessions.gap) + milliseconds(sessions.cap) if sessions else 0

    def reads_from(self, now: int) -> int | None:
        """The time from which entries matter as of `now` and later, where the result `is_settled`. None: all may."""
        begin = self._begin(now)
        return None if begin is None else begin - self._before

    def is_settled(self, derived: Derived) -> bool:
        """Whether no entry of before `whole_from` can change a result. The last session is looked for as far back as there are any."""
        return derived.is_complete and (self.definition.sessions is None or "last.begin" in derived.leaves)

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

    def at_each(
        self, timelines: Timelines, moments: Sequence[int], whole_from: Mapping[str, int]
    ) -> Iterator[Derived]:
        """Leaves and completeness of `of` for each moment, of a derivation that reads no attributes."""
        if self._at_each is not None:
            return self._at_each(timelines, moments, whole_from)
        return (self._function(timelines, {}, now, whole_from) for now in moments)


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
    stages = _stages(derivations)
    first = [(at, derivations[at].of(timelines, attributes, now, whole_from)) for at in stages[0]]
    return _with_later(derivations, stages, dict(first), timelines, attributes, now, whole_from)


def derive_at_each(
    derivations: Sequence[Derivation],
    timelines: Timelines,
    attributes: Mapping[str, Any],
    moments: Sequence[int],
    whole_from: Mapping[str, int],
) -> Iterator[list[Derived]]:
    """Leaves and completeness of `derive` for each moment."""
    stages = _stages(derivations)
    first = [derivations[at].at_each(timelines, moments, whole_from) for at in stages[0]]
    if len(first) == len(derivations):
        yield from map(list, zip(*first, strict=True))
        return
    for now in moments:
        results = {at: next(each) for at, each in zip(stages[0], first, strict=True)}
        yield _with_later(derivations, stages, results, timelines, attributes, now, whole_from)


def _stages(derivations: Sequence[Derivation]) -> list[list[int]]:
    """The positions of derivations by stage."""
    return [[at for at, each in enumerate(derivations) if each.stage == stage] for stage in range(3)]


def _with_later(
    derivations: Sequence[Derivation],
    stages: Sequence[Sequence[int]],
    results: dict[int, Derived],
    timelines: Timelines,
    attributes: Mapping[str, Any],
    now: int,
    whole_from: Mapping[str, int] | None,
) -> list[Derived]:
    """The results of all, from those of stage 0."""
    known: Mapping[str, Any] = attributes
    for members in stages[1:]:
        if not members:
            continue
        incomplete = [derivations[at].definition.path for at, each in results.items() if not each.is_complete]
        if results:
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
        return _window(definition, definition.window)
    if definition.sessions is not None:
        return Derivation(definition, _sessions(definition.sessions))
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


def _window(definition: DerivedDocument, window: Window) -> Derivation:
    try:
        made = WindowDerivation(window)
    except SpecError as error:
        raise error.under("/window") from None
    name = window.activity
    return Derivation(
        definition,
        lambda timelines, _attributes, now, whole_from: made.of(
            timelines.get(name, ()), now, whole_from.get(name)
        ),
        at_each=lambda timelines, moments, whole_from: made.at_each(
            timelines.get(name, ()), moments, whole_from.get(name)
        ),
    )


def _sessions(sessions: SessionWindow) -> _Function:
    try:
        of = SessionsDerivation(sessions).of
    except SpecError as error:
        raise error.under("/sessions") from None
    name = sessions.activity
    return lambda timelines, _attributes, now, whole_from: of(
        timelines.get(name, ()), now, whole_from.get(name)
    )


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
