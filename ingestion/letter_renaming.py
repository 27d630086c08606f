"""Letters that hold changes of fragments stand under the fragment's name; where policy protects it by now, under its hash."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ingestion.leftover_keys import LeftoverKeys
from ingestion.set_aside import FRAGMENT, BatchAttempt, LetterWriter, read_changes
from ingestion.workers import WorkerResources
from merge.failures import CommitFailure
from merge.fragments import FragmentState
from model.dead_letters import COMMIT_REASONS, DeadLetter
from model.errors import DamagedStateError, KeyProviderError, SealError, StoreError
from transforms.stored_names import StoredNames

log = logging.getLogger(__name__)


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
        self._leftover_keys = LeftoverKeys(resources.store, resources.data_keys, resources.dead_letters)
        self._sealer = resources.sealer
        self._writer = LetterWriter(resources.sealer)
        self._names = names
        self._seal_change = seal_change

    def run(self) -> int:
        """Gives how many keep their names: they cannot be opened, read or sealed anew, or are of a later format."""
        counts = self._letters.counts()
        old = [
            letter
            for reason in COMMIT_REASONS
            if counts.get(reason)
            for letter in self._letters.scan(reason=reason)
            if self._is_misnamed(letter)
        ]
        new = {each.id: made for each in old if (made := self._renamed(each)) is not None}
        self._letters.put([letter for letters in new.values() for letter in letters])
        self._leftover_keys.erase_before_dropping({each.id: each.position for each in old if each.id in new})
        self._letters.drop(list(new))
        if new:
            # Their positions stand in the file in the clear.
            self._letters.compact()
        return len(old) - len(new)

    def _is_misnamed(self, letter: DeadLetter) -> bool:
        if not letter.holds_changes():
            return False
        name = letter.position.removeprefix(FRAGMENT)
        return self._names.identifier(name) != name

    def _renamed(self, letter: DeadLetter) -> list[DeadLetter] | None:
        try:
            change = self._changes(letter)
            name, renamed = self._seal_change(letter.position.removeprefix(FRAGMENT), change)
        except (SealError, KeyProviderError, DamagedStateError):
            return None
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a value.
            log.log(logging.ERROR, "letter %s cannot be sealed anew: %s", letter.id, type(error).__name__)
            return None
        attempt = BatchAttempt(letter.batch, letter.attempt)
        failure = CommitFailure(name, letter.reason, letter.detail, renamed)
        made = self._writer.of_failures([failure], letter.snapshot_version, attempt)
        return None if made[0].id == letter.id else made

    def _changes(self, letter: DeadLetter) -> FragmentState:
        """Raises SealError, DamagedStateError."""
        payload = self._sealer.open(letter.payload, letter.id, letter.position)
        try:
            return read_changes(payload)
        except StoreError as error:
            # Of a later format, which is no fault of a store: the rest goes on.
            raise DamagedStateError(str(error)) from None
