"""The effect of new identity rules on the stored profiles; changes nothing.

Each profile is counted with the fragment that names it, each violation with the first fragment that shows its
pair. So pages count everything once, wherever they are looked at, and a sample of fragments estimates the
whole.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext
from idgraph.model.attributes import Reconciliation
from idgraph.model.batch_size import BatchSize
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.jobs import SHOWN, JobKind, Point, Progress
from merge.identity.components import Component, Person, sightings
from merge.identity.evidence import Pair
from merge.identity.neighbourhood import PersonStore
from merge.identity.persons import Persons
from merge.identity.resolve import Violation
from merge.identity.rules import Rules
from merge.resolution import shown
from transforms.privacy.protected_names import StoredNames
from transforms.schema.policy_tree import PolicyTree

if TYPE_CHECKING:
    from idgraph.model.snapshots import MetadataSnapshot
    from ingestion.spark.workers import WorkerResources
    from transforms.privacy.blind_index import BlindIndex

PAGE = 1000
NORMAL_95 = 1.96
RULE_OF_THREE = 3.0
"""An event that did not occur in n draws has, with 95 % confidence, at most a share of 3 / n."""

Name = Callable[[str], str]
Spread = Callable[[], Iterator[tuple[int, list[bytes]]]]
"""Has all fragments looked at elsewhere: yields their number until now, and results of `RulesPreview.part`
for some."""


_TOTALS = (
    "profiles_before",
    "profiles_after",
    "merges",
    "splits",
    "changed",
    "violations_before",
    "violations_after",
)
_BY_PART = {
    "violations_new": "violations_new",
    "violations_gone": "violations_gone",
    "changed_attributes": "attribute",
}


class RulesPreviewParameters(StrictDocument):
    """Identity rules to compare with those in force, over so many fragments, drawn at random; null for all."""

    rules: IdentityRules
    sample: int | None = Field(default=None, ge=1)


class CountEstimate(NamedTuple):
    """A number, and its error with 95 % confidence: 0 where all was looked at."""

    number: float
    error: float


class RulesPreview(PagedJob):
    """Counts `profiles_before` and `profiles_after`, `merges` and `splits`, and profiles with other fragments
    (`changed`). Counts `violations_before` and `violations_after`, and by rule those that are new and gone.
    `attribute` counts by path the changed profiles that would show another value, or a protected one of
    another event. `sample`: of so many fragments; None for all."""

    kind = JobKind.PREVIEW

    def __init__(
        self,
        store: PersonStore,
        rules: tuple[Rules, Rules],
        name: Name,
        policies: Mapping[str, Reconciliation],
        sample: int | None = None,
        page: int = PAGE,
        keep: Callable[[RulesPreview, Progress], None] = lambda _job, _progress: None,
        spread: Spread | None = None,
    ) -> None:
        """`rules` are those of now and the new ones; `name` and `policies` as readers of profiles have them. `keep` is called
        before the job ends. `spread` does without `sample`; None: in this process."""
        self._keep = keep
        self._spread = spread
        self.what = {"sample": sample}
        self._store = store
        self._persons = tuple(Persons(store, each, name) for each in rules)
        self._name = name
        self._policies = policies
        self._sample = sample
        self._size = BatchSize(page)
        self._squares: Counter[str] = Counter()
        self._of_two_hubs: dict[str, set[str]] = defaultdict(set)
        self.fragments = 0
        """The number of stored fragments."""
        self.examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """The first few of each: `merges`, `splits`, `violations_new` and `violations_gone`."""

    def plan(self, _point: Point) -> Plan:
        self.fragments = self._store.count()
        total = self.fragments if self._sample is None else min(self._sample, self.fragments)
        return Plan("the preview", total, "fragment")

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        if self._spread is not None:
            for progress.done, parts in self._spread():
                for part in parts:
                    self._add(part, progress)
                yield {}
        else:
            ids = self._store.ids()
            is_whole = self._sample is None or self._sample >= self.fragments
            chosen = list(ids) if is_whole else heapq.nsmallest(self._sample or 0, ids, key=_drawn)
            for _ in self._look_through(chosen, progress):
                yield {}
        for name, pairs in self._of_two_hubs.items():
            progress.counts[name] += len(pairs)
        self._keep(self, progress)

    def part(self, ids: Sequence[str]) -> bytes:
        """The part of the result for some fragments, in a task of `spread`."""
        progress = Progress()
        for _ in self._look_through(ids, progress):
            pass
        of_two_hubs = {name: sorted(pairs) for name, pairs in self._of_two_hubs.items()}
        return json.dumps([progress.counts, self._squares, of_two_hubs, self.examples]).encode()

    def _add(self, part: bytes, progress: Progress) -> None:
        counts, squares, of_two_hubs, examples = json.loads(part)
        progress.counts.update(counts)
        self._squares.update(squares)
        for name, pairs in of_two_hubs.items():
            self._of_two_hubs[name].update(pairs)
        for what, each in ((what, each) for what, some in examples.items() for each in some):
            self._show(what, each)

    def estimate(self, progress: Progress, name: str) -> CountEstimate:
        """A count for the whole store. Many fragments show a refused pair of two hubs, so these are not estimated: their
        count is a lower bound."""
        drawn, whole = progress.done, max(self.fragments, progress.done)
        if drawn in (0, whole):
            return CountEstimate(progress.counts[name], 0.0)
        met = len(self._of_two_hubs.get(name, ()))
        mean = (progress.counts[name] - met) / drawn
        variance = max(0.0, self._squares[name] / drawn - mean * mean)
        error = max(NORMAL_95 * math.sqrt(variance / drawn * (1 - drawn / whole)), RULE_OF_THREE / drawn)
        return CountEstimate(round(mean * whole) + met, round(error * whole, 1))

    def _look_through(self, ids: Sequence[str], progress: Progress) -> Iterator[None]:
        """Count each fragment once, a page at a time."""
        remaining = set(ids)
        waiting = (each for each in ids if each in remaining)
        while some := list(islice(waiting, self._size.present)):
            self._look_at(some, remaining, progress)
            yield

    def _look_at(self, ids: Sequence[str], remaining: set[str], progress: Progress) -> None:
        before, after = (Side(each, ids) for each in self._persons)
        self._size.weighed(len(ids), before.bytes() + after.bytes())
        # Others that were read wholly on both sides are not read again.
        wanted = {*ids, *(before.of.keys() & after.of.keys() & remaining)}
        remaining -= wanted
        progress.done += len(wanted)
        old, new = before.named(wanted), after.named(wanted)
        after.cover(member.stored.id for person in old for member in person.members)
        before.cover(member.stored.id for person in new for member in person.members)
        self._tally(progress, "profiles_before", [each.id for each in old])
        self._tally(progress, "profiles_after", [each.id for each in new])
        self._compare_members(old, after, "splits", "into", progress)
        self._compare_members(new, before, "merges", "of", progress)
        for person in new:
            self._compare_values(before.of.get(person.id), person, progress)
        self._compare_violations(before, after, wanted, progress)
        progress.counts["unreadable"] += len(before.unreadable & wanted)

    def _compare_members(
        self, persons: Iterable[Person], others: Side, what: str, key: str, progress: Progress
    ) -> None:
        """Count persons whose fragments are several on the other side."""
        found: list[str] = []
        for person in persons:
            parts = sorted({others.of[name].id for name in members(person) if name in others.of})
            if len(parts) > 1:
                found.append(person.id)
                self._show(what, {"id": self._name(person.id), key: list(map(self._name, parts))})
        self._tally(progress, what, found)

    def _compare_values(self, before: Person | None, after: Person, progress: Progress) -> None:
        if before is None or before.id != after.id or members(before) == members(after):
            return
        self._tally(progress, "changed", [after.id])
        old, new = (self._values(each) for each in (before, after))
        for path in old.keys() | new.keys():
            if old.get(path) != new.get(path):
                self._tally(progress, f"attribute/{path}", [after.id])

    def _values(self, person: Person) -> dict[str, Any]:
        """The values that show, by path. A sealed value is its ciphertext, which differs by event."""
        found: dict[str, Any] = {}
        for each in shown(person.state(), self._policies):
            parts = [part.value for part in each.parts]
            found[each.path] = parts if each.is_sealed else each.value(parts)
        return found

    def _compare_violations(self, before: Side, after: Side, wanted: set[str], progress: Progress) -> None:
        old, new = before.violations(self._name), after.violations(self._name)
        for what, found, others in (
            ("before", old, None),
            ("after", new, None),
            ("new", new, old),
            ("gone", old, new),
        ):
            owners: dict[str, list[str]] = defaultdict(list)
            for each in sorted(found.keys() - (others or {}).keys()):
                name = f"violations_{what}" if others is None else f"violations_{what}/{each.rule}"
                if not found[each]:
                    self._of_two_hubs[name].add(str(each.pair))
                elif found[each] in wanted:
                    owners[name].append(found[each])
                else:
                    continue
                if others is not None:
                    self._show(f"violations_{what}", {"pair": list(map(str, each.pair)), "rule": each.rule})
            for name, fragments in owners.items():
                self._tally(progress, name, fragments)

    def _tally(self, progress: Progress, name: str, fragments: Iterable[str]) -> None:
        """Count one for each, given the fragment that it is counted with."""
        for number in Counter(fragments).values():
            progress.counts[name] += number
            self._squares[name] += number * number

    def _show(self, what: str, example: dict[str, Any]) -> None:
        shown = self.examples[what]
        if example not in shown:
            shown.append(example)
            shown.sort(key=str)
            del shown[SHOWN:]


class Side:
    """Persons around some fragments by one set of rules; `of` is the person of each fragment."""

    def __init__(self, persons: Persons, ids: Sequence[str]) -> None:
        self._persons = persons
        self.of: dict[str, Person] = {}
        self.unreadable: set[str] = set()
        self._hubs: set[str] = set()
        self._components = self._read(ids)

    def _read(self, ids: Iterable[str]) -> list[Component]:
        found = self._persons.around(ids)
        self.of |= {name: person for person in found.persons() for name in members(person)}
        self.unreadable |= found.unreadable.keys()
        self._hubs |= found.hubs
        return found.components

    def named(self, ids: set[str]) -> list[Person]:
        """The persons that these fragments name."""
        return [self.of[each] for each in sorted(ids) if each in self.of and self.of[each].id == each]

    def bytes(self) -> int:
        """The bytes of these persons in the store."""
        return sum(map(Person.bytes, {each.id: each for each in self.of.values()}.values()))

    def cover(self, ids: Iterable[str]) -> None:
        """Have the persons of these fragments too."""
        missing = sorted(set(ids) - self.of.keys() - self.unreadable)
        if missing:
            self._read(missing)

    def around(self, ids: Iterable[str]) -> list[Person]:
        """The persons that have one of these fragments."""
        names = set(ids)
        self.cover(names)
        found = {self.of[each].id: self.of[each] for each in names if each in self.of}
        return [found[each] for each in sorted(found)]

    def violations(self, name: Name) -> dict[Violation, str]:
        """All that these components show, with the first fragment that shows the pair. With none for a pair of hubs, which
        other components may show too."""
        found: dict[Violation, str] = {}
        hubs = {Identifier.parse(name(each)) for each in self._hubs}
        for component in self._components:
            refused = {each.pair: each for each in component.violations}
            first: dict[Pair, str] = {}
            shown = sightings(
                component.members() if refused else (), lambda each: Identifier.parse(name(each))
            )
            for fragment_id, pair, *_ in shown:
                if pair in refused:
                    first[pair] = min(fragment_id, first.get(pair, fragment_id))
            found |= {refused[pair]: "" if hubs.issuperset(pair) else each for pair, each in first.items()}
        return found


def members(person: Person) -> list[str]:
    """The ids of a person's fragments."""
    return [each.stored.id for each in person.members]


