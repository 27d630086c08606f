"""Services over HTTP."""

import sys

# httpx loads its own command line wherever click is installed, which takes longer than all the rest of it. Here it is not.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
