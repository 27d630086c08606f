"""Dead letters that hold changes of fragments are named by the fragment; where policy protects the name by
now, by its hash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from idgraph.model.dead_letters import COMMIT_REASONS, FRAGMENT, DeadLetter
from idgraph.model.errors import ConflictError, DamagedStateError, KeyProviderError, SealError, StoreError
from ingestion.spark.workers import WorkerResources
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter, read_changes
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from transforms.privacy.protected_names import StoredNames

log = logging.getLogger(__name__)

DROPPED_AT_ONCE = 1000
"""Dead letters of which only ids and positions are held until they go."""


class DeadLetterRenaming:
    """Renames dead letters, and what they hold with them. Safe to repeat: a crash leaves both, and the new one is made
    again. Raises StoreError."""

    def __init__(
        self,
        resources: WorkerResources,
        names: StoredNames,
        seal_change: Callable[[str, FragmentState], tuple[str, FragmentState]],
    ) -> None:
        """`seal_change` gives a change as today's events would ask for it (`StoredSealing.seal_change`)."""
        self._dead_letters = resources.dead_letters
        self._guard = resources.key_guard()
        self._orphaned_keys = resources.orphaned_keys()
        self._sealer = resources.sealer
        self._writer = DeadLetterWriter(resources.sealer)
        self._names = names
        self._seal_change = seal_change

    def run(self) -> int:
        """Returns how many keep their names: they cannot be opened, read or resealed, or are of a later
        format."""
        kept = dropped = 0
        renamed: dict[str, str] = {}
        # One by one: the dead letters of a bad day do not fit in memory.
        for dead_letter in self._misnamed():
            if not self._rename(dead_letter):
                kept += 1
                continue
            renamed[dead_letter.id] = dead_letter.position
            if len(renamed) >= DROPPED_AT_ONCE:
                dropped += self._drop(renamed)
                renamed = {}
        dropped += self._drop(renamed)
        if dropped:
            # Their positions stand in the file in the clear.
            self._dead_letters.compact()
        return kept

    def _misnamed(self) -> Iterator[DeadLetter]:
        """All dead letters without today's name. It ends and leaves none out, since it continues at ever
        higher ids. Those that are put meanwhile have today's names."""
        counts = self._dead_letters.counts()
        for reason in COMMIT_REASONS:
            if counts.get(reason):
                yield from filter(self._is_misnamed, self._dead_letters.scan(reason=reason))

    def _drop(self, renamed: dict[str, str]) -> int:
        """Remove dead letters that are stored under their new names, position by id, and keys that only they
        needed. Returns their number."""
        if renamed:
            self._dead_letters.drop(list(renamed))
            self._orphaned_keys.erase_of_dead_letters(renamed)
        return len(renamed)

    def _is_misnamed(self, dead_letter: DeadLetter) -> bool:
        if not dead_letter.holds_changes():
            return False
        name = dead_letter.position.removeprefix(FRAGMENT)
        return self._names.identifier(name) != name

    def _rename(self, dead_letter: DeadLetter) -> bool:
        """Put the dead letter under its new name; returns whether the old one can go."""
        try:
            change = self._changes(dead_letter)
            name, renamed = self._seal_change(dead_letter.position.removeprefix(FRAGMENT), change)
        except (SealError, KeyProviderError, DamagedStateError):
            return False
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a value.
            log.log(
                logging.ERROR, "dead letter %s cannot be resealed: %s", dead_letter.id, type(error).__name__
            )
            return False
        attempt = BatchAttempt(dead_letter.batch, dead_letter.attempt)
        failure = CommitFailure(name, dead_letter.reason, dead_letter.detail, renamed)
        made = self._writer.of_failures([failure], dead_letter.snapshot_version, attempt)
        if made[0].id == dead_letter.id:
            return False
        try:
            with self._guard.setting_aside([failure]):
                self._dead_letters.put(made)
        except ConflictError:
            # The next run does it.
            return False
        return True

    def _changes(self, dead_letter: DeadLetter) -> FragmentState:
        """Raises SealError, DamagedStateError."""
        payload = self._sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position)
        try:
            return read_changes(payload)
        except StoreError as error:
            # A later format is no fault of a store: the others can be renamed.
            raise DamagedStateError(str(error)) from None
