"""An archive of Spark's classes as the JVM has them when loaded: half of a start's seconds and CPU.

The JVM writes one when a run ends that had none (`-XX:ArchiveClassesAtExit`, JEP 350) and maps it into
memory at the next start; one that does not fit its Java or its jars it ignores. The file holds code and
nothing of a run. It is rebuilt for another Java or PySpark, and only the newest few are kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyspark

KEPT = 3
"""Archives that stay: each has some 150 MB."""

WRITTEN_SECONDS = 10
"""A file that has not grown for so long is written: the JVM takes a second or two."""

_ABANDONED_SECONDS = 3600

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""The JVM would say on standard output, which is the flow's, that an archive does not fit."""


def archive_options(folder: Path) -> list[str]:
    """Java options that use the archive in `folder`, or have one made when this JVM ends. None where there
    is no place for it: a start without is only slower."""
    java = _java()
    if java is None:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            # Code that is mapped from there is run.
            return []
        archive = folder / f"spark-{_name(java)}.jsa"
        _adopt(archive)
        if archive.exists():
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_SILENT]
        _forget_old(folder)
        return [f"-XX:ArchiveClassesAtExit={_part(archive, os.getpid())}", *_SILENT]
    except OSError:
        return []


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _name(java: Path) -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    of = [java, java.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns, pyspark.__version__]
    return hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()[:16]


def _part(archive: Path, process: int) -> Path:
    return archive.with_suffix(f".{process}.part")


def _adopt(archive: Path) -> None:
    """Take over what an ended run has written. The JVM writes after Python's end, so nobody waits for it;
    its header comes last, so one that a kill interrupted begins with zeros."""
    for part in archive.parent.glob(f"{archive.stem}.*.part"):
        with suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > WRITTEN_SECONDS:
                with part.open("rb") as written:
                    is_whole = any(written.read(4))
                if is_whole:
                    part.replace(archive)
                else:
                    part.unlink()


def _forget_old(folder: Path) -> None:
    with suppress(FileNotFoundError):
        newest = sorted(folder.glob("spark-*.jsa"), key=lambda archive: archive.stat().st_mtime)
        for archive in newest[: 1 - KEPT]:
            archive.unlink(missing_ok=True)
        for part in folder.glob("spark-*.part"):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                part.unlink()
