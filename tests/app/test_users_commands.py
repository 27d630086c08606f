"""`idgraph users` on the database of a service that need not run."""

from __future__ import annotations

from contextlib import closing

import pytest

from idgraph.web.refusals import RateError
from metadata_service.storage.database import open_database
from metadata_service.storage.passwords import sign_in
from metadata_service.storage.tokens import Role
from metadata_service.storage.tries import MOST_TRIES
from metadata_service.storage.users import PersonRights, add_user
from tests.app.conftest import CommandLine


def test_an_account_from_its_making_to_its_end(idgraph: CommandLine) -> None:
    made = idgraph("users", "add", "ann", "--role", "publisher", "--clearance", "20", "--scope", "privacy")
    assert made.exit_code == 0
    password = made.stdout.strip()
    assert idgraph("users", "add", "ann").exit_code != 0
    for wrong in (("--role", "pipeline"), ("--scope", "everything"), ("--clearance", "101")):
        assert idgraph("users", "add", "bob", *wrong).exit_code != 0
    refused = idgraph("users", "add", "bob", "--role", "editor").stderr
    assert "privacy" in refused
    assert "Role" not in refused
    with closing(open_database(idgraph.settings().database_url())) as database:
        assert sign_in(database, "ann", password)
        for _ in range(MOST_TRIES):
            sign_in(database, "ann", "wrong")
        with pytest.raises(RateError):
            sign_in(database, "ann", password)
        (user,) = idgraph.json("users", "list", "--json")
        assert (user["role"], user["clearance"], user["scopes"]) == ("publisher", 20, ["privacy"])
        assert user["is_locked"]
        assert "ann" in idgraph("users", "list").stdout
        again = idgraph("users", "reset", "ann").stdout.strip()
        assert sign_in(database, "ann", again)
        assert idgraph("users", "disable", "ann").exit_code == 0
        assert sign_in(database, "ann", again) is None
        assert idgraph("users", "disable", "ann", "--enable").exit_code == 0
        assert sign_in(database, "ann", again)
    assert idgraph("users", "reset", "nobody").exit_code != 0


def test_whoever_has_the_machine_confirms_whose_an_account_is(idgraph: CommandLine) -> None:
    with closing(open_database(idgraph.settings().database_url())) as database:
        with database.write("first-admin") as edit:
            add_user(edit, "bob", PersonRights(role=Role.ADMIN), "first-admin")
        (user,) = idgraph.json("users", "list", "--json")
        assert (user["made_by"], user["confirmed_by"]) == (["first-admin"], None)
        assert idgraph("users", "confirm", "bob").exit_code == 0
        (user,) = idgraph.json("users", "list", "--json")
        assert (user["made_by"], bool(user["confirmed_by"])) == (["first-admin"], True)
    assert idgraph("users", "confirm", "nobody").exit_code != 0
