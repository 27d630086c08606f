"""The job and the resources of `idgraph rules preview`, and its result for people and for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.terminal import counted, print_json
from idgraph.jobs.rules_preview import CountEstimate, RulesPreview, Spread
from idgraph.model.errors import ConfigError
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.text import escape_control_chars
from merge.identity.persons import PersonStore
from merge.identity.rules import Rules
from transforms.privacy.protected_names import StoredNames
from transforms.schema.policy_tree import PolicyTree

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.job import JobRunner
    from idgraph.model.jobs import Progress
    from idgraph.model.snapshots import MetadataSnapshot
    from ingestion.spark.workers import WorkerResources
    from transforms.privacy.blind_index import BlindIndex

MOST_PATHS = 20
"""Changed attributes that are printed for people."""
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


@contextmanager
def previewing(
    settings: Settings, rules: IdentityRules, sample: int | None
) -> Iterator[tuple[JobRunner, RulesPreview, list[str]]]:
    """The job that compares these rules with those in force, its runner, and what it cannot show."""
    ensure_keyring(settings)
    wiring.prepare_directory(settings)
    with wiring.opened_to_read(settings) as resources, wiring.job_runner(settings) as runner:
        wiring.require_own_keyring(settings, resources, notes=False)
        snapshot = wiring.snapshot_to_read_by(settings).snapshot
        spread = _spread_over(settings, resources.store, snapshot, rules, sample)
        job = comparison(resources.store, resources.blind_index, snapshot, rules, sample, spread=spread)
        yield runner, job, list(unseen(snapshot.identity_rules, rules))


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


def _spread_over(
    settings: Settings,
    store: PersonStore,
    snapshot: MetadataSnapshot,
    rules: IdentityRules,
    sample: int | None,
) -> Spread | None:
    """By a Spark session of its own; None where this process is as quick, or there is no Java for it."""
    if sample is not None or store.count() < settings.spark.preview_from:
        return None
    from idgraph.app.flow_runner import require_shared
    from idgraph.app.java import class_archives, require_java
    from ingestion.spark.session import session_beside
    from ingestion.spark.spread import looked_at

    try:
        require_shared(settings)
        require_java()
    except ConfigError:
        return None

    def spread() -> Iterator[tuple[int, list[bytes]]]:
        folder, plan = settings.directory / "preview", wiring.worker_plan(settings)
        with session_beside(settings.flow, settings.spark, folder, class_archives()) as session:
            yield from looked_at(session, plan, partial(_part, snapshot, rules))

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
    for shown, name in _BY_PART.items():
        found = {part: job.estimate(done, f"{name}/{part}") for part in sorted(done.parts(name))}
        numbers[shown] = {part: each.number for part, each in found.items()}
        errors[shown] = {part: each.error for part, each in found.items()}
    is_whole = done.done >= job.fragments
    return {
        "fragments": job.fragments,
        "looked_at": done.done,
        **numbers,
        "errors": None if is_whole else errors,
        "unreadable": done.counts["unreadable"],
        "examples": job.examples,
    }


def print_preview(job: RulesPreview, done: Progress, as_json: bool) -> None:
    """Print the result."""
    if as_json:
        print_json(preview_document(job, done))
        return

    def of(name: str) -> str:
        return _number(job.estimate(done, name))

    if done.done < job.fragments:
        print(
            f"estimated from {done.done:,} of {counted(job.fragments, 'fragment')}, errors at 95 % confidence;"
            " refused links between two hubs are not estimated, so their numbers are lower bounds"
        )
    print(f"profiles: {of('profiles_before')} today, {of('profiles_after')} by the new rules")
    for title, name, key in (("merges", "merges", "of"), ("splits", "splits", "into")):
        print(f"{title}: {of(name)}")
        for each in job.examples[name]:
            _example(f"{each['id']} {key} {', '.join(each[key])}")
    print(f"violations: {of('violations_before')} today, {of('violations_after')} by the new rules")
    for title, name in (("new", "violations_new"), ("gone", "violations_gone")):
        for rule in sorted(done.parts(name)):
            print(f"  {title} {escape_control_chars(rule)}: {of(f'{name}/{rule}')}")
        for each in job.examples[name]:
            _example(f"  {' - '.join(each['pair'])}: {each['rule']}")
    print(f"profiles of today that have other fragments: {of('changed')}")
    found = done.parts("attribute")
    paths = sorted(found, key=lambda path: (-found[path], path))
    for path in paths[:MOST_PATHS]:
        _example(f"{path}: another value in {of(f'attribute/{path}')}")
    if len(paths) > MOST_PATHS:
        print(f"  and {counted(len(paths) - MOST_PATHS, 'attribute')} more: --json has all")
    if unreadable := done.counts["unreadable"]:
        print(f"{counted(unreadable, 'fragment')} left out, whose stored state is damaged")


def _number(found: CountEstimate) -> str:
    return f"{found.number:,.0f}" + (f" (± {found.error:,.0f})" if found.error else "")


def _example(text: str) -> None:
    print(f"  {escape_control_chars(text)}")
