"""Notice that two people answer under one name, as happens if neither of them sets a name.

The default name is ``me``. If two people use it, their answers cannot be told apart: the second
answer to an item replaces the first, and undo takes back the last answer of either. The
start of a session is therefore noted in the history, at most once an hour. Terminals are compared
with terminals and browsers with browsers, because people who label alone use both.
"""

from __future__ import annotations

import getpass
import hashlib
import platform
from enum import StrEnum

from teeter.campaigns.campaign import Campaign

__all__ = ["SessionKind", "note_session", "terminal_identity"]

_SECONDS_COMPARED = 3600

_EVENT = "session"


class SessionKind(StrEnum):
    """Where an annotator labels."""

    TERMINAL = "terminal"
    BROWSER = "browser"


def note_session(campaign: Campaign, annotator: str, kind: SessionKind, identity: str) -> bool:
    """Note a session of an annotator, and return whether the name is used in another one, too.

    Args:
        campaign: the campaign.
        annotator: the name of the annotator.
        kind: where they label.
        identity: what tells sessions of this kind apart. Only a hash of it is stored.

    Returns:
        Whether another session of this kind used the name within the last hour.
    """
    history = campaign.repository.history
    session = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    since = campaign.repository.scope.time_after(-_SECONDS_COMPARED)

    # Read first: a session that is known already need not wait for other writers.
    with campaign.database.reading() as connection:
        events = history.lines(connection, _EVENT, since=since)

    sessions = {
        event["session"] for event in events if event["who"] == annotator and event["kind"] == kind
    }
    if session not in sessions:
        with campaign.database.writing() as connection:
            detail = {"kind": kind, "session": session}
            history.append(connection, annotator, _EVENT, None, detail)

    return bool(sessions - {session})


def terminal_identity() -> str:
    """Return the user and the machine of a terminal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = ""
    return f"{user}@{platform.node()}"
