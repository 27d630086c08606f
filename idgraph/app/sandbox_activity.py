"""The stored data of a sandbox and of production, and the flows that run; no key is opened for it."""

from __future__ import annotations

import time
from contextlib import closing

from idgraph.app.adapters.stores import DEAD_LETTERS, PROFILES, open_profiles, worker_config
from idgraph.app.flow_folders import FlowFolders
from idgraph.app.settings.document import Settings
from idgraph.app.settings.sandbox import in_sandbox
from idgraph.model.flows import FlowState
from idgraph.model.sandboxes import SandboxActivity, SandboxFlow, SandboxSide
from sinks.sqlite.dead_letters import SqliteDeadLetters

FRESH_SECONDS = 10.0
"""A flow reports each second."""
RUNNING = (FlowState.STARTING, FlowState.RUNNING, FlowState.PAUSED)


def sandbox_activity(settings: Settings, name: str) -> SandboxActivity:
    """Raises ConfigError for an unknown sandbox, StoreError."""
    return SandboxActivity(production=_side(settings), sandbox=_side(in_sandbox(settings, name)))


def _side(settings: Settings) -> SandboxSide | None:
    if not (settings.directory / PROFILES).exists():
        return None
    with closing(open_profiles(worker_config(settings), None)) as store:
        fragments = store.count()
    letters = settings.directory / DEAD_LETTERS
    count = 0
    if letters.exists():
        with closing(SqliteDeadLetters(letters)) as dead_letters:
            count = sum(dead_letters.counts().values())
    folders = FlowFolders(settings.directory)
    flows = []
    for report in filter(None, map(folders.report, folders.names())):
        age = time.time() - report.written_ms / 1000
        is_running = report.state in RUNNING and age < FRESH_SECONDS
        flows.append(
            SandboxFlow(
                name=report.name,
                state=report.state,
                is_running=is_running,
                events_per_second=report.events_per_second if is_running else 0.0,
            )
        )
    return SandboxSide(fragments=fragments, dead_letters=count, flows=flows)
