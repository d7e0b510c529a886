from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from small_model_shards import write_model_pool
from small_shards import write_pool


@pytest.fixture(scope="session")
def pool_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    home = tmp_path_factory.mktemp("pool")
    write_pool(home)
    return home


@pytest.fixture(scope="session")
def model_pool_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    home = tmp_path_factory.mktemp("model_pool")
    write_model_pool(home)
    return home


@pytest.fixture
def pool(pool_template: Path, tmp_path: Path) -> Path:
    """A folder of three files, of several row groups each; their head is beside it."""
    shutil.copytree(pool_template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "pool"


@pytest.fixture
def home(model_pool_template: Path, tmp_path: Path) -> Path:
    """A folder with images and a model, and with the features that it makes of them
    and its head.
    """
    shutil.copytree(model_pool_template, tmp_path, dirs_exist_ok=True)
    return tmp_path
