"""Errors of the database as problem details."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request, Response
from sqlalchemy.exc import DataError, InterfaceError, OperationalError, SQLAlchemyError

from idgraph.model.database_errors import cause_of
from idgraph.web.problems import problem, unavailable

log = logging.getLogger(__name__)


def log_database_error(error: SQLAlchemyError) -> None:
    """Log what is no outage: those are logged by what reads and writes the database, once."""
    if not isinstance(error, OperationalError | InterfaceError):
        log.error("the database %s", cause_of(error))


def database_unavailable(error: Exception) -> Response | None:
    """A 503 with the cause; None for an error that is none of the database."""
    if not isinstance(error, SQLAlchemyError):
        return None
    log_database_error(error)
    return unavailable(
        "database", f"the database cannot be read or written: {cause_of(error, is_short=True)}"
    )


def install(app: FastAPI) -> None:
    """Let the application answer these errors."""

    @app.exception_handler(DataError)
    def unstorable(_request: Request, _error: DataError) -> Response:
        return problem(400, "unstorable", "a value cannot be stored; text holds no NUL character")

    @app.exception_handler(SQLAlchemyError)
    def database(_request: Request, error: SQLAlchemyError) -> Response | None:
        return database_unavailable(error)
