"""Suggestions: pairs of records that may be one person, by a model that is trained on the records themselves.

Rules decide; a suggestion joins nothing until somebody accepts it. The model is Fellegi and Sunter's, by Splink in an
embedded DuckDB: agreement on a rare value speaks for one person, disagreement against it. Each attribute adds its part of
the weight, in bits. Weights are never closed transitively: of A-B and B-C nothing follows for A-C.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext
from idgraph.model import canonical
from idgraph.model.callers import Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.jobs import JobKind, JobType, Point, Progress

if TYPE_CHECKING:
    from splink import Linker

    from profile_service.reader import ProfileReader

Record = Mapping[str, str]
"""Values by attribute path; what a record lacks is absent."""

FEWEST_RECORDS = 2
PAGE = 1000
_ALIKE, _SIMILAR = 0.92, 0.8
_MOST_TRAINING_PAIRS = 1_000_000
_SEED = 1
_QUIET = 50


class Suggestion(NamedTuple):
    """Two records that may be one person. `weight` is the logarithm to base 2 of the odds that they are, which are 1:1 at 0;
    `parts` has the weight that each compared attribute adds."""

    one: str
    other: str
    weight: float
    parts: Mapping[str, float]


class SuggestParameters(StrictDocument):
    """Compare profiles by these attributes, where all of one entry of `blocking` agree. `least_weight`: as of `suggest`."""

    attributes: list[str]
    blocking: list[list[str]] = Field(default_factory=list)
    least_weight: float = 2.0


class SuggestionJob(PagedJob):
    """Compares all profiles by the attributes that its requester sees."""

    kind = JobKind.SUGGEST

    def __init__(self, parameters: SuggestParameters, context: JobContext) -> None:
        self.what = {"attributes": parameters.attributes}
        self._asked = parameters.attributes, parameters.blocking, parameters.least_weight
        self._total = context.resources().store.count()
        self._records = compared_values(context.reader, parameters.attributes)
        self._keep = context.keep

    def plan(self, _point: Point) -> Plan:
        return Plan("the suggestions", self._total)

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        found: dict[str, Record] = {}
        for name, record in self._records:
            found[name] = record
            progress.done += 1
            if progress.done % PAGE == 0:
                yield {}
        items = [
            {"pair": [each.one, each.other], "weight": each.weight, "parts": dict(each.parts)}
            for each in suggest(found, *self._asked)
        ]
        self._keep({"items": items})
        yield {}


def suggest(
    records: Mapping[str, Record],
    compared: Sequence[str],
    blocking: Iterable[Sequence[str]] = (),
    least_weight: float = 0,
) -> list[Suggestion]:
    """Pairs of at least this weight, the heaviest first.

    `compared` are attribute paths. Only records that agree on all attributes of one entry of `blocking` are compared; without
    any entry, on one compared attribute. The model is trained on the same records. Raises ConfigError without the extra
    `suggest`, or where too little can be compared.
    """
    import pyarrow as pa

    try:
        from splink import DuckDBAPI, Linker, SettingsCreator, block_on
        from splink import comparison_library as comparisons
    except ImportError as error:
        raise ConfigError("suggestions need Splink: pip install 'idgraph[suggest]'") from error
    rules = [tuple(each) for each in blocking] or [(each,) for each in compared]
    if len(compared) < 2 or len(records) < FEWEST_RECORDS:
        raise ConfigError("suggestions need two attributes and two profiles to compare")
    unknown = sorted({path for rule in rules for path in rule} - set(compared))
    if unknown:
        raise ConfigError(f"blocking names {', '.join(unknown)}, but suggestions do not compare it")
    rules = [each for each in rules if _some_agree(records.values(), each)]
    if not rules:
        return []
    columns = {path: f"a{number}" for number, path in enumerate(compared)}
    ids = sorted(records)
    table = pa.table(
        {"unique_id": pa.array(ids, pa.string())}
        | {
            name: pa.array([records[each].get(path) for each in ids], pa.string())
            for path, name in columns.items()
        }
    )
    blocked = [[columns[path] for path in rule] for rule in rules]
    settings = SettingsCreator(
        link_type="dedupe_only",
        comparisons=[
            comparisons.JaroWinklerAtThresholds(name, [_ALIKE, _SIMILAR]) for name in columns.values()
        ],
        blocking_rules_to_generate_predictions=[block_on(*each) for each in blocked],
        # Half of the records have another one of the same person.
        probability_two_random_records_match=1 / len(ids),
        retain_intermediate_calculation_columns=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linker = Linker(DuckDBAPI().register(table), settings, log_level=_QUIET)
        _train(linker, blocked)
        found = linker.inference.predict(threshold_match_weight=least_weight).as_record_list()
    return sorted((_suggestion(row, columns) for row in found), key=lambda each: (-each.weight, each[:2]))


def _some_agree(records: Iterable[Record], paths: Sequence[str]) -> bool:
    seen: set[tuple[str, ...]] = set()
    for record in records:
        if all(path in record for path in paths):
            key = tuple(record[path] for path in paths)
            if key in seen:
                return True
            seen.add(key)
    return False


def _train(linker: Linker, blocked: Sequence[Sequence[str]]) -> None:
    from splink import block_on

    training = linker.training
    training.estimate_u_using_random_sampling(max_pairs=_MOST_TRAINING_PAIRS, seed=_SEED)
    for each in blocked:
        training.estimate_parameters_using_expectation_maximisation(block_on(*each))


def _suggestion(row: Mapping[str, Any], columns: Mapping[str, str]) -> Suggestion:
    one, other = sorted((row["unique_id_l"], row["unique_id_r"]))
    parts = {path: round(row[f"mw_{name}"], 3) for path, name in columns.items()}
    return Suggestion(one, other, round(row["match_weight"], 3), parts)


def compared_values(
    reader: ProfileReader, attributes: Collection[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The values of some attributes of each profile, by its id. Raises ConfigError for a protected one."""
    for profile in reader.scan():
        leaves = {leaf.path: leaf for leaf in profile.leaves if leaf.path in attributes}
        hidden = sorted(path for path, leaf in leaves.items() if leaf.protected)
        if hidden:
            raise ConfigError(f"policy protects {hidden[0]}: compare other attributes")
        values = {path: _text(leaf.value) for path, leaf in leaves.items()}
        yield profile.id, {path: value for path, value in values.items() if value}


def _text(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else canonical.encode(value).decode()


SUGGEST = JobType(
    "finds profiles that may be one person",
    "idgraph suggest find",
    SuggestParameters,
    SuggestionJob,
    request="POST /v1/links/suggestions",
    scope=Scope.LINKS,
)