def _drawn(fragment_id: str) -> bytes:
    """A place in an order that has nothing to do with the ids': the first n are a random sample, each time the same."""
    return hashlib.blake2b(fragment_id.encode(), digest_size=16).digest()


def prepare(parameters: RulesPreviewParameters, context: JobContext) -> RulesPreview:
    """The preview of these rules. Raises RefusedRequestError for wrong ones."""
    rules, sample = parameters.rules, parameters.sample
    context.check(rules)
    resources, snapshot = context.resources(notes=False), context.pinned.snapshot
    notes = list(unseen(snapshot.identity_rules, rules))
    for note in notes:
        context.report(note)

    def keep(preview: RulesPreview, progress: Progress) -> None:
        context.keep({**preview_document(preview, progress), "notes": notes})

    spread = _spread(context, snapshot, parameters)
    return comparison(resources.store, resources.blind_index, snapshot, rules, sample, keep, spread)


def comparison(
    store: PersonStore,
    blind_index: BlindIndex,
    snapshot: MetadataSnapshot,
    rules: IdentityRules,
    sample: int | None,
    keep: Callable[[RulesPreview, Progress], None] = lambda _job, _progress: None,
    spread: Spread | None = None,
) -> RulesPreview:
    """The job that compares these rules with those of a snapshot. `keep` and `spread` as of `RulesPreview`."""
    name = StoredNames(snapshot, blind_index).identifier
    both = Rules(snapshot.identity_rules), Rules(rules)
    return RulesPreview(store, both, name, PolicyTree(snapshot).policies, sample, keep=keep, spread=spread)


