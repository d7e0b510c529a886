"""The map of a pool: principal components, outliers, and the file that the page reads."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from teeter.errors import MissingExtraError
from teeter.server.worker import projection
from teeter.server.worker.projection import (
    project_items,
    project_pca,
    project_tsne,
    write_ldm,
    write_map,
)


def make_features(rows: int = 200, width: int = 5) -> Any:
    """Return rows whose first two features vary most."""
    scale = np.array([10.0, 3.0, *[0.1] * (width - 2)])
    noise = np.random.default_rng(0).normal(size=(rows, width))
    return (noise * scale).astype(np.float32)


def make_state(
    features: Any,
    withdrawn: frozenset[int] = frozenset(),
    unreadable: frozenset[int] = frozenset(),
    **arrays: Any,
) -> Any:
    weights = save(arrays) if arrays else None
    return SimpleNamespace(
        features=features, weights=weights, withdrawn=withdrawn, unreadable=unreadable
    )


def test_principal_components_are_the_directions_of_largest_variance() -> None:
    features = make_features()
    coordinates = project_pca(features)
    assert coordinates.shape == (200, 2)
    for component in (0, 1):
        correlation = np.corrcoef(coordinates[:, component], features[:, component])[0, 1]
        assert abs(correlation) > 0.99


def test_outliers_are_drawn_at_the_edge() -> None:
    features = make_features(1000)
    features[0] *= 1000
    coordinates = project_pca(features)
    assert np.abs(coordinates).max() == pytest.approx(1.1)
    assert (np.abs(coordinates) <= 1).mean() > 0.98


@pytest.mark.parametrize("shape", [(10, 1), (1, 4), (2, 2), (3, 1)])
def test_small_pools_have_a_map(shape: tuple[int, int]) -> None:
    coordinates = project_pca(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    assert coordinates.shape == (shape[0], 2)
    assert np.isfinite(coordinates).all()


def test_equal_rows_are_one_point() -> None:
    assert not project_pca(np.ones((5, 3), dtype=np.float32)).any()


def test_directions_of_a_large_pool_come_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    features = make_features(500)
    of_all_rows = project_pca(features)
    monkeypatch.setattr(projection, "MAX_ROWS", 300)
    of_a_sample = project_pca(features)
    assert of_a_sample.shape == (500, 2)
    assert abs(np.corrcoef(of_all_rows[:, 0], of_a_sample[:, 0])[0, 1]) > 0.99


def test_tsne_lays_out_a_sample_and_places_other_rows_beside_those_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openTSNE")
    monkeypatch.setattr(projection, "MAX_ROWS", 40)
    features = make_features(100) / 10
    is_far = np.arange(100) % 2 == 0
    features[is_far] += 50
    coordinates = project_tsne(features)
    assert np.isfinite(coordinates).all()

    centres = [coordinates[is_far].mean(axis=0), coordinates[~is_far].mean(axis=0)]
    to_far, to_near = (np.linalg.norm(coordinates - centre, axis=1) for centre in centres)
    assert ((to_far < to_near) == is_far).all()


def test_tsne_puts_a_single_row_in_the_centre() -> None:
    pytest.importorskip("openTSNE")
    assert project_tsne(make_features(1)).tolist() == [[0.0, 0.0]]


def test_tsne_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(MissingExtraError, match="teeter\\[label\\]"):
        project_tsne(make_features(5))


def test_the_file_has_columns_of_all_rows(tmp_path: Path) -> None:
    features = make_features(4)
    state = make_state(features, predicted=np.array([1, 0, 1], dtype=np.int16))
    write_map(tmp_path / "map.bin", state, np.zeros((4, 2), dtype=np.float32))
    content = (tmp_path / "map.bin").read_bytes()
    assert np.frombuffer(content[:4], "<i4") == [4]
    assert np.frombuffer(content[4:36], "<f4").tolist() == [0] * 8
    assert np.frombuffer(content[36:], "<i4").tolist() == [1, 0, 1, -1], "the last is new"


def test_ldm_needs_a_linear_head_of_these_features(tmp_path: Path) -> None:
    features = make_features(20)
    head = {"weight": np.eye(2, 5, dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}
    other = {"weight": np.eye(2, 4, dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}
    for arrays, is_known in ((head, True), (other, False), ({}, False)):
        write_ldm(tmp_path / "ldm.bin", make_state(features, **arrays))
        ldm = np.frombuffer((tmp_path / "ldm.bin").read_bytes()[4:], "<f4")
        assert len(ldm) == 20
        assert np.isfinite(ldm).all() == is_known


@pytest.mark.parametrize("reason", ["withdrawn", "unreadable"])
def test_items_that_are_left_out_are_not_on_the_map_and_do_not_shape_it(
    tmp_path: Path, reason: str
) -> None:
    features = make_features(20)
    features[3] *= 1000
    weight = np.eye(2, 5, dtype=np.float32)
    bias = np.zeros(2, dtype=np.float32)
    predicted = np.zeros(20, dtype=np.int16)
    model = {"weight": weight, "bias": bias, "predicted": predicted}
    state = make_state(features, **{reason: frozenset({3})}, **model)
    remaining = np.delete(features, 3, axis=0)

    coordinates = project_items(state, project_pca)
    write_map(tmp_path / "map", state, coordinates)
    write_ldm(tmp_path / "ldm", state)
    write_ldm(tmp_path / "ldm of remaining", make_state(remaining, **model))

    assert np.isnan(coordinates[3]).all()
    assert np.array_equal(np.delete(coordinates, 3, axis=0), project_pca(remaining))
    classes = np.fromfile(tmp_path / "map", dtype="<i4", offset=4 + 2 * 4 * 20)
    assert np.flatnonzero(classes < 0).tolist() == [3]
    ldm = np.fromfile(tmp_path / "ldm", dtype="<f4", offset=4)
    ldm_of_remaining = np.fromfile(tmp_path / "ldm of remaining", dtype="<f4", offset=4)
    assert np.isnan(ldm[3])
    assert np.array_equal(np.delete(ldm, 3), ldm_of_remaining)

    nothing = make_state(features, frozenset(range(20)))
    assert np.isnan(project_items(nothing, project_pca)).all()
