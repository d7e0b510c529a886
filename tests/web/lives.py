"""``teeter serve`` with many lives: started again at once after it was killed, on the same port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType


class Lives:
    """Servers of one campaign, one after the other."""

    def __init__(self, place: str | Path, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.port}"
        self.number = 0
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads and fork do not mix
        script = str(Path(__file__).with_name("mortal.py"))
        self.servers = subprocess.Popen(
            [sys.executable, script, str(self.port), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, "TEETER_HOME": str(home)},
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.number:
            self.kill()
        assert self.servers.stdin is not None
        assert self.servers.stdout is not None
        self.servers.stdin.close()
        self.servers.wait(30)
        self.servers.stdout.close()

    def begin(self) -> None:
        """Start a server; it may not answer yet."""
        assert self.servers.stdin is not None
        assert self.servers.stdout is not None
        self.servers.stdin.write("go\n")
        self.number = int(self.servers.stdout.readline())

    def kill(self) -> None:
        """Kill it, as a power failure does."""
        assert self.servers.stdout is not None
        os.kill(self.number, signal.SIGKILL)
        assert self.servers.stdout.readline() == "ended\n"
        self.number = 0