def _spread(
    context: JobContext, snapshot: MetadataSnapshot, parameters: RulesPreviewParameters
) -> Spread | None:
    """The function that spreads the work over a Spark session of its own. None where this process is as
    quick, or there is no Java for it."""
    if parameters.sample is not None or context.resources().store.count() < context.spread_from:
        return None
    try:
        spark = context.spark("preview")
    except ConfigError:
        return None

    def spread() -> Iterator[tuple[int, list[bytes]]]:
        from ingestion.spark.spread import looked_at

        with spark as session:
            yield from looked_at(session, context.plan, partial(_part, snapshot, parameters.rules))

    return spread


def _part(snapshot: MetadataSnapshot, rules: IdentityRules, tools: WorkerResources, ids: list[str]) -> bytes:
    return comparison(tools.store, tools.blind_index, snapshot, rules, None).part(ids)


def unseen(before: IdentityRules, after: IdentityRules) -> Iterator[str]:
    """Changes that are of no account for events of before."""
    names = before.namespaces.keys() | after.namespaces.keys()
    forms = [[(n, r.namespace(n).normalise, r.namespace(n).country) for n in names] for r in (before, after)]
    if forms[0] != forms[1] or before.blocked != after.blocked:
        yield "`normalise` and `blocked` hold for later events: the preview has stored identifiers as they are"


def preview_document(job: RulesPreview, done: Progress) -> dict[str, Any]:
    """The result as JSON shows it. `errors` has the same keys as the numbers where these are estimates."""
    numbers: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    for name in _TOTALS:
        numbers[name], errors[name] = job.estimate(done, name)
    for member, name in _BY_PART.items():
        found = {part: job.estimate(done, f"{name}/{part}") for part in sorted(done.parts(name))}
        numbers[member] = {part: each.number for part, each in found.items()}
        errors[member] = {part: each.error for part, each in found.items()}
    is_whole = done.done >= job.fragments
    return {
        "fragments": job.fragments,
        "looked_at": done.done,
        **numbers,
        "errors": None if is_whole else errors,
        "unreadable": done.counts["unreadable"],
        "examples": job.examples,
    }
