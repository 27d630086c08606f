"""One container, as process 1 of its own namespaces: a read-only root with its volumes, and its command as its user.

Started by `pod.py` as `unshare --mount --uts --pid --fork python container.py SPEC`. It does what a container's init does: it
passes signals on, reaps, and ends with its command.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

USER = 10001
PR_SET_NO_NEW_PRIVS = 38


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def inside(root: Path, target: str) -> Path:
    """A path of the container, its links followed as the container does."""
    place = root
    for part in target.strip("/").split("/"):
        place = place / part
        if place.is_symlink():
            link = place.readlink()
            place = inside(root, str(link)) if link.is_absolute() else place.parent / link
    return place


def make_root(spec: dict[str, Any]) -> Path:
    """This machine's files without its changes, the image's at its place, and the volumes."""
    base = Path(spec["root"])
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", base)
    upper, work, root = base / "upper", base / "work", base / "root"
    for folder in (upper, work, root):
        folder.mkdir()
    mount("-t", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", "overlay", root)
    # The interpreter may be below root's folder.
    (root / "root").chmod(0o755)
    with (root / "etc" / "passwd").open("a") as users:
        users.write(f"idgraph:x:{USER}:{USER}::/home/idgraph:/usr/sbin/nologin\n")
    # One may lie in another, where its folder is made then.
    places = sorted([["/opt/idgraph", spec["image"], True], *spec["mounts"]])
    for target, _, _ in places:
        inside(root, target).mkdir(parents=True, exist_ok=True)
    hosts = root / "etc" / "hosts"
    hosts.touch()
    mount("-t", "proc", "proc", root / "proc")
    mount("--rbind", "/dev", root / "dev")
    mount("--rbind", "/sys", root / "sys")
    if spec["is_read_only"]:
        mount("-o", "remount,ro", root)
    mount("--bind", spec["hosts"], hosts)
    for target, source, is_read_only in places:
        place = inside(root, target)
        place.mkdir(parents=True, exist_ok=True)
        mount("--bind", source, place)
        if is_read_only:
            mount("-o", "remount,bind,ro", place)
    return root


def run(spec: dict[str, Any], root: Path) -> int:
    """The command's exit code, 128 and the signal that ended it."""
    child = os.fork()
    if child == 0:
        os.chroot(root)
        os.chdir(spec["folder"])
        os.setgroups([USER])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, _: os.kill(child, number))
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    stated = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(stated["hostname"])
    sys.exit(run(stated, make_root(stated)))
