"""Local files as Spark's driver sees them: through a file system of ours, which costs a micro-batch less than Hadoop's.

Hadoop starts two processes for each file of the checkpoint, and asks for each file that lies in a directory five times
(docs/adr/0034-local-disk.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_CLASS = "idgraph.LocalDisk"
_SOURCE = Path(__file__).with_name("LocalDisk.java")
_SETTING = "fs.file.impl"


def install(session: SparkSession) -> None:
    """Have the driver read and write local files through it from now on, unless the configuration names another."""
    jvm: Any = session._jvm
    configuration = session.sparkContext._jsc.hadoopConfiguration()
    present = _file_system(jvm, configuration)
    if configuration.get(_SETTING) is not None or _is_ours(present):
        return
    # Spark compiles its queries with it, so that it is where Spark is, unlike javac.
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    ours = jvm.org.apache.hadoop.conf.Configuration(configuration)
    ours.setClassLoader(compiler.getClassLoader())
    ours.set(_SETTING, _CLASS)
    # Hadoop keeps one for all that ask, and forgets one that is closed; it holds nothing that could be closed.
    present.close()
    _file_system(jvm, ours)


def hiding(session: SparkSession) -> Callable[[Iterable[Path]], None]:
    """A filter of listed folders: for a query that takes no file a second time, and only
    for it, if it is called by what it calls. Without effect where the configuration names another file system."""
    present = _file_system(session._jvm, session.sparkContext._jsc.hadoopConfiguration())

    def hide(files: Iterable[Path]) -> None:
        for folder, names in _by_folder(files).items():
            present.hide(folder, "/".join(names))

    return hide if _is_ours(present) else lambda _: None


def _by_folder(files: Iterable[Path]) -> Mapping[str, list[str]]:
    ordered = sorted(files, key=attrgetter("parent"))
    return {
        str(folder): [each.name for each in some] for folder, some in groupby(ordered, attrgetter("parent"))
    }


def _file_system(jvm: Any, configuration: Any) -> Any:
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), configuration)


def _is_ours(file_system: Any) -> bool:
    return bool(file_system.getClass().getName() == _CLASS)
