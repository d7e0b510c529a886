"""A PostgreSQL server for tests: in a temporary folder, on a loopback port."""

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

__all__ = ["PostgresServer", "running_server"]

PROGRAM_FOLDERS = [
    *os.environ.get("PATH", "").split(os.pathsep),
    *map(str, Path("/usr/lib/postgresql").glob("*/bin")),
]


class PostgresServer:
    """A PostgreSQL server, with as many empty databases as tests ask for."""

    def __init__(self, folder: Path, port: int, *, durable: bool) -> None:
        self.folder = folder
        self.port = port
        self._durable = durable
        self._database_count = 0

    def new_database(self, template: str = "template1") -> str:
        """Create a database, empty or as a copy of another one, and return its URL."""
        import psycopg

        self._database_count += 1
        name = f"teeter_{os.getpid()}_{self._database_count}"
        address = f"host=127.0.0.1 port={self.port} user=teeter dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return f"postgresql+psycopg://teeter@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "''",
            "max_connections": "100",
        }
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

        options = f"-p {self.port}"
        for name, value in settings.items():
            options += f" -c {name}={value}"
        log = str(self.folder / "log")
        self._run_pg_ctl("-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: "fast" as an administrator does, "immediate" like a power failure."""
        self._run_pg_ctl("-m", mode, "stop")

    def is_running(self) -> bool:
        """Return whether the server was started and not stopped."""
        return (self.folder / "data" / "postmaster.pid").exists()

    def _run_pg_ctl(self, *arguments: str) -> None:
        _run_program("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "120", *arguments)


@contextmanager
def running_server(*, durable: bool = True) -> Iterator[PostgresServer]:
    """Yield a running server; skip the test if PostgreSQL is not installed.

    Args:
        durable: Write to disk at every commit, as in production. Tests that never crash the server
            need not wait for that.
    """
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'teeter[team]'")
    if _find_program("initdb") is None or _find_program("pg_ctl") is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")

    folder = _new_folder()
    port = ReservedPort()
    try:
        _run_program("cp", "-r", str(_initialised_folder() / "data"), str(folder / "data"))
        server = PostgresServer(folder, port.number, durable=durable)
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
    _run_program("initdb", "-D", str(folder / "data"), *options)
    return folder


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="teeter-postgres-"))
    user = _unprivileged_user()
    if user is not None:
        shutil.chown(folder, user)
    folder.chmod(0o755)
    return folder


def _find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(PROGRAM_FOLDERS))


def _unprivileged_user() -> str | None:
    """Return the user to run the server as, if not the current one: it refuses to run as root."""
    if os.geteuid() == 0:
        return "nobody"
    return None


def _run_program(name: str, *arguments: str) -> None:
    user = _unprivileged_user()
    process = subprocess.run(
        [str(_find_program(name)), *arguments],
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

    if process.returncode != 0:
        raise RuntimeError(f"{name} ended with {process.returncode}: {process.stderr[-500:]}")
