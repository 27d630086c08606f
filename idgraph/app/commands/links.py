"""`idgraph links` and `idgraph explain`: why identifiers are one person, and decisions on them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.commands.context import TYPE_VALUE, DryRun, JobWho, Json, from_stdin, keyed, origin_of
from idgraph.app.terminal import print_json
from idgraph.model.errors import ConfigError, NotFoundError, QueryError
from idgraph.model.identifiers import Identifier, given_identifier

if TYPE_CHECKING:
    from idgraph.model.jobs import Requester
    from profile_service.links import Explanation, Links, StoredIdentifier
    from profile_service.service import ProfileService

commands = typer.Typer(no_args_is_help=True, help="Links between identifiers, and decisions on them.")

_PAGE = 100
_STDIN = Path("-")

One = Annotated[
    str | None, typer.Argument(metavar="A", help=TYPE_VALUE, show_default=False, callback=from_stdin)
]
Other = Annotated[
    str | None, typer.Argument(metavar="B", help=TYPE_VALUE, show_default=False, callback=from_stdin)
]
PairsFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="One pair per line, in place of A and B: two words, a JSON array of two, or an object with `pair`. - reads "
        "standard input.",
    ),
]
LinkWhy = Annotated[
    str, typer.Option("--why", "--reason", help="Reason; kept with the decision, and readable.")
]


class PinDecision(StrEnum):
    """A decision that can be pinned."""

    ALWAYS = "always"
    NEVER = "never"


class ExplainFormat(StrEnum):
    """Format of an explanation; `dot` is Graphviz's."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    MERMAID = "mermaid"


@commands.command("show")
def show_links(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(help=TYPE_VALUE, callback=from_stdin)],
    as_json: Json = False,
) -> None:
    """Show the links of an identifier's profile: accepted ones, refused ones, and pins. Exit code 3: no profile has it.

    Protected identifiers are shown as keyed hashes, which the commands take as well. With --json: one object per profile.
    """
    from idgraph.app.link_views import print_links
    from profile_service.link_documents import explanation_document

    with _links(context) as (_, links):
        for each in _explained(links, identifier):
            if as_json:
                print_json(explanation_document(each))
            else:
                print_links(each)


@commands.command("list")
def list_links(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(help="As of `idgraph search`.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", help="Only links with an identifier of this type.", show_default=False),
    ] = None,
) -> None:
    """List the accepted links of all profiles that match a search, one JSON object per line.

    Example, for `idgraph links unlink --file -`: idgraph links list 'activity.platform=kiosk' --type device_id
    """
    from idgraph.app.entrance import local_operator
    from idgraph.model.query_language import parse_query
    from profile_service.link_documents import link_document

    cursor, is_empty = None, True
    with _links(context) as (service, links):
        reader = service.reader(local_operator())
        query = parse_query(words or [], reader.types().get, reader.time_of)
        while True:
            page = reader.search(query, _PAGE, cursor)
            for found in (
                each for profile in page.profiles for each in links.explain(Identifier.parse(profile.id))
            ):
                for link in found.accepted:
                    if kind is None or kind in (each.type for each in link.pair):
                        print_json(link_document(link))
                        is_empty = False
            cursor = page.cursor
            if cursor is None:
                break
    if is_empty:
        print(
            "no profile that matches has such a link; `idgraph links show TYPE:VALUE` shows those of one person",
            file=sys.stderr,
        )


@commands.command("violations")
def violations(context: typer.Context, as_json: Json = False) -> None:
    """List the links that the rules refused, by cause: a rule, and the identifier that all of them would join.

    `idgraph explain` says more of one, `idgraph links pin` decides. With --json: one object per cause.
    """
    from idgraph.app.link_views import print_group

    place: str | None = ""
    with _links(context) as (_, links):
        while place is not None:
            groups, place = links.refused(place, _PAGE)
            for each in groups:
                print_group(each, as_json)


def deciding(decision: str) -> Callable[..., None]:
    """A command that makes a decision on the given pairs; the caller that registers it adds the help."""

    def command(
        context: typer.Context,
        one: One = None,
        other: Other = None,
        file: PairsFile = None,
        dry_run: DryRun = False,
        who: JobWho = "",
        why: LinkWhy = "",
        as_json: Json = False,
    ) -> None:
        decide(context, (one, other), file, decision, dry_run, origin_of(who, why), as_json)

    return command


@commands.command("pin")
def pin(
    context: typer.Context,
    decision: Annotated[
        PinDecision, typer.Option(help="`always`: one person; `never`: two persons, whatever joins them.")
    ],
    one: One = None,
    other: Other = None,
    file: PairsFile = None,
    dry_run: DryRun = False,
    who: JobWho = "",
    why: LinkWhy = "",
    as_json: Json = False,
) -> None:
    """Decide that two identifiers are one person, or never are. The newest decision on a pair counts, over all rules.

    With --json: one object with `pins`, and the profiles that change, `before` and `after`. Exit code 3: an identifier is
    unknown, and nothing was decided.
    """
    deciding(decision.value)(context, one, other, file, dry_run, who, why, as_json)


commands.command(
    "unlink", help="Keep two identifiers apart for good: `pin --decision never`. `unpin` takes it back."
)(deciding("never"))
commands.command(
    "unpin",
    help="Take the decision on two identifiers back: evidence and rules decide again. Exit code 3: there was none.",
)(deciding("none"))


