"""A server to be killed: for each line of input a new process runs ``teeter serve``, until it is killed.

python mortal.py PORT CAMPAIGN: says the number of each process, and when it ended.
"""

from __future__ import annotations

import os
import sys

import sklearn.linear_model  # loaded once, not by each process  # noqa: F401
import torch
import uvicorn  # noqa: F401

import teeter.web.app  # noqa: F401
from teeter.cli import main as teeter_main


def serve(port: str, place: str) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["teeter", "serve", place, "--port", port, "--no-open", "--batch", "10"]
    teeter_main()


def main(port: str, place: str) -> None:
    torch.set_num_threads(1)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                serve(port, place)
            finally:
                os._exit(1)
        os.write(1, f"{child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"ended\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
