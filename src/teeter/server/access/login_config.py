"""The settings of a server, and those of logins by a person's account elsewhere.

Logins by an OpenID Connect provider, or by a proxy that knows people, are configured in a TOML file
of their own, with who is let in and with which role:

    url = "https://label.example.org"

    [oidc]
    issuer = "https://login.example.org"
    client_id = "teeter"
    client_secret_file = "/run/secrets/oidc_client_secret"

    [access]
    domains = ["example.org"]
    default_role = "annotator"

    [roles]
    "olga@example.org" = "owner"
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Annotated, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from teeter.campaigns.people import require_name
from teeter.campaigns.records import Role
from teeter.errors import FileError, InputError, PermissionDeniedError
from teeter.server.access.sessions import EndedSessions
from teeter.server.access.tokens import Tokens

CLIENT_SECRET_VARIABLE = "TEETER_OIDC_CLIENT_SECRET"

_MAX_NAME = 80
"""Characters of an annotator's name, as on the pages."""


_LOWER_CASE = str.maketrans(ascii_uppercase, ascii_lowercase)


def normalize_name(name: str) -> str:
    """Return a name or e-mail address as it is compared: addresses are not case sensitive.

    Only the letters A to Z are changed. Unicode's rules make one name of different ones: by them
    ``straße.example``, which anyone can register, is ``strasse.example``.

    Example:
        >>> normalize_name(" Ann@Example.org"), normalize_name("ann@straße.example")
        ('ann@example.org', 'ann@straße.example')
    """
    return name.strip(" ").translate(_LOWER_CASE)


def require_tls(url: str) -> str:
    """Return a URL if it is protected by TLS or stays on this machine.

    Raises:
        ValueError: it is not, or it is no URL of a server.
    """
    parts = urlsplit(url)
    is_local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError(f"{url!r} is not a URL such as https://login.example.org")
    if parts.scheme == "http" and not is_local:
        raise ValueError(f"{url!r} must begin with https://, because logins need TLS")
    if parts.fragment or parts.username:
        raise ValueError(f"{url!r} must not contain a user name or a fragment")
    return url


def _require_base_url(url: str) -> str:
    """Return a URL to which paths can be appended, if it is protected by TLS.

    Example:
        >>> _require_base_url("https://login.example.org/")
        'https://login.example.org'
    """
    require_tls(url)
    if urlsplit(url).query:
        raise ValueError(f"{url!r} must not contain a query")
    return url.removesuffix("/")


def _require_network(address: str) -> str:
    ip_network(address)  # its ValueError says what is wrong
    return address


BaseUrl = Annotated[str, AfterValidator(_require_base_url)]
Network = Annotated[str, AfterValidator(_require_network)]
Normalized = Annotated[str, AfterValidator(normalize_name)]


class _Section(BaseModel):
    # A misspelt setting must not be ignored: it may be the one that keeps people out.
    model_config = ConfigDict(extra="forbid", frozen=True)


_Settings = TypeVar("_Settings", bound=_Section)


class OidcConfig(_Section):
    """The OpenID Connect provider, and who we are there."""

    issuer: BaseUrl
    """Its address, which every ID token names."""
    client_id: str = Field(min_length=1)
    client_secret: SecretStr | None = None
    """None for a public client, which is protected by PKCE alone."""
    client_secret_file: Path | None = None
    """A file with the secret, such as one that a container engine mounts."""
    client_auth: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    """How the secret is sent to the provider."""
    name: str = "your account"
    """What the login page calls the provider, after "Log in with"."""
    scopes: list[str] = ["openid", "email"]
    require_verified_email: bool = True
    """Whether the provider must say that it has checked the address. If it says that it has not,
    the address never counts."""
    session_hours: float = Field(default=12, gt=0, le=14 * 24)
    """Time after which the provider is asked again. It bounds how long a leaver can stay."""


class HeaderConfig(_Section):
    """The header in which a proxy names the person that it has logged in."""

    name: str = Field(pattern=r"^[A-Za-z0-9-]+$")
    trusted: list[Network] = Field(alias="from", min_length=1)
    """Addresses or networks of proxies. The header of any other client is ignored."""

    def trusts(self, address: str) -> bool:
        """Return whether an address is that of a proxy."""
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in ip_network(network) for network in self.trusted)


