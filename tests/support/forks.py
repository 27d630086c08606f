"""Runs modules' `main`, each time in a fork of one interpreter that has loaded them: `python -m tests.support.forks MODULE...`.

What is hostile needs a process that the system can end. To start an interpreter and import takes longer than most attacks.
It reads a call a line and answers with how that ended: what `python -m MODULE ARGUMENT` would have ended with.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, NoReturn, Self

from idgraph import native

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """`code` is below zero where a signal ended the process."""

    code: int
    output: str
    errors: str


class Forks:
    """The interpreter that is forked."""

    def __init__(self, *modules: str) -> None:
        # A session of its own: with it ends also what it forked.
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks", *modules],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def ended(self) -> bool:
        return self._server.returncode is not None

    def end(self) -> None:
        if not self.ended:
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()

    def run(self, module: str, argument: str) -> Ended:
        """With the native loops where this process uses them."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        try:
            print(
                json.dumps([module, argument, native.programs is not None]),
                file=self._server.stdin,
                flush=True,
            )
            return Ended(*json.loads(self._server.stdout.readline()))
        except BaseException:
            # Its answer, should it come yet, would be taken for that of the next call.
            self.end()
            raise


def _call(module: str, argument: str, loops: bool) -> NoReturn:
    code = 1
    try:
        native.use(loops)
        sys.argv = [module, argument]
        sys.modules[module].main()
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _forked(module: str, argument: str, loops: bool) -> Ended:
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        process = os.fork()
        if not process:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            _call(module, argument, loops)
        _, status = os.waitpid(process, 0)
        output.seek(0)
        errors.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), output.read(), errors.read())


def main() -> None:
    for module in sys.argv[1:]:
        import_module(module)
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_forked(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
