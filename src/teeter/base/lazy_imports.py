"""Lazy imports: a package offers names of its modules and imports a module when it is first used.

torch takes a second to import. ``import teeter`` must not wait for it, and neither must a command
that only prints its help. A module-level ``__getattr__`` (PEP 562) makes that possible, and every
package that needs one gets it here.

A package states its names three times, once for each reader, and a test compares the three:

- ``if TYPE_CHECKING:`` imports, which type checkers and editors read;
- ``__all__``, which ``dir()`` and the reference documentation read;
- the modules given to ``import_lazily``, which Python uses when the program runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["import_lazily"]


def import_lazily(
    package: str,
    modules: Mapping[str, Iterable[str]],
    *,
    submodules: Iterable[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported when used.

    Args:
        package: the name of the package, ``__name__`` in its ``__init__.py``.
        modules: the names that each module provides. Modules are named from the package on, such
            as ``"campaigns.campaign"`` in the package ``teeter``.
        submodules: modules of the package that are offered themselves.

    Example:
        The last line of an ``__init__.py`` after its ``__all__``:

        >>> __getattr__, __dir__ = import_lazily("teeter", {"models.outputs": ["Outputs"]})
        >>> __getattr__("Outputs")
        <class 'teeter.models.outputs.Outputs'>
    """
    module_of_name: dict[str, str] = {}
    for module, names in modules.items():
        for name in names:
            module_of_name[name] = f"{package}.{module}"

    offered_submodules = frozenset(submodules)

    def get_attribute(name: str) -> Any:
        if name in offered_submodules:
            return import_module(f"{package}.{name}")
        if name not in module_of_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")

        # Not stored in the package: a test that replaces the name in its module replaces it here.
        module = import_module(module_of_name[name])
        return getattr(module, name)

    def list_names() -> list[str]:
        # Read when asked for: a package may also offer names that it imports at once.
        names: list[str] = sys.modules[package].__all__
        return list(names)

    return get_attribute, list_names
