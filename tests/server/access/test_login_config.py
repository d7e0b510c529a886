"""The file of logins: what it must say, and what it must not let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter.campaigns.records import Role
from teeter.errors import FileError, InputError
from teeter.server.access.login_config import CLIENT_SECRET_VARIABLE, read_login_config

OIDC = """
url = "https://label.example.org/"
[oidc]
issuer = "https://login.example.org/"
client_id = "teeter"
"""
ACCESS = """
[access]
domains = ["Example.org"]
"""
HEADER = """
[header]
name = "X-Remote-User"
from = ["127.0.0.1"]
"""


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    path.chmod(0o600)
    return path


def test_a_complete_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLIENT_SECRET_VARIABLE, "from the environment")
    roles = '[roles]\n"Olga@Example.org" = "owner"\n'
    config = read_login_config(write(tmp_path / "login.toml", OIDC + ACCESS + roles))
    assert config.url == "https://label.example.org"
    assert config.oidc is not None
    assert config.oidc.issuer == "https://login.example.org"
    assert config.oidc.client_secret is not None
    assert config.oidc.client_secret.get_secret_value() == "from the environment"
    assert config.role_of("olga@example.org") is Role.OWNER
    assert config.is_allowed("ANN@example.org")
    assert "from the environment" not in repr(config), "logs may show the configuration"


def test_a_file_of_the_secret_is_relative_to_the_configuration(tmp_path: Path) -> None:
    write(tmp_path / "secret", "from a file\n")
    content = OIDC + 'client_secret_file = "secret"\n' + ACCESS
    config = read_login_config(write(tmp_path / "login.toml", content))
    assert config.oidc is not None
    assert config.oidc.client_secret is not None
    assert config.oidc.client_secret.get_secret_value() == "from a file"


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "login.toml", OIDC + 'client_secret = "x"\n' + ACCESS)
    assert read_login_config(path).oidc is not None
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        read_login_config(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "neither"),
        ("url = ", "not a TOML file"),
        (OIDC, "lets no one in"),
        (OIDC.replace("url", "#"), "needs url"),
        (OIDC.replace("https://login", "http://login") + ACCESS, "must begin with https://"),
        (OIDC.replace("https://label", "ftp://label") + ACCESS, "url: 'ftp://"),
        (OIDC.replace("https://login", "https://me@login") + ACCESS, "must not contain a user"),
        (OIDC + 'clientsecret = "x"' + ACCESS, "oidc.clientsecret: there is no such setting"),
        (OIDC + ACCESS + '[roles]\nann = "boss"', "roles.ann"),
        (OIDC + ACCESS + "anyone = 3", "access.anyone"),
        (HEADER.replace("127.0.0.1", "localhost") + ACCESS, "header.from.0"),
        (HEADER.replace('["127.0.0.1"]', "[]") + ACCESS, "header.from"),
        (HEADER.replace("X-Remote-User", "X Remote") + ACCESS, "header.name"),
        (HEADER, "lets no one in"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        read_login_config(write(tmp_path / "login.toml", content))
    assert "\n" not in str(raised.value).replace("\\n", "")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Cannot read"):
        read_login_config(tmp_path / "none.toml")
    path = write(tmp_path / "login.toml", OIDC + 'client_secret_file = "none"' + ACCESS)
    with pytest.raises(FileError, match="none"):
        read_login_config(path)
