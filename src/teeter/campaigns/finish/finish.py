"""Let the model label the rest, under a promise: ``campaign.finish``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from teeter.base.wording import pluralize
from teeter.campaigns.finish.certificate import (
    certified_labels,
    make_certificate,
    says_the_same,
)
from teeter.campaigns.finish.frozen_model import (
    USUAL_GOAL,
    choose_model,
    freeze,
    goal_terms,
    load_finish,
    store_finish,
)
from teeter.campaigns.finish.goal_report import describe_goal, plan_ahead
from teeter.campaigns.finish.promise import PromiseTerms
from teeter.campaigns.finish.report import look, newest_certificate, set_draws
from teeter.campaigns.records import Certificate, FinishReport, GoalReport, Purpose
from teeter.campaigns.review.consensus import CampaignSnapshot, read_snapshot
from teeter.campaigns.store import Part, Reading, cached_by
from teeter.errors import InputError, UnknownResourceError

FEWEST_DRAWS = 20
"""Draws that are asked for at least when a promise is started."""

_USUAL_DRAWS = 100
"""Draws that are asked for if no number is likely to be enough."""

_CHANGES = (
    "answer",
    "undo",
    "decided",
    "decision undone",
    "trained",
    "added",
    "item changed",
    "withdrawn",
    "put back",
)
"""Lines of the history after which a promise with the same terms is a new attempt."""


def _require_one_label(view: Reading) -> None:
    if view.settings.several:
        raise InputError(
            "A promise is for items that have one label: items of this campaign may have several."
        )


class Finish(Part):
    """A promise of how many labels of the model are wrong, and its certificates."""

    def look(
        self,
        error: float | None = None,
        confidence: float | None = None,
        per_class: bool | None = None,
        labelled: float | None = None,
    ) -> FinishReport:
        """Return which items the model may label, with a promise of how many labels are wrong.

        Before ``start`` was called, it returns a plan: how many random labels would let the model
        label how many items. It may be called at any time, as often as you like.

        Args:
            error: the share of wrong labels that is allowed. By default that of the promise that
                was started, or else 0.05.
            confidence: the probability with which the promise is kept. By default that of the
                promise that was started, or else 0.95.
            per_class: whether to promise it for each predicted class.
            labelled: promise it for all labels in the file, those of people included, and plan
                until this share of the items has one.

        Raises:
            InputError: there is no model yet, or a promise with other values was started.
        """
        with self._campaign.reading() as view:
            _require_one_label(view)
            if error is confidence is per_class is labelled is None:
                report = self._look(view)
                if isinstance(report, InputError):
                    # A new one: it has a traceback of its own.
                    raise InputError(*report.args)
                return report

            finish = load_finish(view)
            terms = PromiseTerms()
            if finish is not None:
                terms = finish.terms
            given = {
                "error": error,
                "confidence": confidence,
                "per_class": per_class,
                "labelled": labelled,
            }
            changes: Any = {name: value for name, value in given.items() if value is not None}
            terms = replace(terms, **changes)
            snapshot = self._campaign.review.snapshot(view)
            report = look(view, terms, snapshot=snapshot)
            is_usual = terms.error == USUAL_GOAL.error and not terms.per_class
            if is_usual and terms.confidence == USUAL_GOAL.confidence:
                return _with_plan(view, snapshot, report)
            return report

    @cached_by(lambda _, view: view.history.newest_row_id())
    def _look(self, view: Reading) -> FinishReport | InputError:
        """Return the report, or why there is nothing to look at, which is remembered likewise."""
        snapshot = self._campaign.review.snapshot(view)
        try:
            return _with_plan(view, snapshot, look(view, snapshot=snapshot))
        except InputError as error:
            return error

    def start(
        self,
        error: float = 0.05,
        confidence: float = 0.95,
        *,
        per_class: bool = False,
        labelled: float | None = None,
        draws: int | None = None,
        train: bool = True,
        who: str = "me",
    ) -> FinishReport:
        """Freeze a model that is to label the rest, and ask about random items next.

        The model is frozen as it is: later labels train later models and are not lost, but do not
        change this one. A call with other terms, or after a change, is a new attempt, which needs
        more random labels than the one before it. A call that finds nothing new returns the promise
        that was started.

        Args:
            error: the share of wrong labels that is allowed.
            confidence: the probability with which the promise is kept.
            per_class: whether to promise it for each predicted class.
            labelled: promise it for all labels in the file, those of people included, until this
                share of the items has one.
            draws: how many random items to ask about next; None for the plan's first number.
            train: train a model first if there are answers that the newest does not know. If not,
                they are refused: training takes too long for a request.
            who: the name for the history.

        Raises:
            InputError: there is no model or it is too old, fewer than two classes have labels, or
                too few items are left.
        """
        terms = PromiseTerms(error, confidence, per_class, labelled)
        with self._campaign.reading() as view:
            _require_one_label(view)
        if train:
            with self._campaign.reading() as view:
                has_model = view.models.newest_version() > 0
                is_newest = has_model and not view.answers.count_since_newest_model()
            if not is_newest:
                self._campaign.train(who=who)

        with self._campaign.writing() as change:
            version = change.models.newest_version()
            newer_answers = change.answers.count_since_newest_model()
            if not train and version and newer_answers:
                are = pluralize(newer_answers, "answer is", "answers are")
                raise InputError(f"{are} newer than model {version}: train first.")

            # Every attempt spends a part of the probability of error. So the promise that was
            # started is returned if these are its terms, and nothing has changed since.
            started = load_finish(change)
            if started is not None and started.terms == terms:
                newest_change = change.history.newest_row_id(_CHANGES)
                newest_start = change.history.newest_row_id(["finish started"])
                if newest_change < newest_start:
                    return look(change)

            model = choose_model(change, terms)
            store_finish(change, freeze(change, *model, terms), who)

            # The past control items may be enough, so nothing is asked before looking.
            report = look(change)
            if draws is None:
                draws = max(FEWEST_DRAWS, _USUAL_DRAWS)
                if report.covered:
                    draws = 0
                elif report.plan:
                    draws = max(FEWEST_DRAWS, report.plan[0].labels)
            return set_draws(change, report, draws, who)

    def draw(self, count: int, *, who: str = "me") -> FinishReport:
        """Let the next questions be ``count`` items drawn at random; 0 to go back to picks.

        Raises:
            InputError: ``start`` was not called yet, or an audit goes on.
        """
        self._campaign.judges.require_ended("An audit asks about items at random until its end")
        with self._campaign.writing() as change:
            report = _look_at_started(change)
            if count == report.waiting_draws:
                return report
            return set_draws(change, report, count, who)

    def certify(self, *, who: str = "me") -> Certificate:
        """Write down what is promised now. Exports then include the model's labels.

        Returns:
            The certificate. A second call returns the same one while nothing has changed.

        Raises:
            InputError: nothing is promised yet.
        """
        with self._campaign.writing() as change:
            report = _look_at_started(change)
            # A second certificate of the same facts would only differ in its date.
            newest = newest_certificate(change)
            if newest is not None and says_the_same(newest.content, report):
                return newest

            agreement = self._campaign.review.agreement_in(change)
            content = make_certificate(
                report,
                agreement=agreement.observed,
                campaign=self._campaign.name,
                issued=change.now(),
                classes=change.classes.names(),
            )
            return change.finishes.add_certificate(content, who)

    def certificate(self, id: str) -> Certificate:
        """Return a certificate by its id.

        Raises:
            UnknownResourceError: no certificate has this id.
        """
        with self._campaign.reading() as view:
            certificate = view.finishes.certificate(id)
        if certificate is None:
            raise UnknownResourceError(f"This campaign has no certificate {id[:32]!r}.")
        return certificate

    def certificates(self) -> list[Certificate]:
        """Return all certificates, oldest first."""
        with self._campaign.reading() as view:
            return view.finishes.certificates()

    def goal(self) -> GoalReport | None:
        """Return how far the campaign is from its goal; None without a goal."""
        with self._campaign.reading() as view:
            return self._describe_goal(view)

    @cached_by(lambda _, view: (view.history.newest_row_id(), view.settings.goal))
    def _describe_goal(self, view: Reading) -> GoalReport | None:
        return describe_goal(view, self._campaign.review.snapshot(view))

    def pursue_goal(self, *, who: str = "me") -> bool:
        """Let the next questions be what the goal needs, and certify when it is reached.

        A server does it after each training. It starts an attempt when that is expected to take
        fewer answers than teaching the model first, asks for draws, returns to picks while an
        attempt is not worth them, and issues the certificate.

        Returns:
            Whether anything changed.
        """
        with self._campaign.reading() as view:
            report = self._describe_goal(view)
            # An audit asks what its goal needs until people end it.
            if report is None or view.finishes.is_auditing():
                return False
            waiting = 0
            if view.finishes.newest() is not None:
                waiting = look(view).waiting_draws
        is_asking = waiting >= FEWEST_DRAWS
        if report.purpose is Purpose.TEACH and not waiting:
            return False
        if report.purpose is Purpose.CERTIFY and is_asking:
            return False
        if report.purpose is Purpose.DONE and report.certificate is not None and not waiting:
            return False

        with self._campaign.writing() as change:
            # Somebody may have answered meanwhile.
            report = describe_goal(change, read_snapshot(change))
            if report is None:
                return False
            if report.purpose is Purpose.START:
                terms = goal_terms(change.settings) or PromiseTerms()
                store_finish(change, freeze(change, *choose_model(change, terms), terms), who)

            draws = 0
            if report.purpose in (Purpose.START, Purpose.CERTIFY):
                draws = max(2 * FEWEST_DRAWS, report.to_go or 0)
            if change.finishes.newest() is not None:
                set_draws(change, look(change), draws, who)
        if report.purpose is Purpose.DONE:
            self.certify(who=who)
        return True

    def note(self) -> str | None:
        """Return a sentence about the labels that the model gives under a certificate.

        It says how many of them are wrong at most. If the newest certificate no longer holds, it
        says why: exports then leave the model's labels out. None if nothing was certified, or if
        people labelled everything.
        """
        with self._campaign.reading() as view:
            _, note = certified_labels(view, self._campaign.review.snapshot(view))
        return note


def _with_plan(view: Reading, snapshot: CampaignSnapshot, report: FinishReport) -> FinishReport:
    """Return the report with what else is expected, while nothing is promised yet."""
    if report.is_started:
        return report
    plan = plan_ahead(view, snapshot)
    if plan is None:
        return report
    return replace(report, sentences=[*report.sentences, plan])


def _look_at_started(view: Reading) -> FinishReport:
    """Return what is promised now, if a promise was started."""
    if view.finishes.newest() is None:
        raise InputError("No promise is started: start one first.")
    return look(view)
