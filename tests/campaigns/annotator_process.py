"""An annotator that a test kills: asks, answers and trains forever, and reports each stored answer.

Each line of input forks a process that continues where the last one was killed.

    python annotator_process.py CAMPAIGN
"""

from __future__ import annotations

import os
import sys

import sklearn.linear_model  # Loaded once, not by each process.  # noqa: F401
import torch

from teeter.campaigns.campaign import Campaign

BATCH = 10
"""Items to ask for at a time."""


def truth(item: str) -> str:
    """Return the true label of an item, given by its number."""
    return "even" if int(item[1:]) % 2 == 0 else "odd"


def report(*words: object) -> None:
    """Write a line to stdout without a buffer, so that it is sent before the next statement."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def annotate_forever(path: str) -> None:
    campaign = Campaign.open(path)
    report("ready", os.getpid())

    while True:
        for question in campaign.ask(BATCH, "ann"):
            campaign.tell(question.item, truth(question.item), "ann")
            report("answered", question.item)

        report("trained", campaign.train(who="ann").version)


def main(path: str) -> None:
    torch.set_num_threads(1)  # Threads and fork do not mix.
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                annotate_forever(path)
            finally:
                os._exit(1)

        os.waitpid(child, 0)
        report("ended")


if __name__ == "__main__":
    main(sys.argv[1])
