"""`idgraph backup` and `idgraph restore`: all that is embedded, into a folder and back."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from idgraph.app.commands.context import keyed, note, settings_of
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted
from idgraph.files import OWNER_ONLY, owner_only, write_atomically
from idgraph.model.errors import ConfigError, StoreError
from idgraph.model.formats import require_format
from idgraph.model.jobs import moment_text

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings

_MANIFEST = "backup.json"
_FORMAT = 1
_OF_FLOWS = {"spark", "spark.log", "lock", "report.json", "checkpoint"}
"""In the folder of a flow: what is of the present, and the checkpoint, which is copied by itself."""
_CHECKPOINT = "commits", "offsets", "sources"
"""In this order a copy is that of a crash: what is noted as done was planned, and what was planned was found."""
_TRIES = 10

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the backup.")]


class _File(msgspec.Struct, frozen=True):
    sha256: str
    size: int


class _Manifest(msgspec.Struct, frozen=True):
    """What makes a folder a backup: written when all else is. `keyring` is a mark of the keyring, which reveals nothing of it."""

    format: int
    idgraph: str
    began_ms: int
    ended_ms: int
    store: str
    keyring: str
    files: dict[str, _File]


def backup(
    context: typer.Context,
    folder: Folder,
    with_keyring: Annotated[
        bool,
        typer.Option("--with-keyring", help="Also the keyring: then whoever has the backup opens all of it."),
    ] = False,
) -> None:
    """Copy profiles, keys, dead letters, metadata, jobs, households, audit log and the flows' checkpoints.

    Flows and services go on meanwhile. DIR is new or empty. The search index is not copied: after a restore a flow makes
    it again. Nor are the keyring, which belongs elsewhere, source files, sandboxes (`idgraph --sandbox NAME backup DIR`)
    and what is in DynamoDB, Elasticsearch or PostgreSQL: the command names them.

    Test a backup: `idgraph -c OTHER/idgraph.toml restore DIR`.
    """
    settings = keyed(context)
    settings.require_folder()
    _require_empty(folder)
    if folder.resolve().is_relative_to(settings.directory.resolve()):
        raise ConfigError(
            f"{folder} is in {settings.directory}, and would be lost with it; name a folder elsewhere, best on another disk"
        )
    note(settings, "back up", subject=str(folder.resolve()))
    began = time.time_ns() // 1_000_000
    with owner_only(), _named_errors():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        _copy_installation(settings, folder, with_keyring)
        files = {
            str(each.relative_to(folder)): _file(each) for each in sorted(folder.rglob("*")) if each.is_file()
        }
        manifest = _Manifest(
            format=_FORMAT,
            idgraph=version("idgraph"),
            began_ms=began,
            ended_ms=time.time_ns() // 1_000_000,
            store=settings.store.kind,
            keyring=_mark(settings, settings.keyring_file()),
            files=files,
        )
        # The manifest says that all is there, after a power cut too.
        os.sync()
        write_atomically(folder / _MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    size = sum(each.size for each in files.values())
    say(f"backed up {counted(len(files), 'file')}, {size / 1e6:,.1f} MB, to {folder}")
    if not with_keyring:
        say(
            f"without the keyring: keep a copy of {settings.keyring_file()} elsewhere, or all protected values are lost"
        )
    _name_servers(settings, manifest)


def restore(
    context: typer.Context,
    folder: Folder,
    keyring: Annotated[
        Path | None, typer.Option(help="The keyring, where the backup has none.", show_default=False)
    ] = None,
    tombstones: Annotated[
        Path | None,
        typer.Option(
            help="The newest tombstones.jsonl that is left: whom it names is erased again.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Put a backup in place of a `directory` that is not there, or is empty.

    Each file is compared with its checksum first. A backup that was not finished and a keyring of another installation are
    refused, and nothing is left. A flow that goes on from there reads again what it had taken since, which changes
    nothing, and makes the search index again.
    """
    settings = settings_of(context)
    _require_empty(settings.directory)
    manifest = _manifest(folder)
    if manifest.store != settings.store.kind:
        raise ConfigError(
            f"{folder} is of an installation with [store] kind {manifest.store}, and this one has {settings.store.kind}"
        )
    with owner_only(), _named_errors(), _staged(settings.directory) as staged:
        for name, found in manifest.files.items():
            _copy_file(folder / name, staged / name)
            if _file(staged / name) != found:
                raise StoreError(
                    f"{folder / name} is damaged: it is not what was backed up; take another backup"
                )
        _restore_keyring(settings, staged, keyring, manifest)
        if tombstones is not None:
            with (staged / "tombstones.jsonl").open("ab") as joined:
                joined.write(tombstones.read_bytes())
    note(settings, "restore backup", subject=str(folder.resolve()))
    ended = moment_text(manifest.ended_ms)
    say(f"restored {counted(len(manifest.files), 'file')} of {ended} to {settings.directory}")
    if tombstones is None:
        say(
            "persons who were erased since then are back: erase them again (--tombstones does, by the newest file)"
        )
    _name_servers(settings, manifest)
    if (settings.store.kind, settings.index.kind) == ("sqlite", "sqlite"):
        _enqueue_all(settings)
        say("next: `idgraph up`: the flow also makes the search index again")
    else:
        say("next: `idgraph up`, then `idgraph reindex`, which makes the search index again")


