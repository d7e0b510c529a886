"""Notice image files that are gone: their folder was moved or renamed, or they were deleted."""

from __future__ import annotations

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.enums import ItemKind
from teeter.errors import InputError

__all__ = ["describe_missing_images"]


def describe_missing_images(campaign: Campaign) -> str | None:
    """Return a sentence about the images of a campaign that are not where they were.

    Returns:
        How many are missing and where they are expected, or why they are not read; None if none
        is missing.
    """
    try:
        folder = campaign.image_folder
    except InputError as error:
        return str(error)
    if campaign.settings.kind != ItemKind.IMAGE or folder is None:
        return None

    with campaign.database.reading() as connection:
        paths = [item.content or "" for item in campaign.repository.items.all(connection)]

    # A folder that was moved needs other advice, and no look at each of its files.
    if not folder.is_dir():
        return (
            f"The folder of the images is missing: {len(paths):,} image files are expected in "
            f"{folder}. If the folder was moved or renamed, move it back."
        )

    missing = [path for path in paths if not (folder / path).is_file()]
    if not missing:
        return None
    return (
        f"{len(missing):,} of {len(paths):,} image files are missing, such as {missing[0]}: they "
        f"are expected in {folder}."
    )
