"""The scripts of the pages are JavaScript that a browser reads, and REST takes what they send."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from server.servers import make_text_campaign, serve_campaigns
from teeter.campaigns import Campaign

STATIC = Path(__file__).parents[2] / "src" / "teeter" / "server" / "static"


def test_scripts_have_no_syntax_errors(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")

    # As modules, whatever they are: an import is an error in a classic script only.
    scripts = []
    for script in sorted(STATIC.glob("*.js")):
        module = tmp_path / f"{script.stem}.mjs"
        module.write_bytes(script.read_bytes())
        scripts.append(module)
    assert scripts

    for module in scripts:
        check = subprocess.run(
            [node, "--check", str(module)], capture_output=True, text=True, check=False
        )
        assert check.returncode == 0, check.stderr


@dataclass
class Form:
    """What ``forms.js`` sends to an address of REST."""

    address: str
    method: str
    fields: set[str] = field(default_factory=set)


class FormReader(HTMLParser):
    """Reads the forms of a page that ``forms.js`` sends."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.fields: set[str] = set()
        self.is_open = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.is_open = "data-api" in given
            self.fields = set()
        if not self.is_open:
            return
        if "data-api" in given:
            # A button with an address of its own sends the fields of its form.
            method = given.get("data-method", "POST").lower()
            self.forms.append(Form(given["data-api"], method, self.fields))
        if "name" in given:
            self.fields.add(given["name"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.is_open = False


@pytest.mark.parametrize("page", ["team", "classes", "settings", "progress"])
def test_forms_send_what_rest_takes(tmp_path: Path, page: str) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 20)
    campaign = Campaign.open(file)
    campaign.people.add("olga", "owner")
    token = campaign.people.add("ann", "owner")
    campaign.ask(2, "ann")
    campaign.suggestions.add([{"id": "t0", "label": "spam"}], "rules")
    campaign.database.close()

    with serve_campaigns(file) as client:
        client.headers["authorization"] = f"Bearer {token}"
        reader = FormReader()
        reader.feed(client.get(f"/c/texts/{page}").text)
        description = client.get("/api/v1/openapi.json").json()

    assert reader.forms
    for form in reader.forms:
        path = form.address.replace("/campaigns/texts", "/campaigns/{slug}")
        assert form.method in description["paths"].get(path, {}), form.address
        fields, required = body_fields(description, description["paths"][path][form.method])
        assert required <= form.fields <= fields, form


def body_fields(
    description: dict[str, Any], operation: dict[str, Any]
) -> tuple[set[str], set[str]]:
    """Return the fields of the body that an operation takes, and those that it needs."""
    if "requestBody" not in operation:
        return set(), set()
    (content,) = operation["requestBody"]["content"].values()
    name = content["schema"]["$ref"].removeprefix("#/components/schemas/")
    schema = description["components"]["schemas"][name]
    return set(schema["properties"]), set(schema.get("required", ()))
