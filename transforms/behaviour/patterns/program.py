"""A row pattern as instructions: match an entry, split into a preferred and another way, jump."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from idgraph.model.errors import SpecError
from transforms.behaviour.patterns.text import Anchor, Choice, Node, Repetition, Sequence, Variable

MOST_INSTRUCTIONS = 10_000


class Op(IntEnum):
    """The effect of an instruction. The least number is the one that is carried out most often."""

    MATCH = 0
    """The entry at hand is one of variable `first`."""
    SPLIT = 1
    """Go to `first`; where that fails, to `second`."""
    JUMP = 2
    """Go to `first`."""
    ENTER = 3
    """A round of loop `first` begins."""
    LEAVE = 4
    """A round of loop `first` is over; where it took no entry, go to `second`, out of the loop."""
    BEGIN = 5
    END = 6
    DONE = 7


class Instruction(NamedTuple):
    """One instruction, with up to two operands: places in the program, the number of a variable or of a loop."""

    op: Op
    first: int = 0
    second: int = 0


class PatternProgram(NamedTuple):
    """The instructions, and the variables by number."""

    instructions: tuple[Instruction, ...]
    variables: tuple[str, ...]


def assemble(pattern: Node) -> PatternProgram:
    """Raises SpecError, without a pointer, for a pattern whose quantifiers make it too long."""
    made = _Assembler()
    made.add(pattern)
    made.emit(Instruction(Op.DONE), pattern.offset)
    return PatternProgram(tuple(made.instructions), tuple(made.variables))


def _may_be_empty(node: Node) -> bool:
    """Whether the part can match without an entry."""
    if isinstance(node, Variable):
        return False
    if isinstance(node, Repetition):
        return node.least == 0 or _may_be_empty(node.part)
    if isinstance(node, Choice):
        return any(map(_may_be_empty, node.parts))
    return isinstance(node, Anchor) or all(map(_may_be_empty, node.parts))


class _Assembler:
    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.variables: dict[str, int] = {}
        self._loops = 0

    def emit(self, instruction: Instruction, offset: int) -> int:
        if len(self.instructions) >= MOST_INSTRUCTIONS:
            raise SpecError(
                f"row pattern, character {offset + 1}: the quantifiers make more than {MOST_INSTRUCTIONS} steps "
                "of the pattern",
                offset=offset,
            )
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def add(self, node: Node) -> None:
        if isinstance(node, Variable):
            number = self.variables.setdefault(node.name, len(self.variables))
            self.emit(Instruction(Op.MATCH, number), node.offset)
        elif isinstance(node, Anchor):
            self.emit(Instruction(Op.BEGIN if node.sign == "^" else Op.END), node.offset)
        elif isinstance(node, Sequence):
            for part in node.parts:
                self.add(part)
        elif isinstance(node, Choice):
            self._add_choice(node)
        else:
            self._add_repetition(node)

    def _add_choice(self, node: Choice) -> None:
        jumps = []
        for part in node.parts[:-1]:
            split = self._open(node.offset)
            self.add(part)
            jumps.append(self._open(node.offset))
            self._close(split, Op.SPLIT, split + 1)
        self.add(node.parts[-1])
        for jump in jumps:
            self.instructions[jump] = Instruction(Op.JUMP, len(self.instructions))

    def _open(self, offset: int) -> int:
        return self.emit(Instruction(Op.JUMP), offset)

    def _close(self, place: int, op: Op, first: int, is_preferred: bool = True) -> None:
        """Gives an instruction its other operand: the place that comes next."""
        after = len(self.instructions)
        ways = (first, after) if is_preferred else (after, first)
        self.instructions[place] = Instruction(op, *ways)

    def _add_repetition(self, node: Repetition) -> None:
        # A variable keeps its number where it is written and never tried, as in A{0}.
        self._name(node.part)
        for _ in range(node.least if node.most is not None else max(node.least - 1, 0)):
            before = len(self.instructions)
            self.add(node.part)
            if len(self.instructions) == before:
                break
        if node.most is None:
            self._add_loop(node)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self._open(node.offset))
            self.add(node.part)
            if len(self.instructions) == splits[-1] + 1:
                break
        for split in splits:
            self._close(split, Op.SPLIT, split + 1, node.greedy)

    def _name(self, node: Node) -> None:
        if isinstance(node, Variable):
            self.variables.setdefault(node.name, len(self.variables))
        elif isinstance(node, Repetition):
            self._name(node.part)
        elif not isinstance(node, Anchor):
            for part in node.parts:
                self._name(part)

    def _add_loop(self, node: Repetition) -> None:
        skip = self._open(node.offset) if node.least == 0 else None
        begin, loop, may_be_empty = len(self.instructions), self._loops, _may_be_empty(node.part)
        if may_be_empty:
            self._loops += 1
            self.emit(Instruction(Op.ENTER, loop), node.offset)
        self.add(node.part)
        leave = self._open(node.offset) if may_be_empty else None
        self._close(self._open(node.offset), Op.SPLIT, begin, node.greedy)
        if leave is not None:
            self._close(leave, Op.LEAVE, loop)
        if skip is not None:
            self._close(skip, Op.SPLIT, begin, node.greedy)
