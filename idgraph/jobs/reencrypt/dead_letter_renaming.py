"""Letters that hold changes of fragments stand under the fragment's name; where policy protects it by now, under its hash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from idgraph.model.dead_letters import COMMIT_REASONS, FRAGMENT, DeadLetter
from idgraph.model.errors import ConflictError, DamagedStateError, KeyProviderError, SealError, StoreError
from ingestion.spark.workers import WorkerResources
from ingestion.stages.dead_letters import BatchAttempt, LetterWriter, read_changes
from merge.failures import CommitFailure
from merge.fragments import FragmentState
from transforms.privacy.stored_names import StoredNames

log = logging.getLogger(__name__)

DROPPED_AT_ONCE = 1000
"""Letters of which only ids and positions are held until they go."""


class LetterRenaming:
    """Renames letters, and what they hold with them. Safe to repeat: a crash leaves both, and the new one is made
    again. Raises StoreError."""

    def __init__(
        self,
        resources: WorkerResources,
        names: StoredNames,
        seal_change: Callable[[str, FragmentState], tuple[str, FragmentState]],
    ) -> None:
        """`seal_change` gives a change as today's events would ask for it (`StoredSealing.seal_change`)."""
        self._letters = resources.dead_letters
        self._guard = resources.key_guard()
        self._leftover_keys = resources.leftover_keys()
        self._sealer = resources.sealer
        self._writer = LetterWriter(resources.sealer)
        self._names = names
        self._seal_change = seal_change

    def run(self) -> int:
        """Gives how many keep their names: they cannot be opened, read or sealed anew, or are of a later format."""
        kept = dropped = 0
        renamed: dict[str, str] = {}
        # One by one: the letters of a bad day do not fit in memory.
        for letter in self._misnamed():
            if not self._rename(letter):
                kept += 1
                continue
            renamed[letter.id] = letter.position
            if len(renamed) >= DROPPED_AT_ONCE:
                dropped += self._drop(renamed)
                renamed = {}
        dropped += self._drop(renamed)
        if dropped:
            # Their positions stand in the file in the clear.
            self._letters.compact()
        return kept

    def _misnamed(self) -> Iterator[DeadLetter]:
        """It ends and leaves none out, whatever it shows of those that are put meanwhile: these have today's names, and it
        goes on at ever higher ids."""
        counts = self._letters.counts()
        for reason in COMMIT_REASONS:
            if counts.get(reason):
                yield from filter(self._is_misnamed, self._letters.scan(reason=reason))

    def _drop(self, renamed: dict[str, str]) -> int:
        """Let go of letters that stand under their new names, position by id, and of keys that they were the last to
        need; gives how many they were."""
        if renamed:
            self._letters.drop(list(renamed))
            self._leftover_keys.erase_of_letters(renamed)
        return len(renamed)

    def _is_misnamed(self, letter: DeadLetter) -> bool:
        if not letter.holds_changes():
            return False
        name = letter.position.removeprefix(FRAGMENT)
        return self._names.identifier(name) != name

    def _rename(self, letter: DeadLetter) -> bool:
        """Put the letter under its new name; says whether the old one can go."""
        try:
            change = self._changes(letter)
            name, renamed = self._seal_change(letter.position.removeprefix(FRAGMENT), change)
        except (SealError, KeyProviderError, DamagedStateError):
            return False
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a value.
            log.log(logging.ERROR, "letter %s cannot be sealed anew: %s", letter.id, type(error).__name__)
            return False
        attempt = BatchAttempt(letter.batch, letter.attempt)
        failure = CommitFailure(name, letter.reason, letter.detail, renamed)
        made = self._writer.of_failures([failure], letter.snapshot_version, attempt)
        if made[0].id == letter.id:
            return False
        try:
            self._guard.set_aside([failure], lambda: self._letters.put(made))
        except ConflictError:
            # By the next run.
            return False
        return True

    def _changes(self, letter: DeadLetter) -> FragmentState:
        """Raises SealError, DamagedStateError."""
        payload = self._sealer.open(letter.payload, letter.id, letter.position)
        try:
            return read_changes(payload)
        except StoreError as error:
            # Of a later format, which is no fault of a store: the rest goes on.
            raise DamagedStateError(str(error)) from None