class AccessConfig(_Section):
    """Who is let in."""

    domains: list[Normalized] = []
    """Domains of e-mail addresses, without subdomains."""
    people: list[Normalized] = []
    """E-mail addresses, or names that the proxy sends."""
    anyone: bool = False
    """Whether everyone with an account is let in. With a public provider that is everyone."""
    default_role: Role | None = None
    """The role, in every campaign, of people who have no other; None for no access."""


class LoginConfig(_Section):
    """How people log in without a token, who may, and what they may do."""

    url: BaseUrl | None = None
    """The address of this server as browsers see it. It is not taken from requests, which an
    attacker can write."""
    oidc: OidcConfig | None = None
    header: HeaderConfig | None = None
    access: AccessConfig = AccessConfig()
    roles: dict[Normalized, Role] = {}
    """Roles, in every campaign, of single people. A campaign's own entry takes precedence."""

    @model_validator(mode="after")
    def _require_complete(self) -> Self:
        if self.oidc is None and self.header is None:
            raise ValueError("it has neither [oidc] nor [header]")
        if self.oidc is not None and self.url is None:
            raise ValueError("[oidc] needs url, the address at which browsers reach this server")

        access = self.access
        if not (access.domains or access.people or access.anyone or self.roles):
            raise ValueError(
                "it lets no one in: set domains, people or anyone = true in [access], or [roles]"
            )
        return self

    @property
    def has_roles(self) -> bool:
        """Whether roles are given here, and not only by campaigns."""
        return bool(self.roles) or self.access.default_role is not None

    def is_allowed(self, name: str) -> bool:
        """Return whether a person is let in.

        Example:
            >>> header = {"name": "X-User", "from": ["127.0.0.1"]}
            >>> config = LoginConfig(header=header, access={"domains": ["example.org"]})
            >>> config.is_allowed("ann@example.org"), config.is_allowed("ann@example.org.evil.net")
            (True, False)
        """
        person = normalize_name(name)
        # The last @ decides: what stands before it may have others.
        _, at, domain = person.rpartition("@")
        return (
            self.access.anyone
            or person in self.access.people
            or person in self.roles
            or (bool(at) and domain in self.access.domains)
        )

    def role_of(self, name: str) -> Role | None:
        """Return a person's role in campaigns that do not name them; None if they have none."""
        return self.roles.get(normalize_name(name), self.access.default_role)

    def require_allowed(self, name: str) -> str:
        """Return the annotator's name of a person who is let in.

        Raises:
            PermissionDeniedError: they are not let in, or have a name that cannot be displayed.
        """
        person = normalize_name(name)
        try:
            require_name(person)
        except InputError as error:
            raise PermissionDeniedError(str(error)) from None

        # A name that is too long is not cut: it would become that of another person.
        if len(person) > _MAX_NAME or not self.is_allowed(person):
            raise PermissionDeniedError(
                f"{person[:_MAX_NAME]} has no access here: ask the person who runs this server."
            )
        return person


class LanguageModelSettings(_Section):
    """The language model that suggests labels. Its key is read from ``TEETER_SUGGEST_KEY``."""

    url: str
    """The address of an OpenAI-compatible interface. The texts of items are sent there."""
    model: str
    """The name of the language model."""
    input_price: float = Field(default=0, ge=0)
    """The price per million input tokens."""
    output_price: float = Field(default=0, ge=0)
    """The price per million output tokens."""
    budget: float | None = Field(default=None, ge=0)
    """The most that the language model may cost for each campaign."""


class ServerSettings(_Section):
    """The settings of ``teeter serve`` that an administrator writes down once.

    None of them is a secret: these come from the environment.
    """

    proxy: str | None = None
    """The IP address or network of a proxy, whose X-Forwarded-For and X-Forwarded-Proto count."""
    login: Path | None = None
    """The TOML file that configures logins by OpenID Connect or by a trusted proxy."""
    tokens: Path | None = None
    """The file of token hashes. With one, tokens are needed on 127.0.0.1, too."""
    upload_megabytes: int = Field(default=200, ge=1, strict=True)
    """The largest upload."""
    batch: int = Field(default=20, ge=2, le=1000, strict=True)
    """Items per batch. A model is trained after each batch."""
    language_model: LanguageModelSettings | None = None

    @field_validator("proxy")
    @classmethod
    def _require_proxy(cls, proxy: str | None) -> str | None:
        """Refuse a host name, without repeating it: it may have a password."""
        try:
            if proxy is not None:
                ip_network(proxy)
        except ValueError:
            raise ValueError("it must be an IP address or network, such as 127.0.0.1") from None
        return proxy


