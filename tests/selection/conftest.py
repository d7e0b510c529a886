from __future__ import annotations

from distributed.conftest import home, model_pool_template, pool, pool_template

__all__ = ["home", "model_pool_template", "pool", "pool_template"]
