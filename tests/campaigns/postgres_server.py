"""A PostgreSQL server of our own for tests: an ordinary user's, in a temporary folder, on a loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["Server", "running_server"]

_PLACES = [*os.environ.get("PATH", "").split(os.pathsep), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]


class Server:
    """A running server, and a fresh database of it for everyone who asks."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self._made = folder, port, 0

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        import psycopg

        self._made += 1
        name = f"teeter_{os.getpid()}_{self._made}"
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user=teeter dbname=postgres", autocommit=True) as one:
            one.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"postgresql+psycopg://teeter@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=100"
        _run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        """Stop it: "fast" as an administrator does, "immediate" as a power failure."""
        _run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", how, "stop")


@contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server; skip where there is none to be had."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'teeter[postgres]'")
    if _found("initdb") is None or _found("pg_ctl") is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not on this machine")
    folder = Path(tempfile.mkdtemp(prefix="teeter-postgres-"))
    try:
        if (user := _ordinary_user()) is not None:
            shutil.chown(folder, user)
        folder.chmod(0o755)
        _run("initdb", "-D", str(folder / "data"), "-U", "teeter", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        server = Server(folder, _free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _found(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join(_PLACES))


def _ordinary_user() -> str | None:
    """Return whom to run as: the server refuses to be root's."""
    return "nobody" if os.geteuid() == 0 else None


def _run(program: str, *arguments: str) -> None:
    command = [str(_found(program)), *arguments]
    user = _ordinary_user()
    done = subprocess.run(
        command,
        user=user,
        group=None if user is None else "nogroup",
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
