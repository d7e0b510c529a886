"""Names for things: registered here by a decorator, or found in other packages by their entry points."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from teeter.errors import InputError, PluginError, UnknownNameError

__all__ = ["Plugins", "Registry", "did_you_mean"]

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


class Plugins(Generic[T]):
    """Things of one ``kind`` that other packages bring along by the entry points of ``group``."""

    def __init__(self, kind: str, group: str, *, fits: Callable[[Any], bool], wanted: str) -> None:
        self.kind, self.group = kind, group
        self.fits, self.wanted = fits, wanted

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def names(self) -> list[str]:
        """Return every name, in alphabetical order, without importing anything."""
        return sorted(self._points)

    def get(self, name: str) -> T:
        """Return what is called ``name``, which must be one of the names."""
        thing: T = _load(self._points[name], self.kind, self.fits, self.wanted)
        return thing

    def package(self, name: str) -> str:
        """Return the package that ``name`` comes from."""
        return _package(self._points[name])


class Registry(Generic[T]):
    """A dictionary from names to classes of one ``kind``, open to plugins through the entry points of ``group``."""

    def __init__(self, kind: str, group: str, base: type = object) -> None:
        self.kind = kind
        self.group = group
        self.base = base
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """Return a decorator that files a class under ``name``."""

        def file(cls: Class) -> Class:
            known = self._classes.get(name)
            if known is not None and (known.__module__, known.__qualname__) != (
                cls.__module__,
                cls.__qualname__,
            ):
                raise InputError(
                    f"A {self.kind} is already called {name!r} ({known.__module__}): choose another name."
                )
            self._classes[name] = cls
            return cls

        return file

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def names(self) -> list[str]:
        """Return every name, in alphabetical order; plugins are listed without being imported."""
        return sorted({*self._classes, *self._plugins})

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``."""
        if name not in self._classes and name in self._plugins:
            self._classes[name] = _load(
                self._plugins[name], self.kind, self._fits, f"a class of {self.base.__name__}"
            )
        try:
            return self._classes[name]
        except KeyError:
            raise UnknownNameError(
                f"No {self.kind} is called {name!r}. {did_you_mean(name, self.names())}"
            ) from None

    def loaded(self) -> dict[str, type[T]]:
        """Return the classes that are here without loading a plugin."""
        return dict(self._classes)

    def name_of(self, cls: type) -> str | None:
        """Return the name under which ``cls`` is filed, if it is."""
        return next((name for name, known in self._classes.items() if known is cls), None)

    def _fits(self, loaded: Any) -> bool:
        return isinstance(loaded, type) and issubclass(loaded, self.base)


def _load(point: EntryPoint, kind: str, fits: Callable[[Any], bool], wanted: str) -> Any:
    told = f"The {kind} {point.name!r} of {_package(point)}"
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:  # whatever it is, nothing else is to fail
        reason = str(error).rstrip(".") or type(error).__name__
        raise PluginError(f"{told} cannot be loaded: {reason}.") from error
    if not fits(loaded):
        raise PluginError(f"{told} is {type(loaded).__name__} {point.value}: it must be {wanted}.")
    return loaded


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a short hint: the nearest of the ``known`` names, or all of them."""
    known = list(known)
    plain = {one.lower(): one for one in reversed(known)}
    near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {plain[near[0]]!r}?"
    some = ", ".join(known[:30])
    return f"Known: {some}." if len(known) <= 30 else f"Known: {some} and {len(known) - 30} more."
