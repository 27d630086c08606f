"""ActivityEntry patterns over a person's entries: SQL's MATCH_RECOGNIZE as a pure function of timelines and a moment."""

from transforms.behaviour.patterns.derivation import compile_pattern
from transforms.behaviour.patterns.matches import CompiledPattern, Match, Matches

__all__ = ["CompiledPattern", "Match", "Matches", "compile_pattern"]
