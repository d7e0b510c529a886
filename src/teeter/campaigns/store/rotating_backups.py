"""Backups for a scheduled job: a new file each time, checked, and only the newest are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store.backup import check_backup
from teeter.errors import FileError, InputError, StoreError

__all__ = ["RotatedBackup", "back_up_and_rotate"]

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_TIME_PATTERN = r"\d{8}T\d{6}Z"
"""What ``_TIME_FORMAT`` writes. Names of one campaign sort by time."""


@dataclass(frozen=True)
class RotatedBackup:
    """A new backup, and the old ones that it replaces."""

    path: Path
    removed: list[Path]
    """Backups that were removed, the oldest first."""


def back_up_and_rotate(campaign: Campaign, folder: Path, keep: int, now: datetime) -> RotatedBackup:
    """Back up a campaign into a folder, check the copy, and remove the oldest backups.

    Nothing is removed unless the new copy is intact, so a job that fails every night leaves the
    last good backups alone. Other files in the folder, and backups of other campaigns, stay.

    Args:
        campaign: The campaign, in a file or on a server. Others may write to it meanwhile.
        folder: Where the backups are.
        keep: How many to keep, the new one included.
        now: The time in the name of the new backup, in UTC.

    Raises:
        InputError: If ``keep`` is less than 1.
        FileError: If the folder does not exist, or the backup cannot be written.
        StoreError: If the copy is damaged.
    """
    if keep < 1:
        raise InputError(f"Cannot keep {keep} backups: keep 1 or more.")
    if not folder.is_dir():
        raise FileError(f"There is no folder {folder}: create it first.")

    # A campaign may be called anything, and a file may not.
    stem = re.sub(r"[^\w.-]+", "_", campaign.name).strip("._") or "campaign"
    path = folder / f"{stem}-{now.strftime(_TIME_FORMAT)}.teeter"

    campaign.back_up(path)
    try:
        check_backup(path)
    except StoreError:
        # A damaged copy must not count as one of the backups to keep.
        path.unlink()
        raise

    pattern = re.compile(rf"{re.escape(stem)}-{_TIME_PATTERN}\.teeter")
    # Sorted by the time in the name: the time of a file may change when it is copied.
    backups = sorted(file for file in folder.iterdir() if pattern.fullmatch(file.name))
    removed = backups[:-keep]
    for old in removed:
        old.unlink()
    return RotatedBackup(path, removed)
