"""Nothing can be read or changed without a login, where tokens are required."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT
from server.servers import find_csrf_token


def test_the_api_asks_for_a_token(token_client: TestClient) -> None:
    response = token_client.get(AT)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


def test_pages_lead_to_the_login(token_client: TestClient) -> None:
    response = token_client.get("/c/texts", follow_redirects=False)
    assert response.headers["location"] == "/login?next=%2Fc%2Ftexts"
    assert token_client.get("/login").status_code == 200
    assert token_client.get("/static/label.js").status_code == 200


@pytest.mark.parametrize("path", ["/loginx", "/login/", "//login", "/static", "/Static/label.js"])
def test_paths_that_look_like_open_ones_are_closed(token_client: TestClient, path: str) -> None:
    response = token_client.get(path, follow_redirects=False)
    assert response.status_code == 303
    assert response.headers["location"].partition("?")[0] == "/login"


def test_after_the_login_comes_the_page_that_was_asked_for(token_client: TestClient) -> None:
    page = token_client.get("/c/texts/find?class=ham&page=2")
    assert page.url.path == "/login"
    form = {"csrf": find_csrf_token(page.text), "token": TOKEN}
    form["next"] = page.text.split('name="next" value="')[1].split('"')[0].replace("&amp;", "&")
    response = token_client.post("/login", data=form, follow_redirects=False)
    assert response.headers["location"] == "/c/texts/find?class=ham&page=2"


def test_every_route_is_closed(token_client: TestClient) -> None:
    app: Any = token_client.app
    routes = [route for route in app.routes if isinstance(route, APIRoute)]

    for route in routes:
        path = route.path.replace("{slug}", "texts")
        if path == "/login":
            continue
        for method in route.methods:
            response = token_client.request(method, path, follow_redirects=False)
            assert response.status_code in (303, 401), (method, path)


def test_annotators_log_in_and_out(token_client: TestClient) -> None:
    page = token_client.get("/login").text
    response = token_client.post("/login", data={"csrf": find_csrf_token(page), "token": TOKEN})
    assert response.status_code == 200

    session = token_client.get("/api/v1/session").json()
    assert session["annotator"] == "ann"
    headers = {"x-csrf-token": session["csrf"]}
    answer = {"item": "t1", "label": "ham"}
    assert token_client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 200

    token_client.post("/logout", data={"csrf": session["csrf"]})
    assert token_client.get(AT).status_code == 401
