"""Show the labelling page of a campaign in a cell of a notebook.

The page comes from a server of its own, on this machine and in a process of its own. Only the
notebook's origin may show it in a frame: other sites cannot, so none can steal a click.
"""

from __future__ import annotations

import atexit
import html
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from teeter.errors import InputError, ServerError

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_SERVE = """
import sys
from teeter.cli import wait_passively
from teeter.cli.serve import serve_on_this_machine

wait_passively()
serve_on_this_machine(sys.argv[1:2], open_page=False, frame_origin=sys.argv[2])
"""
"""The program that serves the page, given the campaign and the origin of the notebook."""

_pages: dict[tuple[str, str], NotebookPage] = {}
"""The pages that are open, by campaign and origin: a cell that runs again shows the same one."""


@dataclass(frozen=True, eq=False)
class NotebookPage:
    """A page in a notebook. A notebook shows it where it is the value of a cell."""

    url: str
    height: int
    process: subprocess.Popen[str]

    def _repr_html_(self) -> str:
        """Return the frame that a notebook shows."""
        address = html.escape(self.url, quote=True)
        return (
            f'<iframe src="{address}" title="teeter" width="100%" height="{self.height}" '
            'style="border: 1px solid #ccc"></iframe>'
        )

    def is_running(self) -> bool:
        """Return whether its server still runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """Stop the server of the page. Saved answers stay."""
        self.process.terminate()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def find_notebook_origin() -> str | None:
    """Return the origin of the Jupyter server that runs this kernel; None if it is not known."""
    try:
        from jupyter_server.serverapp import list_running_servers
    except ImportError:
        return None

    parent = os.environ.get("JPY_PARENT_PID", "")
    for server in list_running_servers():
        if str(server.get("pid")) == parent:
            parts = urlsplit(server["url"])
            return f"{parts.scheme}://{parts.netloc}"
    return None


def open_notebook_page(location: str, *, origin: str | None = None, height: int) -> NotebookPage:
    """Serve a campaign to a notebook on this machine.

    Args:
        location: The campaign's file or database URL.
        origin: The scheme, host and port of the notebook's page; by default that of the Jupyter
            server that runs this kernel.
        height: The height of the frame in pixels.

    Raises:
        InputError: If the origin is not known, or on another machine.
        ServerError: If the server does not start.
    """
    origin = origin or find_notebook_origin()
    if origin is None:
        raise InputError(
            "The address of the notebook is unknown: pass it, for example "
            "show(origin='http://localhost:8888')."
        )
    host = urlsplit(origin).hostname
    if host not in _LOCAL_HOSTS:
        raise InputError(
            f"A notebook on {host} cannot show a page that this machine serves locally: run teeter "
            f"serve at an address that the notebook's browser can reach."
        )

    running = _pages.get((location, origin))
    if running is not None and running.is_running():
        return running

    argument, environment = _hide_password(location)
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, argument, origin],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    page = NotebookPage(_read_address(process, host), height, process)
    atexit.register(process.terminate)
    _pages[location, origin] = page
    return page


def _hide_password(location: str) -> tuple[str, dict[str, str]]:
    """Return a database URL without its password, and the environment variable that has it.

    All users of a machine see the arguments of its processes, but not their environment.
    """
    parts = urlsplit(location)
    if not parts.scheme.startswith("postgresql") or parts.password is None:
        return location, {}

    user, _, host = parts.netloc.rpartition("@")
    name, _, _ = user.partition(":")
    address = parts._replace(netloc=f"{name}@{host}").geturl()
    # The variable that PostgreSQL's own programs read.
    return address, {"PGPASSWORD": unquote(parts.password)}


def _read_address(process: subprocess.Popen[str], host: str) -> str:
    """Return the address that a starting server prints, under the name of the notebook's host.

    Browsers send no cookies to frames of another site, and ``localhost`` and ``127.0.0.1`` are two.
    """
    for line in process.stdout or ():
        match = re.search(r"http://[^/:]+:(\d+)", line)
        if match is not None:
            name = host
            if ":" in host:
                name = f"[{host}]"
            return f"http://{name}:{match[1]}/"
    raise ServerError("The page's server did not start: see the messages above.")
