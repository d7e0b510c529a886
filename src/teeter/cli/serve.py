"""teeter serve: label on a page, alone or together."""

from __future__ import annotations

import socket
import sys
import threading
import webbrowser
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teeter.cli.output import spinner
from teeter.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from teeter.web.auth import SecurityConfig
    from teeter.web.tokens import Tokens
    from teeter.web.workspace import Workspace

__all__ = ["serve"]

PORT = 8765
_TRIES = 20
"""Ports that are tried one after the other, where none is named."""


def serve(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CAMPAIGN]...",
            help="Campaigns' files or databases; or things to label, with --classes.",
        ),
    ] = None,
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Serve its campaigns and benchmark reports too; new campaigns are made in it from the page.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Make a campaign of these classes from what is named, unless it is there already.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where to listen; beyond 127.0.0.1 only with tokens, of the server or of a campaign's people.",
        ),
    ] = ("127.0.0.1"),
    port: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=1, max=65535, help="8765 or the next free one if left out."
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=2,
            max=1000,
            help="Questions that are picked at a time, and new labels after which a model is trained.",
        ),
    ] = 20,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TOKEN",
            help="Let an annotator in by a token of 16 characters or more. May be repeated.",
        ),
    ] = None,
    make_token: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make a token for an annotator, show it once, and end."),
    ] = None,
    remove_token: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Remove an annotator's token, end their sessions, and end."
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where hashes of tokens are kept; given, tokens are needed on 127.0.0.1 too.",
        ),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Believe the headers X-Forwarded-For and X-Forwarded-Proto of a proxy at this address.",
        ),
    ] = None,
    upload: Annotated[
        int, typer.Option(metavar="MB", min=1, help="The largest file that can be uploaded.")
    ] = 200,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the page in a browser, as in a terminal it is if left out.",
        ),
    ] = None,
) -> None:
    """Label on a page; everything stays on this machine."""
    _require_web()
    from teeter.web.tokens import home
    from teeter.web.tokens import make_token as made
    from teeter.web.tokens import remove_token as removed

    kept = tokens or home() / "tokens.json"
    if make_token is not None:
        typer.echo(made(kept, make_token))
        typer.echo(f"The token of {make_token}, shown this once; {kept} has its hash.", err=True)
        return
    if remove_token is not None:
        removed(kept, remove_token)
        typer.echo(f"{kept} has no token of {remove_token} any more.")
        return
    if not places and folder is None:
        raise InputError("Name a campaign's file, or a folder of campaigns with --folder.")
    options = _options(proxy)
    listening = _listening(host, port)
    try:
        security = _security(host, listening.getsockname()[1], token or [], tokens, upload)
        _run(
            [_campaign(place, classes) for place in places or []],
            security,
            listening,
            folder=folder,
            batch=batch,
            open_page=open_page,
            options=options,
            needs=_needs(host, tokens),
        )
    finally:
        listening.close()


def _require_web() -> None:
    for needed in ("fastapi", "itsdangerous", "uvicorn", "jinja2", "multipart", "sqlalchemy"):
        if find_spec(needed) is None:
            raise MissingExtraError("The page needs more: pip install 'teeter[web,store]'.")


def _security(
    host: str, port: int, given: list[str], tokens: Path | None, upload: int
) -> SecurityConfig:
    """Return who may come in: anybody on this machine, or where tokens are given or needed those who have one."""
    from teeter.web.auth import SecurityConfig, is_loopback
    from teeter.web.tokens import home, server_secret

    alone = is_loopback(host)
    known = _tokens(given, tokens if alone or tokens else home() / "tokens.json")
    # Where a token is needed, a browser or a proxy may use any name.
    hosts = None if len(known) else frozenset({"127.0.0.1", "localhost", "::1", host.lower()})
    return SecurityConfig(
        server_secret(home() / "serve.key"),
        known,
        hosts,
        cookie_name=f"teeter_session_{port}",
        upload_limit=upload * 1_000_000,
    )


def _needs(host: str, tokens: Path | None) -> str | None:
    """Return why somebody must have a token, and how to make one; None where whoever is at this machine comes in."""
    from teeter.web.auth import is_loopback

    if tokens is None and is_loopback(host):
        return None
    where = "" if tokens is None else f" --tokens {tokens}"
    why = f"{tokens} has no token" if is_loopback(host) else f"Listening on {host} lets others in"
    return f"{why}: make a token for each annotator with teeter serve{where} --make-token NAME."


