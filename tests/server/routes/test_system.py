"""What the server says of itself: its numbers, its REST API, and reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families as parse

from server.servers import (
    serve_campaigns,
)
from teeter.base.version import __version__


def test_metrics_are_in_the_text_format_of_prometheus(client: TestClient) -> None:
    response = client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'teeter_items{campaign="texts"} 121.0' in lines
    assert 'teeter_answered_items{campaign="texts",kind="label"} 0.0' in lines
    assert len(list(parse(response.text))) > 6


def test_metrics_have_the_times_of_requests_by_route(client: TestClient) -> None:
    for path in ("items", "items?count=5", "nothing/" + "x" * 50):
        client.get(f"/api/v1/campaigns/texts/{path}")
    client.request("BREW", "/")

    families = {family.name: family for family in parse(client.get("/metrics").text)}
    samples = families["teeter_request_seconds"].samples
    counts = {
        tuple(sample.labels.values()): sample.value
        for sample in samples
        if sample.name.endswith("_count")
    }
    assert counts["GET", "/api/v1/campaigns/{slug}/items", "200"] == 2
    assert {labels[:2] for labels in counts} == {
        ("GET", "/api/v1/session"),
        ("GET", "/api/v1/campaigns/{slug}/items"),
        ("other", "other"),
    }, "nobody can fill the memory with paths or methods"
    assert families["teeter_info"].samples[0].labels == {"version": __version__}
    assert "process_resident_memory_bytes" in families


@pytest.mark.slow
def test_the_api_page_lists_every_operation_and_loads_nothing(client: TestClient) -> None:
    page = client.get("/docs")

    assert page.status_code == 200
    description = client.get("/api/v1/openapi.json").json()
    for path, methods in description["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page.text
    for name in description["components"]["schemas"]:
        assert f'id="type-{name}"' in page.text
    # Everything that the browser would load comes from this server.
    sources = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert all(source.startswith(("/", "#", "data:")) for source in sources), sources


def test_reports_open_and_nothing_outside_them(tmp_path: Path) -> None:
    report = tmp_path / "runs" / "digits" / "report"
    report.mkdir(parents=True)
    (report / "index.html").write_text("<h1>Found</h1><script>alert(1)</script>")
    (tmp_path / "secret.txt").write_text("secret")

    with serve_campaigns(folder=tmp_path) as client:
        assert "digits" in client.get("/").text
        response = client.get("/reports/runs-digits")
        assert "Found" in response.text
        assert "sandbox" in response.headers["content-security-policy"], "no script of it runs"

        for path in (
            "../../../secret.txt",
            "%2e%2e/%2e%2e/%2e%2e/secret.txt",
            "..%2f..%2f..%2fsecret.txt",
            "nul%00.txt",
        ):
            assert client.get(f"/reports/runs-digits/{path}").status_code == 404


def test_a_report_shows_its_images_and_runs_no_script(tmp_path: Path) -> None:
    report = tmp_path / "run" / "report"
    report.mkdir(parents=True)
    (report / "index.html").write_text("<script>alert(1)</script><img src='curve.svg'>")
    (report / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")

    with serve_campaigns(folder=tmp_path) as client:
        for file in ("index.html", "curve.svg"):
            headers = client.get(f"/reports/run/{file}").headers
            policy = {}
            for directive in headers["content-security-policy"].split(";"):
                name, _, value = directive.strip().partition(" ")
                policy[name] = value

            assert policy["sandbox"] == "allow-same-origin", (
                "or its images would be of another site"
            )
            assert policy["default-src"] == "'none'"
            assert not [name for name in policy if name.startswith("script-src")]
            assert "'self'" in policy["img-src"]
            assert headers["cross-origin-resource-policy"] == "same-origin"
