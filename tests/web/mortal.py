"""A server to be killed: for each line of input a new process serves a campaign, until it is killed.

python mortal.py CAMPAIGN PORT: says the number of each process, and when it ended.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import sklearn.linear_model  # loaded once, not by each process  # noqa: F401
import torch
import uvicorn

from teeter.web.app import make_app
from teeter.web.security import Guard


def serve(path: str, listening: socket.socket) -> None:
    app = make_app([Path(path)], guard=Guard(b"the same after a restart"), batch=10)
    config = uvicorn.Config(app, log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


def main(path: str, port: int) -> None:
    torch.set_num_threads(1)
    for _ in sys.stdin:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        child = os.fork()
        if child == 0:
            try:
                serve(path, listening)
            finally:
                os._exit(1)
        listening.close()
        os.write(1, f"{child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"ended\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
