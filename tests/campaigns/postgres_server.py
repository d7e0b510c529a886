"""A PostgreSQL server of our own for tests: an ordinary user's, in a temporary folder, on a loopback port."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from campaigns.ports import ReservedPort

__all__ = ["Server", "running_server"]

_PLACES = [
    *os.environ.get("PATH", "").split(os.pathsep),
    *map(str, Path("/usr/lib/postgresql").glob("*/bin")),
]


class Server:
    """A running server, and a fresh database of it for everyone who asks."""

    def __init__(self, folder: Path, port: int, *, durable: bool) -> None:
        self.folder = folder
        self.port = port
        self._durable = durable
        self._database_count = 0

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        import psycopg

        self._database_count += 1
        name = f"teeter_{os.getpid()}_{self._database_count}"
        address = f"host=127.0.0.1 port={self.port} user=teeter dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"postgresql+psycopg://teeter@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=100"
        if not self._durable:
            options += " -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
        data, log = str(self.folder / "data"), str(self.folder / "log")
        _run("pg_ctl", "-D", data, "-w", "-t", "120", "-l", log, "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        """Stop it: "fast" as an administrator does, "immediate" as a power failure."""
        _run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "120", "-m", how, "stop")

    def is_running(self) -> bool:
        """Return whether it was started and not stopped."""
        return (self.folder / "data" / "postmaster.pid").exists()


@contextmanager
def running_server(*, durable: bool = True) -> Iterator[Server]:
    """Yield a server; skip where PostgreSQL is not installed.

    Args:
        durable: Write to disk at every commit, as in production. Tests that never crash the server need not wait
            for that.
    """
    pytest.importorskip(
        "psycopg", reason="psycopg is not installed: pip install 'teeter[postgres]'"
    )
    if _found("initdb") is None or _found("pg_ctl") is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not on this machine")

    folder, port = _new_folder(), ReservedPort()
    try:
        _run("cp", "-r", str(_initialised_folder() / "data"), str(folder / "data"))
        server = Server(folder, port.number, durable=durable)
        server.start()
        try:
            yield server
        finally:
            if server.is_running():
                server.stop("immediate")
    finally:
        port.release()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _initialised_folder() -> Path:
    """Run initdb once per process: it takes a second, and a copy of its result a tenth of that."""
    folder = _new_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options = ["-U", "teeter", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    _run("initdb", "-D", str(folder / "data"), *options)
    return folder


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="teeter-postgres-"))
    user = _ordinary_user()
    if user is not None:
        shutil.chown(folder, user)
    folder.chmod(0o755)
    return folder


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
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")
