"""`idgraph erase`: remove fragments for good."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import DryRun, JobWho, JobWhy, Yes, all_from_stdin, keyed, note, origin_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import confirmed, counted, print_json, print_table
from idgraph.model.errors import ConfigError, NotFoundError, QueryError, StoreError
from idgraph.model.identifiers import given_identifier
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.jobs.erase.dead_letter_search import FoundDeadLetter
    from idgraph.jobs.erase.erasure import Erased, Preview
    from idgraph.model.tombstones import FragmentSummary


def erase(
    context: typer.Context,
    identifiers: Annotated[
        list[str] | None,
        typer.Argument(
            help="TYPE:VALUE; erases the whole profile of each; - is all lines of standard input.",
            show_default=False,
            callback=all_from_stdin,
        ),
    ] = None,
    fragments: Annotated[
        list[str] | None,
        typer.Option("--fragment", help="Id of a fragment, also of a future one."),
    ] = None,
    dry_run: DryRun = False,
    receipt: Annotated[Path | None, typer.Option(help="Write the receipt to a file.")] = None,
    yes: Yes = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Finish interrupted erasures, and repeat erasures after a restored backup."
        ),
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Accept events of the fragments again.")] = False,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Annotated[bool, typer.Option("--json", help="The receipt, or the counts, as JSON.")] = False,
) -> None:
    """Erase persons: data keys, profiles, index, outbox, and dead letters that certainly are theirs.

    Events up to now (plus the allowed clock skew) are refused afterwards. Exit code 3: nothing is stored, or there is
    no erasure to cancel. Source files stay unchanged.
    """
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.jobs.erase.erasure import ErasureJob
    from idgraph.jobs.erase.persons import named_persons

    given = [*(identifiers or []), *(fragments or [])]
    _refuse_what_cannot_be(again, cancel, dry_run, receipt, given)
    for each in fragments or []:
        given_identifier(each)
    origin = origin_of(who, why)
    with LocalJobContext(keyed(context), origin) as here:
        erasure = here.erasure()
        if again:
            job = ErasureJob("again", [], erasure.names, erasure.again)
            here.runner.run(job, origin)
            done = job.erased
            _show(done, as_json)
            _report_kept(done)
            return
        found, asked, shared = named_persons(here.reader, identifiers or ())
        for text, number in shared.items():
            print(
                f"{escape_control_chars(text)} is shared by {counted(number, 'profile')} and belongs to none: "
                "name each person by an identifier of their own",
                file=sys.stderr,
            )
        ids = sorted({*(fragments or ()), *found})
        if not (asked or ids):
            raise QueryError("name whom to erase: TYPE:VALUE, or --fragment ID")
        if cancel:
            # Erased fragments are found only by their ids.
            named = sorted({*ids, *asked})
            count = 0

            def cancel_them() -> Erased:
                nonlocal count
                count, finished = erasure.cancel(named)
                return finished

            job = ErasureJob("cancel", named, erasure.names, cancel_them)
            here.runner.run(job, origin)
            finished = job.erased
            print(f"cancelled {count}")
            _report_kept(finished)
            if not count:
                raise typer.Exit(Exit.NOT_FOUND)
            return
        _erase(here, ids, asked, dry_run, receipt, yes, as_json)


def _erase(
    here: LocalJobContext,
    ids: list[str],
    asked: dict[str, str],
    dry_run: bool,
    receipt_file: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    from idgraph.jobs.erase.persons import PersonErasure
    from idgraph.jobs.erase.receipt import write_receipt

    erasure, sandboxes = PersonErasure(here, ids, asked), here.sandboxes
    found = erasure.found
    if erasure.is_empty:
        why = (
            "it was erased before, and its events are refused"
            if erasure.was_erased()
            else "with --fragment ID, later events are refused"
        )
        _show_dead_letters(found.dead_letters)
        _report_kept(found.counts)
        _report_sandboxes(sandboxes)
        raise NotFoundError(f"nothing is stored under it; {why}")
    led_there = {each.fragment_id: _led_there(each, asked) for each in found.fragments}
    if dry_run:
        _show_preview(found, led_there, erasure.elsewhere, as_json)
        _report_sandboxes(sandboxes)
        return
    if receipt_file is not None:
        from idgraph.jobs.export_file import require_place

        require_place(receipt_file)
    if not yes:
        _report_sandboxes(sandboxes)
        for name, because in led_there.items():
            print(escape_control_chars(f"{name}  by {because}"), file=sys.stderr)
        _report_elsewhere(erasure.elsewhere)
        _show(found.counts, as_json=False, to_people=True)
        if not confirmed("erase this for good?"):
            print("nothing was erased", file=sys.stderr)
            raise typer.Exit(Exit.FAILED)
    job, hashed = erasure.job(), wiring.keyed_hash(here.resources())
    for each in ids:
        note(here.settings, "erasure", profile=hashed(each), purpose=here.origin.why)
    here.runner.run(job, here.origin)
    erased, reported_of = job.erased, erasure.receipt
    if receipt_file is not None:
        try:
            write_receipt(receipt_file, reported_of)
        except ConfigError as error:
            # The receipt cannot be made again.
            print_json(reported_of)
            raise StoreError(
                f"{error}; everything is erased, and the receipt is on standard output"
            ) from None
    if as_json:
        print_json(reported_of)
    else:
        _show(erased, as_json)
    _show_dead_letters([each for each in found.dead_letters if not each.certain])
    _report_kept(erased)
    _report_sandboxes(sandboxes)
    for path in erasure.paths_to_redact:
        print(
            f"the attribute path {escape_control_chars(path)} is made of their values; redact it: idgraph attributes redact PATH",
            file=sys.stderr,
        )


def _refuse_what_cannot_be(
    again: bool, cancel: bool, dry_run: bool, receipt_file: Path | None, named: list[str]
) -> None:
    """Refuse options that would have no effect."""
    if again and cancel:
        raise typer.BadParameter("--again and --cancel are two commands")
    if again and named:
        raise typer.BadParameter("--again resumes what was begun: it takes no names")
    if dry_run and receipt_file is not None:
        raise typer.BadParameter("--dry-run erases nothing that a --receipt could report")
    for what, is_given in (("--dry-run", dry_run), ("--receipt", receipt_file is not None)):
        if is_given and (again or cancel):
            raise typer.BadParameter(
                f"{what} is for an erasure, and not for {'--again' if again else '--cancel'}"
            )


def _show(counts: Erased, as_json: bool, to_people: bool = False) -> None:
    if as_json:
        print_json(counts._asdict())
        return
    rows = [(place.replace("_", " "), f"{number:,}") for place, number in counts._asdict().items()]
    if to_people:
        print("\n".join(f"{place}  {number}" for place, number in rows), file=sys.stderr)
    else:
        print_table(("place", "number"), rows)


def _led_there(found: FragmentSummary, asked: dict[str, str]) -> str:
    """The identifiers of the command line that a fragment has, as they are stored: protected ones as keyed hashes."""
    carried = sorted(asked.keys() & (found.identifiers | {found.fragment_id}))
    return (
        ", ".join(carried) or "its profile (`idgraph explain` shows why), or an erasure that was interrupted"
    )


def _show_preview(
    found: Preview, led_there: dict[str, str], elsewhere: dict[str, list[str]], as_json: bool
) -> None:
    if as_json:
        dead_letters = [
            {"id": each.id, "position": each.position, "why": each.why, "goes": each.certain}
            for each in found.dead_letters
        ]
        found_by = [{"id": name, "by": because} for name, because in led_there.items()]
        kept = [{"id": name, "carries": carried} for name, carried in elsewhere.items()]
        counts = found.counts._asdict()
        print_json({**counts, "found": found_by, "elsewhere": kept, "dead_letters_found": dead_letters})
        return
    if led_there:
        print_table(("fragment", "found by"), list(led_there.items()))
    _show(found.counts, as_json)
    if found.dead_letters:
        print_table(
            ("dead letter", "position", "", "why"),
            [
                (each.id, each.position, "goes" if each.certain else "stays", each.why)
                for each in found.dead_letters
            ],
        )
    _report_elsewhere(elsewhere)
    _report_kept(found.counts)


def _report_elsewhere(elsewhere: dict[str, list[str]]) -> None:
    for name, carried in elsewhere.items():
        why = f"it is another profile's, and its events showed {', '.join(carried)}"
        print(escape_control_chars(f"{name} stays: {why}; --fragment erases it too"), file=sys.stderr)


def _show_dead_letters(dead_letters: Iterable[FoundDeadLetter]) -> None:
    for each in dead_letters:
        print(escape_control_chars(f"{each.id}  {each.position}  {each.why}"), file=sys.stderr)


def _report_kept(counts: Erased) -> None:
    if counts.possible_dead_letters:
        print(
            f"{counted(counts.possible_dead_letters, 'dead letter')} may be the person's and will stay: look at them "
            "with `idgraph dead-letters show ID --reveal`, and remove the person's with "
            "`idgraph dead-letters drop ID`",
            file=sys.stderr,
        )


def _report_sandboxes(names: Iterable[str]) -> None:
    for name in names:
        print(
            f"the sandbox {name} may have the person too: idgraph --sandbox {name} erase, with the same names",
            file=sys.stderr,
        )
