"""Edits of metadata while events flow: policies, protection, specs."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.convergence.events import (
    CONDITIONS,
    IDENTITY,
    NAMES,
    PLAIN,
    POLICIES_OF_SEALED,
    PROTECTABLE,
    SOURCES,
    Declared,
    SpecForm,
    policies,
    scopes,
)
from tests.convergence.expected import PATH
from tests.convergence.world import World, sources


class Edits(World):
    """Each makes a new version of the metadata, under which all is mapped from then on."""

    @precondition(lambda machine: not machine.is_plain)
    @rule(path=st.sampled_from(["a", "a.b", "c", "p"]), policy=policies)
    def change_a_policy(self, path: str, policy: str) -> None:
        if self._may_have(path, policy):
            self.attributes[path] = self.attributes[path]._replace(policy=policy)
            self._save()

    @precondition(lambda machine: not machine.is_plain)
    @rule(policy=st.sampled_from(PLAIN))
    def change_a_plain_policy(self, policy: str) -> None:
        self.attributes[PATH] = self.attributes[PATH]._replace(policy=policy)
        self._save()

    @precondition(lambda machine: not machine.is_plain)
    @rule(path=st.sampled_from(["a", "c", "n"]))
    def rank_the_sources(self, path: str) -> None:
        """The other way round. Not every site notices, and all store the same."""
        stated = self.attributes[path]
        self.attributes[path] = stated._replace(policy="source_priority", sources=stated.sources[::-1])
        self._save()

    @precondition(lambda machine: machine.protects)
    @rule(path=st.sampled_from(PROTECTABLE), encryption=st.sampled_from(["protected", "searchable"]))
    def protect(self, path: str, encryption: str) -> None:
        """Never taken back: what is sealed then stays so, which no later delivery can know."""
        policy = self.attributes[path].policy
        kept = policy if policy in POLICIES_OF_SEALED[encryption] else "latest"
        self.attributes[path] = self.attributes[path]._replace(policy=kept, encryption=encryption)
        self._save()

    @precondition(
        lambda machine: not all(machine.attributes[each].encryption == "protected" for each in NAMES)
    )
    @rule(path=st.sampled_from(NAMES))
    def protect_names(self, path: str) -> None:
        self.attributes[path] = Declared("latest", "protected")
        self._save()

    @rule(
        source=sources,
        nested=st.booleans(),
        priority=st.integers(0, 1),
        broken=st.sampled_from([False, False, True]),
    )
    def edit_a_spec(self, source: str, nested: bool, priority: int, broken: bool) -> None:
        self._edit(source, self.specs[source]._replace(nested=nested, priority=priority, broken=broken))

    @rule(source=sources, scope=scopes)
    def change_a_mode(self, source: str, scope: str | None) -> None:
        """From deltas to snapshots of some scope, to another scope, and back; those of both sources may overlap."""
        self._edit(source, self.specs[source]._replace(scope=scope))

    @rule(number=st.integers(0, len(IDENTITY) - 1))
    def change_the_identity_rules(self, number: int) -> None:
        """Also back to earlier ones."""
        self.identity = self.identity[0] + 1, IDENTITY[number]
        self._save()

    def _edit(self, source: str, form: SpecForm) -> None:
        self.specs[source] = form._replace(version=form.version + 1)
        self._save()


class ActivityEdits(Edits):
    """Edits of activities as well: apart, since each rule changes what a seed draws. Without `most`, which does not commute where
    two versions give one event two times (docs/adr/0064-timelines.md)."""

    def __init__(self) -> None:
        super().__init__()
        self.activities = tuple(each.model_copy(update={"most": 1000}) for each in self.activities)

    @rule(
        condition=st.sampled_from(CONDITIONS),
        source=st.sampled_from([*SOURCES, "*"]),
        begins=st.booleans(),
    )
    def change_an_activity(self, condition: str | None, source: str, begins: bool) -> None:
        """It names other events, and its earlier entries may not count any more."""
        *others, few = self.activities
        self.activities = (
            *others,
            few.model_copy(
                update={
                    "condition": condition,
                    "source": source,
                    "version": few.version + 1,
                    "generation": few.generation + begins,
                }
            ),
        )
        self._save()
