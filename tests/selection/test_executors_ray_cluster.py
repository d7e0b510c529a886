"""The same plan on Ray: the same picks as by local processes, also when a machine of the cluster is
lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_shards import ldm_values
from teeter.bench.experiments.runner import run_setting
from teeter.bench.experiments.settings import setting_named
from teeter.errors import InputError
from teeter.models.model_files import save_model
from teeter.models.networks import build_network
from teeter.selection import select_from_shards
from teeter.selection.executors import LocalExecutor, Task, make_executor, run_plan

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]
ray: Any = pytest.importorskip("ray", reason="needs Ray")
cluster_utils: Any = pytest.importorskip("ray.cluster_utils", reason="needs Ray")

HERE = "selection.test_executors_ray_cluster"


MACHINES = 2
ATTEMPTS = 5
"""Ray gives a machine 30 s to start, which is not enough for some when all cores are busy."""


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[Any]:
    """A head that runs no tasks, and this process as its client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        cluster = try_again(start_head)
        cluster.machines = []
        paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])

        ray.init(
            address=cluster.address,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
        )

        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def cluster(running_cluster: Any) -> Any:
    """The cluster with two machines of one core; those that an earlier test lost are replaced."""
    while len(running_cluster.machines) < MACHINES:
        machine = try_again(lambda: running_cluster.add_node(num_cpus=1))
        running_cluster.machines.append(machine)
    return running_cluster


def start_head() -> Any:
    options = {"num_cpus": 0, "include_dashboard": False}
    return cluster_utils.Cluster(initialize_head=True, head_node_args=options)


def try_again(start: Callable[[], Any]) -> Any:
    """Return what ``start`` returns in one of a few attempts."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start()
        except Exception:  # Ray raises nothing more precise
            continue
    return start()


def lose_machine(cluster: Any) -> None:
    """Kill a machine of the cluster without a warning."""
    cluster.remove_node(cluster.machines.pop(), allow_graceful=False)


def slow_square(output: Path, number: int) -> None:
    time.sleep(0.5)
    output.with_suffix(".part").write_text(str(number**2))
    output.with_suffix(".part").rename(output)


def bad(output: Path) -> None:
    raise InputError("This shard is bad.")


def test_a_machine_that_is_lost_is_made_up_for(cluster: Any, tmp_path: Path) -> None:
    tasks = [Task(f"{HERE}:slow_square", {"number": k}, str(tmp_path / f"{k}")) for k in range(24)]
    has_begun = threading.Event()

    def lose_one() -> None:
        has_begun.wait(600)
        lose_machine(cluster)

    killer = threading.Thread(target=lose_one)
    killer.start()
    progress: list[int] = []

    def note_progress(done: int, total: int) -> None:
        progress.append(done)
        if done == 4:
            has_begun.set()

    run_plan(make_executor("ray"), tasks, note_progress)
    killer.join()
    assert [int(Path(task.output).read_text()) for task in tasks] == [k**2 for k in range(24)]
    assert progress[-1] == 24
    with pytest.raises(InputError, match=r"This shard is bad\."):
        run_plan(make_executor("ray"), [Task(f"{HERE}:bad", {}, str(tmp_path / "bad"))])


def test_picks_are_those_of_local_processes(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    for k in range(6):
        np.save(tmp_path / f"{k}.npy", rng.standard_normal((20_000, 32)).astype(np.float32))
    np.savez(tmp_path / "head.npz", weight=rng.standard_normal((5, 32)).astype(np.float32))
    options: dict[str, Any] = {"head": tmp_path / "head.npz", "reference": 2000, "rays": 64}
    pool = str(tmp_path / "*.npy")
    local = select_from_shards(
        pool, 200, executor=LocalExecutor(1), work=tmp_path / "local", **options
    )
    lost = threading.Event()

    def lose_one(what: str, done: int, total: int) -> None:
        if what == "Shards scored" and done == 1 and not lost.is_set():
            lost.set()
            lose_machine(cluster)

    on_ray = select_from_shards(
        pool,
        200,
        executor=make_executor("ray"),
        work=tmp_path / "ray",
        on_progress=lose_one,
        **options,
    )
    assert lost.is_set()
    assert np.array_equal(local.rows, on_ray.rows)
    assert np.array_equal(ldm_values(local), ldm_values(on_ray))
    assert os.listdir(tmp_path / "ray")


def test_a_model_on_the_workers_picks_as_in_this_process(cluster: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(4):
        np.save(tmp_path / f"{k}.npy", rng.standard_normal((3000, 2, 4)).astype(np.float32))
    network = build_network("mlp", (2, 4), 3, seed=1)
    save_model(tmp_path / "model.safetensors", network, "mlp", shape=(2, 4), classes=3)

    options: dict[str, Any] = {
        "model": tmp_path / "model.safetensors",
        "reference": 500,
        "rays": 32,
    }
    pool = str(tmp_path / "*.npy")

    local = select_from_shards(
        pool, 50, executor=LocalExecutor(1), work=tmp_path / "local", **options
    )
    on_ray = select_from_shards(
        pool, 50, executor=make_executor("ray"), work=tmp_path / "ray", **options
    )

    assert np.array_equal(local.rows, on_ray.rows)
    assert np.array_equal(ldm_values(local), ldm_values(on_ray))


def test_an_experiment_is_that_of_one_process(cluster: Any, tmp_path: Path) -> None:
    setting = replace(
        setting_named("digits"),
        epochs=3,
        repetitions=4,
        final=60,
        pool=100,
        separate=True,
        strategies=("random", "ldm-s"),
    )

    alone = run_setting(setting, tmp_path / "alone", device="cpu")
    on_ray = run_setting(setting, tmp_path / "ray", device="cpu", executor=make_executor("ray"))

    assert on_ray.finished
    results = [
        sorted(
            (
                round_.strategy,
                round_.repetition,
                round_.number,
                round_.accuracy,
                round_.loss,
                round_.picks,
            )
            for round_ in run.rounds
        )
        for run in (alone, on_ray)
    ]
    assert results[0] == results[1]
