"""The ledger of triggers in pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.model.triggers import LedgerLine
from idgraph.web.cursors import to_cursor
from idgraph.web.refusals import BadQueryError
from profile_service import trigger_ledger
from profile_service.trigger_ledger import KEPT_MS, Message, TriggerLedger
from sinks.document_folder import DocumentFolder


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerLedger]:
    monkeypatch.setattr(trigger_ledger, "LINES_AT_ONCE", 3)
    documents = DocumentFolder(tmp_path)
    yield TriggerLedger(documents)
    documents.close()


def line(number: int, at_ms: int, outcome: str = "waiting") -> LedgerLine:
    return LedgerLine(f"id{number}", "t", 1, "aa", number, number, at_ms, outcome)  # type: ignore[arg-type]


def test_pages_show_each_crossing_once_though_its_outcome_changes_meanwhile(ledger: TriggerLedger) -> None:
    ledger.append(line(number, number) for number in range(1, 9))
    ledger.append([line(2, 20, "fired")])
    assert [each.number for each in ledger.lines("t", 100)] == [2, 8, 7, 6, 5, 4, 3, 1]
    first = ledger.page("t", 3)
    assert [(each.number, each.outcome) for each in first.items] == [
        (2, "fired"),
        (8, "waiting"),
        (7, "waiting"),
    ]
    ledger.append([line(5, 30, "fired"), line(9, 31)])
    shown = []
    cursor = first.next
    while cursor is not None:
        page = ledger.page("t", 2, cursor)
        shown += [each.number for each in page.items]
        cursor = page.next
    assert shown == [6, 5, 4, 3, 1]
    assert [each.number for each in ledger.page("t", 2).items] == [9, 5]
    assert ledger.page("other", 2) == ([], None)


@pytest.mark.parametrize("cursor", ["x", to_cursor(1), to_cursor("1"), to_cursor("a b")])
def test_a_foreign_cursor_is_refused(ledger: TriggerLedger, cursor: str) -> None:
    with pytest.raises(BadQueryError):
        ledger.page("t", 1, cursor)


def test_messages_that_were_sent_leave_no_files(ledger: TriggerLedger, tmp_path: Path) -> None:
    left = []
    for number in range(3):
        message = Message("crm", 1, line(number, 1))
        ledger.wait(message)
        ledger.done(message)
        left.append(sum(each.is_file() for each in tmp_path.rglob("*")))
    assert left[0] == left[2]


def test_what_was_sent_goes_with_the_lines(ledger: TriggerLedger) -> None:
    """Unless something was sent later."""

    def sent(person: str, at_ms: int) -> None:
        ledger.keep_sent_to("t", person, {"last": {}, "sent": {f"{person}{at_ms}": at_ms}})

    for number, person in enumerate("abc"):
        sent(person, 1)
        ledger.append([line(number, 1)._replace(profile=person)])
    sent("b", KEPT_MS)
    ledger.append([line(9, KEPT_MS + 10)._replace(profile="c")])
    assert [each.number for each in ledger.lines("t", 9)] == [9]
    known = {person: len(ledger.sent_to("t", person)["sent"]) for person in "abc"}
    assert known == {"a": 0, "b": 1, "c": 0}
