"""Selection requests: what is refused before any file is read, and how rays reach the strategy."""

from __future__ import annotations

from typing import Any

import pytest

from teeter.errors import InputError, MissingOutputError
from teeter.selection import SelectionRequest
from teeter.selection.request import check_needs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head": "h.npz", "model": "m.safetensors"}, "Give only one of head= and model=:"),
        ({"head": "h.npz", "labels": "y"}, "Give only one of head= and labels=:"),
        ({"labels": "y", "id_column": "y"}, "Column 'y' cannot hold both"),
        ({"engine": "local", "labels": "y"}, "engine= cannot be combined with labels=:"),
        ({"engine": "local", "device": "cpu"}, "engine= cannot be combined with device=:"),
        (
            {"workers": 2, "labelled": "l.npy"},
            "labelled= and workers= can be used only with engine=: .* engine='local'",
        ),
        ({"n": 1.5}, r"Cannot pick 1\.5 rows: ask for a whole number"),
        ({"n": True}, "Cannot pick True rows"),
        ({"reference": 0}, "Cannot draw 0 reference rows and 100000 candidates"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SelectionRequest(**{"pool": "pool.csv", "n": 1, **arguments})


def test_rays_are_an_option_only_of_strategies_that_have_it() -> None:
    for strategy, options in (("ldm-s", {"rays": 7}), ("ldm-fass", {"rays": 7}), ("margin", {})):
        for engine in (None, "local"):
            request = SelectionRequest(pool="p", n=1, strategy=strategy, rays=7, engine=engine)
            assert request.strategy_options() == options


def test_shards_estimate_the_ldm_by_rays_alone() -> None:
    options = {"method": "gaussian"}
    SelectionRequest(pool="p", n=1, options=options).make_strategy()
    with pytest.raises(InputError, match="leave out method= and sigma_max="):
        SelectionRequest(pool="p", n=1, options=options, engine="local").make_strategy()


@pytest.mark.parametrize(
    ("strategy", "arguments", "available", "message"),
    [
        ("dbal", {}, {"features", "head", "logits"}, "dbal needs the logits of several models"),
        ("ldm", {}, {"logits"}, "ldm needs features, but p.npz holds none"),
        ("margin", {}, {"features"}, "margin needs a head, .* pass head= or model="),
        ("coreset", {}, {"features"}, "pass a table and its label column as labels="),
        ("coreset", {"engine": "local"}, {"features"}, "pass a file of them as labelled="),
    ],
)
def test_a_missing_need_is_named_with_what_to_pass(
    strategy: str, arguments: dict[str, Any], available: set[str], message: str
) -> None:
    request = SelectionRequest(pool="p.npz", n=1, strategy=strategy, **arguments)
    with pytest.raises(MissingOutputError, match=message):
        check_needs(request.make_strategy(), request, frozenset(available), None)
