"""Cases by hand: what a trigger sends, holds and suppresses; each says why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.triggers import Occurrence, TriggerDecision, TriggerDocument
from transforms.behaviour.triggers import decide, is_expired, with_limits_of_groups

CASES = json.loads((Path(__file__).parent / "cases" / "triggers.json").read_bytes())


def ms(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Play:
    """What was sent, by trigger and fragment, and which fragments are one person."""

    def __init__(self, case: dict[str, Any]) -> None:
        stated = case.get("triggers") or {"t": case["trigger"]}
        given = {"version": 1, "when": {"segment": "s"}, "webhook": "crm"}
        known = [
            TriggerDocument.model_validate({"name": name, **given, **each}) for name, each in stated.items()
        ]
        self.triggers = {each.name: each for each in with_limits_of_groups(known)}
        self.sent: dict[tuple[str, str], dict[str, int]] = {}
        self.persons: list[set[str]] = []
        self.done: list[tuple[TriggerDocument, Occurrence, TriggerDecision, int]] = []

    def united(self, names: list[str], who: str) -> dict[str, int]:
        person = next((each for each in self.persons if who in each), {who})
        return {
            id_: at
            for (name, each), some in self.sent.items()
            if name in names and each in person
            for id_, at in some.items()
        }

    def decided(self, trigger: TriggerDocument, each: Occurrence, now: int) -> TriggerDecision:
        group = trigger.group and trigger.group.name
        same = [one.name for one in self.triggers.values() if group and one.group and one.group.name == group]
        own, of_group = (self.united(names, each.profile) for names in ([trigger.name], same))
        decision = decide(trigger, each, own, of_group, now)
        if decision.outcome != "suppressed":
            self.sent.setdefault((trigger.name, each.profile), {})[decision.id] = each.at_ms
        return decision

    def step(self, step: dict[str, Any]) -> str | None:
        if "merge" in step:
            self.persons.append(set(step["merge"]))
            return None
        if "split" in step:
            self.persons.remove(set(step["split"]))
            return None
        if "deliver" in step:
            trigger, _, decision, _ = self.done[step["deliver"]]
            return "failed" if is_expired(trigger, decision.due_ms, ms(step["at"])) else "fired"
        if "again" in step:
            trigger, occurrence, before, now = self.done[step["again"]]
            decision = self.decided(trigger, occurrence, ms(step["decided"]) if "decided" in step else now)
            assert decision.id == before.id
        else:
            trigger = self.triggers[step.get("trigger", next(iter(self.triggers)))]
            at = ms(step["at"])
            now, since = ms(step.get("decided", step["at"])), ms(step.get("since", step["at"]))
            number = len(self.done) + 1
            occurrence = Occurrence(step.get("who", "a"), number, at, since, step.get("cause", ""))
            decision = self.decided(trigger, occurrence, now)
            assert decision.id not in {one.id for _, _, one, _ in self.done}
            self.done.append((trigger, occurrence, decision, now))
        if decision.outcome == "held":
            held = datetime.fromtimestamp(decision.due_ms / 1000, UTC)
            wanted = step["gives"].removeprefix("held until ")
            return step["gives"] if ms(wanted) == decision.due_ms else f"held until {held}"
        return "sent" if decision.outcome == "waiting" else f"suppressed: {decision.reason}"


@pytest.mark.parametrize("case", CASES, ids=[each["why"] for each in CASES])
def test_cases(case: dict[str, Any]) -> None:
    play = Play(case)
    assert [play.step(each) for each in case["steps"]] == [each.get("gives") for each in case["steps"]]
