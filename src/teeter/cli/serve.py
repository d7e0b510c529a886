"""teeter serve: label on a page, alone or in a team.

The command decides who may connect (``_security_config``), opens the port, and runs the application
of ``teeter.server`` in uvicorn. By default only this machine can connect, and no token is needed.
As soon as other machines can connect, everyone needs a token.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import webbrowser
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teeter.base.wording import list_some, pluralize
from teeter.base.worker_process import prepare_workers
from teeter.campaigns.records import ItemColumns
from teeter.campaigns.settings import Settings
from teeter.cli.campaign import (
    IdOption,
    LabelsOption,
    campaign_location,
    create_campaign,
    open_campaign,
    parse_classes,
    report_conflicts,
    with_settings,
)
from teeter.cli.output import TextOption, echo_wrapped, progress, spinner
from teeter.errors import InputError, MissingExtraError, StoreError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign
    from teeter.campaigns.suggestions.language_model import LanguageModel
    from teeter.server.access import SecurityConfig, ServerSettings
    from teeter.server.access.tokens import Tokens
    from teeter.server.workspace import Workspace


FIRST_PORT = 8765

# Ports that are tried one after the other, unless one is given.
_PORTS_TRIED = 20

_LOOPBACK = "127.0.0.1"

# A secret: it has no option, because all users of a machine see the arguments of its processes.
_TOKEN_VARIABLE = "TEETER_TOKEN"

# Connections that wait to be accepted.
_BACKLOG = 128

_NEEDS_PROXY = (
    "Other machines can reach this server, and it waits for clients however slow they are. On a "
    "network that you do not trust, put a reverse proxy in front of it that closes slow "
    "connections, such as Caddy with deploy/Caddyfile, and set its address as proxy in the "
    "file of --settings."
)

# The browser opens this many seconds after the server starts, when it accepts connections.
_BROWSER_DELAY = 0.8

CampaignsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CAMPAIGN",
        help="Campaign files or database URLs; or a file or folder of items, with --classes.",
    ),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Serve all campaigns and reports in a folder, and allow new campaigns to be created "
        "there.",
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="TEETER_DATABASE",
        help="Serve all campaigns in a database (postgresql://…), and allow new campaigns to be "
        "created there.",
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Comma-separated class names, or a file of them. A campaign is created from the "
        "items. If there is one, items that are new are added to it.",
    ),
]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="TOML file with settings for a proxy, logins, tokens, uploads and a language model.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address to listen on. Any address except 127.0.0.1 requires tokens.",
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        max=65535,
        help=f"Port to listen on. Default: {FIRST_PORT}, or the next free one.",
    ),
]
MakeTokenOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Create a token for an annotator, print it once and exit."),
]
RemoveTokenOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Remove an annotator's token, end their sessions and exit."),
]
TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PLACE",
        help="Let the campaigns read images in this folder, or send events to this address, "
        "although they were not created here. Remembered. May be repeated.",
    ),
]
OpenOption = Annotated[
    bool | None,
    typer.Option(
        "--open/--no-open",
        help="Open the page in a browser. By default, only when run in a terminal.",
    ),
]


@with_settings("several", "encoder", "goal", "show", "instructions")
def serve(
    locations: CampaignsArgument = None,
    *,
    classes: ClassesOption = None,
    text: TextOption = None,
    id_column: IdOption = None,
    labels: LabelsOption = None,
    folder: FolderOption = None,
    database: DatabaseOption = None,
    host: HostOption = _LOOPBACK,
    port: PortOption = None,
    server_settings: SettingsOption = None,
    make_token: MakeTokenOption = None,
    remove_token: RemoveTokenOption = None,
    trust: TrustOption = None,
    open_page: OpenOption = None,
    settings: dict[str, Any],
) -> None:
    """Label on a page in your browser.

    Prints the address of the page. The page needs pip install 'teeter[label]'. It needs no internet
    access, and all data stays on this machine. The only exception is a language model that you name
    in the file of --settings: it gets the texts of items, and suggests labels.

    Hashes of tokens are stored in tokens.json in teeter's configuration folder, unless the settings
    name another file. A token can also come from the environment, as TEETER_TOKEN=NAME=TOKEN.

    \b
    Examples:
      teeter serve reviews.teeter
      teeter serve reviews.csv --classes good,bad
      teeter serve tickets.xlsx --classes bug,other --text title,body --show day
      teeter serve --folder campaigns --host 0.0.0.0 --settings server.toml
    """
    require_web_packages()
    from teeter.server.access import ServerSettings, read_server_settings, tokens

    server = ServerSettings()
    if server_settings is not None:
        server = read_server_settings(server_settings)
    if make_token is not None:
        file = _tokens_file(server.tokens)
        # Alone on stdout, so that a script can capture it.
        typer.echo(tokens.make_token(file, make_token))
        typer.echo(
            f"The token of {make_token} will not be shown again. {file} holds only its hash.",
            err=True,
        )
        return
    if remove_token is not None:
        file = _tokens_file(server.tokens)
        tokens.remove_token(file, remove_token)
        typer.echo(f"Removed the token of {remove_token} from {file}.")
        return
    if not locations and folder is None and database is None:
        raise InputError(
            "Give a campaign file, a folder of campaigns with --folder, or a database of campaigns "
            "with --database."
        )

    # Wrong settings are reported before a port is opened.
    language_model = _make_language_model(server)
    listener = _listen(host, port)
    try:
        # After the port is known: the name of the cookie has it.
        security = _security_config(host, listener.getsockname()[1], server)
        # The workers import torch while a file is read.
        prepare_workers()
        columns = ItemColumns(text, id_column, labels)
        campaigns = [
            _find_campaign(location, classes, columns, settings) for location in locations or []
        ]
        _run(
            campaigns,
            security,
            listener,
            folder=folder,
            database=database,
            batch=server.batch,
            open_page=open_page,
            token_hint=_token_hint(host, server.tokens, server_settings),
            language_model=language_model,
            trusted=trust or [],
        )
    finally:
        listener.close()


def serve_on_this_machine(
    campaigns: list[str | Path],
    *,
    folder: Path | None = None,
    port: int | None = None,
    open_page: bool | None = None,
    path: str = "",
    frame_origin: str | None = None,
) -> None:
    """Serve campaigns to this machine only, without tokens, until Ctrl-C.

    Args:
        campaigns: files or database URLs.
        folder: a folder whose campaigns are served too.
        port: the port to listen on, or None for the first free one.
        open_page: whether to open a browser; None for a terminal.
        path: what follows the address in the browser.
        frame_origin: the origin, such as http://localhost:8888, whose pages may show the page in a
            frame.
    """
    require_web_packages()
    from teeter.server.access import ServerSettings

    listener = _listen(_LOOPBACK, port)
    try:
        port = listener.getsockname()[1]
        server = ServerSettings()
        security = _security_config(_LOOPBACK, port, server)
        _run(
            campaigns,
            replace(security, frame_origin=frame_origin),
            listener,
            folder=folder,
            database=None,
            batch=server.batch,
            open_page=open_page,
            token_hint=None,
            path=path,
        )
    finally:
        listener.close()


def require_web_packages() -> None:
    """Raise MissingExtraError if a package that serves the page is not installed."""
    for package in ("fastapi", "itsdangerous", "uvicorn", "jinja2", "multipart", "sqlalchemy"):
        if find_spec(package) is None:
            raise MissingExtraError("The page needs pip install 'teeter[label]'.")


def _tokens_file(tokens: Path | None) -> Path:
    """Return the file of token hashes: the one that was named, or the default."""
    from teeter.campaigns.trust import home

    return tokens or home() / "tokens.json"


def _security_config(host: str, port: int, server: ServerSettings) -> SecurityConfig:
    """Return who may log in: anyone on this machine, or only holders of a token if there are any.

    Args:
        host: the address to listen on.
        port: the port to listen on.
        server: the settings. Beyond this machine, there is a default file of tokens.
    """
    from teeter.campaigns.trust import home
    from teeter.server.access import EndedSessions, SecurityConfig, is_loopback, read_login_config
    from teeter.server.access.tokens import server_secret

    file = server.tokens
    if not is_loopback(host):
        file = _tokens_file(server.tokens)
    # With none accepted, the server asks for none: ``_require_login`` checks that this is meant.
    accepted = _read_tokens(file)
    login_config = None
    if server.login is not None:
        login_config = read_login_config(server.login)

    # A page of another site could reach a server without tokens under a name of its own (DNS
    # rebinding). With a login it could not get in, and a proxy may use any name.
    hosts = None
    if not len(accepted) and login_config is None:
        hosts = frozenset({"127.0.0.1", "localhost", "::1", host.lower()})

    return SecurityConfig(
        server_secret(home() / "serve.key"),
        accepted,
        hosts,
        # Browsers send cookies to all ports of a host: each server needs a cookie name of its own.
        cookie_name=f"teeter_session_{port}",
        ended_sessions=EndedSessions(home() / "ended_sessions"),
        login=login_config,
        proxy=server.proxy,
        upload_limit=server.upload_megabytes * 1_000_000,
    )


def _read_tokens(file: Path | None) -> Tokens:
    """Return the tokens of a file of hashes, and that of the environment."""
    from teeter.server.access.tokens import Tokens

    tokens = Tokens()
    if file is not None:
        tokens = Tokens.read(file)
    for text in os.environ.get(_TOKEN_VARIABLE, "").split():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{_TOKEN_VARIABLE} must have the form NAME=TOKEN.")
        tokens.add(name.strip(), value)
    return tokens


def _token_hint(host: str, tokens: Path | None, settings: Path | None) -> str | None:
    """Return why tokens are needed and how to create one; None if they are not needed."""
    from teeter.server.access import is_loopback

    if is_loopback(host):
        if tokens is None:
            return None
        reason = f"{tokens} holds no token"
    else:
        reason = f"Listening on {host} lets other machines connect"

    command = "teeter serve"
    if settings is not None:
        command += f" --settings {shlex.quote(str(settings))}"
    return f"{reason}: create a token for each annotator with {command} --make-token NAME."


def _require_login(workspace: Workspace, token_hint: str | None) -> None:
    """Check that a token exists, if one is needed to log in."""
    if workspace.auth.config.login is not None:
        return

    campaign_tokens = workspace.campaign_tokens
    if len(workspace.auth.config.tokens) or campaign_tokens.has_tokens():
        return
    if campaign_tokens.is_required():
        raise InputError(
            "No annotator of this campaign has a token: create one with "
            "teeter campaign people CAMPAIGN --new-token NAME."
        )
    if token_hint is not None:
        raise InputError(token_hint)


def _make_language_model(server: ServerSettings) -> LanguageModel | None:
    """Return the language model to ask for suggestions, if the settings name one.

    Raises:
        InputError: its address or a price is invalid.
    """
    model = server.language_model
    if model is None:
        return None

    from teeter.campaigns.suggestions.chat_client import ChatClient
    from teeter.campaigns.suggestions.language_model import LanguageModel

    # Made only to be checked: a key must not be sent unencrypted.
    ChatClient(model.url, model.model)
    return LanguageModel(
        model.url,
        model.model,
        input_price=model.input_price,
        output_price=model.output_price,
        budget=model.budget,
    )


def _find_campaign(
    location: str, classes: str | None, columns: ItemColumns, settings: dict[str, Any]
) -> str | Path:
    """Return where a campaign is. If ``location`` has items, create it, or add those that are new.

    Args:
        location: a campaign's file, the URL of a database, or a file or folder of items.
        classes: the value of ``--classes``.
        columns: what the columns of a table hold.
        settings: settings of a new campaign. One that exists gets those that are not the default.
    """
    from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX
    from teeter.campaigns.items.read_items import ARRAY_SUFFIXES
    from teeter.data.table_files import JSON_SUFFIXES, TABLE_SUFFIXES
    from teeter.data.workbooks import split_sheet

    changeable = ("goal", "show", "instructions")
    changes = {name: settings[name] for name in changeable if settings[name]}
    path = Path(location)
    if "://" in location or path.suffix == ".teeter":
        goal = changes.pop("goal", "")
        if changes or columns != ItemColumns():
            raise InputError(
                f"{path.name} is a campaign: give --text, --id, --labels, --show and "
                "--instructions with the file or folder of its items."
            )
        if goal:
            with open_campaign(location) as opened:
                opened.change_settings(goal=goal)
        return location
    suffix = split_sheet(path)[0].suffix.lower()
    suffixes = (*TABLE_SUFFIXES, *JSON_SUFFIXES, *ARRAY_SUFFIXES, ARCHIVE_SUFFIX)
    is_source = path.is_dir() or suffix in suffixes
    if classes is None and not is_source:
        return path

    file = campaign_location(path)
    if not Path(file).exists():
        if classes is None and columns.labels is None:
            raise InputError(
                f"{path} is not a campaign: to create a campaign from it, list the classes with "
                f"--classes, or name the column that holds them with --labels."
            )
        # The server encodes the items, so that the page opens within seconds.
        create_campaign(path, file, classes, Settings(**settings), columns, encode_now=False)
        return Path(file)

    with open_campaign(file) as opened:
        if classes is not None:
            given = _require_classes(opened, parse_classes(classes), path, file)
            further = [name for name in opened.classes.names() if name not in given]
            if further:
                echo_wrapped(f"{file} also has the classes {list_some(further, 10)}.", err=True)
        if settings["several"] and not opened.settings.several:
            raise InputError(
                f"{file} already exists, and its items have one label each: leave out --several, "
                "or create another campaign with teeter campaign new."
            )
        _report_other_encoder(opened, file, settings["encoder"])
        # A campaign does not need its file any more.
        if split_sheet(path)[0].exists():
            _add_new_items(opened, path, columns, file)
        if changes:
            opened.change_settings(**changes)
    return Path(file)


def _require_classes(campaign: Campaign, classes: list[str], items: Path, file: str) -> list[str]:
    """Return the present names of classes, if a campaign that exists has them.

    Classes that were renamed or added since it was created are no mistake.
    """
    from teeter.campaigns.store.queries.classes import find_alike

    names = campaign.classes.names()
    current_names = campaign.classes.current_names(classes)
    missing = [name for name in current_names if name not in names]
    # No advice to add a class that cannot be told from one that is there.
    for name in missing:
        alike = find_alike(name, names)
        if alike is not None:
            raise InputError(
                f"{file} already exists and has the class {alike!r}, not {name!r}: give --classes "
                f"its names as they are, or open it with teeter serve {shlex.quote(file)}."
            )
    if missing:
        quoted = shlex.quote(file)
        raise InputError(
            f"{file} already exists and has the classes {list_some(names, 10)}, but not "
            f"{list_some(missing, 10)}: add or rename a class with teeter campaign classes "
            f"{quoted} --add {shlex.quote(missing[0])} (or --rename OLD=NEW), open it with teeter "
            f"serve {quoted}, or create another campaign with teeter campaign new "
            f"{shlex.quote(str(items))} --classes NAMES --file FILE."
        )
    return current_names


def _report_other_encoder(campaign: Campaign, file: str, encoder: str) -> None:
    """Say so if the campaign that exists has another encoder than the one that is asked for."""
    if encoder == "auto":
        return

    current = campaign.status().encoder
    if current not in (None, encoder):
        echo_wrapped(
            f"{file} already exists and has the features of the encoder {current}, not "
            f"{encoder}: switch with teeter campaign encode {shlex.quote(file)} --encoder "
            f"{encoder}.",
            err=True,
        )


def _add_new_items(campaign: Campaign, path: Path, columns: ItemColumns, file: str) -> None:
    """Add the items of a file or folder that a campaign lacks, and say how many there are."""
    from teeter.data.table_files import is_missing

    notes: list[str] = []
    items, changed = campaign.items.read_again(path, columns, notes)
    labels = dict.fromkeys(item.label for item in items if item.label is not None)
    names = [name for name in labels if not is_missing(name)]
    _require_classes(campaign, names, path, file)

    # The server encodes them.
    result = campaign.add(items, encode_now=False)
    known = pluralize(result.duplicates + len(changed), "was", "were")
    if result.new:
        typer.echo(f"Added {pluralize(result.new, 'item')}; {known} there already.")
    else:
        typer.echo(f"Nothing is new in {path}.")
    if result.labelled:
        typer.echo(f"Added {pluralize(result.labelled, 'label')}.")
    for note in notes:
        echo_wrapped(note)
    report_conflicts(result)
    if changed:
        differ = pluralize(len(changed), "item differs", "items differ")
        echo_wrapped(
            f"{differ} from the one with the same id in {file}, which stays as it is "
            f"({list_some(changed, 5)}): correct texts on the page, under Items.",
            err=True,
        )


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket on a port, or on the first free one of those that are tried.

    Raises:
        InputError: if the address or all ports are taken or not allowed.
    """
    # Only IPv6 addresses have colons; host names are resolved as IPv4.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [port]
    if port is None:
        ports = list(range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED))

    reason = ""
    for candidate in ports:
        # The protocol is named because asyncio switches Nagle's algorithm off only for sockets
        # that say TCP. With it, the second part of each response would wait for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            # At once, so that no other process gets the port while the page starts.
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            reason = f"Cannot listen on {host}, port {candidate}: {error.strerror or error}."
        else:
            return listener

    raise InputError(reason)


