"""LDM by rays against the definition, and every property that it promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import teeter
from ldm_cases import Case, draw_directions, make_case, seed_of_directions, with_mirrors
from reference import ldm as literal
from teeter.base.seeds import stream
from teeter.errors import InputError
from teeter.kernels.directions import BLOCK, default_rays, ray_directions, subspace_directions
from teeter.kernels.flip_rates import flip_rates
from teeter.kernels.ldm import ldm_against_reference, ldm_by_rays, paper_sigmas


def compute_by_rays(case: Case, directions: object, **options: object) -> Tensor:
    return ldm_by_rays(case.features, *case.head(), directions=directions, **options)


def compute_literally(
    case: Case, directions: object, *, rays: int | None = None, **options: object
) -> np.ndarray:
    features, weight, bias = case.arrays()
    options.setdefault("reference", features)
    return literal.along_directions(
        features, weight, bias, with_mirrors(directions, rays), **options
    )


@pytest.mark.checks(
    "ldm", "ldm-s", against="the definition, at a strength between every two flips, in float64"
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_is_the_least_disagreement_along_every_direction(
    seed: int, classes: int, bias: bool
) -> None:
    case = make_case(classes=classes, seed=seed, bias=bias)
    directions = draw_directions(seed, 3, case)
    np.testing.assert_allclose(
        compute_by_rays(case, directions), compute_literally(case, directions), atol=1e-12
    )


@pytest.mark.checks(
    "ldm", "ldm-s", against="the definition along directions in subspaces, in float64"
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("classes", "subspace"), [(2, 1), (3, 2), (5, 3)])
def test_is_the_least_disagreement_along_directions_in_subspaces(
    classes: int, subspace: int, bias: bool
) -> None:
    case = make_case(20, 6, classes, seed=classes, bias=bias)
    blocks = list(subspace_directions(classes, 3, *case.head(), subspace=subspace))
    expanded = [block.expand() for block in blocks]
    values = compute_by_rays(case, blocks)
    np.testing.assert_allclose(values, compute_literally(case, expanded), atol=1e-12)

    other_case = make_case(40, 6, classes, seed=9)
    among = compute_by_rays(case, blocks, reference=other_case.features, sigma_max=0.7)
    by_definition = compute_literally(
        case, expanded, reference=other_case.features.numpy(), sigma_max=0.7
    )
    np.testing.assert_allclose(among, by_definition, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_give_the_rates_of_the_directions_they_stand_for(dtype: torch.dtype) -> None:
    case = make_case(500, 40, 7)
    features, weight, bias = (tensor.to(dtype) for tensor in vars(case).values())
    blocks = list(subspace_directions(0, 40, weight, bias, subspace=8))
    by_factors = flip_rates(features, weight, bias, blocks)
    expanded = flip_rates(features, weight, bias, [block.expand() for block in blocks])
    tolerance = 1e-9 if dtype == torch.float64 else 2e-3
    torch.testing.assert_close(by_factors, expanded, rtol=tolerance, atol=tolerance)


def test_shards_get_the_values_of_the_whole_pool() -> None:
    case = make_case(700, 30, 6)
    features, weight, bias = (tensor.float() for tensor in vars(case).values())
    reference = features[:200]
    blocks = list(subspace_directions(0, 40, weight, bias, subspace=8))
    expected = ldm_by_rays(features, weight, bias, directions=blocks, reference=reference, rays=79)
    ranks = flip_rates(reference, weight, bias, blocks)[:79].sort(dim=1).values
    parts = [
        ldm_against_reference(features[rows], weight, bias, directions=blocks, ranks=ranks)
        for rows in (slice(0, 333), slice(333, 700))
    ]
    assert torch.equal(torch.cat(parts), expected)


@given(
    rows=st.integers(1, 12),
    width=st.integers(2, 4),
    classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    bias=st.booleans(),
)
def test_is_the_definition_for_any_shape(
    rows: int, width: int, classes: int, seed: int, bias: bool
) -> None:
    case = make_case(rows, width, classes, seed=seed, bias=bias)
    directions = draw_directions(seed, 2, case)
    np.testing.assert_allclose(
        compute_by_rays(case, directions), compute_literally(case, directions), atol=1e-12
    )


def test_measures_disagreement_on_other_reference_rows() -> None:
    case = make_case(seed=1)
    other_case = make_case(40, seed=2)
    directions = draw_directions(0, 3, case)

    values = compute_by_rays(case, directions, reference=other_case.features)
    np.testing.assert_allclose(
        values,
        compute_literally(case, directions, reference=other_case.features.numpy()),
        atol=1e-12,
    )
    assert values.min() < 1 / len(case.features), (
        "a reference without the row itself can disagree less"
    )


def test_the_candidates_as_reference_are_the_default() -> None:
    case = make_case(300, 5, 4)
    directions = draw_directions(0, 20, case)
    assert torch.equal(
        compute_by_rays(case, directions),
        compute_by_rays(case, directions, reference=case.features),
    )


@pytest.mark.parametrize("sigma_max", [0.05, 0.3, 2.0])
def test_sigma_max_discards_stronger_changes(sigma_max: float) -> None:
    case = make_case(seed=4)
    directions = draw_directions(4, 3, case)
    values = compute_by_rays(case, directions, sigma_max=sigma_max)
    np.testing.assert_allclose(
        values, compute_literally(case, directions, sigma_max=sigma_max), atol=1e-12
    )


def test_rows_on_a_boundary_flip_at_once() -> None:
    features = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [-1.0, 3.0]], dtype=torch.float64)
    case = Case(
        features, torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, -5.0]], dtype=torch.float64), None
    )
    directions = draw_directions(3, 4, case)
    rates = flip_rates(*vars(case).values(), directions)
    assert bool(torch.isinf(rates[:, 0]).any())
    np.testing.assert_allclose(
        compute_by_rays(case, directions), compute_literally(case, directions), atol=1e-12
    )


def test_a_zero_row_under_a_head_without_bias_never_flips() -> None:
    case = make_case(bias=False)
    case.features[5] = 0
    assert compute_by_rays(case, draw_directions(0, 8, case))[5] == 1


def test_copies_share_the_larger_count() -> None:
    case = make_case(40, 7, 3)
    case.features[20:] = case.features[:20].clone()
    directions = draw_directions(0, 16, case)
    values = compute_by_rays(case, directions)
    assert torch.equal(values[:20], values[20:])
    assert values.min() >= 2 / 40
    np.testing.assert_allclose(values, compute_literally(case, directions), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rows", "width", "classes"), [(1037, 61, 10), (777, 33, 3), (400, 128, 7)]
)
def test_copies_are_equal_wherever_they_stand(
    rows: int, width: int, classes: int, dtype: torch.dtype
) -> None:
    case = make_case(rows, width, classes)
    features = case.features.to(dtype)
    half = rows // 2
    features[half : 2 * half] = features[:half].clone()
    values = teeter.ldm(features, case.weight.to(dtype), rays=64)
    assert torch.equal(torch.as_tensor(values[:half]), torch.as_tensor(values[half : 2 * half]))


@pytest.mark.parametrize("sigmas", [[0.01, 0.1, 1.0], paper_sigmas()])
def test_is_at_most_any_grid_on_the_same_directions(sigmas: list[float]) -> None:
    case = make_case(60, 4, 4, seed=7)
    directions = draw_directions(7, 4, case)
    grid = literal.on_a_grid(*case.arrays(), with_mirrors(directions), sigmas)
    assert (compute_by_rays(case, directions).numpy() <= grid + 1e-12).all()


def test_meets_the_grid_as_the_grid_is_refined() -> None:
    case = make_case(30, 3, 3, seed=8)
    directions = draw_directions(8, 3, case)
    values = compute_by_rays(case, directions).numpy()
    gaps = []
    for steps in (10, 100, 3000):
        grid = literal.on_a_grid(
            *case.arrays(), with_mirrors(directions), list(np.geomspace(1e-4, 1e3, steps))
        )
        gaps.append(float((grid - values).mean()))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.002


@given(seed=st.integers(0, 10**6), rays=st.integers(1, 40))
def test_more_rays_never_raise_a_value(seed: int, rays: int) -> None:
    case = make_case(50, 4, 3, seed=seed)
    fewer = teeter.ldm(case.features, *case.head(), rays=rays, seed=seed)
    more = teeter.ldm(case.features, *case.head(), rays=2 * rays, seed=seed)
    assert bool((torch.as_tensor(more) <= torch.as_tensor(fewer)).all())


@pytest.mark.parametrize(("rays", "more"), [(1, 2), (20, 33), (31, 32), (40, 200)])
def test_more_rays_in_subspaces_never_raise_a_value(rays: int, more: int) -> None:
    case = make_case(300, 40, 5)
    features, weight, bias = (tensor.float() for tensor in vars(case).values())
    fewer = teeter.ldm(features, weight, bias, rays=rays)
    assert bool((teeter.ldm(features, weight, bias, rays=more) <= fewer).all())


def test_an_odd_count_drops_the_last_mirror() -> None:
    case = make_case(60, 3, 3)
    for rays in (1, 3, 5):
        directions = draw_directions(seed_of_directions(0), (rays + 1) // 2, case)
        values = teeter.ldm(case.features, *case.head(), rays=rays)
        np.testing.assert_allclose(
            values, compute_literally(case, directions, rays=rays), atol=1e-12
        )


def test_no_subspace_means_isotropic_rays() -> None:
    case = make_case(100, 30, 4)
    values = teeter.ldm(case.features, *case.head(), rays=40, subspace=None)
    assert torch.equal(
        values, compute_by_rays(case, draw_directions(seed_of_directions(0), 20, case))
    )
    assert not torch.equal(values, teeter.ldm(case.features, *case.head(), rays=40))


@pytest.mark.parametrize("subspace", [0, -1, 2.5, True, "16"])
def test_a_subspace_has_a_whole_number_of_dimensions(subspace: object) -> None:
    case = make_case()
    with pytest.raises(InputError, match="subspace"):
        teeter.ldm(case.features, case.weight, subspace=subspace)  # type: ignore[arg-type]


def test_the_first_rays_stay_the_same_when_there_are_more() -> None:
    case = make_case()
    for (few, few_shifts), (many, many_shifts) in zip(
        draw_directions(5, 20, case), draw_directions(5, 33, case), strict=False
    ):
        assert torch.equal(few, many[: len(few)])
        assert few_shifts is not None
        assert many_shifts is not None
        assert torch.equal(few_shifts, many_shifts[: len(few)])


@pytest.mark.parametrize("factor", [1e-3, 0.37, 8.0, 1e4])
def test_scaling_the_head_changes_nothing(factor: float) -> None:
    case = make_case(200, 6, 4)
    assert case.bias is not None
    plain = teeter.ldm(case.features, case.weight, case.bias)
    np.testing.assert_array_equal(
        plain, teeter.ldm(case.features, case.weight * factor, case.bias * factor)
    )


def test_reordering_rows_reorders_values() -> None:
    case = make_case(1001, 37, 5)
    order = torch.randperm(1001, generator=torch.Generator().manual_seed(0))
    features = case.features.float()
    plain = teeter.ldm(features, case.weight.float(), rays=64)
    assert torch.equal(
        torch.as_tensor(plain)[order],
        torch.as_tensor(teeter.ldm(features[order], case.weight.float(), rays=64)),
    )


@pytest.mark.parametrize("subspace", [None, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 10_000, 300_000, 1 << 40])
def test_chunk_size_changes_nothing(size: int, dtype: torch.dtype, subspace: int | None) -> None:
    case = make_case(1003, 29, 6)
    arguments = [tensor.to(dtype) for tensor in vars(case).values()]
    options = {"rays": 70, "subspace": subspace}
    plain = teeter.ldm(*arguments, **options)
    with teeter.config.working_memory(size):
        assert torch.equal(plain, teeter.ldm(*arguments, **options))
        apart = teeter.ldm(*arguments, **options, reference=arguments[0])
    assert torch.equal(plain, apart)


@pytest.mark.parametrize(
    ("rows", "width", "classes", "subspace"),
    [(30_000, 8, 3, 16), (30_000, 40, 3, 16), (5_000, 128, 10, None)],
)
def test_threads_change_nothing(rows: int, width: int, classes: int, subspace: int | None) -> None:
    case = make_case(rows, width, classes)
    features, weight = case.features.float(), case.weight.float()
    before = torch.get_num_threads()
    answers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        answers.append(teeter.ldm(features, weight, rays=40, subspace=subspace))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert torch.equal(*answers)


def test_float32_is_close_to_float64() -> None:
    case = make_case(500, 20, 5)
    exact = torch.as_tensor(teeter.ldm(*vars(case).values(), rays=128))
    single = torch.as_tensor(teeter.ldm(*[t.float() for t in vars(case).values()], rays=128))
    assert single.dtype == torch.float32
    assert float((exact - single).abs().max()) <= 2.5 / 500


def test_rays_left_out_means_512_or_1024() -> None:
    assert default_rays(10, 128) == 512
    assert default_rays(200, 2048) == 1024
    assert default_rays(10, 2000) == 512
    case = make_case(30)
    np.testing.assert_array_equal(
        teeter.ldm(*vars(case).values()), teeter.ldm(*vars(case).values(), rays=512)
    )


def disc(seed: int, rows: int, true_ldm: float) -> tuple[Tensor, Tensor, float]:
    """A row at the angle ``true_ldm * pi`` and a uniform disc, a head with the boundary y = 0, the
    wedge's share.
    """
    generator = stream(seed, "disc")
    radius = torch.rand(rows, generator=generator, dtype=torch.float64).sqrt()
    angle = 2 * torch.pi * torch.rand(rows, generator=generator, dtype=torch.float64)
    target = torch.tensor(
        [[np.cos(true_ldm * np.pi), np.sin(true_ldm * np.pi)]], dtype=torch.float64
    )

    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    in_wedge = (angle % torch.pi) < true_ldm * torch.pi

    return (
        torch.cat([target, points]),
        torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64),
        float(in_wedge.double().mean()),
    )


@pytest.mark.checks("ldm", "ldm-s", against="the true value in the paper's two dimensions")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]
)
def test_meets_the_truth_in_the_paper_s_two_dimensions(seed: int) -> None:
    M, truth = 20_000, 0.01
    rows, weight, share = disc(seed, M, truth)
    values = float(teeter.ldm(rows[:1], weight, reference=rows[1:], seed=seed)[0])
    assert abs(values - share) <= 2 / M
    assert abs(share - truth) <= 3 * np.sqrt(truth * (1 - truth) / M)


@pytest.mark.checks("ldm", "ldm-s", against="the true value in two dimensions hidden among 40")
@pytest.mark.parametrize("subspace", [4, 16, None])
def test_meets_the_truth_where_two_of_many_dimensions_matter(subspace: int | None) -> None:
    # An isometry hides the disc in 40 dimensions: angles, and so the true values, stay the same.
    M, truth = 20_000, 0.03
    rows, weight, share = disc(3, M, truth)
    hidden = torch.randn(40, 2, generator=stream(0, "isometry"), dtype=torch.float64)
    isometry = torch.linalg.qr(hidden).Q.T  # (2, 40)
    values = teeter.ldm(
        rows[:1] @ isometry, weight @ isometry, reference=rows[1:] @ isometry, subspace=subspace
    )
    assert abs(float(values[0]) - share) <= 2 / M


@pytest.mark.checks("ldm", "ldm-s", against="the true value on a sphere in three dimensions")
@pytest.mark.parametrize("subspace", [2, None])
def test_meets_the_truth_on_a_sphere(subspace: int | None) -> None:
    # Uniform rows on a sphere under a plane through its centre: the least lune that holds a row at
    # the angle theta from the plane has the share theta / pi.
    generator = stream(0, "sphere")
    points = torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    points /= points.norm(dim=1, keepdim=True)
    weight = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    angle = torch.asin(points[:, 2].abs())
    chosen = (angle > 0.1).nonzero()[:10, 0]
    values = teeter.ldm(points[chosen], weight, reference=points, rays=2048, subspace=subspace)
    truth = angle[chosen] / torch.pi
    assert bool((values >= truth - 0.006).all()), "no estimate is below the truth but by chance"
    assert float((values - truth).mean()) < 0.02


@pytest.mark.parametrize("seeds", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_the_error_falls_with_reference_rows_and_rays(seeds: int) -> None:
    truth = 0.03

    def mean_error(M: int, rays: int) -> float:
        errors = []
        for seed in range(seeds):
            rows, weight, _ = disc(seed, M, truth)
            errors.append(
                abs(
                    float(teeter.ldm(rows[:1], weight, reference=rows[1:], rays=rays, seed=seed)[0])
                    - truth
                )
            )
        return float(np.mean(errors))

    by_rows = [mean_error(M, 64) for M in (100, 1000, 10_000)]
    by_count = [mean_error(1000, rays) for rays in (1, 4, 64)]
    assert by_rows[0] > by_rows[1] > by_rows[2]
    assert by_count[0] > by_count[1] >= by_count[2]


@pytest.mark.parametrize(
    ("rows", "error"), [(4000, 0.02), pytest.param(20_000, 0.01, marks=pytest.mark.slow)]
)
def test_the_order_of_true_values_is_kept(rows: int, error: float) -> None:
    truths = torch.linspace(0.02, 0.45, 12, dtype=torch.float64)
    targets = torch.stack([(truths * torch.pi).cos(), (truths * torch.pi).sin()], dim=1)
    points, weight, _ = disc(0, rows, 0.01)
    values = torch.as_tensor(teeter.ldm(targets, weight, reference=points[1:]))
    assert bool((values.diff() > 0).all())
    assert float((values - truths).abs().max()) < error


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "width", "classes"), [(500, 32, 5), (3000, 128, 10), (777, 300, 40)]
)
def test_gpu_equals_cpu_on_the_same_directions(rows: int, width: int, classes: int) -> None:
    case = make_case(rows, width, classes)
    arguments = [tensor.float() for tensor in vars(case).values()]
    with teeter.config.portable():
        cpu = torch.as_tensor(teeter.ldm(*arguments, rays=100))
        gpu = torch.as_tensor(teeter.ldm(*[a.cuda() for a in arguments], rays=100))
        double = torch.as_tensor(teeter.ldm(*[t.cuda() for t in vars(case).values()], rays=100))
    assert gpu.is_cuda
    assert float((cpu - gpu.cpu()).abs().max()) <= 2.5 / rows
    assert float((double.cpu() - cpu).abs().max()) <= 2.5 / rows


@pytest.mark.gpu
def test_gpu_s_coarse_noise_gives_the_same_order() -> None:
    case = make_case(4000, 512, 10)
    arguments = [tensor.float().cuda() for tensor in vars(case).values()]
    coarse = teeter.ldm(*arguments)
    again = teeter.ldm(*arguments)
    fine = teeter.ldm(*[a.double() for a in arguments])

    assert torch.equal(torch.as_tensor(coarse), torch.as_tensor(again))
    difference = torch.as_tensor(coarse).double() - torch.as_tensor(fine)
    assert abs(float(difference.mean())) < 0.002
    ranks = torch.stack(
        [torch.as_tensor(v).double().argsort().argsort().double() for v in (coarse, fine)]
    )
    assert float(torch.corrcoef(ranks)[0, 1]) > 0.999


def test_estimates_in_subspaces_are_as_tight_as_isotropic_ones() -> None:
    case = make_case(1500, 60, 8)
    features, weight, bias = (tensor.float() for tensor in vars(case).values())

    means = {
        subspace: np.mean(
            [
                float(
                    teeter.ldm(features, weight, bias, rays=128, subspace=subspace, seed=s).mean()
                )
                for s in range(3)
            ]
        )
        for subspace in (16, None)
    }

    assert means[16] < 1.03 * means[None]


@pytest.mark.gpu
def test_gpu_keeps_the_properties() -> None:
    case = make_case(2000, 64, 7)
    features, weight = case.features.float().cuda(), case.weight.float().cuda()
    features[1000:] = features[:1000].clone()
    plain = torch.as_tensor(teeter.ldm(features, weight, rays=100))
    assert torch.equal(plain[:1000], plain[1000:])
    assert bool((torch.as_tensor(teeter.ldm(features, weight, rays=200)) <= plain).all())
    with teeter.config.working_memory(4_000_000):
        chunked = torch.as_tensor(teeter.ldm(features, weight, rays=100))
    assert float((chunked - plain).abs().max()) <= 4 / 2000


def test_scaled_copies_flip_together() -> None:
    rng = np.random.default_rng(0)
    lines = rng.normal(size=(20, 6))
    rows = (lines * rng.uniform(0.5, 3, size=(50, 1, 1))).reshape(-1, 6)
    for dtype in (np.float32, np.float64):
        values = teeter.ldm(rows.astype(dtype), rng.normal(size=(4, 6)).astype(dtype))
        assert np.mean(values > 0.0499) > 0.95, "a row and its 49 multiples flip at one strength"
        assert values.min() > 0.02


def test_equal_rows_of_a_weight_are_a_tie_in_either_precision() -> None:
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(300, 6)), rng.normal(size=(5, 6))
    weight[4] = weight[0]
    single, double = (
        teeter.ldm(rows.astype(dtype), weight.astype(dtype)) for dtype in (np.float32, np.float64)
    )
    assert np.abs(single - double).max() * 300 < 2.5


def test_autocast_does_not_reach_the_gaps() -> None:
    rng = np.random.default_rng(0)
    rows, weight = (
        rng.normal(size=(300, 6)).astype(np.float32),
        rng.normal(size=(5, 6)).astype(np.float32),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = teeter.ldm(rows, weight, rays=64)
    np.testing.assert_array_equal(inside, teeter.ldm(rows, weight, rays=64))


@pytest.mark.parametrize("count", [1, 8, 15, 16])
def test_a_row_s_rate_does_not_depend_on_how_many_rays_there_are(count: int) -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(np.round(2 * rng.normal(size=(400, 3))).astype(np.float32))
    weight = torch.from_numpy(np.round(2 * rng.normal(size=(5, 3))).astype(np.float32))
    rates = flip_rates(rows, weight, None, ray_directions(3, 16, weight, None))
    few = flip_rates(rows, weight, None, ray_directions(3, count, weight, None))
    assert torch.equal(few, rates[: 2 * count])


def test_rays_come_in_blocks_of_16_from_streams_of_their_own() -> None:
    weight = torch.zeros(3, 4)
    blocks = list(ray_directions(7, 40, weight, torch.zeros(3)))
    assert [len(moves) for moves, _ in blocks] == [16, 16, 8]
    assert BLOCK == 16
    generator = stream(7, "ray", 1)
    assert torch.equal(blocks[1][0], torch.randn(16, 3, 4, generator=generator))
    assert torch.equal(blocks[1][1], torch.randn(16, 3, generator=generator))


def test_the_rows_decide_the_precision() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 3)).astype(np.float32)
    assert teeter.ldm(features, rng.normal(size=(3, 3))).dtype == np.float32
