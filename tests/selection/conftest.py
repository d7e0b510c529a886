from __future__ import annotations

from distributed.conftest import pool, pool_template

__all__ = ["pool", "pool_template"]
