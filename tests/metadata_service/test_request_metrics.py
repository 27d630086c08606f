"""The service's own metrics: routes by pattern, no names."""

from __future__ import annotations

from tests.metadata_service.conftest import Running


def test_requests_are_counted_by_route_and_show_no_names(service: Running) -> None:
    service.admin.get("/v1/attributes/canary.path")
    service.admin.get("/v1/attributes/canary%2Fpath")
    service.admin.get("/v1/canary")
    service.admin.request("CANARY", "/v1/specs")
    service.nobody.get("/v1/specs?source=canary")
    answer = service.nobody.get("/metrics")
    assert answer.status_code == 200
    assert "canary" not in answer.text.lower()
    assert (
        'idgraph_metadata_request_seconds_count{method="GET",route="/v1/attributes/{path}",status="404"} 2.0'
        in answer.text
    )
    assert 'method="GET",route="-",status="401"' in answer.text
    assert "idgraph_metadata_database_up 1.0" in answer.text
    assert "idgraph_metadata_revision " in answer.text


def test_health_needs_no_token(service: Running) -> None:
    for path in ("/health/live", "/health/ready", "/healthz"):
        assert service.nobody.get(path).json() == {"status": "ok"}
