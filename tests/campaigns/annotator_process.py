"""An annotator that a test kills: asks, answers and trains forever, and reports every answer once it is written.

Each line of input forks a process that continues where the last one was killed.

    python annotator_process.py CAMPAIGN
"""

from __future__ import annotations

import os
import sys

import sklearn.linear_model  # loaded once, not by each process  # noqa: F401
import torch

from teeter.campaigns.campaign import Campaign

BATCH = 10


def truth(item: str) -> str:
    """What an item is, by its number."""
    return "even" if int(item[1:]) % 2 == 0 else "odd"


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def label_on(path: str) -> None:
    campaign = Campaign.open(path)
    say("ready", os.getpid())
    while True:
        for question in campaign.ask(BATCH, "ann"):
            campaign.tell(question.item, truth(question.item), "ann")
            say("told", question.item)
        say("trained", campaign.train(who="ann").version)


def main(path: str) -> None:
    torch.set_num_threads(1)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                label_on(path)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main(sys.argv[1])
