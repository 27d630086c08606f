"""The meaning of errors of databases. Their own messages may quote what they were given, so only their codes are
passed on."""

from __future__ import annotations

BUSY = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"}
DAMAGED = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}

_REASONS = {
    **dict.fromkeys(BUSY, "another writer holds it for too long"),
    "SQLITE_CANTOPEN": "cannot be opened or created",
    "SQLITE_CORRUPT": "is damaged",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "the disk failed to read or write",
    "SQLITE_NOTADB": "is damaged or not an SQLite database",
    "SQLITE_PERM": "may not be read or written",
    "SQLITE_READONLY": "may not be written",
    "SQLITE_TOOBIG": "a value is larger than SQLite holds",
}


def code_of(error: Exception) -> str:
    """The name of SQLite's primary code: SQLITE_IOERR of SQLITE_IOERR_WRITE. Empty for what has none."""
    return "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])


def reason_of(error: Exception, remedy: str = "restore it from a backup") -> str:
    """The failure of SQLite, without any value; with the `remedy` for a damaged file."""
    code = code_of(error)
    reason = _REASONS.get(code, "SQLite refused")
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    return f"{reason}{f'; {remedy}' if code in DAMAGED else ''} ({name})"


def cause_of(error: Exception, is_short: bool = False) -> str:
    """The reason why a database could not be read or written, by its driver's error or by SQLAlchemy's around it. A
    short cause has no address, and is for callers."""
    cause = getattr(error, "orig", None) or error
    driver = type(cause).__module__.partition(".")[0]
    if driver == "sqlite3":
        return reason_of(cause)
    if driver == "psycopg" and getattr(cause, "sqlstate", None) is None:
        # It comes from the connection, and not from a statement, whose errors quote values.
        return "is away" if is_short else f"is away: {' '.join(str(cause).split())}"
    return f"refused ({type(cause).__name__})"