@commands.command("history")
def history(
    context: typer.Context,
    identifier: Annotated[
        str | None, typer.Argument(help=TYPE_VALUE, show_default=False, callback=from_stdin)
    ] = None,
    after: Annotated[str, typer.Option("--after", metavar="CURSOR", help="Begin behind this change.")] = "",
    as_json: Json = False,
) -> None:
    """Show the owners of an identifier over time: the fragments that carry it, and the profiles that each was part of.
    Without an identifier, print all changes of profiles, one JSON object per line, each with its `cursor`.

    If so many fragments carry an identifier that it joins nothing, some of them are shown. Exit code 3: no profile has
    the identifier. Protected identifiers are shown as keyed hashes.
    """
    from idgraph.app.entrance import local_operator
    from idgraph.app.link_views import print_moves, print_periods

    if identifier is not None and after:
        raise typer.BadParameter("--after is for all changes: leave the identifier out")
    with _links(context) as (service, links):
        found = service.history(service.reader(local_operator()))
        if identifier is None:
            print_moves(found.moves(after))
        else:
            known = _known(links, identifier, "IDENTIFIER")
            print_periods(str(known.identifier), found.periods(known.carriers), as_json)


def explain(
    context: typer.Context,
    profile: Annotated[
        str, typer.Argument(help=f"{TYPE_VALUE} Any identifier of the profile.", callback=from_stdin)
    ],
    one: One = None,
    other: Other = None,
    form: Annotated[ExplainFormat, typer.Option("--format", help="Format of the explanation.")] = (
        ExplainFormat.TEXT
    ),
) -> None:
    """Explain why identifiers are one profile, or why not: the evidence of each link, and the links that were refused.

    With A and B: the path between these two, and which of its links `idgraph links unlink` could take to split them.
    Otherwise, from the profile's id to each of its identifiers. Exit code 3: no profile has an identifier.
    """
    from idgraph.app.link_views import print_explanation

    if (one is None) != (other is None):
        raise typer.BadParameter("give A and B, or neither")
    with _links(context) as (_, links):
        found = _explained(links, profile)
        ends, stored = None, None
        if one is not None and other is not None:
            stored = _known(links, one, "A"), _known(links, other, "B")
            ends = stored[0].identifier, stored[1].identifier
        for each in found:
            path = [link.pair for _, link in each.path(*ends)] if ends else []
            splitting = links.splitting(stored, path) if stored else set()
            print_explanation(each, form.value, ends, splitting)


@contextmanager
def _links(context: typer.Context) -> Iterator[tuple[ProfileService, Links]]:
    """The profile service of this process, with the links of all persons."""
    from idgraph.app.entrance import own_links

    with own_links(keyed(context)) as opened:
        yield opened


def _explained(links: Links, text: str) -> list[Explanation]:
    found = links.explain(given_identifier(text, "IDENTIFIER"))
    if not found:
        raise NotFoundError("no profile has this identifier")
    return found


def _known(links: Links, text: str, place: str) -> StoredIdentifier:
    """An identifier that somebody carries, as it is stored."""
    found = links.stored(given_identifier(text, place))
    if found is None:
        raise NotFoundError(f"{place}: no profile has this identifier")
    return found


def decide(
    context: typer.Context,
    given: tuple[str | None, str | None],
    file: Path | None,
    decision: str,
    dry_run: bool,
    origin: Requester,
    as_json: bool,
) -> None:
    """Pin the given pair, or the pairs of a file, and print what that changes."""
    from idgraph.app.entrance import local_operator
    from idgraph.app.link_views import print_change
    from merge.identity.resolve import Decision

    one, other = given
    if (file is None) == (one is None or other is None) or (file is not None and one is not None):
        raise typer.BadParameter("give A and B, or --file")
    words = [("A", "B", one or "", other or "")] if file is None else list(_pairs(file))
    with _links(context) as (service, links):
        pairs = []
        for first, second, low, high in words:
            pair = _known(links, low, first), _known(links, high, second)
            if pair[0].identifier == pair[1].identifier:
                raise QueryError(f"{first} and {second} are the same identifier")
            pairs.append((*pair, Decision(decision)))
        change = links.decide(pairs, time.time_ns() // 1_000_000, origin.who, origin.why)
        # Also without a pin, as after a crash between the two writes of the command that took it back.
        is_searchable = dry_run or service.decide(local_operator(), links, change, origin.why)
        if change.pins:
            print_change(links, change, dry_run, as_json)
        if not is_searchable:
            print(
                "the decision is stored, and searches show it once a flow, or `idgraph reindex`, has projected the outbox",
                file=sys.stderr,
            )
    if not change.pins:
        raise NotFoundError("there is no pin to take back")


def _pairs(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """The pairs of a file, each behind the two places of its identifiers."""
    try:
        lines = (sys.stdin.read() if file == _STDIN else file.read_text(encoding="utf-8-sig")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or 'is no UTF-8'}") from None
    found = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError(f"{file}: there is no pair in it")
    for number, line in found:
        try:
            words: Any = json.loads(line) if line.startswith(("[", "{")) else line.split()
        except ValueError:
            words = None
        match words:
            case [str(one), str(other)] | {"pair": [str(one), str(other)]}:
                place = f"{file}:{number}"
                yield f"{place}: the first identifier", f"{place}: the second identifier", one, other
            case _:
                raise ConfigError(f"{file}:{number}: expected two words, or a JSON array of two texts")
