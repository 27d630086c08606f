"""`idgraph up`: everything of a configuration, in one terminal."""

from __future__ import annotations

import getpass
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.commands.context import settings_of
from idgraph.app.observation.json_logs import say
from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.app.supervision import Part

_STANDARD_OUTPUT = Path("-")
_TARGET = "idgraph.target"
_TARGET_UNIT = """\
[Unit]
Description=idgraph: its services and flows
Wants={units}

[Install]
WantedBy=multi-user.target
"""
_UNIT = """\
[Unit]
Description=idgraph: {name}
After=network-online.target{after}
Wants=network-online.target
PartOf=idgraph.target

[Service]
Type=exec
User={user}
WorkingDirectory={folder}
# For secrets, as IDGRAPH_... variables and those of AWS; the file may be missing.
EnvironmentFile=-{folder}/idgraph.env
ExecStart={command}
Restart=on-failure
RestartSec=10
# Code 2: the configuration is wrong, and a start changes nothing.
RestartPreventExitStatus=2
# A flow finishes its micro-batch; a signal to its Java process would break it off.
KillMode=mixed
TimeoutStopSec=180
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full

[Install]
WantedBy=idgraph.target
"""


def up(
    context: typer.Context,
    flows: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FLOW",
            help="Configurations of more flows with the same `directory`, each with a `flow.name` of its own.",
            show_default=False,
        ),
    ] = None,
    systemd: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Start nothing: write a unit of systemd for each process into this folder; `-`: print them.",
        ),
    ] = None,
) -> None:
    """Run the metadata service, the profile service and the flow of the configuration, until Ctrl-C.

    They write one log, in which each line begins with the process, and end together: the flow finishes its micro-batch
    first. If one ends by itself, the others end too, with its exit code. Without sources there is no flow. A metadata
    service on another machine is used, not started.

    Before the first start: `idgraph keys init`. Meanwhile, in another terminal: `idgraph specs apply FILE`,
    `idgraph publish SOURCE FILE`, `idgraph search`. For a machine that restarts by itself:
    `idgraph up --systemd /etc/systemd/system`, then `systemctl enable --now idgraph.target`.
    """
    from idgraph.app.adapters.key_providers import ensure_keyring
    from idgraph.app.java import require_java
    from idgraph.app.settings.document import load

    settings = settings_of(context)
    settings.require_folder()
    more = [load(each) for each in flows or ()]
    _require_one_folder([settings, *more])
    if systemd is not None:
        _write_units(_parts(context, settings, more), settings, systemd)
        return
    ensure_keyring(settings)
    if any(each.sources for each in (settings, *more)):
        require_java()
    else:
        say("no sources are configured ([[sources]]), so there is no flow")
    _require_ports(settings)
    from idgraph.app.cli import END_WITH_INPUT
    from idgraph.app.supervision import supervise

    raise typer.Exit(supervise(_parts(context, settings, more, END_WITH_INPUT)))


def _parts(context: typer.Context, settings: Settings, more: list[Settings], *options: str) -> list[Part]:
    """All processes; `options` are for each, before the command."""
    from idgraph.app.supervision import Part, address

    stated = context.find_root().params
    given = [*options, "--log-format", str(stated["log_format"].value)] + ["--verbose"] * stated["verbose"]
    given += ["--sandbox", stated["sandbox"]] if stated["sandbox"] else []

    def command(own: Settings, *words: str) -> tuple[str, ...]:
        of_file = ["-c", str(own.file)] if own.file else []
        return (sys.executable, "-m", "idgraph", *of_file, *given, *words)

    url = settings.metadata.url
    parts = []
    if _is_here(address(url)[0]):
        # Not into logs that others read.
        link = ["--link"] if options and sys.stderr.isatty() else []
        parts.append(Part("metadata", command(settings, "serve", "metadata", *link), url, is_last=True))
    else:
        say(f"the metadata service at {url} is on another machine")
    parts.append(Part("profiles", command(settings, "serve", "profiles")))
    if settings.index.fed_by == "streams":
        parts.append(Part("index", command(settings, "index", "follow")))
    with_sources = [each for each in (settings, *more) if each.sources]
    return parts + [Part(f"flow-{each.flow.name}", command(each, "run")) for each in with_sources]


def _require_ports(settings: Settings) -> None:
    """Before anything runs: a flow would take another program on the port for the metadata service."""
    from idgraph.app.supervision import address
    from idgraph.web.server import require_port

    host, port = address(settings.metadata.url)
    if _is_here(host):
        require_port("the metadata service", host, port)
    require_port("the profile service", settings.profiles.host, settings.profiles.port)


def _require_one_folder(found: list[Settings]) -> None:
    names = [each.flow.name for each in found]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"two flows have the same name; give each a `[flow] name` of its own: {', '.join(names)}"
        )
    for each in found:
        if each.directory != found[0].directory:
            raise ConfigError(
                f"{each.file}: `directory` is {each.directory}, and that of the others {found[0].directory}"
            )


def _is_here(host: str) -> bool:
    """Whether this machine has the address."""
    with suppress(OSError):
        family, kind, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
            return True
    return False


def _write_units(parts: list[Part], settings: Settings, folder: Path) -> None:
    made = _units(parts, settings.file.parent if settings.file else Path.cwd())
    if folder == _STANDARD_OUTPUT:
        for name, text in made.items():
            print(f"# /etc/systemd/system/{name}\n{text}")
        return
    try:
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; `--systemd -` prints the units") from None
    say(f"wrote {', '.join(made)}; then: systemctl daemon-reload && systemctl enable --now {_TARGET}")


def _units(parts: list[Part], folder: Path) -> dict[str, str]:
    """By name of its file: a unit for each part, and the target of all. `folder` is that of the configuration."""
    names = {part: f"idgraph-{part.name}.service" for part in parts}
    first = [names[part] for part in parts if part.is_last]
    made = {
        name: _UNIT.format(
            name=part.name,
            after="".join(f" {each}" for each in first if each != name),
            user=getpass.getuser(),
            folder=str(folder).replace("%", "%%"),
            command=" ".join(_quoted(word) for word in part.command),
        )
        for part, name in names.items()
    }
    return {_TARGET: _TARGET_UNIT.format(units=" ".join(made))} | made


def _quoted(word: str) -> str:
    escaped = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if any(each in word for each in " \t\"'\\;") else escaped
