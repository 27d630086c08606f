"""A client of the profile service, for programs: blocking or async, with retries and paging.

    with ProfilesClient("http://127.0.0.1:8420", token) as profiles:
        person = profiles.lookup("email:ann@example.com", fields=["demographics"])
        for each in profiles.search("demographics.age>=30", sort="-activity.lastSeenAt"):
            ...

Profiles are dictionaries as in `/openapi.json`: `id`, `identifiers`, `attributes`, with `provenance` if asked for.
"""

from __future__ import annotations

from idgraph.client.clients import AsyncProfilesClient, ProfilesClient
from idgraph.client.methods import Profile
from idgraph.model.errors import ProfileServiceError

__all__ = ["AsyncProfilesClient", "Profile", "ProfileServiceError", "ProfilesClient"]
