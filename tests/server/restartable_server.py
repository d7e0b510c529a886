"""``teeter serve`` that can be killed and restarted on the same port any number of times.

Importing torch and FastAPI takes seconds, so a parent process imports them once and forks a server
for every start. This file is both: the class that tests use, and the script of that parent process.

    python restartable_server.py PORT CAMPAIGN
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType


class RestartableServer:
    """A server of one campaign, started and killed any number of times."""

    def __init__(self, campaign: str | Path, home: Path) -> None:
        from campaigns.ports import ReservedPort  # not importable from the script below

        self.port = ReservedPort()
        self.address = f"http://127.0.0.1:{self.port.number}"
        self.pid = 0
        # A process with threads must not fork: locks that they hold stay locked in the child.
        single_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.parent = subprocess.Popen(
            [sys.executable, __file__, str(self.port.number), str(campaign)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **single_thread, "TEETER_HOME": str(home)},
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> RestartableServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.pid:
            self.kill()
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.close()
        self.parent.wait(120)
        self.parent.stdout.close()
        self.port.release()

    def start(self) -> None:
        """Start a server. It may not answer yet when this returns."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.write("start\n")
        self.pid = int(self.parent.stdout.readline())

    def kill(self) -> None:
        """Kill the server without warning, as a power failure does."""
        assert self.parent.stdout is not None
        os.kill(self.pid, signal.SIGKILL)
        assert self.parent.stdout.readline() == "ended\n"
        self.pid = 0


def serve(port: str, campaign: str) -> None:
    from teeter.cli import main as teeter_main

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    settings = Path(os.environ["TEETER_HOME"]) / "server.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text("batch = 10\n")
    sys.argv = ["teeter", "serve", campaign, "--port", port, "--no-open"]
    sys.argv += ["--settings", str(settings)]
    teeter_main()


def fork_servers(port: str, campaign: str) -> None:
    """Fork a server for each line of input. Print its process id, and "ended" once it is gone."""
    import sklearn.linear_model  # noqa: F401
    import torch
    import uvicorn  # noqa: F401

    import teeter.server.app  # noqa: F401

    torch.set_num_threads(1)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                serve(port, campaign)
            finally:
                os._exit(1)
        os.write(1, f"{child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"ended\n")


if __name__ == "__main__":
    fork_servers(sys.argv[1], sys.argv[2])
