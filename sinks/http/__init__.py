"""Services over HTTP."""

import sys

# httpx loads its own command line wherever click is installed, which takes longer than all the rest of it.
sys.modules["httpx._main"] = None  # type: ignore[assignment]
import httpx  # noqa: E402, F401

del sys.modules["httpx._main"]
