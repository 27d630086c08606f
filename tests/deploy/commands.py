"""The commands of idgraph in a container's arguments."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer
from typer.main import get_command

from idgraph.app.cli import app


def commands_of_idgraph(words: list[str]) -> list[list[str]]:
    """Those of a shell script too."""
    if words[0] == "idgraph":
        return [words[1:]]
    script = words[-1] if words[:1] == ["/bin/sh"] else ""
    return [shlex.split(each) for each in re.findall(r"^\s*idgraph ([a-z][^&|\n]*)", script, re.MULTILINE)]


def check_command(words: list[str]) -> None:
    """Fails for a command or an option that the command line does not know."""
    command: Any = get_command(app)
    context = typer.Context(command)
    while hasattr(command, "get_command"):
        command = command.get_command(context, words[0])
        assert command is not None, words
        words = words[1:]
    command.make_context("idgraph", list(words))