def _uvicorn_options() -> dict[str, Any]:
    """Return the options of uvicorn."""
    return {
        "http": "h11",
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 3,
        "timeout_keep_alive": 30,
        # The application believes them, and remembers from whom they come.
        "proxy_headers": False,
    }


def _report_problems(workspace: Workspace, trusted: list[str]) -> None:
    """Say which campaigns are not trusted, and which lack image files."""
    from teeter.campaigns.items.image_links import describe_missing_images
    from teeter.campaigns.trust import find_untrusted

    # A copy, because other threads open and close campaigns.
    for campaign in list(workspace.campaigns.values()):
        try:
            sentences = find_untrusted(campaign, trusted)
            missing = describe_missing_images(campaign)
        except StoreError:
            continue  # the page reports a campaign that cannot be read
        if missing is not None and missing not in sentences:
            sentences.append(missing)
        for sentence in sentences:
            typer.echo(f"{campaign.name}: {sentence}", err=True)


def _run(
    campaigns: list[str | Path],
    security: SecurityConfig,
    listener: socket.socket,
    *,
    folder: Path | None,
    database: str | None,
    batch: int,
    open_page: bool | None,
    token_hint: str | None,
    path: str = "",
    language_model: LanguageModel | None = None,
    trusted: list[str] | None = None,
) -> None:
    """Serve campaigns until Ctrl-C.

    Args:
        campaigns: files or database URLs.
        security: who may log in.
        listener: the socket to serve on.
        folder: a folder whose campaigns are served too.
        database: the URL of a database whose campaigns are served too.
        batch: items per batch.
        open_page: whether to open a browser; None for a terminal without tokens.
        token_hint: the error if no token exists; None if none is needed.
        path: what follows the address of the page.
        language_model: the language model that suggests labels.
        trusted: folders and addresses that the campaigns may use.
    """
    import uvicorn

    from teeter.server.access import is_loopback
    from teeter.server.app import make_app

    host, port, *_ = listener.getsockname()
    with spinner("Starting"):
        app = make_app(
            campaigns,
            security=security,
            folder=folder,
            database=database,
            batch=batch,
            language_model=language_model,
        )
        workspace: Workspace = app.state.workspace
        try:
            _require_login(workspace, token_hint)
        except InputError:
            workspace.close()
            raise

    address = f"http://{host}:{port}/{path}"
    if ":" in host:
        address = f"http://[{host}]:{port}/{path}"

    if open_page is None:
        # A page that asks for a token is opened from the link that the annotator was given.
        open_page = sys.stdout.isatty() and not workspace.auth.requires_login()
    _report_problems(workspace, trusted or [])
    if not is_loopback(host) and security.proxy is None:
        typer.echo(_NEEDS_PROXY, err=True)
    if language_model is not None:
        typer.echo(f"The texts of items are sent to {language_model.url}.", err=True)
    if open_page:
        threading.Timer(_BROWSER_DELAY, webbrowser.open, [address]).start()

    typer.echo(
        f"{address}  (Press Ctrl+C to stop. Answers that the page shows as saved are on disk.)"
    )
    # Programs that start the server read the address from a pipe.
    sys.stdout.flush()
    try:
        options = _uvicorn_options()
        uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listener])
    except KeyboardInterrupt:
        typer.echo("Stopped. Run the same command to continue.")


