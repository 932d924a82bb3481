"""Markets: shares, volumes, revenue and margin over many choice sets, before and after changes.

The computation is that of ``pn.scenario``, so the figures are the same. It runs in a thread of its own; each prediction
is a query in the queue of large requests, which takes turns with those of other clients and stops with its request. At
most two markets are computed at a time, and others wait as unparsed bodies, so that memory is bounded. A table is a
list of choice sets, CSV text, or the table of ``pcmcnet serve --table``. The last tables that were sent as CSV text are
kept with the predictions before the changes, so that the next question about the same table is answered sooner.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Column, Contents, Numeric
from pcmcnet.data.columns.names import is_money
from pcmcnet.data.describe import json_values
from pcmcnet.data.files.tabular import names_of
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.kind import Kind
from pcmcnet.errors import ConfigError, PcmcNetError, describe_value, shortened
from pcmcnet.insight.market_shares import Rule
from pcmcnet.insight.people import PeoplePredictor
from pcmcnet.insight.queries import column_and_limits, segments, table_column
from pcmcnet.insight.scenarios.market_effects import MarketEffects, MergedGroups
from pcmcnet.insight.scenarios.scenario import (
    RevenueColumns,
    Scenario,
    apply_changes,
    columns_of,
    known_labels,
    read_sets,
    simulate,
)
from pcmcnet.models.ensemble import Ensemble
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.serving.request_body import RequestError, busy, unprocessable
from pcmcnet.serving.request_sets import require_keys
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import Admission, Job

MAX_MARKETS = 16  # in progress; further requests are rejected
MARKET_THREADS = 2  # markets that are computed at a time
_MAX_CACHED_TABLES = 4
_MAX_CHANGES = 50  # of one scenario
_MAX_CHANGE_LENGTH = 2_000  # characters
_MAX_GROUPINGS = 4
_MAX_GROUPS = 5_000
_MAX_LISTED = 1_000  # labels or values of a segment in the description of a table

# -- Tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarketTable:
    """A table of choice sets, read for one served model, with its predictions before any change."""

    data: ChoiceData
    known: dict[str, Floats] = field(default_factory=dict)  # model -> log-probabilities

    @cached_property
    def description(self) -> dict[str, Any]:
        """The size, the labels and the columns of the table, as plain values."""
        return describe_table(self.data)


class TableCache:
    """The tables that were used last, each with its predictions."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, MarketTable] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> MarketTable | None:
        """Return a table, or None if it is not in the cache."""
        with self._lock:
            table = self._tables.get(key)
            if table is not None:
                self._tables.move_to_end(key)
            return table

    def add(self, key: str, table: MarketTable) -> None:
        """Add a table, and forget the one that was not used for the longest time."""
        with self._lock:
            self._tables[key] = table
            while len(self._tables) > _MAX_CACHED_TABLES:
                self._tables.popitem(last=False)