def _require_way_in(workspace: Workspace, why: str | None) -> None:
    """Refuse to serve what nobody could come into, or everybody."""
    if len(workspace.auth.config.tokens) or workspace.roster.has_tokens():
        return
    if workspace.roster.is_required():
        raise InputError(
            "The people of this campaign have no tokens: teeter campaign people token CAMPAIGN NAME."
        )
    if why is not None:
        raise InputError(why)


def _tokens(given: list[str], kept: Path | None) -> Tokens:
    from teeter.web.tokens import Tokens

    known = Tokens() if kept is None else Tokens.read(kept)
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise InputError("--token takes NAME=TOKEN.")
        known.add(name.strip(), value)
    return known


def _campaign(place: str, classes: str | None) -> str | Path:
    """Return where a campaign is; of things to label, one is made beside them unless it is there already."""
    from teeter.campaigns.import_export import ARRAY_SUFFIXES, JSONL_SUFFIXES
    from teeter.datasets.table_files import TABLE_SUFFIXES

    file = Path(place)
    if "://" in place:
        return place
    if classes is None and (
        file.is_dir() or file.suffix.lower() in (*TABLE_SUFFIXES, *JSONL_SUFFIXES, *ARRAY_SUFFIXES)
    ):
        raise InputError(
            f"{file} is no campaign: say what its things can be with --classes, and one is made of it."
        )
    if classes is None or file.suffix == ".teeter":
        return file
    path = file.with_name(f"{file.name.removesuffix(file.suffix)}.teeter")
    if not path.exists():
        with spinner("Reading"):
            from teeter.campaigns.campaign import Settings
            from teeter.web.background_requests import CreateCampaign
            from teeter.web.background_tasks import create_campaign

            names = tuple(name.strip() for name in classes.split(","))
            made = create_campaign(CreateCampaign(str(file), str(path), names, Settings()))
        typer.echo(f"{path}: {made.new:,} items to label, {made.labelled} with a label.")
    return path


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a socket on the port, or on the first one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tries = [port] if port is not None else list(range(PORT, PORT + _TRIES))
    for one in tries:
        # asyncio sends at once on sockets that say they are TCP; others wait 40 ms for each answer's second part.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, one))
            listening.listen(
                128
            )  # now, so that nobody else is told that the port is free while the page starts
        except OSError as error:
            listening.close()
            if one == tries[-1]:
                raise InputError(
                    f"Cannot listen on {host}, port {one}: {error.strerror or error}."
                ) from None
            continue
        return listening
    raise InputError(f"None of the ports from {PORT} is free: name one with --port.")


def _options(proxy: str | None) -> dict[str, Any]:
    """Return how uvicorn is run; who asks is taken from X-Forwarded-For only where a proxy is named that writes it."""
    if proxy is not None:
        try:
            ip_network(proxy)
        except ValueError:
            raise InputError(
                f"--proxy takes the proxy's address, such as 127.0.0.1, not {proxy!r}."
            ) from None
    from teeter.web.connections import ConnectionLimits, limit_connections

    return {
        "http": limit_connections(ConnectionLimits(proxy=proxy)),
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 3,
        "timeout_keep_alive": 30,
        "proxy_headers": proxy is not None,
        "forwarded_allow_ips": proxy or "",
    }


def _run(
    places: list[str | Path],
    security: SecurityConfig,
    listening: socket.socket,
    *,
    folder: Path | None,
    batch: int,
    open_page: bool | None,
    options: dict[str, Any],
    needs: str | None,
) -> None:
    import uvicorn

    from teeter.web.app import make_app

    host, port, *_ = listening.getsockname()
    with spinner("Starting"):
        app = make_app(places, security=security, folder=folder, batch=batch)
        workspace: Workspace = app.state.site
        try:
            _require_way_in(workspace, needs)
        except InputError:
            workspace.close()
            raise
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    if open_page or (
        open_page is None and sys.stdout.isatty() and not workspace.auth.requires_token()
    ):
        threading.Timer(0.8, webbrowser.open, [address]).start()
    config = uvicorn.Config(app, **options)
    typer.echo(f"{address}  (Ctrl+C stops; every answer is on disk when the page says so)")
    sys.stdout.flush()
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on.")
