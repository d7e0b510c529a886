"""Headers forbid browsers to run foreign scripts, to show pages in frames and to store
responses.
"""

from __future__ import annotations

from fastapi.testclient import TestClient

from server.labelled_campaigns import AT
from server.servers import HARMFUL


def test_every_response_has_the_headers(client: TestClient) -> None:
    for path in ("/c/texts", AT, "/static/label.js", "/c/nothing", f"{AT}/item?id=unknown"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


def test_refusals_have_the_headers_too(client: TestClient) -> None:
    refusals = [
        client.get("/", headers={"host": "evil.example"}),
        client.post(f"{AT}/answers", headers={"origin": "https://evil.example"}),
        client.post(f"{AT}/answers", content=b"x" * 2_000_000),
    ]
    for response in refusals:
        assert response.status_code >= 400
        assert response.headers["x-frame-options"] == "DENY"


def test_answers_do_not_stay_in_a_shared_browser(client: TestClient) -> None:
    assert client.get("/c/texts").headers["cache-control"] == "no-store"
    assert client.get(AT).headers["cache-control"] == "no-store"
    assert client.get("/static/label.js").headers["cache-control"] == "no-cache"


def test_html_in_texts_is_shown_as_text(client: TestClient) -> None:
    page = client.get("/c/texts/item?id=html").text
    assert HARMFUL not in page
    assert "&lt;script&gt;alert" in page
    assert "<script>alert" not in client.get("/c/texts/find?search=script").text

    refused = client.get("/c/texts/item", params={"id": "<script>alert(1)</script>"})
    assert refused.status_code == 404
    assert "<script>alert" not in refused.text