def read_server_settings(path: Path) -> ServerSettings:
    """Return the settings in a TOML file. Paths in it are relative to the file.

    Raises:
        FileError: the file cannot be read.
        InputError: a setting is missing, unknown or wrong. The error does not show its value.
    """
    settings = _parse(path, ServerSettings)
    files = {
        name: path.parent / file
        for name, file in (("login", settings.login), ("tokens", settings.tokens))
        if file is not None
    }
    return settings.model_copy(update=files)


def read_login_config(path: Path) -> LoginConfig:
    """Return the settings in a TOML file.

    The client secret comes from ``client_secret_file``, from the environment variable
    ``TEETER_OIDC_CLIENT_SECRET``, or, if only its owner can read the file, from the file itself.

    Raises:
        FileError: the file, or that of the secret, cannot be read.
        InputError: a setting is missing, unknown or wrong.
    """
    config = _parse(path, LoginConfig)
    if config.oidc is None:
        return config

    # The settings are frozen, and the secret is looked up only for a file that is valid.
    secret = _find_secret(config.oidc, path)
    return config.model_copy(
        update={"oidc": config.oidc.model_copy(update={"client_secret": secret})}
    )


def _parse(path: Path, kind: type[_Settings]) -> _Settings:
    """Return the content of a TOML file, checked."""
    content = _read_text(path)
    try:
        return kind.model_validate(tomllib.loads(content))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not a TOML file: {error}.") from None
    except ValidationError as error:
        raise InputError(f"{path}: {_describe(error)}.") from None


def _find_secret(oidc: OidcConfig, path: Path) -> SecretStr | None:
    if oidc.client_secret_file is not None:
        # Relative to the file that names it, wherever the server is started.
        secret = _read_text(path.parent / oidc.client_secret_file)
        return SecretStr(secret.strip())

    from_environment = os.environ.get(CLIENT_SECRET_VARIABLE)
    if from_environment:
        return SecretStr(from_environment)

    if oidc.client_secret is not None and os.name == "posix" and path.stat().st_mode & 0o077:
        raise InputError(
            f"{path} contains client_secret, but others can read it: run chmod 600 {path}, or use "
            "client_secret_file."
        )
    return oidc.client_secret


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise FileError(f"Cannot read {path}: {reason}.") from None


def _describe(error: ValidationError) -> str:
    """Return what is wrong with the settings, without their values."""
    problems = []
    for problem in error.errors(include_input=False, include_url=False):
        setting = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        message = message.replace("Input should", "it must")
        if problem["type"] == "extra_forbidden":
            message = "there is no such setting"
        elif problem["type"] == "path_type":
            message = "it must be a path"
        elif problem["type"] == "missing":
            message = "it is missing"
        if setting:
            message = f"{setting}: {message}"
        problems.append(message)
    return "; ".join(problems)


LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names that always mean this machine."""


@dataclass(frozen=True)
class SecurityConfig:
    """Settings of the security middlewares, complete when made."""

    secret: bytes = field(repr=False)  # logs may show the configuration
    """Signs the session cookies. An attacker who knows it can pose as any annotator."""
    tokens: Tokens = field(default_factory=Tokens)
    """Tokens of the server. If it has any when it starts, everybody needs a token."""
    allowed_hosts: frozenset[str] | None = LOOPBACK_HOSTS
    """Host names the server answers to while no login is required; None for any."""
    cookie_name: str = "teeter_session"
    """Name of the session cookie. Include the port: browsers send the cookies of all servers of a
    machine to each of them."""
    ended_sessions: EndedSessions = field(default_factory=EndedSessions)
    """Sessions that were logged out."""
    login: LoginConfig | None = None
    """Logins without a token. If there are any, everybody needs a login."""
    proxy: str | None = None
    """Address or network of a reverse proxy, whose ``X-Forwarded-…`` headers are believed."""
    frame_origin: str | None = None
    """The only origin whose pages may show this server's in a frame; None for none."""
    default_annotator: str = "me"
    """Annotator of a session without a token, until a name is chosen."""
    body_limit: int = 1_000_000
    """Largest request body in bytes."""
    items_limit: int = 8_000_000
    """Largest body with items in bytes. It is held in memory, unlike an upload."""
    upload_limit: int = 200_000_000
    """Largest upload in bytes."""
    body_seconds: float = 30.0
    """Time in which a body must arrive."""
    upload_seconds: float = 900.0
    """Time in which an upload must arrive."""


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    if host == "localhost":
        return True

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
