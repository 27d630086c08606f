"""The pages of running services, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from idgraph.client import clients
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.ui.page import ProfileSource
from tests.metadata_service.ui.site import Site, Whole, filled, whole_site


@pytest.fixture(scope="package", autouse=True)
def sessions_are_soon_known() -> Iterator[None]:
    """The profile service asks each second who signed in, and its caller tries again after a second: so each test would."""
    through = clients._pause
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profile_service.api.following.CALLERS_SECONDS", 0.1)
        patch.setattr(clients, "_pause", lambda *given: through(*given) / 2)
        yield


@pytest.fixture(scope="package", autouse=True)
def a_busy_profile_service_is_not_away() -> Iterator[None]:
    """A page waits five seconds for one, which a machine that others use may take."""
    through = ProfileSource.client
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProfileSource, "client", lambda source, token, _seconds=0.0: through(source, token, 60))
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}", sandboxes=folder / "sandboxes"))
    with ExitStack() as stack:
        yield filled(stack, app, stack.enter_context(serving(app)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    with whole_site(tmp_path_factory.mktemp("whole")) as found:
        yield found
