"""Edits of metadata while events flow: policies, protection, specs."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.convergence.events import (
    NAMES,
    PLAIN,
    POLICIES_OF_SEALED,
    PROTECTABLE,
    Declared,
    SpecForm,
    policies,
)
from tests.convergence.expected import PATH
from tests.convergence.world import World, sources


class Edits(World):
    """Each makes a new version of the metadata, under which all is mapped from then on."""

    @rule(path=st.sampled_from(["a", "a.b", "c", "p"]), policy=policies)
    def change_a_policy(self, path: str, policy: str) -> None:
        if self._may_have(path, policy):
            self.attributes[path] = Declared(policy, self.attributes[path].encryption)
            self._save()

    @rule(policy=st.sampled_from(PLAIN))
    def change_a_plain_policy(self, policy: str) -> None:
        self.attributes[PATH] = Declared(policy)
        self._save()

    @rule(path=st.sampled_from(PROTECTABLE), encryption=st.sampled_from(["protected", "searchable"]))
    def protect(self, path: str, encryption: str) -> None:
        """Never taken back: what is sealed then stays so, which no later delivery can know."""
        if not self.protects:
            return
        policy = self.attributes[path].policy
        kept = policy if policy in POLICIES_OF_SEALED[encryption] else "latest"
        self.attributes[path] = Declared(kept, encryption)
        self._save()

    @rule(path=st.sampled_from(NAMES))
    def protect_names(self, path: str) -> None:
        self.attributes[path] = Declared("latest", "protected")
        self._save()

    @rule(
        source=sources,
        nested=st.booleans(),
        priority=st.integers(0, 1),
        scope=st.sampled_from(["", "a", "c", "n"]),
        broken=st.sampled_from([False, False, True]),
    )
    def edit_a_spec(self, source: str, nested: bool, priority: int, scope: str, broken: bool) -> None:
        version = self.specs[source].version + 1
        self.specs[source] = SpecForm(version, nested, priority, scope, broken)
        self._save()
