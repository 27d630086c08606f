"""The machine and the interpreter that figures come from."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Mapping
from typing import Any

from idgraph import native


def machine() -> dict[str, Any]:
    """The environment of a figure, besides the code."""
    return {
        "cores": os.cpu_count(),
        "native_code": native.state,
        "python": platform.python_version(),
        "profile_guided_python": profile_guided(sysconfig.get_config_vars()),
        "system": platform.system(),
    }


def profile_guided(settings: Mapping[str, Any]) -> str:
    """Whether Python was built with profile-guided optimisation, by its build settings: yes, no, or not reported.

    Distributions that build with it may take the flags out of the settings, so that extensions do not inherit them.
    """
    arguments = str(settings.get("CONFIG_ARGS") or "")
    flags = " ".join(
        str(settings.get(key) or "") for key in ("PY_CFLAGS", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS")
    )
    if "--enable-optimizations" in arguments or "-fprofile-use" in flags:
        return "yes"
    return "no" if arguments and settings.get("PGO_PROF_USE_FLAG") else "not reported"
