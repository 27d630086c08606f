"""The words that an editor of specs is offered."""

from __future__ import annotations

from metadata_service.specs.vocabulary import WordKind, completions
from metadata_service.storage.database import Database
from tests.metadata_service.conftest import Running
from transforms.spec.jmespath.calls import StandardFunctions
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS
from transforms.spec.jolt.functions import FUNCTIONS
from transforms.spec.operations import OPERATIONS


def test_every_operation_and_function_has_its_line(database: Database) -> None:
    known = {
        WordKind.OPERATION: set(OPERATIONS),
        WordKind.FUNCTION: set(FUNCTIONS),
        WordKind.JMESPATH: set(CUSTOM_FUNCTIONS) | set(StandardFunctions.FUNCTION_TABLE),
    }
    with database.read() as session:
        for kind, names in known.items():
            found = completions(session, kind, "", 200)
            assert {each.name for each in found.items} == names
            assert all(each.help and "\n" not in each.help for each in found.items)


def test_words_begin_as_asked_and_are_bounded(service: Running) -> None:
    for path in ("user.id", "user.ids", "order"):
        body = {"path": path, "data_type": "string"}
        service.admin.put(f"/v1/attributes/{path}", json=body).raise_for_status()

    def ask(**given: str | int) -> tuple[list[str], bool]:
        answer = service.reader.get("/v1/completions", params=given).json()
        return [each["name"] for each in answer["items"]], answer["is_all"]

    assert ask(kind="path", q="user.") == (["user.id", "user.ids"], True)
    assert ask(kind="path", q="user.", limit=1) == (["user.id"], False)
    assert ask(kind="function", q="SQUASHn") == (["squashNulls"], True)
    assert service.reader.get("/v1/completions?kind=path&limit=1000").status_code == 422
    assert service.nobody.get("/v1/completions?kind=path").status_code == 401
