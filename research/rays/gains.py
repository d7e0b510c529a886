"""Active learning with subspace rays and with isotropic rays, side by side in the same runs.

    python research/rays/gains.py --data FOLDER --out research/rays/results/gains_h200.json

Runs four settings of the paper with Random, LDM-S, and LDM-S with isotropic rays. All share initial
sets, candidates and networks' starts in each repetition, so the tests are paired.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from teeter.base.arrays import choose_device, describe_device
from teeter.base.version import __version__, commit
from teeter.bench.analysis.run_comparison import compare_strategies
from teeter.bench.analysis.statistics import gain_over
from teeter.bench.experiments import run_setting
from teeter.bench.experiments.settings import Setting, setting_named

REPETITIONS = 5
BASELINE = "random"
ISOTROPIC = "isotropic"
VARIANTS: dict[str, dict[str, Any]] = {
    ISOTROPIC: {"strategy": "ldm-s", "subspace": None},
    "subspace-16": {"strategy": "ldm-s", "subspace": 16},
    "subspace-32": {"strategy": "ldm-s", "subspace": 32},
}
SETTINGS = {"openml-6": None, "openml-44135": None, "openml-156": None, "mnist": 320}
"""The settings by name, and their last number of labels where it is cut."""


def make_setting(name: str, final: int | None, seed: int) -> Setting:
    """Return a setting of the paper with Random and the variants of LDM-S."""
    setting = replace(
        setting_named(name),
        paper=None,
        strategies=(BASELINE, *VARIANTS),
        options=VARIANTS,
        repetitions=REPETITIONS,
        seed=seed,
    )
    if final is not None:
        setting = replace(setting, final=final)
    return setting


def compare_gains(setting: Setting, folder: Path, data: Path | None) -> dict[str, Any]:
    """Run a setting, and return the gains over Random and the tests against isotropic rays."""
    started = time.perf_counter()
    run = run_setting(setting, folder, folder=data)
    seconds = time.perf_counter() - started
    if run.failures:
        raise SystemExit(f"{setting.name} failed: {run.failures}")

    comparison = compare_strategies(run)
    accuracy = comparison.accuracy
    rows = {}
    for name in VARIANTS:
        gain = gain_over(accuracy[name], accuracy[BASELINE])
        row = {"gain over random": gain.mean, "deviation": gain.deviation}
        if name != ISOTROPIC:
            difference = gain_over(accuracy[name], accuracy[ISOTROPIC])
            row |= {"difference": difference.mean, "t": difference.t, "p": difference.p}
        rows[name] = row
    return {
        "setting": setting.name,
        "labels": [setting.initial, setting.final],
        "repetitions": setting.repetitions,
        "seconds": seconds,
        "variants": rows,
    }


def main() -> None:
    """Run all settings and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the datasets; default: TEETER_DATA")
    parser.add_argument("--seed", type=int, default=0, help="seed of all runs")
    parser.add_argument("--only", help="comma-separated names of settings")
    parser.add_argument("--out", type=Path, required=True, help="file for the result as JSON")
    options = parser.parse_args()

    names = options.only.split(",") if options.only else list(SETTINGS)
    device = choose_device(None)
    result: dict[str, Any] = {
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(device),
        "seed": options.seed,
        "variants": VARIANTS,
        "settings": [],
    }
    with tempfile.TemporaryDirectory() as name:
        for setting_name in names:
            setting = make_setting(setting_name, SETTINGS[setting_name], options.seed)
            row = compare_gains(setting, Path(name) / setting_name, options.data)
            result["settings"].append(row)
            print(json.dumps(row, indent=1), flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
