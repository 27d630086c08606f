"""Exit codes that scripts can use, and how errors are reported."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from idgraph.app.observation.json_logs import say
from idgraph.model.errors import (
    ConfigError,
    FlowStoppedError,
    IdgraphError,
    JobStoppedError,
    MetadataError,
    NotFoundError,
    ProfileServiceError,
    QueryError,
    RefusedError,
    UnknownKeyVersionError,
)
from idgraph.model.text import escape_control_chars


class Exit(IntEnum):
    """0 is success."""

    FAILED = 1
    """Something did not work: bad input lines, a refused spec, a store that failed."""
    USAGE = 2
    """The command line or the configuration is wrong."""
    NOT_FOUND = 3
    """The object does not exist."""
    STOPPED = 4
    """The flow stopped itself: too many dead letters."""
    UNAVAILABLE = 5
    """The metadata service is away, or refused the token."""
    DRIFT = 6
    """The index differs from the store, or look-ups from features."""
    INTERRUPTED = 130
    """Ctrl-C, as a shell reports it: 128 and the signal's number; or a job was cancelled."""
    BROKEN_PIPE = 141
    """The reader of standard output went away, as a shell reports SIGPIPE."""


@contextmanager
def error_handler() -> Iterator[None]:
    """Turn an error of the error tree into a message on standard error and an exit code."""
    try:
        yield
        # Here and not when the interpreter ends, where nobody could report what went wrong.
        sys.stdout.flush()
    except JobStoppedError as stopped:
        say(str(stopped), logging.WARNING)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except IdgraphError as error:
        for line in str(error).splitlines():
            say(f"error: {escape_control_chars(line)}", logging.ERROR)
        raise typer.Exit(_code(error)) from None
    except KeyboardInterrupt:
        say("interrupted", logging.WARNING)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output went away (`| head`), which is its right: nothing is said about it.
        _discard_output()
        raise typer.Exit(Exit.BROKEN_PIPE) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        say(f"error: {error.filename or 'standard output'}: {error.strerror}", logging.ERROR)
        raise typer.Exit(Exit.FAILED) from None


def _discard_output() -> None:
    # The rest of the buffer would fail again when the interpreter ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _code(error: IdgraphError) -> Exit:
    match error:
        case ConfigError() | QueryError():
            return Exit.USAGE
        case FlowStoppedError():
            return Exit.STOPPED
        case NotFoundError() | UnknownKeyVersionError():
            return Exit.NOT_FOUND
        case ProfileServiceError(status=400 | 422):
            return Exit.USAGE
        case ProfileServiceError(status=None | 401 | 404 | 405 | 501 | 503):
            return Exit.UNAVAILABLE
        case RefusedError():
            return Exit.FAILED
        case MetadataError():
            return Exit.UNAVAILABLE
    return Exit.FAILED
