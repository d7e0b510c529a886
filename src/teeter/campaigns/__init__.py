"""A person, a pool of things without labels, and labels that are never lost."""

from __future__ import annotations

from importlib.util import find_spec

from teeter.errors import MissingExtraError

if find_spec("sqlalchemy") is None:
    raise MissingExtraError("Campaigns need SQLAlchemy: pip install 'teeter[store]'.")
