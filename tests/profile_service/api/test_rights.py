"""The rights of every caller over every call. Which kinds of jobs a caller starts: tests/app/test_operations.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.model.callers import Scope
from idgraph.web.application import FREE
from tests.profile_service.api.conftest import caller, problem
from tests.profile_service.api.every_part import ALL, CALLS, every_part, filled

pytestmark = pytest.mark.slow


NONE, LOW, PERSON = "no scope", "every scope, clearance 50", "a person"
CALLERS = {NONE, LOW, *Scope}
RULES: set[str] = {Scope.RULES}
PRIVACY, LINKS = {Scope.PRIVACY, LOW}, {Scope.LINKS, LOW}
OPERATE, PERSONS = {Scope.OPERATE, LOW}, {Scope.PERSONS, LOW}
RIGHTS: dict[str, set[str]] = {
    "GET /v1/profiles/{identifier}": CALLERS,
    "POST /v1/profiles/lookup": CALLERS,
    "GET /v1/profiles/{identifier}/explain": CALLERS,
    "GET /v1/profiles/{identifier}/history": CALLERS,
    "GET /v1/profiles/{identifier}/timeline": CALLERS,
    "GET /v1/profiles/{identifier}/timeline/spans": CALLERS,
    "GET /v1/profiles/{identifier}/consents": CALLERS,
    "PUT /v1/profiles/{identifier}/consents/{purpose}": PRIVACY,
    "GET /v1/profiles/{identifier}/households": PRIVACY,
    "GET /v1/audit": PRIVACY,
    "POST /v1/audit/verify": PRIVACY,
    "GET /v1/changes": CALLERS,
    "POST /v1/contacts": CALLERS,
    "GET /v1/dead-letters": OPERATE,
    "GET /v1/dead-letters/{dead_letter}": OPERATE,
    "POST /v1/dead-letters/replay/preview": OPERATE,
    "POST /v1/dead-letters/replay": OPERATE,
    "POST /v1/dead-letters/drop": OPERATE,
    "GET /v1/flows": OPERATE,
    "GET /v1/flows/{name}": OPERATE,
    "POST /v1/flows/{name}/pause": OPERATE,
    "POST /v1/flows/{name}/resume": OPERATE,
    # Names of the configuration alone.
    "GET /v1/sources": {*RULES, LOW},
    "GET /v1/sources/{source}/events": OPERATE,
    "POST /v1/person-tokens": PERSONS,
    "GET /v1/me": {PERSON},
    "GET /v1/me/consents": {PERSON},
    "PUT /v1/me/consents/{purpose}": {PERSON},
    "GET /v1/me/households": {PERSON},
    "POST /v1/me/households": {PERSON},
    "POST /v1/me/households/{household}/invitations": {PERSON},
    "POST /v1/me/invitations/accept": {PERSON},
    "POST /v1/me/invitations/decline": {PERSON},
    "PUT /v1/me/households/{household}/shares": {PERSON},
    "POST /v1/me/households/{household}/leave": {PERSON},
    "POST /v1/identity-rules/previews": RULES,
    "GET /v1/identity-rules/previews/{job}": RULES,
    "POST /v1/specs/previews": RULES,
    "POST /v1/derived-attributes/preview": RULES,
    "GET /v1/specs/previews/{job}": RULES,
    "POST /v1/links/preview": LINKS,
    "POST /v1/links": LINKS,
    "GET /v1/links/violations": LINKS,
    "POST /v1/links/suggestions": LINKS,
    "GET /v1/links/suggestions/{job}": LINKS,
    "GET /v1/jobs": CALLERS,
    "POST /v1/jobs": CALLERS,
    "GET /v1/jobs/{job}": CALLERS,
    "POST /v1/jobs/{job}/cancel": CALLERS,
    "POST /v1/jobs/{job}/resume": CALLERS,
    "GET /v1/jobs/{job}/download": CALLERS,
    "POST /v1/access-requests": PRIVACY,
    "GET /v1/access-requests/{job}": PRIVACY,
    "GET /v1/access-requests/{job}/download": PRIVACY,
    "POST /v1/erasures/preview": PRIVACY,
    "POST /v1/erasures": PRIVACY,
    "GET /v1/erasures/{job}": PRIVACY,
    "GET /v1/search": CALLERS,
    # It reveals, as `CALLS` has it: none of these may.
    "POST /v1/search": set(),
    "GET /v1/search/count": CALLERS,
    "POST /v1/search/count": CALLERS,
    "GET /v1/search/facets": CALLERS,
    "POST /v1/search/facets": CALLERS,
    "GET /v1/segments": CALLERS,
    "GET /v1/segments/{name}": CALLERS,
    "GET /v1/segments/{name}/count": CALLERS,
    "GET /v1/segments/{name}/members": CALLERS,
    "POST /v1/segments/member-of": CALLERS,
    "GET /v1/triggers": CALLERS,
    "GET /v1/triggers/{name}/ledger": CALLERS,
    "GET /v1/views": CALLERS,
    "GET /v1/waiting": CALLERS,
}
"""Besides the caller with every right, to whom each call but a person's is open. A scope is the caller that has no other."""


def test_each_call_is_for_its_callers(tmp_path: Path) -> None:
    """A call that has no line here fails."""
    callers = [caller(NONE, 100), caller(LOW, 50, scopes=list(Scope))]
    callers += [caller(each, 100, scopes=[each]) for each in Scope]
    with every_part(filled(tmp_path), callers) as whole:
        clients = {name: whole.served.client(name) for name in (ALL, *CALLERS)}
        clients[PERSON] = whole.served.client(whole.person)
        nobody = whole.served.client(None)
        described = nobody.get("/openapi.json").json()["paths"]
        operations = {f"{method.upper()} {path}" for path, some in described.items() for method in some}
        assert operations == CALLS.keys()
        assert {each for each in operations if each.split()[1] not in FREE} == RIGHTS.keys()
        for operation, roles in RIGHTS.items():
            answered = {name: whole.call(client, operation) for name, client in clients.items()}
            for name, answer in answered.items():
                is_open = name in roles or (name == ALL and PERSON not in roles)
                assert (answer.status_code != 403) is is_open, (operation, name, answer.text)
                assert answer.status_code < 500, (operation, name, answer.text)
                assert is_open or problem(answer, 403)
            # So it is the right alone that the others lack.
            assert answered[PERSON if PERSON in roles else ALL].is_success, operation
            problem(whole.call(nobody, operation), 401)
