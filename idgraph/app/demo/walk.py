"""The demo: the whole path on example data, in one process."""

from __future__ import annotations

import shlex
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from idgraph.app import metadata_access, wiring
from idgraph.app.behaviour_documents import read_behaviour
from idgraph.app.demo.example import Example
from idgraph.app.identity_documents import read_rules
from idgraph.app.java import require_java
from idgraph.app.link_views import print_explanation
from idgraph.app.metadata_server import application, sign_in_link
from idgraph.app.profile_tree import profile_tree
from idgraph.app.publish import publish_lines
from idgraph.app.settings.document import Settings, load
from idgraph.app.terminal import console, counted
from idgraph.files import write_atomically
from idgraph.model import canonical
from idgraph.model.backoff import Retries, steady
from idgraph.model.errors import ConfigError, IdgraphError
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import Query
from idgraph.web.server import serving
from ingestion.sources.stream import Intake
from ingestion.stages.outcomes import BatchReport, StageReport
from metadata_service.documents.reading import read_attributes, read_definition
from profile_service.links import Links
from profile_service.reader import Profile
from sinks.http.connection import ask_once
from sinks.http.metadata import MetadataClient


class RunningFlow:
    """The flow in a thread, and its reports so far."""

    def __init__(self, settings: Settings) -> None:
        self.counts = StageReport()
        self.seconds = 0.0
        self.failure: IdgraphError | None = None
        self._settings = settings
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="flow")

    def __enter__(self) -> RunningFlow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        from idgraph.app.flow_runner import run_flow

        try:
            run_flow(self._settings, self._stop, Intake(), self._take)
        except IdgraphError as error:
            self.failure = error
        finally:
            with self._changed:
                self._changed.notify_all()

    def _take(self, report: BatchReport) -> None:
        with self._changed:
            self.counts.add(report.counts)
            self.seconds += report.seconds
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for the next report, at most so long. Raises the error that stopped the flow."""
        with self._changed:
            self._changed.wait(seconds)
        if self.failure is not None:
            raise self.failure
        if not self._thread.is_alive():
            raise IdgraphError("the flow ended unexpectedly")


PORTS = 8410, 8420
"""Ports of the metadata service and of the profile service, where they are free."""
EDIT_SECONDS = 60
SEARCHABLE_SECONDS = 60
"""The longest wait of the summary for the projection, which follows the flow."""


def run_demo(name: str, directory: Path, stop: threading.Event) -> None:
    """Lay an example out in a directory and run it there.

    Raises KeyboardInterrupt when `stop` is set before all was shown.
    """
    require_java()
    example = Example(name)
    config = example.lay_out(directory)
    _choose_ports(config)
    Demo(example, config).run(stop)


def _choose_ports(config: Path) -> None:
    # Those of README.md, unless they are taken; later commands use the ports in the copy.
    metadata, profiles = map(_free_port, PORTS)
    text = config.read_text(encoding="utf-8").replace("127.0.0.1:8410", f"127.0.0.1:{metadata}")
    config.write_text(f"{text.rstrip()}\n\n[profiles]\nport = {profiles}\n", encoding="utf-8")


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as listener:
            return int(listener.getsockname()[1])
    raise ConfigError("no port of 127.0.0.1 is free")


class Demo:
    """One run of the demo."""

    def __init__(self, example: Example, config: Path) -> None:
        self._example = example
        self._config = config
        self._settings = load(config)
        self._console = console()

    def run(self, stop: threading.Event) -> None:
        """All of it. Raises KeyboardInterrupt when `stop` is set before the end."""
        say = self._console.print
        say(f"[bold]idgraph demo[/]: {self._example.shown['title']}\n")
        with ExitStack() as stack:
            wiring.prepare_directory(self._settings)
            from idgraph.app.adapters.key_providers import create_keyring

            create_keyring(self._settings)
            port = int(self._settings.metadata.url.rsplit(":", 1)[1])
            app = application(self._settings)
            url = stack.enter_context(serving(app, "127.0.0.1", port))
            client = stack.enter_context(metadata_access.metadata_client(self._settings))
            self._declare(client)
            say(f"metadata service on {url}, {counted(len(client.list_specs()), 'spec')} active")
            total = 0
            for source, lines in self._example.files(self._settings):
                publish_lines(self._settings.file_source(source), lines)
                total += len(lines)
            say(f"{total:,} events published; starting Spark\n")
            flow = stack.enter_context(RunningFlow(self._settings))
            self._follow(flow, total, stop)
            self._wait_for_catalogue(client)
            self._summarise(flow, client)
            self._show_profile()
            self._edit(client, flow, stop)
            self._serve(stack)
            _unless(stop)
            stays = sys.stdin.isatty() and sys.stdout.isatty()
            if stays:
                say(
                    "\n[bold]In a browser[/]: Profile Self Serve, by a link that works once, within ten minutes\n"
                )
                link = sign_in_link(app, url, self._settings)
                say(f"  {link}", soft_wrap=True, markup=False, highlight=False)
            self._suggest(stays)
            if stays:
                say(
                    "\nThe service and the flow stay up for you to try this in another terminal. Ctrl-C ends."
                )
                while not stop.is_set():
                    flow.wait(0.5)

    def _declare(self, client: MetadataClient) -> None:
        attributes = self._example.attributes()
        for definition, _, _ in read_attributes(attributes) if attributes else ():
            client.put_attribute(definition, "demo")
        rules = self._example.identity_rules()
        if rules is not None:
            client.put_rules(read_rules(rules), "demo")
        for spec in self._example.specs():
            client.put_spec(read_definition(spec), "demo")
        behaviour = self._example.behaviour()
        for _, each in read_behaviour(behaviour).placed() if behaviour else ():
            client.put_definition(each, "demo")

    def _follow(self, flow: RunningFlow, total: int, stop: threading.Event) -> None:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        with bar if self._console.is_terminal else ExitStack():
            task = bar.add_task("events", total=total)
            worker_config = 0
            while flow.counts.events < total and not stop.is_set():
                flow.wait(0.5)
                done = flow.counts.events
                bar.update(task, completed=done)
                if not self._console.is_terminal and done - worker_config >= total // 5:
                    self._console.print(f"  {done:,} of {total:,} events")
                    worker_config = done
            if not self._console.is_terminal and worker_config < flow.counts.events:
                self._console.print(f"  {flow.counts.events:,} of {total:,} events")
        _unless(stop)

    def _wait_for_catalogue(self, client: MetadataClient) -> None:
        # The last discoveries are on their way; the service takes them within the update interval.
        etag: str | None = None
        while (
            answer := client.snapshot(etag, 4 * self._settings.metadata.schema_update_interval)
        ) is not None:
            etag = answer.etag

    def _summarise(self, flow: RunningFlow, client: MetadataClient) -> None:
        say = self._console.print
        counts = flow.counts
        discovered = sum(1 for _ in client.search_attributes(status="discovered"))
        with wiring.opened(self._settings) as resources:
            ends = time.monotonic() + SEARCHABLE_SECONDS
            while resources.store.outbox(1) and time.monotonic() < ends:
                time.sleep(0.1)
            fragments = resources.store.count()
            profiles = resources.index.count(Query())
        dead = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.dead.items())) or "none"
        say(f"\n[bold]events[/]            {counts.events:>9,}   ({counts.skipped:,} mapped to nothing)")
        say(f"[bold]fragments[/]         {fragments:>9,}   (one per primary identifier)")
        say(f"[bold]profiles[/]          {profiles:>9,}   (persons that the identity rules make of them)")
        say(f"[bold]dead letters[/]      {counts.dead_letter_count():>9,}   ({dead})")
        say(f"[bold]attributes found[/]  {discovered:>9,}   (nobody declared them)")
        say(f"[bold]protected values[/]  {counts.protected:>9,}   (sealed before they left the map stage)")
        say(
            f"[bold]events a second[/]   {counts.events / max(flow.seconds, 1e-9):>9,.0f}   (over {flow.seconds:.1f} s of micro-batches)\n"
        )

    def _show_profile(self) -> None:
        with wiring.opened(self._settings) as resources:
            reader = wiring.profile_reader(self._settings, resources)
            wanted = self._example.shown.get("show")
            if wanted:
                found = reader.lookup(Identifier.parse(wanted))
            else:
                found = reader.search(Query(), limit=1).profiles
            for profile in found[:1]:
                self._console.print("[bold]One profile[/], each value with where it came from:\n")
                self._console.print(profile_tree(profile.canonical(provenance=True)))
            if wanted and self._example.shown.get("explain"):
                self._console.print("\n[bold]Why it is one person[/], and which links the rules refused:\n")
                for each in Links(resources.store, reader).explain(Identifier.parse(wanted)):
                    print_explanation(each, "text", None)

    def _edit(self, client: MetadataClient, flow: RunningFlow, stop: threading.Event) -> None:
        edit = self._example.shown.get("edit")
        if not edit:
            return
        say = self._console.print
        file = self._example.folder / edit["spec"]
        say("\n[bold]A spec edit, live[/], beside the running flow:\n")
        self._say_command(f"specs apply {_shown(file)}")
        started = time.monotonic()
        saved = client.put_spec(read_definition(file), "demo: an edit while the flow runs")
        event = canonical.encode(canonical.decode((self._example.folder / edit["event"]).read_bytes()))
        publish_lines(
            self._settings.file_source(edit["source"]), [self._example.moved(edit["source"], event)]
        )
        say(f"  {saved.name} version {saved.active_version} is active; one more event published")
        leaf = None
        while leaf is None and time.monotonic() - started < EDIT_SECONDS and not stop.is_set():
            flow.wait(0.05)
            leaf = self._edited(edit["attribute"], saved.active_version or 0)
        if leaf is None:
            _unless(stop)
            raise IdgraphError("the edited spec did not act on the event within a minute")
        say(
            f"  {time.monotonic() - started:.2f} s later: {leaf[0].id} has {edit['attribute']} = {leaf[1]}, "
            f"made by {saved.name}@{saved.active_version}"
        )

    def _edited(self, path: str, version: int) -> tuple[Profile, str] | None:
        with wiring.opened(self._settings) as resources:
            for profile in wiring.profile_reader(self._settings, resources).lookup(
                Identifier.parse(self._example.shown["show"])
            ):
                for leaf in profile.leaves:
                    if leaf.path == path and leaf.register.spec.version == version:
                        return profile, str(leaf.value)
        return None

    def _serve(self, stack: ExitStack) -> None:
        """The profile service, with a token for two calls that are there to be copied."""
        calls = self._example.shown.get("http")
        if not calls:
            return
        from idgraph.app.metadata_database import opened_metadata_database
        from idgraph.app.profile_server import serving_here as serving_profiles
        from metadata_service.storage.tokens import Role, add_token

        with opened_metadata_database(self._settings) as database, database.write() as edit:
            token = add_token(edit, "demo", Role.PROFILES, clearance=20)
        file = self._settings.directory / "demo.token"
        write_atomically(file, token.encode())
        port = int(self._settings.profiles.port)
        url = stack.enter_context(serving_profiles(self._settings, port))
        say = self._console.print
        say(
            f"\n[bold]Over HTTP[/], for product teams: the profile service on {url}, described on {url}/docs\n"
        )
        for call in calls:
            say(
                f'  curl -s -H "Authorization: Bearer $(cat {shlex.quote(_shown(file))})" {shlex.quote(url + call)}',
                soft_wrap=True,
                markup=False,
            )
            text = _got(url + call, token)
            rest = "…" * (len(text) > SHOWN_CHARACTERS)
            say(f"    {text[:SHOWN_CHARACTERS]}{rest}", markup=False, highlight=False)

    def _suggest(self, stays: bool) -> None:
        self._console.print("\n[bold]Try next[/]\n")
        if not stays:
            self._say_command("serve metadata", " &")
            if self._example.shown.get("http"):
                self._say_command("serve profiles", " &")
        for words in self._example.shown["try"]:
            self._say_command(words)

    def _say_command(self, words: str, end: str = "") -> None:
        # On one line, however narrow the terminal: it is there to be copied.
        self._console.print(f"  {self._command(words)}{end}", soft_wrap=True, markup=False)

    def _command(self, words: str) -> str:
        program = _shown(Path(sys.argv[0])) if "/" in sys.argv[0] else "idgraph"
        return f"{program} -c {shlex.join([_shown(self._config), *shlex.split(words)])}"


SHOWN_CHARACTERS = 300


def _got(url: str, token: str) -> str:
    """The body of an answer, waited for while the service reads the metadata. Raises IdgraphError."""
    retries = Retries(steady(0.1), EDIT_SECONDS)
    while (answer := ask_once(url, EDIT_SECONDS, token)) is None or answer[0] in (401, 503):
        if not retries.pause():
            break
    if answer is None or answer[0] != HTTPStatus.OK:
        raise IdgraphError(f"the profile service answered {answer and answer[0]}")
    return answer[1].decode(errors="replace")


def _unless(stop: threading.Event) -> None:
    """Raises KeyboardInterrupt when the demo was asked to stop in its middle."""
    if stop.is_set():
        raise KeyboardInterrupt


def _shown(path: Path) -> str:
    resolved = path.resolve()
    here = Path.cwd()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)
