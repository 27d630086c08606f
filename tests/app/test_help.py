"""`--help` shows what was written: Rich takes `[word]` for markup and would leave it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from rich.text import Text
from typer.core import TyperGroup

from idgraph.app.cli import app


def _all(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _all(inner, f"{path} {name}")


COMMANDS = dict(_all(typer.main.get_command(app), "idgraph"))


def test_an_option_has_one_meaning() -> None:
    for path, command in COMMANDS.items():
        names = [name for each in command.params for name in each.opts if name.startswith("-")]
        assert len(names) == len(set(names)), path
        assert path == "idgraph dead-letters replay" or ("--why" in names) <= ("--reason" in names), path


@pytest.mark.parametrize("path", COMMANDS)
def test_nothing_of_a_help_text_is_taken_for_markup(path: str) -> None:
    command = COMMANDS[path]
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    for text in texts:
        assert Text.from_markup(text).plain == text.replace("\\[", "["), path