def _copy_installation(settings: Settings, folder: Path, with_keyring: bool) -> None:
    """In an order after which no part is ahead of one that it follows: what remembers that something was taken, sent or done
    before the profiles, what they need after them."""
    from idgraph.app.adapters import stores
    from idgraph.app.adapters.shared_state import HOUSEHOLDS

    directory = settings.directory
    if settings.store.kind == "sqlite":
        stores.require_profiles(directory)
    for name in ("webhooks", "topics", "triggers", "receipts"):
        _copy_tree(directory / name, folder / name)
    _copy_database(directory / "jobs.db", folder)
    for flow in sorted(directory.glob("flows/*/")):
        _copy_flow(flow, folder / "flows" / flow.name)
    # A key is there before what it protects.
    keyed_pairs = (stores.DEAD_LETTERS, stores.DEAD_LETTER_KEYS, stores.PROFILES, stores.DATA_KEYS)
    for name in (*keyed_pairs, HOUSEHOLDS):
        _copy_database(directory / name, folder)
    if settings.metadata.database is None:
        _copy_database(directory / "metadata.db", folder)
    plain = ("metadata.key", "metadata.pub", "admin.token", "flow.token", "profiles.token")
    for file in (*map(directory.joinpath, plain), *sorted(directory.glob("audit*.jsonl"))):
        _copy_existing(file, folder / file.name)
    # Last: whoever is erased meanwhile is in it.
    _copy_existing(directory / "tombstones.jsonl", folder / "tombstones.jsonl")
    if with_keyring:
        _copy_file(settings.keyring_file(), folder / "keyring.json")


def _copy_flow(flow: Path, target: Path) -> None:
    for _ in range(_TRIES):
        try:
            _copy_checkpoint(flow / "checkpoint", target / "checkpoint")
            break
        except FileNotFoundError:
            # Spark has removed an old file meanwhile.
            shutil.rmtree(target / "checkpoint", ignore_errors=True)
    else:
        raise StoreError(f"{flow / 'checkpoint'}: changes too fast to be copied")
    for each in sorted(flow.iterdir()):
        if each.name not in _OF_FLOWS and not each.name.startswith((".", "checkpoint.")):
            _copy_tree(each, target / each.name)


def _copy_checkpoint(checkpoint: Path, target: Path) -> None:
    if not checkpoint.is_dir():
        return
    names = [each.name for each in checkpoint.iterdir() if each.name not in _CHECKPOINT]
    for name in (*_CHECKPOINT, *sorted(names)):
        for file in (
            sorted((checkpoint / name).rglob("*")) if (checkpoint / name).is_dir() else [checkpoint / name]
        ):
            # Those that begin so are unfinished, or checksums, without which a file is read as it is.
            if file.is_file() and not file.name.startswith("."):
                _copy_file(file, target / file.relative_to(checkpoint))
    done = max((int(each.name) for each in target.glob("commits/[0-9]*")), default=-1)
    for planned in target.glob("offsets/[0-9]*"):
        if int(planned.name) > done + 1:
            planned.unlink()