SampleArgument = Annotated[
    str,
    typer.Argument(metavar="SAMPLE", help="The sample to show first: texts or images."),
]
SampleFolderOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder for the sample campaigns.")
]


def try_sample(
    sample: SampleArgument = "texts",
    *,
    folder: SampleFolderOption = Path("teeter-try"),
    open_page: OpenOption = None,
) -> None:
    """Try labelling with a sample project: real data, some of it labelled, and a trained model.

    The samples are 480 questions from a bank's customers and 360 photographs of clothes. They come
    with teeter, so nothing is downloaded, and all data stays on this machine. Run the same command
    again to continue, and delete the folder to start again. The page needs pip install
    'teeter[label]'.

    \b
    Examples:
      teeter try
      teeter try images
    """
    # Before anything is loaded or written, so that a missing extra is reported at once.
    require_web_packages()

    with spinner("Loading"):  # importing torch takes seconds
        from teeter.samples import SAMPLES, find_sample, make_sample, sample_file

    shown_first = find_sample(sample)

    # Only the one that is asked for is built: the browser opens two seconds earlier.
    if not sample_file(shown_first, folder).exists():
        with progress(f"Preparing {shown_first.title}") as on_step:
            make_sample(shown_first, folder, on_step=on_step)
        typer.echo(f"Created a sample campaign in {folder}. Delete the folder when you are done.")

    # Both samples share the folder. The other one is served too if it was built by an earlier call.
    files = [sample_file(entry, folder) for entry in SAMPLES]
    serve_on_this_machine(
        [file for file in files if file.exists()],
        folder=folder,
        open_page=open_page,
        path=f"c/{shown_first.title}",
    )
