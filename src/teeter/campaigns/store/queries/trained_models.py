"""Trained models, frozen ones that are to label the rest of a campaign, and their certificates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, func, select

from teeter.campaigns.records import Certificate
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import CERTIFICATES, FINISHES, MODELS


@dataclass(frozen=True)
class StoredModel:
    """A trained model."""

    version: int
    trained: str
    """When it was trained."""
    facts: dict[str, Any]
    """Its training data and how well it does; ``answers`` is how many were given until then."""
    weights: bytes = b""
    """A safetensors file; empty where only its facts were asked for."""


class ModelQueries(Queries):
    """The models of a campaign, by versions that count up from 1."""

    def add(self, weights: bytes, facts: Mapping[str, Any]) -> StoredModel:
        """Store a model and return it."""
        # Only one transaction writes at a time, so no other model can get the same version.
        version = self.newest_version() + 1
        trained = self._transaction.now()
        text = json.dumps(dict(facts))
        self._insert(
            schema.models,
            version=version,
            trained=trained,
            weights=weights,
            facts=text,
        )
        return StoredModel(version, trained, json.loads(text), weights)

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        """Replace the weights of all models by what a function returns of them."""
        for version in range(1, self.newest_version() + 1):
            model = self.get(version)
            if model is not None:
                is_model = MODELS.version == version
                in_campaign = MODELS.campaign_id == self._campaign_id
                self._update(schema.models, in_campaign, is_model, weights=change(model.weights))

    def newest(self) -> StoredModel | None:
        """Return the newest model, or None before the first."""
        return self.get(self.newest_version())

    def get(self, version: int) -> StoredModel | None:
        """Return a model by its version, or None if there is no such model."""
        query = self._own(schema.models).where(MODELS.version == version)
        row = self._first(query.with_only_columns(*_FACTS, MODELS.weights))
        if row is None:
            return None
        return _model(row)

    def newest_summary(self) -> StoredModel | None:
        """Return what is known of the newest model, or None. Does not read its weights."""
        models = self.summaries(newest=1)
        if not models:
            return None
        return models[0]

    def newest_version(self) -> int:
        """Return the version of the newest model; 0 before there is one."""
        newest = self._own(schema.models).with_only_columns(func.max(MODELS.version))
        return int(self._scalar(newest) or 0)

    def newest_weights(self, count: int) -> list[bytes]:
        """Return the weights of the newest models, newest first."""
        weights = self._newest_first(count).with_only_columns(MODELS.weights)
        return list(self._scalars(weights))

    def _newest_first(self, count: int | None) -> Select[Any]:
        in_order = self._own(schema.models).order_by(MODELS.version.desc())
        return in_order.limit(count)

    def summaries(self, *, newest: int | None = None) -> list[StoredModel]:
        """Return all models, or the ``newest`` ones, oldest first. Does not read their weights."""
        facts = self._newest_first(newest).with_only_columns(*_FACTS)
        rows = self._execute(facts).all()
        # Selected newest first for the limit, returned oldest first.
        return [_model(row) for row in reversed(rows)]


_FACTS = (MODELS.version, MODELS.trained, MODELS.facts)


def _model(row: Any) -> StoredModel:
    version, trained, facts, *weights = row
    return StoredModel(version, trained, json.loads(facts), *weights)


class FinishQueries(Queries):
    """The frozen models and certificates of a campaign."""

    def add(
        self,
        *,
        who: str,
        model_version: int,
        checksum: str,
        terms: Mapping[str, Any],
        items: list[str],
        frozen: bytes,
    ) -> int:
        """Store a frozen model and return the number of the attempt."""
        number = self.count() + 1
        self._insert(
            schema.finishes,
            number=number,
            started=self._transaction.now(),
            started_by=who,
            model_version=model_version,
            checksum=checksum,
            terms=json.dumps(dict(terms)),
            item_ids=json.dumps(items),
            frozen=frozen,
            asked_draws=0,
        )

        detail = {"number": number, "version": model_version, "items": len(items)}
        self._note(who, "finish started", detail)
        return number

    def count(self) -> int:
        """Return the number of attempts so far."""
        return self._count(self._own(schema.finishes))

    def newest(self) -> Row[Any] | None:
        """Return the newest attempt as it is stored, or None before the first or after its end."""
        row = self._first(self._newest())
        if row is None or "ended" in json.loads(row.terms):
            return None
        return row

    def get(self, number: int) -> Row[Any] | None:
        """Return an attempt as it is stored, ended or not; None if there is none of the number."""
        is_attempt = FINISHES.number == number
        return self._execute(self._own(schema.finishes).where(is_attempt)).first()

    def is_auditing(self) -> bool:
        """Return whether the campaign is an audit that has not been ended: all its items are drawn.

        Other promises ask for some draws, and an audit that is ended for no more.
        """
        if not self._transaction.settings.judges:
            return False
        audit = self.get(1)
        return audit is not None and audit.asked_draws == len(json.loads(audit.item_ids))

    def end(self, who: str) -> None:
        """End the promise that was started, if one was: its model says nothing about the rest."""
        row = self.newest()
        if row is not None:
            terms = json.loads(row.terms)
            terms["ended"] = self._transaction.now()
            is_attempt = FINISHES.id == row.id
            self._update(schema.finishes, is_attempt, terms=json.dumps(terms), asked_draws=0)
            self._note(who, "finish ended", {"number": row.number})

    def _newest(self) -> Select[Any]:
        newest_first = self._own(schema.finishes).order_by(FINISHES.number.desc())
        return newest_first.limit(1)

    def drawn_items(self) -> list[str]:
        """Return the items whose turn it is to be asked, in the order of the draws."""
        columns = (FINISHES.item_ids, FINISHES.asked_draws)
        row = self._first(self._newest().with_only_columns(*columns))

        # Most campaigns have none, and the list of items may be long.
        if row is None or row.asked_draws == 0:
            return []

        items: list[str] = json.loads(row.item_ids)
        return items[: row.asked_draws]

    def set_asked_draws(self, number: int, count: int, who: str) -> None:
        """Let the first ``count`` draws of an attempt be asked before the strategy picks again."""
        is_attempt = FINISHES.number == number
        in_campaign = FINISHES.campaign_id == self._campaign_id
        self._update(
            schema.finishes,
            in_campaign,
            is_attempt,
            asked_draws=count,
        )
        detail = {"number": number, "draws": count}
        self._note(who, "finish draws", detail)

    def add_certificate(self, content: Mapping[str, Any], who: str) -> Certificate:
        """Store a certificate of the newest attempt.

        Its content has its id and the time when it was issued.
        """
        columns = (FINISHES.id, FINISHES.number)
        newest = self._newest().with_only_columns(*columns)
        finish = self._execute(newest).one()
        code = str(content["id"])
        issued = str(content["issued"])
        text = json.dumps(dict(content))
        self._insert(
            schema.certificates, finish_id=finish.id, code=code, issued=issued, content=text
        )
        detail = {"number": finish.number, "code": code}
        self._note(who, "certificate", detail)
        return Certificate(code, issued, dict(content), finish.number)

    def certificates(self) -> list[Certificate]:
        """Return all certificates, oldest first."""
        query = (
            select(schema.certificates, FINISHES.number)
            .join(schema.finishes)
            .where(CERTIFICATES.campaign_id == self._campaign_id)
            .order_by(CERTIFICATES.id)
        )
        return [
            Certificate(row.code, row.issued, json.loads(row.content), row.number)
            for row in self._execute(query)
        ]

    def certificate(self, code: str) -> Certificate | None:
        """Return a certificate by its code, or None."""
        certificates = {certificate.id: certificate for certificate in self.certificates()}
        return certificates.get(code)