def _copy_tree(place: Path, target: Path) -> None:
    for file in [place] if place.is_file() else sorted(place.rglob("*")):
        if file.is_file() and not file.name.startswith(".") and file.name != "lock":
            _copy_existing(file, target / file.relative_to(place))


def _copy_existing(file: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        _copy_file(file, target)


def _copy_file(file: Path, target: Path) -> None:
    if not file.is_file():
        raise FileNotFoundError(2, "No such file", str(file))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(OWNER_ONLY)


def _copy_database(file: Path, folder: Path) -> None:
    if file.exists():
        from sinks.sqlite.schema import copy_database

        copy_database(file, folder / file.name)


def _restore_keyring(settings: Settings, staged: Path, given: Path | None, manifest: _Manifest) -> None:
    """Raises ConfigError without a keyring, KeyProviderError for one of another installation."""
    target, own = settings.keyring_file(), staged / "keyring.json"
    candidates = [each for each in (given, target, own) if each is not None and each.exists()]
    if not candidates:
        raise ConfigError(
            "the backup has no keyring: name its copy by --keyring; nothing else opens protected values"
        )
    if _mark(settings, candidates[0]) != manifest.keyring:
        raise ConfigError(
            f"{candidates[0]} is not the keyring of this backup, so protected values could never be opened; name it by --keyring"
        )
    is_within = target.is_relative_to(settings.directory)
    place = staged / target.relative_to(settings.directory) if is_within else target
    if candidates[0] != place:
        _copy_file(candidates[0], place)
    if own != place:
        own.unlink(missing_ok=True)


def _enqueue_all(settings: Settings) -> None:
    """Let the projection of the next flow take all profiles."""
    from idgraph.app import wiring
    from idgraph.model.store import scan_pages

    if (settings.directory / "profiles.db").exists():
        with wiring.opened_to_read(settings) as resources:
            for page in scan_pages(resources.store):
                resources.store.enqueue([each.id for each in page])


def _mark(settings: Settings, keyring: Path) -> str:
    from idgraph.app.adapters.key_providers import keys_config, open_provider
    from idgraph.app.adapters.lost_keys import keyring_mark

    return keyring_mark(open_provider(keys_config(settings) | {"keyring": str(keyring)}))


def _name_servers(settings: Settings, manifest: _Manifest) -> None:
    moment = moment_text(manifest.ended_ms)
    if settings.store.kind == "dynamodb":
        say(
            f"profiles, keys and all that is shared are in DynamoDB: restore the tables by point-in-time recovery to {moment} or "
            "later, the data keys last (docs/dynamodb.md); before that the checkpoints would be ahead of the profiles"
        )
    if settings.metadata.database is not None:
        say("[metadata] database is elsewhere: back it up and restore it by its own tools, as `pg_dump`")


def _file(file: Path) -> _File:
    with file.open("rb") as stream:
        return _File(sha256=hashlib.file_digest(stream, "sha256").hexdigest(), size=file.stat().st_size)


def _manifest(folder: Path) -> _Manifest:
    """Raises ConfigError for a folder that is no finished backup, or one that this idgraph does not read."""
    file = folder / _MANIFEST
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=_Manifest)
    except FileNotFoundError:
        raise ConfigError(f"{folder} is no backup, or was not finished: there is no {_MANIFEST}") from None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({type(error).__name__})") from None
    require_format(file, manifest.format, _FORMAT, ConfigError, "use the idgraph that made it")
    if wrong := [
        each
        for each in manifest.files
        if PurePosixPath(each).is_absolute() or ".." in PurePosixPath(each).parts
    ]:
        raise ConfigError(f"{file}: {wrong[0]} is outside of a backup")
    return manifest


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; move it away, or name another folder")


@contextmanager
def _staged(directory: Path) -> Iterator[Path]:
    """A folder that takes the place of a directory when the block ends well, else is gone."""
    staged = directory.with_name(f".{directory.name}.restoring")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(mode=0o700, parents=True)
    try:
        yield staged
        os.sync()
        if directory.exists():
            directory.rmdir()
        staged.rename(directory)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or 'the backup'}: {error.strerror}") from None