@dataclass(frozen=True)
class ServedTable:
    """The table of ``pcmcnet serve --table``, read for each served model."""

    name: str
    tables: Mapping[str, MarketTable]

    @classmethod
    def read(cls, path: str | Path, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> ServedTable:
        """Read the table, with all its columns. Raise ConfigError if it is too large for one request."""
        path = Path(path)
        tables = {name: MarketTable(read_market(model, path, ())) for name, model in models.items()}
        for table in tables.values():
            try:
                require_market_size(table.data, 1, settings)
            except RequestError as error:
                raise ConfigError(f"{path}: {error.message}") from error
        return cls(path.name, tables)

    def describe(self) -> dict[str, Any]:
        """Return the size, the labels and the segments of the table, as plain values."""
        return {"name": self.name, **self.tables["main"].description}


def read_market(model: ChoiceModel, path: Path, named: Sequence[str]) -> ChoiceData:
    """Read a table with all its columns, or with those in ``named`` if another column is invalid."""
    try:
        return read_sets(model, path, names_of(path))
    except PcmcNetError:
        return read_sets(model, path, named)


def describe_table(data: ChoiceData) -> dict[str, Any]:
    """Return the size, the labels, the columns and the segments of a table, as plain values."""
    return {
        "sets": len(data),
        "alternatives": len(data.rows),
        "pairs": pairs_of(data),
        "labels": None if data.labels is None else sorted(set(data.labels.plain().tolist()))[:_MAX_LISTED],
        "segments": _describe_columns({**data.individual, **data.keep}),
        "features": _describe_columns(data.features),
    }


def _describe_columns(columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Return the names of numeric and categorical columns, with their categories (None for numbers)."""
    return [
        {"name": name, "values": _categories(column)}
        for name, column in columns.items()
        if not isinstance(column, Contents)
    ]


def _categories(column: Any) -> list[str] | None:
    """Return the categories of a column, or None for numbers."""
    return sorted(set(column.plain().tolist()))[:_MAX_LISTED] if isinstance(column, Categorical) else None


def require_market_size(data: ChoiceData, tables: int, settings: ServeSettings, predictions: int = 1) -> None:
    """Raise RequestError if ``tables`` tables of this size have too many rows or pairs of alternatives."""
    rows, pairs = tables * len(data.rows), tables * predictions * pairs_of(data)
    for noun, number, most, option in (
        ("alternatives", rows, settings.max_market_rows, "--max-market-rows"),
        ("pairs of alternatives", pairs, settings.max_market_pairs, "--max-market-pairs"),
    ):
        if number > most:
            raise unprocessable(
                f"the market has too many {noun}: expected at most {most:,} in all scenarios together, got "
                f"{number:,}. Send fewer choice sets or fewer scenarios, or start the server with a larger {option}."
            )


def pairs_of(data: ChoiceData) -> int:
    """Return the number of ordered pairs of alternatives."""
    return int((data.sizes.astype(np.int64) ** 2).sum())


def read_csv_text(text: str, model: ChoiceModel, named: Sequence[str]) -> ChoiceData:
    """Read CSV text like a file. Columns whose values may be paths of files are refused."""
    for name, kind in model.schema.contents.items():
        if type(KINDS[kind]).file_bytes is not Kind.file_bytes:
            raise unprocessable(f"csv: column {name!r} is of kind {kind}, which CSV text cannot contain: send 'sets'.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.csv"
        file.write_text(text, "utf-8")
        try:
            return read_market(model, file, named)
        except PcmcNetError as error:
            message = f"csv: {error}".replace(f"{file}: ", "").replace(str(file), "the table")
            raise unprocessable(shortened(message)) from error


# -- Query -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarketQuery:
    """A query about a market: the scenarios, the groupings and the columns in money."""

    scenarios: list[list[str]]
    groupings: list[str | MergedGroups | None]
    columns: RevenueColumns
    level: float
    intervals: bool
    describe: bool
    rule: Rule | None  # how the people of a hierarchical logit choose; None for the model's own prediction

    @classmethod
    def read(cls, request: Mapping[str, Any], settings: ServeSettings) -> MarketQuery:
        """Check a request without its table."""
        require_one_table(request)
        scenarios = request.get("scenarios", [[]])
        if not isinstance(scenarios, list) or not 1 <= len(scenarios) <= settings.max_scenarios:
            what = f"{len(scenarios)} lists" if isinstance(scenarios, list) else describe_value(scenarios)
            raise unprocessable(f"scenarios: expected 1 to {settings.max_scenarios} lists of changes, got {what}.")
        groupings = request.get("by", [None])
        if not isinstance(groupings, list) or not 1 <= len(groupings) <= _MAX_GROUPINGS:
            raise unprocessable(
                f"by: expected a list of 1 to {_MAX_GROUPINGS} columns (null for labels), got "
                f"{describe_value(groupings)}."
            )
        level = request.get("level", 0.95)
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
            raise unprocessable(f"level: expected a number between 0 and 1, got {describe_value(level)}.")
        intervals, describe = _switch(request, "intervals", True), _switch(request, "describe", False)
        names = [_column_name(request.get(key), key) for key in ("revenue", "unit_cost")]
        return cls(
            [_changes(changes, f"scenarios, entry {k}") for k, changes in enumerate(scenarios)],
            [_grouping(by, f"by, entry {k}") for k, by in enumerate(groupings)],
            RevenueColumns(*names),
            float(level),
            intervals,
            describe,
            _rule(request.get("rule")),
        )

    def named(self) -> list[str]:
        """Return the columns that the query refers to."""
        return _named(self.scenarios, [_column_of(by) for by in self.groupings], self.columns)


@dataclass(frozen=True)
class SetQuery:
    """A query about one choice set of a market, before and after changes."""

    place: int
    changes: list[str]

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> SetQuery:
        """Check a request without its table."""
        require_one_table(request)
        place = request.get("place", 0)
        if isinstance(place, bool) or not isinstance(place, int) or place < 0:
            raise unprocessable(f"place: expected the index of a choice set, from 0, got {describe_value(place)}.")
        return cls(place, _changes(request.get("changes", []), "changes"))

    def named(self) -> list[str]:
        """Return the columns that the query refers to."""
        return _named([self.changes], [None], RevenueColumns())

    def response(self, model: ChoiceModel, data: ChoiceData) -> dict[str, Any]:
        """Return the choice set before and after the changes, in the form of a request.

        ``origins`` has the index before the changes of each alternative after them, or None for a new alternative.
        """
        if self.place >= len(data):
            raise unprocessable(
                f"place: expected the index of a choice set, from 0 to {len(data) - 1}, got {self.place}."
            )
        try:
            offer, _ = apply_changes(data, self.changes, known_labels(model, data))
        except PcmcNetError as error:
            raise unprocessable(shortened(str(error))) from error
        start, stop = offer.data.offsets[self.place : self.place + 2]
        first, last = data.offsets[self.place : self.place + 2]
        origins = offer.origin[start:stop]
        is_known = (origins >= first) & (origins < last) & ~_repeated(origins)
        return {
            "id": str(data.set_ids[self.place]),
            "before": choice_set_of(data, self.place),
            "after": choice_set_of(offer.data, self.place),
            "origins": [int(at - first) if known else None for at, known in zip(origins, is_known, strict=True)],
        }


def _repeated(origins: Ints) -> Bools:
    """Return a mask of the alternatives that are copies of earlier ones."""
    repeated = np.ones(len(origins), np.bool_)
    repeated[np.unique(origins, return_index=True)[1]] = False
    return repeated


def choice_set_of(data: ChoiceData, place: int) -> dict[str, Any]:
    """Return one choice set of a table in the form of a request."""
    one = data.subset([place])
    schema = data.schema
    features = {name: column for name, column in one.features.items() if name in schema.features}
    if one.labels is not None and schema.alternative is not None and schema.alternative not in one.individual:
        features = {schema.alternative: one.labels, **features}
    columns = {name: json_values(column) for name, column in features.items()}
    return {
        "individual": {name: json_values(column)[0] for name, column in one.individual.items()},
        "alternatives": [{name: values[k] for name, values in columns.items()} for k in range(len(one.rows))],
    }


def require_one_table(request: Mapping[str, Any]) -> None:
    """Raise RequestError unless a request has exactly one table."""
    if sum(name in request for name in ("sets", "csv", "table")) != 1:
        raise unprocessable(
            "the request: expected one of 'sets' (choice sets), 'csv' (text) and 'table' (true, for the table of "
            "the server)."
        )


def _named(scenarios: Sequence[Sequence[str]], groupings: Sequence[str | None], columns: RevenueColumns) -> list[str]:
    """Return the columns that scenarios refer to."""
    try:
        return columns_of(scenarios, groupings, columns)
    except PcmcNetError as error:
        raise unprocessable(shortened(f"scenarios: {error}")) from error


def _switch(request: Mapping[str, Any], key: str, default: bool) -> bool:
    value = request.get(key, default)
    if not isinstance(value, bool):
        raise unprocessable(f"{key}: expected true or false, got {describe_value(value)}.")
    return value


def _changes(value: Any, at: str) -> list[str]:
    """Return the changes of one scenario."""
    if not isinstance(value, list) or len(value) > _MAX_CHANGES:
        raise unprocessable(f"{at}: expected a list of at most {_MAX_CHANGES} changes, got {describe_value(value)}.")
    for change in value:
        if not isinstance(change, str) or len(change) > _MAX_CHANGE_LENGTH:
            raise unprocessable(
                f"{at}: expected changes such as \"price *= 1.1 where mode == 'car'\", of at most "
                f"{_MAX_CHANGE_LENGTH:,} characters, got {describe_value(change)}."
            )
    return value


def _rule(value: Any) -> Rule | None:
    if value is not None and value not in get_args(Rule):
        raise unprocessable(f"rule: expected null, 'logit' or 'first-choice', got {describe_value(value)}.")
    rule: Rule | None = value
    return rule


def _grouping(value: Any, at: str) -> str | MergedGroups | None:
    """Return a grouping: a column, or an object with the column and the names of groups that count as one."""
    if not isinstance(value, dict):
        return _column_name(value, at)
    names = require_keys(value, required=["column", "merge"], at=at)["merge"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise unprocessable(f"{at}, merge: expected a list of at least one name, got {describe_value(names)}.")
    return MergedGroups(_column_name(value["column"], f"{at}, column"), tuple(names))


def _column_of(by: str | MergedGroups | None) -> str | None:
    """Return the column of a grouping."""
    return by.by if isinstance(by, MergedGroups) else by


def _column_name(value: Any, at: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise unprocessable(f"{at}: expected the name of a column, or null, got {describe_value(value)}.")
    return value


# -- Simulation --------------------------------------------------------------------------------------------------------


@dataclass
class QueuedPredictions:
    """Predictions of a request, which wait in the queue of large requests. :meth:`cancel` stops them."""

    name: str  # of the served model
    model: ChoiceModel
    table: MarketTable
    admission: Admission
    until: float  # of the monotonic clock
    cancelled: bool = False
    people: PeoplePredictor | None = None  # answers the choice sets; None for the model's own prediction
    _by_draw: dict[int, Floats] = field(default_factory=dict)  # id of a table -> shares of its alternatives, (N, R)
    _pending: Future[Any] | None = None

    def log_p(self, model: Any, data: ChoiceData) -> Floats:
        """Return the log-probabilities of the served model, or of a variant with other coefficients.

        With people, a variant is the number of a draw of their part-worths.
        """
        if self.people is not None:
            if id(data) not in self._by_draw:
                self._by_draw[id(data)] = np.exp(self._predicted(data, self.people))
            shares = self._by_draw[id(data)]
            with np.errstate(divide="ignore"):  # log(0) if an alternative is nobody's first choice
                return np.asarray(np.log(shares.mean(axis=1) if model is self.model else shares[:, model.number]))
        is_known = model is self.model and data is self.table.data
        if is_known and self.name in self.table.known:
            return self.table.known[self.name]
        log_p = self._predicted(data, None if model is self.model else model)
        if is_known:
            self.table.known[self.name] = log_p
        return log_p

    def _predicted(self, data: ChoiceData, variant: Any) -> Floats:
        """Wait in the queue for the predictions of the served model, or of a variant."""
        self._pending = self.admission.put(Job(self.name, "log_proba", data, is_of_search=True, variant=variant))
        if self.cancelled:
            self._pending.cancel()
        try:
            log_p: Floats = np.asarray(self._pending.result(max(0.0, self.until - time.monotonic())), np.float64)
        except TimeoutError:
            self._pending.cancel()
            raise RequestError(504, "timeout during the simulation of the market: send fewer choice sets.") from None
        return log_p

    def cancel(self) -> None:
        """Stop the current prediction, and all later ones."""
        self.cancelled = True
        if self._pending is not None:
            self._pending.cancel()


@dataclass(frozen=True)
class PosteriorDraw:
    """The number of a draw of the part-worths, which stands for the model with this draw."""

    number: int


class MarketSimulator:
    """Answers to queries about markets."""

    def __init__(
        self, models: Mapping[str, ChoiceModel], settings: ServeSettings, served_table: ServedTable | None
    ) -> None:
        self.models, self.settings, self.served_table = models, settings, served_table
        self.cache = TableCache()
        self.in_progress = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count a market during the block. Raise RequestError if too many markets are in progress."""
        if self.in_progress >= MAX_MARKETS:
            raise busy(f"the server has {self.in_progress} markets in progress")
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1

    def read_table(self, name: str, request: Mapping[str, Any], named: Sequence[str]) -> MarketTable:
        """Return the table of a request that is not a list of choice sets."""
        if "table" in request:
            if request["table"] is not True:
                raise unprocessable(f"table: expected true, got {describe_value(request['table'])}.")
            if self.served_table is None:
                raise unprocessable("table: the server has no table: start it with --table FILE, or send 'csv'.")
            return self.served_table.tables[name]
        text = request["csv"]
        if not isinstance(text, str):
            raise unprocessable(f"csv: expected text, got {describe_value(text)}.")
        words = "\0".join([name, *sorted({*named} - {*self.models[name].schema.columns}), text])
        key = hashlib.sha256(words.encode()).hexdigest()
        table = self.cache.get(key)
        if table is None:
            table = MarketTable(read_csv_text(text, self.models[name], named))
            self.cache.add(key, table)
        return table

    def simulate(self, query: MarketQuery, predictions: QueuedPredictions) -> dict[str, Any]:
        """Return the figures of all scenarios by all groupings."""
        data, model = predictions.table.data, predictions.model
        # 1. Check the groupings and the size, and decide whether intervals are affordable.
        for by in query.groupings:
            _require_grouping(data, _column_of(by))
        scenarios = len(query.scenarios) + 1
        require_market_size(data, scenarios, self.settings)
        count = scenarios * (_variants(model) if query.rule is None else 1) * pairs_of(data)
        can_have_intervals = count <= self.settings.max_market_pairs

        def require_size(changed: ChoiceData) -> None:
            if predictions.cancelled:
                raise CancelledError
            require_market_size(changed, 1, self.settings)
            _require_no_negative_money(data, changed)

        # 2. Simulate all scenarios together, so that each table is predicted once.
        try:
            if query.rule is not None:
                predictions.people = PeoplePredictor.of(model, query.rule, data)
            results = simulate(
                model,
                data,
                query.scenarios,
                query.groupings,
                query.columns,
                level=query.level,
                intervals=query.intervals and can_have_intervals,
                surplus=False,
                predict=predictions.log_p,
                posterior=[]
                if predictions.people is None
                else [*map(PosteriorDraw, range(predictions.people.n_draws))],
                require_size=require_size,
            )
        except PcmcNetError as error:
            raise unprocessable(shortened(str(error))) from error
        parts = [_segment_names(data, by) for by in query.groupings]
        how = results[0][0].intervals
        if query.intervals and not can_have_intervals:
            most = self.settings.max_market_pairs
            how = f"no intervals: they need predictions for {count:,} pairs of alternatives, more than {most:,}"
        return {
            "sets": len(data),
            "alternatives": len(data.rows),
            "intervals": how,
            "scenarios": [_scenario(groupings, query.groupings, parts) for groupings in results],
            **({"table": {"name": None, **predictions.table.description}} if query.describe else {}),
        }


def _require_no_negative_money(before: ChoiceData, after: ChoiceData) -> None:
    """Raise RequestError if changes make amounts of money negative."""
    names, originals = after.schema.names, {**before.individual, **before.features}
    for name, column in {**after.individual, **after.features}.items():
        first = originals.get(name)
        if not is_money(names.unit(name)) or not isinstance(column, Numeric) or not isinstance(first, Numeric):
            continue
        least = float(np.nanmin(column.values, initial=np.inf))
        if least < 0 <= np.nanmin(first.values, initial=np.inf):
            raise unprocessable(f"{names[name]} would be negative: down to {least:,.2f} {names.unit(name)}.")


def _variants(model: ChoiceModel) -> int:
    """Return the number of models that intervals need predictions of, including the model itself."""
    if isinstance(model, LogitModel):
        return 1 + 2 * len(model.estimates_.values)
    return 1 + len(model.members_) if isinstance(model, Ensemble) else 1


def _require_grouping(data: ChoiceData, by: str | None) -> None:
    """Raise RequestError if there is no such column, or if it has too many groups."""
    if by is None:
        return
    try:
        by, limits = column_and_limits(data, by)
        column = table_column(data, by)[0]
    except PcmcNetError as error:
        raise unprocessable(f"by: {error}") from error
    values = len(set(column.plain().tolist())) if isinstance(column, Categorical) else 8 + len(limits or ())
    names = data.largest if data.labels is None else len(data.labels.categories)
    of_sets = by in data.individual or by in data.keep
    if (count := values * names if of_sets else values) > _MAX_GROUPS:
        raise unprocessable(f"by: {by!r} gives {count:,} groups: choose a column with fewer values.")


def _segment_names(data: ChoiceData, by: str | MergedGroups | None) -> tuple[str, ...]:
    """Return the names of the segments of choice sets that a column defines, or no names."""
    if by is None or isinstance(by, MergedGroups) or by == data.schema.alternative:
        return ()
    found = segments(data, by)
    return found.names if found.of_sets else ()


def _scenario(
    results: Sequence[Scenario], groupings: Sequence[str | MergedGroups | None], parts: Sequence[tuple[str, ...]]
) -> dict[str, Any]:
    """Return one scenario by all groupings, as plain values. ``parts`` has the segments of each grouping."""
    first = results[0]
    return {
        "changes": [{"text": step.text, "alternatives": step.alternatives, "sets": step.sets} for step in first.steps],
        "notes": list(first.notes),
        "revenue": _total(first, "revenue"),
        "margin": _total(first, "margin"),
        "groupings": [
            {"by": _column_of(by), "groups": _groups(result, names)}
            for by, result, names in zip(groupings, results, parts, strict=True)
        ],
    }


def _effects(result: Scenario, name: str) -> MarketEffects | None:
    part = result.parts.get(name)
    return part if isinstance(part, MarketEffects) else None


def _total(result: Scenario, name: str) -> dict[str, float | None] | None:
    effects = _effects(result, name)
    return None if effects is None else _figures(effects.rows[-1])


def _groups(result: Scenario, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return share, volume, revenue and margin of each group. Groups are ordered by segment, if there are segments."""
    of_segment = len(result.shares.rows) // max(len(names), 1)
    quantities = {
        "share": result.shares,
        "volume": result.volumes,
        "revenue": _effects(result, "revenue"),
        "margin": _effects(result, "margin"),
    }
    return [
        {
            "group": row.group,
            "segment": names[k // of_segment] if names else None,
            "name": row.group.removeprefix(f"{names[k // of_segment]}: ") if names else row.group,
            **{name: None if effects is None else _figures(effects.rows[k]) for name, effects in quantities.items()},
        }
        for k, row in enumerate(result.shares.rows)
    ]


def _figures(row: Any) -> dict[str, float | None]:
    return {key: getattr(row, key) for key in ("before", "after", "change", "low", "high", "after_low", "after_high")}
