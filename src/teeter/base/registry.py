"""Registries of named classes, and plugins that other packages provide through entry points."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from teeter.errors import InputError, PluginError, UnknownNameError

__all__ = [
    "Plugins",
    "Registry",
    "did_you_mean",
    "entry_points_by_name",
    "import_object",
    "importable_name",
    "require_known",
    "require_options",
]

T = TypeVar("T")
Class = TypeVar("Class", bound=type)

_MOST_NAMES_IN_HINT = 30


class Plugins(Generic[T]):
    """Objects of one kind that other packages provide through an entry point group.

    Args:
        kind: what they are, for error messages: "dataset".
        group: the entry point group.
        is_valid: returns whether a loaded object can be used.
        expected: what a valid object is, for error messages.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        *,
        is_valid: Callable[[Any], bool],
        expected: str,
    ) -> None:
        self.kind = kind
        self.group = group
        self.is_valid = is_valid
        self.expected = expected

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return entry_points_by_name(self.group)

    def names(self) -> list[str]:
        """Return all names in alphabetical order, without importing anything."""
        return sorted(self._entry_points)

    def get(self, name: str) -> T:
        """Load the plugin called ``name``, which must be one of ``names()``.

        Raises:
            PluginError: if it cannot be loaded or is not of the right kind.
        """
        point = self._entry_points[name]
        description = f"The {self.kind} {name!r} of {_package_name(point)}"
        try:
            loaded: T = point.load()
        except (Exception, SystemExit) as error:  # a broken plugin must not break anything else
            reason = str(error).rstrip(".") or type(error).__name__
            raise PluginError(f"{description} cannot be loaded: {reason}.") from error

        if not self.is_valid(loaded):
            loaded_type = type(loaded).__name__
            raise PluginError(
                f"{description} is {loaded_type} {point.value}: it must be {self.expected}."
            )
        return loaded

    def package(self, name: str) -> str:
        """Return the name of the package that provides the plugin."""
        return _package_name(self._entry_points[name])


class Registry(Generic[T]):
    """Classes of one kind by name: registered with a decorator, or provided as plugins.

    Args:
        kind: what they are, for error messages: "strategy".
        group: the entry point group of plugins.
        base: the class that all of them derive from.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        base: type = object,
    ) -> None:
        self.kind = kind
        self._classes: dict[str, type[T]] = {}
        self.plugins: Plugins[type[T]] = Plugins(
            kind,
            group,
            is_valid=lambda loaded: isinstance(loaded, type) and issubclass(loaded, base),
            expected=f"a class of {base.__name__}",
        )

    def register(self, name: str) -> Callable[[Class], Class]:
        """Return a decorator that registers a class under ``name``.

        Raises:
            InputError: if another class has the name.
        """

        def add(cls: Class) -> Class:
            existing = self._classes.get(name)
            # A reloaded module defines the same class again.
            origin = (cls.__module__, cls.__qualname__)
            if existing and (existing.__module__, existing.__qualname__) != origin:
                raise InputError(
                    f"There is already a {self.kind} called {name!r} ({existing.__module__}): "
                    "choose another name."
                )
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """Return all names in alphabetical order. Plugins are listed without being imported."""
        names = {*self._classes, *self.plugins.names()}
        return sorted(names)

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``, importing its plugin if necessary.

        Raises:
            UnknownNameError: there is no such name.
            PluginError: if the plugin cannot be loaded or is not of the right kind.
        """
        # A registered class takes precedence over a plugin of the same name.
        if name not in self._classes and name in self.plugins.names():
            self._classes[name] = self.plugins.get(name)

        require_known(self.kind, name, self.names())
        return self._classes[name]

    def loaded_classes(self) -> dict[str, type[T]]:
        """Return the classes that are imported already, by name."""
        return dict(self._classes)

    def name_of(self, cls: type) -> str | None:
        """Return the name of a registered class, or None if it is not registered."""
        for name, registered in self._classes.items():
            if registered is cls:
                return name
        return None


def import_object(kind: str, name: str) -> Any:
    """Return what ``package.module:name`` names. The module may be in the current folder.

    Raises:
        PluginError: if the module cannot be imported.
        InputError: if it has nothing of that name that can be called.
    """
    module_name, _, object_name = name.partition(":")
    # Unlike python -m, the command teeter does not search the current folder.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))

    try:
        module = import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        raise PluginError(f"Cannot import the {kind} {name}: {error}.") from error

    found = getattr(module, object_name, None)
    if not callable(found):
        raise InputError(
            f"The module {module_name} has no function {object_name!r}: name a {kind} as "
            "package.module:function."
        )
    return found


def importable_name(kind: str, function: Any) -> str:
    """Return ``module:name`` of a function or class, by which another process can import it.

    Raises:
        InputError: if it cannot be imported, such as a lambda.
    """
    module_name = str(getattr(function, "__module__", None))
    name = str(getattr(function, "__qualname__", repr(function)))
    if getattr(sys.modules.get(module_name), name, None) is not function:
        raise InputError(
            f"The {kind} {name} cannot be found by its name: define it at the top level of a "
            "module."
        )
    return f"{module_name}:{name}"


def entry_points_by_name(group: str) -> dict[str, EntryPoint]:
    """Return what installed packages declare for a group, without importing any of them."""
    return {point.name: point for point in entry_points(group=group)}


def _package_name(point: EntryPoint) -> str:
    if point.dist is None:
        return "an unknown package"
    return point.dist.name


def require_known(kind: str, name: str, names: Iterable[str]) -> None:
    """Raise UnknownNameError if ``name`` is not among ``names``.

    Example:
        >>> require_known("strategy", "entrpy", ["entropy", "margin"])
        Traceback (most recent call last):
        teeter.errors.UnknownNameError: No strategy is called 'entrpy'. Did you mean 'entropy'?
    """
    names = list(names)
    if name not in names:
        raise UnknownNameError(f"No {kind} is called {name!r}. {did_you_mean(name, names)}")


def require_options(owner: str, given: Iterable[str], names: Sequence[str]) -> None:
    """Raise InputError if one of the given options is not among ``names``.

    Args:
        owner: what takes the options, for the error.
        given: the names of the options that were passed.
        names: those that there are.
    """
    for option in given:
        if option not in names:
            hint = "It has none."
            if names:
                hint = did_you_mean(option, names)
            raise InputError(f"{owner} has no option {option!r}. {hint}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest of ``names``, or a list of them.

    Example:
        >>> did_you_mean("entrpy", ["entropy", "margin"])
        "Did you mean 'entropy'?"
    """
    names = list(names)
    if not names:
        return "There are none."

    # Reversed, so that of names that differ in case only the first one counts.
    by_lower_case = {candidate.lower(): candidate for candidate in reversed(names)}
    closest = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
    if closest:
        suggestion = by_lower_case[closest[0]]
        return f"Did you mean {suggestion!r}?"

    listed = ", ".join(names[:_MOST_NAMES_IN_HINT])
    hidden = len(names) - _MOST_NAMES_IN_HINT
    if hidden > 0:
        return f"Known: {listed} and {hidden} more."
    return f"Known: {listed}."
