"""Assign items to annotators: open ones again, then those picked ahead, then new picks.

Picking takes seconds, so one process picks under a lock while the others wait, and it picks ahead
for everyone who is at work.

Nothing here loads torch until items are picked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from teeter.campaigns.finish.audit import next_draws
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.records import Question
from teeter.campaigns.settings import Settings
from teeter.campaigns.status import has_only_unencoded_items
from teeter.campaigns.store import BatchOrigin, LockName, Pick, Writing

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


MOST_READY = 1000
"""Items that are picked ahead at most."""

_MOST_ATTEMPTS = 50
"""How often to pick again because others took the same items."""

_PICK_LOCK_SECONDS = 10.0
"""Seconds after which another process may pick although one seems to be picking."""

_PICK_LOCK_PAUSE = 0.15
"""Seconds between two looks at whether another process is still picking."""


def ask_items(
    campaign: Campaign, n: int, annotator: str, *, state: RoundState | None
) -> list[Question]:
    """Return n items for an annotator to label; see ``Campaign.ask``."""
    # Most calls end here, without writing: people reload pages, and programs poll.
    questions = _open_questions(campaign, annotator, n)
    if len(questions) == n:
        # Who asks is at work, so leases of which half has passed start again.
        with campaign.reading() as view:
            is_half_over = view.picks.is_lease_half_over(annotator)
        if is_half_over:
            with campaign.writing() as change:
                change.picks.extend_leases(annotator)
        return questions

    for _ in range(_MOST_ATTEMPTS):
        missing, lock, other_annotators = _assign(campaign, annotator, n)
        if missing and lock is None:
            _wait_for_picking(campaign)
        elif lock is not None:
            # Two requests' worth for everyone else at work: they should not have to wait.
            ahead = min(2 * n * other_annotators, MOST_READY)
            has_picked = _pick(campaign, annotator, n, missing + ahead, lock=lock, state=state)
            # A state that was loaded before may lack items that came back since, so only a new
            # one can tell that nothing is left.
            if not has_picked and state is None:
                break
            state = None

        # Read again rather than kept: another process of the annotator may have got items too.
        questions = _open_questions(campaign, annotator, n)
        if len(questions) == n:
            return questions

    return _open_questions(campaign, annotator, n)


def _open_questions(campaign: Campaign, annotator: str, n: int) -> list[Question]:
    with campaign.reading() as view:
        picks = view.picks.open_picks(annotator, n)
        items = view.items.by_id([pick.item for pick in picks])

    questions = []
    for pick in picks:
        content = items[pick.item].content
        questions.append(
            Question(
                pick.item,
                content,
                pick.arm,
                pick.rank,
                dict(pick.reason),
            )
        )

    return questions


def _assign(campaign: Campaign, annotator: str, n: int) -> tuple[int, str | None, int]:
    """Assign what needs no picking, and take the lock to pick the rest.

    Returns:
        How many of n items are still missing; the lock's holder, or None if nothing is missing
        or the lock is taken; and how many other annotators are active.
    """
    with campaign.writing() as change:
        # Counted inside the transaction: two processes of one annotator must not get 2n items.
        missing = n - len(change.picks.open_picks(annotator, n))
        if missing:
            missing -= change.picks.assign(annotator, missing)

        lock = None
        if missing:
            lock = change.locks.acquire(LockName.PICKING, _PICK_LOCK_SECONDS)

        other_annotators = change.picks.count_active_annotators(except_for=annotator)

    return missing, lock, other_annotators


def _wait_for_picking(campaign: Campaign) -> None:
    """Wait until no other process is picking, or until its lock expires."""
    deadline = time.monotonic() + _PICK_LOCK_SECONDS

    while time.monotonic() < deadline:
        time.sleep(_PICK_LOCK_PAUSE)
        with campaign.reading() as view:
            if not view.locks.is_taken(LockName.PICKING, _PICK_LOCK_SECONDS):
                return


def _pick(
    campaign: Campaign,
    annotator: str | None,
    n: int,
    count: int,
    *,
    lock: str,
    state: RoundState | None,
) -> bool:
    """Pick items and release the lock.

    Args:
        annotator: who gets items until n are open with them; None to make all of them ready.
        n: how many items the annotator asked for.
        count: how many items to pick. Those that the annotator does not get are made ready.
        lock: the holder of the lock.
        state: what the picks are based on, if it was loaded before.

    Returns:
        Whether there was an item left to pick.
    """
    # Selecting takes seconds, so it happens outside of a transaction, under the lock.
    try:
        settings = campaign.settings
        picks, version = _choose_picks(campaign, count, state)
    except BaseException:
        with campaign.writing() as change:
            change.locks.release(LockName.PICKING, lock)
        raise

    with campaign.writing() as change:
        change.locks.release(LockName.PICKING, lock)

        missing = 0
        if annotator is not None:
            # Counted again: another process of the same annotator may have got items meanwhile.
            open_picks = change.picks.open_picks(annotator, n)
            missing = n - len(open_picks)

        store_picks(change, annotator, picks, settings=settings, missing=missing, version=version)

    return any(pick.asked for pick in picks)


def _choose_picks(
    campaign: Campaign, count: int, state: RoundState | None
) -> tuple[list[Pick], int]:
    """Return picks, and the version of the model that made them."""
    with campaign.reading() as view:
        # An audit needs no features: its draws are in an order of their own.
        if view.finishes.is_auditing():
            return next_draws(view, count), view.models.newest_version()

    from teeter.campaigns.asking.selection import choose_picks

    state = state or campaign.load_state()
    settings = RoundSettings.from_settings(campaign.settings)
    return choose_picks(state, settings, count), state.version


def store_picks(
    change: Writing,
    annotator: str | None,
    picks: Sequence[Pick],
    *,
    settings: Settings,
    missing: int,
    version: int,
) -> None:
    """Open the first picks with an annotator, and make the others ready.

    Args:
        annotator: who gets the first picks, if anyone does.
        picks: the picks. Items that others took meanwhile are left out.
        settings: the settings that they were made with.
        missing: how many of them the annotator gets.
        version: the model that they were made with.
    """
    # Others may have taken or answered items while these were selected.
    free = change.picks.unassigned([pick for pick in picks if pick.asked])
    shared = [pick.item for pick in free if settings.is_shared(pick.item)]
    change.items.request_annotators(shared, settings.people)

    for_annotator = free[:missing]
    ahead = free[missing:]
    if change.models.newest_version() != version:
        ahead = []  # a newer model picks better ones

    # Control items that need no answer count as drawn together with the others.
    if free:
        not_asked = [pick for pick in picks if not pick.asked]
        if annotator is None:
            ahead += not_asked
        else:
            for_annotator += not_asked

    origin = BatchOrigin(settings.strategy, settings.seed, version)
    if for_annotator:
        change.picks.add_batch(annotator, for_annotator, origin)
    if ahead:
        change.picks.add_batch(None, ahead, origin)


def pick_ahead(campaign: Campaign, n: int, *, state: RoundState | None = None) -> bool:
    """Pick items until n are ready, so that annotators who ask next need not wait.

    Args:
        n: how many items to have ready.
        state: what the picks are based on, if it was loaded before.

    Returns:
        False if nothing is left to pick; True if n items are ready, another process is picking
        them, or none is encoded yet.
    """
    with campaign.writing() as change:
        missing = n - change.picks.count_ready()
        if missing <= 0 or (has_only_unencoded_items(change) and not change.finishes.is_auditing()):
            return True

        lock = change.locks.acquire(LockName.PICKING, _PICK_LOCK_SECONDS)

    return lock is None or _pick(campaign, None, 0, missing, lock=lock, state=state)


def ready_items_wanted(campaign: Campaign, batch: int) -> int:
    """Return how many items should be ready for the active annotators: two batches for each.

    An annotator who works alone needs none: their next batch is picked before the last one is
    answered.

    Args:
        batch: how many items an annotator gets at a time.
    """
    with campaign.reading() as view:
        active = view.picks.count_active_annotators()

    if active < 2:
        return 0
    return min(2 * batch * active, MOST_READY)


def keep_ready(campaign: Campaign, batch: int, *, state: RoundState | None = None) -> bool:
    """Pick ahead before the items that are ready run out.

    Picking takes a while, and the active annotators use up to a batch each meanwhile. So the
    next picking starts when less than that is ready, and it makes twice as much ready. Only
    counts decide, no measured times: the same events lead to the same picks.

    Args:
        batch: how many items an annotator gets at a time.
        state: what the picks are based on, if it was loaded before.

    Returns:
        False if nothing was left to pick.
    """
    wanted = ready_items_wanted(campaign, batch)
    with campaign.reading() as view:
        ready = view.picks.count_ready()

    if ready >= wanted // 2:
        return True
    return pick_ahead(campaign, wanted, state=state)
