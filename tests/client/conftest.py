"""The profile service on the retail example, for its client."""

from tests.profile_service.api.conftest import callers_are_asked_for_often, served  # noqa: F401
