"""A strategy of your own in ten lines, tested against the contract and compared with LDM-S."""

import torch
from torch import Tensor

import teeter
from teeter.checks import check_strategy, example_context
from teeter.strategies import Context, Strategy, register


@register("spread-margin")
class SpreadMargin(Strategy):
    """The rows of small margin, every second one, so that neighbours in the ranking are not all
    picked.
    """

    needs = frozenset({"logits"})

    def choose(self, context: Context, n: int) -> Tensor:
        top_two = context.logits.softmax(dim=1).topk(2, dim=1).values
        order = (top_two[:, 0] - top_two[:, 1]).argsort(stable=True)
        return torch.cat([order[::2], order[1::2]])[:n]


check_strategy(SpreadMargin)
outputs = example_context().outputs
print("spread-margin:", teeter.select("spread-margin", outputs, 5))
print("ldm-s:        ", teeter.select("ldm-s", outputs, 5))
