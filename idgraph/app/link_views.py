"""Links and explanations for people, for scripts, and as pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from idgraph.app.terminal import counted, print_json
from idgraph.model import canonical
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord
from idgraph.model.text import escape_control_chars
from merge.identity.evidence import Pair
from profile_service.history import ProfileMove, ProfilePeriod
from profile_service.link_documents import (
    link_document,
    move_document,
    periods_document,
    pin_document,
    time_text,
)
from profile_service.links import Explanation, Links, PinChange, RefusedGroup, ShownLink

Ends = tuple[Identifier, Identifier]


def print_change(links: Links, change: PinChange, dry_run: bool, as_json: bool) -> None:
    """Print decisions, and the profiles that they change."""
    before, after = (
        [{"id": links.id_of(each), "identifiers": [*map(str, each.identifiers)]} for each in some]
        for some in (change.before, change.after)
    )
    if as_json:
        pins = [pin_document(each) for each in change.pins]
        joining = [link_document(each) for each in change.joining]
        print_json({"pins": pins, "before": before, "after": after, "joining": joining, "dry_run": dry_run})
        return
    for each in change.pins:
        verb = "would be pinned" if dry_run else "pinned"
        verb = verb.replace("pinned", "unpinned") if each.decision == "none" else f"{verb} {each.decision}"
        _line(f"{each.low} - {each.high}: {verb}")
    if not (before or after):
        print("no profile changes")
    for title, persons in (("before", before), ("after", after)):
        for person in persons:
            _line(f"{title}  {person['id']}: {', '.join(person['identifiers'])}")
    for link in change.joining:
        _line(f"joins  {_ends(link)}{f', no more refused ({link.rule})' if link.rule else ''}")


def print_links(found: Explanation) -> None:
    """Print the links of one profile as lists."""
    _line(found.id)
    _section("identifier", [str(each) for each in found.identifiers])
    _section("accepted link", [f"{_ends(each)}: {_why(each)}" for each in found.accepted])
    _print_refused(found.refused)
    _section("pin", [f"{each.low} - {each.high}: {_decided(each)}" for each in found.pins])


def print_group(group: RefusedGroup, as_json: bool) -> None:
    """Print links that were refused for one cause."""
    if as_json:
        cause = {"identifier": str(group.identifier), "rule": group.rule, "owner": group.owner}
        refused = [link_document(each) for each in group.refused]
        print_json(cause | {"rivals": [*map(str, group.rivals)], "refused": refused})
        return
    owner = f"owned by {group.owner}" if group.owner else "nobody's"
    _line(f"{group.identifier} ({owner}), {group.rule}: {'; '.join(map(_ends, group.refused))}")


def print_explanation(
    found: Explanation, form: str, ends: Ends | None, splitting: Set[Pair] = frozenset()
) -> None:
    """Print why some identifiers are one profile: `form` is `text`, `json`, `dot` or `mermaid`. With `ends` only the path
    between these two; each link that is `splitting` would make them two profiles if it were unlinked."""
    if ends is None:
        root = Identifier.parse(found.id)
        steps = list(found.tree(root))
    else:
        root = ends[0]
        steps = [(depth, *step) for depth, step in enumerate(found.path(*ends), 1)]
    match form:
        case "json":
            path = [{"to": str(there), **link_document(link)} for _, there, link in steps]
            if ends is not None:
                path = [
                    each | {"splits": link.pair in splitting}
                    for each, (_, _, link) in zip(path, steps, strict=True)
                ]
            refused = [link_document(each) for each in found.refused]
            print_json({"id": found.id, "from": str(root), "path": path, "refused": refused})
        case "dot":
            _print_dot(root, [link for _, _, link in steps], found.refused)
        case "mermaid":
            _print_mermaid(root, [link for _, _, link in steps], found.refused)
        case _:
            _line(str(root))
            for depth, there, link in steps:
                _line(f"{'  ' * depth}{there}: {_why(link)}")
            if ends is not None and not steps:
                _line(f"  no accepted link leads from here to {ends[1]}")
            if ends is not None and steps:
                _print_splitting([link for _, _, link in steps if link.pair in splitting], len(steps))
            _print_refused(found.refused)


def print_moves(moves: Iterable[ProfileMove]) -> None:
    """Print changes of profiles, a canonical JSON object per line."""
    for move in moves:
        print(canonical.encode(move_document(move)).decode())


def print_periods(identifier: str, found: Mapping[str, Sequence[ProfilePeriod]], as_json: bool) -> None:
    """Print the profiles that the fragments of an identifier were part of, with times."""
    if as_json:
        fragments = [periods_document(*each) for each in found.items()]
        print_json({"identifier": identifier, "fragments": fragments})
        return
    _line(identifier)
    for fragment, periods in found.items():
        _line(f"  {fragment}")
        for profile, begin, end in periods:
            since = f"from {time_text(begin)}" if begin else "from its first event"
            _line(f"    {since} {f'to {time_text(end)}' if end else 'until now'}: {profile}")


def _print_splitting(links: Sequence[ShownLink], steps: int) -> None:
    _line(f"{len(links):,} of {counted(steps, 'link')} would split them if unlinked")
    for each in links:
        events = {event for shown in each.evidence for event in (shown.oldest, shown.newest)}
        _line(f"  {_ends(each)}{', shown by one event' if len(events) == 1 else ''}")


def _print_refused(refused: Iterable[ShownLink]) -> None:
    _section("refused link", [f"{_ends(each)}: {each.rule}: {_why(each)}" for each in refused])


def _section(title: str, lines: Sequence[str]) -> None:
    _line(counted(len(lines), title))
    for line in lines:
        _line(f"  {line}")


def _line(text: str) -> None:
    print(escape_control_chars(text))


def _ends(link: ShownLink) -> str:
    return f"{link.pair.low} - {link.pair.high}"


def _why(link: ShownLink) -> str:
    return "; ".join(_reasons(link)) or "no evidence"


def _reasons(link: ShownLink) -> Iterator[str]:
    if link.pin is not None:
        yield _decided(link.pin)
    for each in link.evidence:
        events = _event(each.oldest)
        if each.newest != each.oldest:
            events = f"{events} to {_event(each.newest)}"
        yield f"{each.source}, strength {each.strength:g}, {events}"


def _event(origin: Origin) -> str:
    stamp, spec = origin
    return f"event {stamp.event_id} (ordinal {stamp.ordinal}, spec {spec})"


def _decided(pin: PinRecord) -> str:
    verb = "unpinned" if pin.decision == "none" else f"pinned {pin.decision}"
    return f"{verb} by {pin.who or 'unknown'} at {time_text(pin.at_ms)}{f': {pin.why}' if pin.why else ''}"


def _print_dot(root: Identifier, path: Sequence[ShownLink], refused: Sequence[ShownLink]) -> None:
    print("graph {")
    _print_edges(
        root,
        path,
        refused,
        lambda name, label: f"  {name} [label={_quoted(label)}];",
        lambda one, other, label, joined: (
            f"  {one} -- {other} [label={_quoted(label)}{'' if joined else ', style=dashed'}];"
        ),
    )
    print("}")


def _print_mermaid(root: Identifier, path: Sequence[ShownLink], refused: Sequence[ShownLink]) -> None:
    print("flowchart LR")
    _print_edges(
        root,
        path,
        refused,
        lambda name, label: f"  {name}[{_entities(label)}]",
        lambda one, other, label, joined: f"  {one} {'---' if joined else '-.-'}|{_entities(label)}| {other}",
    )


def _print_edges(
    root: Identifier,
    path: Sequence[ShownLink],
    refused: Sequence[ShownLink],
    node: Callable[[str, str], str],
    edge: Callable[[str, str, str, bool], str],
) -> None:
    numbers: dict[Identifier, str] = {}
    for each in (root, *(end for link in (*path, *refused) for end in link.pair)):
        if each not in numbers:
            numbers[each] = f"n{len(numbers)}"
            print(node(numbers[each], str(each)))
    for link in (*path, *refused):
        sources = ", ".join(dict.fromkeys(each.source for each in link.evidence))
        label = link.rule or (f"pinned {link.pin.decision}" if link.pin else sources)
        print(edge(numbers[link.pair.low], numbers[link.pair.high], label, not link.rule))


def _quoted(text: str) -> str:
    return canonical.encode(escape_control_chars(text)).decode()


def _entities(text: str) -> str:
    """A text that Mermaid takes for no markup."""
    escaped = "".join(each if each.isalnum() or each in " :.-_@+~" else f"#{ord(each)};" for each in text)
    return f'"{escaped}"'
