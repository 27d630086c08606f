"""The further options of the configuration on their way to Spark: by a file, since every user of a machine can read the
command lines of its processes, and PySpark would write each option into that of the JVM."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def given_by_file(options: Mapping[str, str], file: Path) -> Iterator[None]:
    """A JVM that PySpark starts inside has these options, as far as its command line does not say otherwise. The file
    is the owner's alone, and gone afterwards: the JVM reads it once, before it answers."""
    earlier = os.environ.get(_ARGUMENTS)
    with os.fdopen(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as lines:
        lines.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in options.items())
    # What a machine has in spark-defaults.conf holds as it would without our file.
    ours = f"--properties-file {shlex.quote(str(file.absolute()))} --load-spark-defaults"
    os.environ[_ARGUMENTS] = f"{ours} {earlier or 'pyspark-shell'}"
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = earlier
        file.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    # Java's properties give a meaning to separators, backslashes and blanks, and are read in one of two encodings.
    units = text.encode("utf-16-be")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))
