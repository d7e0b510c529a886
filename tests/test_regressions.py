"""Mistakes that were made once: each stays mended."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import teeter
from teeter import Outputs
from teeter.arrays import full_precision_matmul
from teeter.datasets.table_files import read_table
from teeter.errors import FileError, InputError, StrategyError
from teeter.kernels.distances import Cosine, Euclidean
from teeter.kernels.ldm import BLOCK, flip_rates, ray_directions
from teeter.kernels.seeding import seed_rows
from teeter.seeds import normal, stream
from teeter.selection.from_file import pick_from_file
from teeter.strategies import Context, TopKStrategy

RNG = np.random.default_rng(0)


def test_rows_far_from_the_origin_are_not_taken_for_copies() -> None:
    features = RNG.normal(size=(1000, 16)).astype(np.float32)
    features[500:] += 4000
    picks = teeter.select("seeding-l2", Outputs(features=features), 12)
    assert (np.sort(picks)[:6] != np.arange(6)).any()
    points = Euclidean(torch.from_numpy(features[:300]))
    direct = torch.cdist(*[torch.from_numpy(features[:300]).double()] * 2, compute_mode="donot_use_mm_for_euclid_dist")
    np.testing.assert_allclose(points.between(torch.arange(300), torch.arange(300)), direct, atol=0.01)


def test_one_outlier_does_not_make_the_others_copies() -> None:
    features = RNG.normal(size=(200, 16)).astype(np.float32)
    features[77] *= 200_000
    picks = teeter.select("seeding-l2", Outputs(features=features), 12)
    assert sorted(picks)[1:6] != [0, 1, 2, 3, 4]
    nearest = Euclidean(torch.from_numpy(features)).nearest(torch.tensor([5]))
    assert int((nearest == 0).sum()) == 1


def test_tiny_and_huge_rows_keep_their_angles() -> None:
    plain = torch.from_numpy(RNG.normal(size=(20, 5)).astype(np.float32))
    scaled = plain * torch.logspace(-25, 25, 20)[:, None]
    rows = torch.arange(20)
    np.testing.assert_allclose(Cosine(scaled).between(rows, rows), Cosine(plain).between(rows, rows), atol=1e-5)


@pytest.mark.parametrize("scale", [1e20, 1e-20])
def test_features_that_cannot_be_multiplied_are_refused(scale: float) -> None:
    with pytest.raises(InputError, match=r"features has values up to .*scale them towards 1"):
        Outputs(features=(RNG.normal(size=(6, 5)) * scale).astype(np.float32))


def test_scaled_copies_flip_together() -> None:
    lines = RNG.normal(size=(20, 6))
    rows = (lines * RNG.uniform(0.5, 3, size=(50, 1, 1))).reshape(-1, 6)
    for dtype in (np.float32, np.float64):
        values = teeter.ldm(rows.astype(dtype), RNG.normal(size=(4, 6)).astype(dtype))
        assert np.mean(values > 0.0499) > 0.95, "a row and its 49 multiples flip at one strength"
        assert values.min() > 0.02


def test_equal_rows_of_a_weight_are_a_tie_in_either_precision() -> None:
    rows, weight = RNG.normal(size=(300, 6)), RNG.normal(size=(5, 6))
    weight[4] = weight[0]
    single, double = (teeter.ldm(rows.astype(dtype), weight.astype(dtype)) for dtype in (np.float32, np.float64))
    assert np.abs(single - double).max() * 300 < 2.5


def test_the_default_dtype_decides_no_draw() -> None:
    plain = normal((4,), stream(0, "x"), torch.device("cpu"))
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(normal((4,), stream(0, "x"), torch.device("cpu")), plain)
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast_does_not_reach_the_gaps() -> None:
    rows, weight = RNG.normal(size=(300, 6)).astype(np.float32), RNG.normal(size=(5, 6)).astype(np.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = teeter.ldm(rows, weight, rays=64)
    np.testing.assert_array_equal(inside, teeter.ldm(rows, weight, rays=64))


def test_exact_products_hold_for_all_threads_and_are_put_back() -> None:
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        entered, leave = threading.Event(), threading.Event()

        def stay() -> None:
            with full_precision_matmul():
                entered.set()
                leave.wait(10)

        other = threading.Thread(target=stay)
        other.start()
        entered.wait(10)
        with full_precision_matmul():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "ieee", "the other thread is still inside"
        leave.set()
        other.join()
        assert matmul.fp32_precision == "bf16"
        with pytest.raises(RuntimeError), full_precision_matmul():
            raise RuntimeError
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize("count", [1, 8, 15, 16])
def test_a_row_s_rate_does_not_depend_on_how_many_rays_there_are(count: int) -> None:
    rows = torch.from_numpy(np.round(2 * RNG.normal(size=(400, 3))).astype(np.float32))
    weight = torch.from_numpy(np.round(2 * RNG.normal(size=(5, 3))).astype(np.float32))
    whole = flip_rates(rows, weight, None, ray_directions(3, 16, weight, None))
    few = flip_rates(rows, weight, None, ray_directions(3, count, weight, None))
    assert torch.equal(few, whole[: 2 * count])


def test_rays_come_in_blocks_of_16_from_streams_of_their_own() -> None:
    weight = torch.zeros(3, 4)
    blocks = list(ray_directions(7, 40, weight, torch.zeros(3)))
    assert [len(moves) for moves, _ in blocks] == [16, 16, 8]
    assert BLOCK == 16
    generator = stream(7, "ray", 1)
    assert torch.equal(blocks[1][0], torch.randn(16, 3, 4, generator=generator))
    assert torch.equal(blocks[1][1], torch.randn(16, 3, generator=generator))


@pytest.mark.parametrize("patience", [4, 40])
def test_algorithm_1_goes_on_while_any_row_is_lowered(patience: int) -> None:
    """A literal loop over all rows with one counter, on the same draws, which come in blocks of 16."""
    rows, weight = torch.from_numpy(RNG.normal(size=(30, 3))), torch.from_numpy(RNG.normal(size=(3, 3)))
    predicted = (rows @ weight.T).argmax(dim=1)
    least, generator = np.full(30, 1.0), stream(5, "gaussian", 0)
    idle, drawn = 0, iter(())
    while idle < patience:
        move = next(drawn, None)
        if move is None:
            drawn = iter(torch.randn(16, 3, 3, generator=generator))
            move = next(drawn)
        moved = weight + 0.4 * move.double()
        flipped = ((rows @ moved.T).argmax(dim=1) != predicted).numpy()
        lowered = flipped & (flipped.mean() < least)
        least[lowered] = flipped.mean()
        idle = 0 if lowered.any() else idle + 1
    found = teeter.ldm(rows, weight, method="gaussian", sigmas=[0.4], patience=patience, seed=5)
    np.testing.assert_allclose(found, least)


def test_strengths_are_tried_in_rising_order() -> None:
    rows, weight = RNG.normal(size=(50, 3)), RNG.normal(size=(3, 3))
    mixed = teeter.ldm(rows, weight, method="gaussian", sigmas=[1.0, 0.01, 0.1])
    np.testing.assert_array_equal(mixed, teeter.ldm(rows, weight, method="gaussian", sigmas=[0.01, 0.1, 1.0]))


def test_what_fills_up_is_least_preferred_last_and_lowest_first() -> None:
    features = torch.ones(6, 2)
    even = torch.zeros(6, dtype=torch.float64)
    fill = lambda preference: seed_rows(  # noqa: E731
        Cosine(features), 6, first=2, log_weights=even, preference=preference, generator=stream(0, "x")
    ).tolist()
    assert fill(even) == [2, 0, 1, 3, 4, 5]
    assert fill(torch.tensor([5.0, 4, 3, 2, 1, 0])) == [2, 5, 4, 3, 1, 0]


def test_ldm_s_fills_up_by_the_smallest_ldm() -> None:
    rows = np.repeat(RNG.normal(size=(10, 4)), 3, axis=0)
    outputs = Outputs(features=rows, weight=RNG.normal(size=(3, 4)))
    picks, values = teeter.select("ldm-s", outputs, 30), teeter.scores("ldm-s", outputs)
    assert len(set(picks[:10] // 3)) == 10
    assert (np.diff(values[picks[10:]]) >= 0).all()


class Undefined(TopKStrategy):
    """Scores that are no numbers."""

    needs = frozenset({"features"})
    best = "largest"

    def score(self, context: Context) -> torch.Tensor:
        return context.features[:, 0] * torch.nan


def test_scores_that_are_no_numbers_are_refused() -> None:
    outputs = Outputs(features=np.ones((5, 2)))
    with pytest.raises(StrategyError, match="Undefined scored 5 of 5 rows with NaN"):
        teeter.select(Undefined(), outputs, 2)
    with pytest.raises(StrategyError, match="NaN"):
        teeter.scores(Undefined(), outputs)


@pytest.mark.parametrize("wrong", [{"needs": "features"}, {"best": "Largest"}, {"needs": frozenset({"tea"})}])
def test_a_strategy_that_is_declared_wrong_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(StrategyError):
        type("Wrong", (TopKStrategy,), wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labelled": np.ones((2, 4))}, "labelled is a ndarray"),
        ({"labelled": Outputs(features=np.ones((2, 4)))}, "2 labelled rows and no labels"),
        ({"labelled": Outputs(features=np.ones((2, 3))), "labels": [0, 1]}, "have 4 columns and the labelled rows' 3"),
    ],
)
def test_labelled_rows_must_be_of_the_same_model(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        teeter.select("random", Outputs(features=np.ones((9, 4))), 3, **options)


def test_the_rows_decide_the_precision() -> None:
    features = RNG.normal(size=(40, 3)).astype(np.float32)
    assert teeter.ldm(features, RNG.normal(size=(3, 3))).dtype == np.float32


def test_a_parquet_file_of_broken_lists_alone_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "pool.parquet"
    pq.write_table(pa.table({"features": [[1.0, 2.0], None, [3.0, 4.0]]}), path)
    with pytest.raises(FileError, match=r"No column of .* can be read: features"):
        read_table(path)


def test_decimal_commas_are_numbers_between_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text("x;y\n3,5;a\n4,25;b\n1;\n;\n")
    assert read_table(path).columns["x"].tolist() == ["3.5", "4.25", "1", ""]
    path.write_text("x,y\n3,a\n")
    assert read_table(path).columns["x"].tolist() == ["3"]


def test_words_that_mean_no_label_are_told(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text("x,y\n1,a\n2,b\n3,none\n4,None\n5,\n")
    notes = pick_from_file(path, labels="y", n=1).facts.notes
    assert any("1 cells 'none'" in note for note in notes)


def test_the_ldm_beside_the_picks_is_the_strategy_s(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    lines = [f"{k * 37 % 101},{k * 53 % 97},{'ab'[k % 2] if k < 8 else ''}" for k in range(60)]
    path.write_text("\n".join(["w,x,y", *lines]))
    values = [
        {pick.row: pick.ldm for pick in pick_from_file(path, labels="y", n=52, strategy=name, seed=3).picks}
        for name in ("ldm", "random")
    ]
    assert values[0] == values[1]


def test_a_hint_does_not_mind_capitals() -> None:
    with pytest.raises(InputError, match=r"Did you mean 'ldm-s'\?"):
        teeter.select("LDM-S", Outputs(features=np.ones((3, 2))), 1)
