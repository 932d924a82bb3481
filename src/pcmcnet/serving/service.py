"""The queries of the service, which turn a parsed request into a response of plain values."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.names import is_money
from pcmcnet.data.kinds import KINDS
from pcmcnet.decisions.branch_and_bound import PROVEN_GAP
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.offer_value import BlackBoxModel, OfferValue
from pcmcnet.decisions.optimise_offer import NO_OUTSIDE_OPTION, structure_of
from pcmcnet.errors import PcmcNetError, describe_value, did_you_mean, shortened
from pcmcnet.insight.queries import compose_sets, with_values
from pcmcnet.models import HierarchicalMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.market import (
    MARKET_THREADS,
    MarketQuery,
    MarketSimulator,
    MarketTable,
    QueuedPredictions,
    ServedTable,
    SetQuery,
    require_market_size,
)
from pcmcnet.serving.offer_search import FoundOffer, shared_searcher
from pcmcnet.serving.request_body import (
    LARGE_BODY_BYTES,
    BodyReader,
    JsonSize,
    RequestError,
    json_by_rows,
    parse_strict_json,
    unprocessable,
)
from pcmcnet.serving.request_sets import (
    InputColumn,
    SetReader,
    input_columns,
    require_compatible_baseline,
    require_keys,
)
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import OUT_OF_RANGE, Admission, HasRates, Job, QueuedModel, Worker, has_single_chain
from pcmcnet.storage import json_bytes, package_version

# -- About -------------------------------------------------------------------------------------------------------------
# The description of the served models for clients: their columns with ranges, examples, and the limits of a request.


_LIMITS = (
    *("sets", "alternatives", "pairs", "points", "body", "values", "depth", "pixels"),
    *("market_bytes", "market_rows", "market_pairs", "scenarios"),
)
_FACTS = ("min", "max", "quartiles", "categories", "distinct", "size")


def describe_service(
    models: Mapping[str, ChoiceModel], settings: ServeSettings, table: ServedTable | None = None
) -> dict[str, Any]:
    """Return the description of the served models and the limits on requests, as plain values."""
    main, baseline = models["main"], models.get("baseline")
    return {
        "version": package_version("pcmcnet"),
        "title": settings.title or type(main).__name__,
        "choice_set": main.schema.choice_set,
        **_model(main),
        "label": main.schema.alternative,
        "columns": [_describe_column(main, column) for column in input_columns(main.schema).values()],
        "limits": {**{name: getattr(settings, f"max_{name}") for name in _LIMITS}, "seconds": settings.deadline},
        "has_baseline": baseline is not None,
        "baseline": None if baseline is None else _model(baseline),
        "table": None if table is None else table.describe(),
    }


def _model(model: ChoiceModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "class": type(model).__name__,
        "options": json.loads(json_bytes(asdict(model.config))),
        "gives": model.gives,
        "caveats": list(model.caveats),
        "has_rates": has_single_chain(model),
        "people": len(model.part_worths().persons) if isinstance(model, HierarchicalMNL) else None,
        "trained_on": {key: getattr(model.table_, key) for key in ("choice_sets", "alternatives")},
    }


def _describe_column(model: ChoiceModel, column: InputColumn) -> dict[str, Any]:
    """Return the description of a column, in which unknown values are None."""
    saved = column_facts(model, column.name)
    facts: dict[str, Any] = dict.fromkeys((*_FACTS, "typical"))
    facts |= {key: saved[key] for key in _FACTS if key in saved}
    if column.kind in KINDS:
        facts["distinct"] = saved.get(KINDS[column.kind].choices)
    typical = saved["quartiles"][1] if saved.get("quartiles") else saved.get("most")
    facts["typical"] = True if column.kind == "flag" else typical
    missing = model.schema.missing == "indicator" and column.role in ("individual", "feature")
    optional = column.role == "available"
    field = KINDS[column.kind].page_field if column.kind in KINDS else column.kind
    unit = model.schema.names.unit(column.name)
    display = {"title": model.schema.names[column.name], "unit": unit, "money": is_money(unit)}
    if column.kind == "category":
        facts["categories"] = _all_categories(model, column.name, facts)
    return {**asdict(column), **display, "field": field, "required": not optional, "may_be_null": missing, **facts}


def _all_categories(model: ChoiceModel, name: str, facts: Mapping[str, Any]) -> list[str] | None:
    """Return the categories in the training table, from its description and, if that is incomplete, the encoder."""
    listed: list[str] | None = facts["categories"]
    if listed is not None and facts["distinct"] is not None and len(listed) < facts["distinct"]:
        encoder: Any = getattr(model, "encoder_", None)
        sides = [getattr(encoder, side).categorical for side in ("features", "individual") if hasattr(encoder, side)]
        encoded = {code.name: code.categories for side in sides for code in side}
        return sorted({*encoded.get(name, ()), *listed})
    return listed


def column_facts(model: ChoiceModel, name: str) -> dict[str, Any]:
    """Return the saved description of a column of the training table."""
    facts: dict[str, Any] = model.table_.columns.get(name, {})
    return facts


def vector_sizes(model: ChoiceModel) -> dict[str, int]:
    """Return the known sizes of vector columns."""
    sizes = {name: column_facts(model, name).get("size") for name in model.schema.kinds}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def examples(model: ChoiceModel) -> list[dict[str, Any]]:
    """Return choice sets of the training table in the form of a request, a typical one first."""
    description = model.table_.description
    sets = [one for one in (description.get("example"), *description.get("more_examples", ())) if one is not None]
    return [{key: one[key] for key in ("individual", "alternatives")} for one in sets]


# -- Maps --------------------------------------------------------------------------------------------------------------
# A map shows the share of alternative a against b as one alternative of the set moves over a grid of two columns.
#
# The share is p_a / (p_a + p_b). Under independence of irrelevant alternatives (IIA) it does not depend on a third
# alternative, so the map of a third alternative shows its context effect.


DEFAULT_MAP_POINTS = 25
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class MapGrid:
    """A query for a map: the choice set, the alternative and the two columns that vary, and the values of both axes.

    ``place`` and ``between`` are indices among the available alternatives.
    """

    data: ChoiceData
    x: str
    y: str
    place: int
    between: tuple[int, int]
    x_values: Floats
    y_values: Floats

    @classmethod
    def read(cls, request: Mapping[str, Any], data: ChoiceData, model: ChoiceModel, settings: ServeSettings) -> MapGrid:
        """Check a request for a map of the single set in ``data``. Ranges default to the training table's ranges."""
        x, y = (require_numeric_column(request[axis], data, axis) for axis in ("x", "y"))
        if x == y:
            raise unprocessable(f"y: expected a column other than x, got {x!r} twice.")
        place = require_available_place(request["place"], data, "place")
        between = request["between"]
        if not isinstance(between, list) or len(between) != 2:
            raise unprocessable(f"between: expected the indices of two alternatives, got {describe_value(between)}.")
        a, b = (require_available_place(value, data, f"between, entry {k}") for k, value in enumerate(between))
        if a == b:
            raise unprocessable(
                f"between: expected two different alternatives, got {describe_value(between[0])} twice."
            )
        requested, most = request.get("points", min(DEFAULT_MAP_POINTS, settings.max_points)), settings.max_points
        points = as_integer(requested)
        if points is None or not 2 <= points <= most:
            raise unprocessable(
                f"points: expected an integer from 2 to {most} along each axis, got {describe_value(requested)}."
            )
        pairs = points**2 * len(data.rows) ** 2
        if pairs > settings.max_pairs:
            limit = f"expected at most {settings.max_pairs:,} pairs of alternatives in a map, got {pairs:,}"
            raise unprocessable(f"points: {limit}: use fewer points, or fewer alternatives.")
        axes = [
            np.linspace(*_range(request.get(f"{axis}_range"), column, axis, data, model), points)
            for axis, column in (("x", x), ("y", y))
        ]
        return cls(data, x, y, place, (a, b), axes[0], axes[1])

    def sets(self) -> ChoiceData:
        """Return a choice set for each grid point, with x varying fastest."""
        n, points = len(self.data.rows), len(self.x_values) * len(self.y_values)
        copies = compose_sets(self.data, [np.arange(n)] * points, np.zeros(points, np.int64))
        moving = np.arange(points) * n + self.place
        for column, values in (
            (self.x, np.tile(self.x_values, len(self.y_values))),
            (self.y, np.repeat(self.y_values, len(self.x_values))),
        ):
            original = copies.features[column]
            assert isinstance(original, Numeric)
            changed = original.values.copy()
            changed[moving] = values
            copies = with_values(copies, column, changed)
        return copies

    def response(self, log_p: Floats) -> dict[str, Any]:
        """Return the axes and ``share[y][x]``, in which null means that both alternatives have probability 0."""
        by_point = log_p.reshape(-1, len(self.data.rows))
        a, b = (by_point[:, place] for place in self.between)
        with np.errstate(invalid="ignore"):  # -inf minus -inf
            share = np.exp(a - np.logaddexp(a, b))
        shares = [None if np.isnan(value) else float(value) for value in share]
        width = len(self.x_values)
        rows = [shares[start : start + width] for start in range(0, len(shares), width)]
        return {"x": self.x_values.tolist(), "y": self.y_values.tolist(), "share": rows}


def require_numeric_column(name: Any, data: ChoiceData, axis: str) -> str:
    """Return the name of a numeric feature. Raise RequestError for any other value."""
    numeric = [name for name, column in data.features.items() if isinstance(column, Numeric)]
    if not isinstance(name, str) or name not in numeric:
        hint = did_you_mean(name[:100], numeric) if isinstance(name, str) else ""
        raise unprocessable(f"{axis}: expected a numeric feature, got {describe_value(name)}.{hint}")
    return name


def require_available_place(value: Any, data: ChoiceData, at: str) -> int:
    """Return the index among the available alternatives for an index in the request."""
    place = as_integer(value)
    if place is None or not 0 <= place < data.n_rows:
        raise unprocessable(
            f"{at}: expected the index of an alternative, from 0 to {data.n_rows - 1}, got {describe_value(value)}."
        )
    matches = np.flatnonzero(data.rows == place)
    if not matches.size:
        raise unprocessable(f"{at}: alternative {place} is not available: choose another.")
    return int(matches[0])


def as_integer(value: Any) -> int | None:
    """Return an integer, which JSON may also write as 2.0, or None if the value is not an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _range(requested: Any, column: str, axis: str, data: ChoiceData, model: ChoiceModel) -> tuple[float, float]:
    """Return the requested range, else the training table's range, else a range around the values of the set."""
    if requested is not None:
        return _requested_range(requested, f"{axis}_range")
    facts = column_facts(model, column)
    if facts.get("min") is not None:
        low, high = float(facts["min"]), float(facts["max"])
    else:
        values = data.features[column]
        assert isinstance(values, Numeric)
        if np.isnan(values.values).all():
            raise unprocessable(f"{axis}: the range of {column!r} is unknown: add {axis}_range.")
        low, high = float(np.nanmin(values.values)), float(np.nanmax(values.values))
        low, high = low - (high - low) / 2, high + (high - low) / 2
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _requested_range(requested: Any, at: str) -> tuple[float, float]:
    numbers = isinstance(requested, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in requested
    )
    if not numbers or len(requested) != 2:
        raise unprocessable(
            f"{at}: expected the lowest and highest value as [low, high], got {describe_value(requested)}."
        )
    if not all(abs(v) <= _MAX_FLOAT32 for v in requested) or not requested[0] < requested[1]:
        ends = f"[{describe_value(requested[0])}, {describe_value(requested[1])}]"
        raise unprocessable(f"{at}: expected low < high, both below {_MAX_FLOAT32:.2g}, got {ends}.")
    return float(requested[0]), float(requested[1])


# -- Offers ------------------------------------------------------------------------------------------------------------
# The best offer: which alternatives of a set to show, to maximise revenue or the probability of one of them.
#
# Alternatives that are unavailable today are candidates, too. A worker thread computes how choices depend on the offer.
# The search then runs elsewhere (`pcmcnet.serving.offer_search`). If the model must be called for every offer, the
# search sends its calls to the worker threads.


MAX_OFFER_ALTERNATIVES = 50
MAX_QUERIED_ALTERNATIVES = 15  # if the model must be called for every offer


def make_all_available(entry: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return a choice set of a request with all its alternatives available."""
    alternatives = [{k: v for k, v in item.items() if k != schema.available} for item in entry["alternatives"]]
    return {**entry, "alternatives": alternatives}


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """A query for the best offer: the choice set, revenues, the current offer and the constraints."""

    data: ChoiceData
    revenue: Floats  # (n,) of a choice of each alternative
    now: Bools  # (n,) whether each alternative is shown today
    rows: ConstraintRows

    @classmethod
    def read(cls, request: Mapping[str, Any], data: ChoiceData, now: Ints) -> OfferQuery:
        """Check a request for an offer from the single set in ``data``. ``now`` lists the currently offered indices."""
        # 1. Check the size of the set and the goal.
        n = len(data.rows)
        if n > MAX_OFFER_ALTERNATIVES:
            raise unprocessable(
                f"set: expected at most {MAX_OFFER_ALTERNATIVES} alternatives for an offer, got {n}: remove some."
            )
        if ("revenue" in request) == ("target" in request):
            raise unprocessable(
                "the request: expected either 'revenue' (a column) or 'target' (the index of an alternative)."
            )
        # 2. Read the alternatives that must be shown, and the revenues.
        keep = request.get("keep", [])
        if not isinstance(keep, list):
            raise unprocessable(f"keep: expected a list of indices, got {describe_value(keep)}.")
        always = np.zeros(n, np.bool_)
        always[[require_available_place(place, data, f"keep, entry {k}") for k, place in enumerate(keep)]] = True
        if "revenue" in request:
            name = require_numeric_column(request["revenue"], data, "revenue")
            column = data.features[name]
            assert isinstance(column, Numeric)
            revenue = column.values.astype(np.float64)
            if np.isnan(revenue).any():
                bad = int(np.argmax(np.isnan(revenue)))
                raise unprocessable(f"revenue: alternative {bad} has no {name!r}: add it, or remove the alternative.")
        else:
            revenue = np.zeros(n)
            revenue[require_available_place(request["target"], data, "target")] = 1.0
        # 3. Read the limits of the size, and write all constraints as rows.
        least, most = (_size(request, key, default, n) for key, default in (("least", 1), ("most", n)))
        if least > most or always.sum() > most:
            raise unprocessable(f"most: expected a number not below 'least' or the length of 'keep', got {most}.")
        shown_now = np.zeros(n, np.bool_)
        shown_now[now] = True
        every = np.ones((1, n))
        matrix, upper = np.concatenate([every, -every]), np.array([most, -least], np.float64)
        return cls(
            data, revenue, shown_now, ConstraintRows(matrix, upper, ("most", "least"), always, np.zeros(n, np.bool_))
        )

    def evaluate(self, model: ChoiceModel) -> OfferValue:
        """Return revenue as a function of the offer."""
        value = structure_of(model, self.data, self.revenue)
        if isinstance(value, BlackBoxModel) and len(self.revenue) > MAX_QUERIED_ALTERNATIVES:
            limit = f"expected at most {MAX_QUERIED_ALTERNATIVES} alternatives, got {len(self.revenue)}"
            raise PcmcNetError(f"{type(model).__name__} must be evaluated for every offer: {limit}.")
        return value

    def response(self, found: FoundOffer, notes: Iterable[str]) -> dict[str, Any]:
        """Return the best offer, with indices as in the request, and notes about the model."""
        best, p = found
        if not np.isfinite(p).all():
            raise unprocessable(OUT_OF_RANGE)
        exact = best.gap < PROVEN_GAP
        return {
            "shown": np.flatnonzero(best.offer).tolist(),
            "probabilities": p[0].tolist(),
            "value": float(p[0] @ self.revenue),
            "current_value": float(p[1] @ self.revenue),
            "exact": exact,
            "gap": best.gap if (exact or best.nodes) and np.isfinite(best.gap) else None,
            "added": np.flatnonzero(best.offer & ~self.now).tolist(),
            "dropped": np.flatnonzero(self.now & ~best.offer).tolist(),
            "notes": list(notes),
        }


def _size(request: Mapping[str, Any], key: str, default: int, n: int) -> int:
    """Read a limit on the number of alternatives to show, at most ``n``."""
    value = request.get(key, default)
    size = as_integer(value)
    if size is None or size < 1:
        raise unprocessable(f"{key}: expected an integer of at least 1, got {describe_value(value)}.")
    return min(size, n)


# -- Service -----------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_TABLES = ("sets", "csv", "table")  # the forms of a market in a request
_MAX_SETS_IN_LOOP = 20  # more take milliseconds to read, and are read in a thread


class Service:
    """The served models and their queries. Worker threads run the models."""

    def __init__(
        self,
        main: ChoiceModel,
        baseline: ChoiceModel | None,
        settings: ServeSettings,
        table: str | Path | None = None,
    ) -> None:
        self.models: dict[str, ChoiceModel] = {"main": main}
        if baseline is not None:
            require_compatible_baseline(baseline, main)
            self.models["baseline"] = baseline
        self.settings = settings
        self.worker = Worker(self.models, settings)
        self.bodies = BodyReader(settings)
        self._max_size = JsonSize(settings.max_depth, settings.max_values)
        self._searcher = shared_searcher()
        # Requests are read in one thread: with two, small predictions waited longer for the lock (measured).
        self._readers = ThreadPoolExecutor(1, "pcmcnet-reader")
        self._helpers = ThreadPoolExecutor(1, "pcmcnet-helper")
        self.inputs = input_columns(main.schema)
        self.readers = {
            name: SetReader(model.schema, self.inputs, settings, vector_sizes(main))
            for name, model in self.models.items()
        }
        served_table = None if table is None else ServedTable.read(table, self.models, settings)
        self.markets = MarketSimulator(self.models, settings, served_table)
        self._market_pool = ThreadPoolExecutor(MARKET_THREADS, "pcmcnet-market")
        self.about = describe_service(self.models, settings, served_table)
        self.examples = examples(main)

    async def parse(self, content: bytes) -> Any:
        """Parse a body, in a thread if it is large."""
        if len(content) > LARGE_BODY_BYTES:
            return await _in_thread(self._readers, parse_strict_json, content, self._max_size)
        return parse_strict_json(content, self._max_size)

    async def render(self, result: Mapping[str, Any]) -> bytes:
        """Return a response as JSON, computed in a thread if it is large."""
        rows = max((len(value) for value in result.values() if isinstance(value, list | np.ndarray)), default=0)
        is_large = rows > _MAX_SETS_IN_LOOP
        return await _in_thread(self._helpers, json_by_rows, result) if is_large else json_by_rows(result)

    async def probabilities(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Return the probabilities of all choice sets."""
        request = require_keys(body, required=["sets"], optional=["model"], at="the request")
        name = self._model(request)
        data = await self._read(name, request["sets"])
        log_p = await self._log_proba(name, data, admission)
        p = data.to_rows(np.exp(log_p), fill=0.0)
        ends = np.cumsum([len(entry["alternatives"]) for entry in request["sets"]])
        return {"sets": [{"probabilities": of_set.tolist()} for of_set in np.split(p, ends[:-1])]}

    async def rates(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Return the rates of one choice set and their stationary distribution."""
        request = require_keys(body, required=["set"], optional=["model"], at="the request")
        name = self._model(request)
        model = self.models[name]
        if not has_single_chain(model):
            reason = "has several chains" if isinstance(model, HasRates) else "has no rates"
            raise unprocessable(f"{type(model).__name__} {reason}: use /v1/probabilities, or serve a PCMC model.")
        data = await self._read(name, [request["set"]])
        pending = asyncio.wrap_future(admission.put(Job(name, "rates", data)))
        of_available, log_p = await asyncio.gather(pending, self._log_proba(name, data, admission))
        n = len(request["set"]["alternatives"])
        rates = np.zeros((n, n))
        rates[np.ix_(data.rows, data.rows)] = of_available
        return {"rates": rates, "probabilities": data.to_rows(np.exp(log_p), fill=0.0).tolist()}

    async def map(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Return the share of one alternative against another as two columns of an alternative vary."""
        optional = ["points", "x_range", "y_range", "model"]
        required = ["set", "x", "y", "place", "between"]
        request = require_keys(body, required=required, optional=optional, at="the request")
        name = self._model(request)
        data = await self._read(name, [request["set"]])
        grid = MapGrid.read(request, data, self.models["main"], self.settings)
        log_p = await self._log_proba(name, await _in_thread(self._helpers, grid.sets), admission, data)
        return grid.response(log_p)

    async def offer(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Return the best offer from the alternatives of one choice set."""
        optional = ["revenue", "target", "keep", "least", "most", "model"]
        request = require_keys(body, required=["set"], optional=optional, at="the request")
        name = self._model(request)
        until = time.monotonic() + self.settings.deadline
        now = (await self._read(name, [request["set"]])).rows
        data = await self._read(name, [make_all_available(request["set"], self.models[name].schema)])
        query = OfferQuery.read(request, data, now)
        with self._searcher.slot():
            value = await asyncio.wrap_future(admission.put(Job(name, "offer", data, evaluate=query.evaluate)))
            if isinstance(value, BlackBoxModel):
                value = replace(value, model=QueuedModel(name, admission, until))
            try:
                found = await self._searcher.search(value, query.rows, query.now, until)
            except PcmcNetError as error:
                raise unprocessable(shortened(str(error))) from error
        return query.response(found, [NO_OUTSIDE_OPTION, *self.models[name].sign_caveats.values()])

    async def market(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Return shares, volumes, revenue and margin over many choice sets, before and after changes."""
        columns = ["by", "revenue", "unit_cost"]
        optional = [*_TABLES, "scenarios", *columns, "level", "intervals", "describe", "rule", "model"]
        request = require_keys(body, required=[], optional=optional, at="the request")
        name = self._model(request)
        until = time.monotonic() + self.settings.deadline
        query = MarketQuery.read(request, self.settings)
        sets = MarketTable(await self._read(name, request["sets"])) if "sets" in request else None
        running: list[QueuedPredictions] = []

        def simulate() -> dict[str, Any]:
            table = sets or self.markets.read_table(name, request, query.named())
            running.append(QueuedPredictions(name, self.models[name], table, admission, until))
            return self.markets.simulate(query, running[0])

        with self.markets.slot():
            try:
                return await asyncio.get_running_loop().run_in_executor(self._market_pool, simulate)
            finally:
                for predictions in running:
                    predictions.cancel()

    async def market_set(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Return one choice set of a market, before and after changes."""
        request = require_keys(body, required=[], optional=[*_TABLES, "place", "changes", "model"], at="the request")
        name = self._model(request)
        query = SetQuery.read(request)
        sets = MarketTable(await self._read(name, request["sets"])) if "sets" in request else None

        def find() -> dict[str, Any]:
            table = sets or self.markets.read_table(name, request, query.named())
            require_market_size(table.data, 1, self.settings)
            return query.response(self.models[name], table.data)

        with self.markets.slot():
            return await asyncio.get_running_loop().run_in_executor(self._market_pool, find)

    def example_request(self, most: int | None = None) -> dict[str, Any]:
        """Return a request for the probabilities of the first ``most`` example choice sets, or of all examples."""
        if not self.examples:
            message = "the model was saved by an earlier version, without an example: fit and save it again."
            raise RequestError(404, message)
        return {"sets": self.examples[:most]}

    def _model(self, request: Mapping[str, Any]) -> str:
        name = request.get("model", "main")
        if not isinstance(name, str) or name not in self.models:
            hint = did_you_mean(name[:100], self.models) if isinstance(name, str) else ""
            raise unprocessable(f"model: {describe_value(name)} is not served.{hint}")
        return name

    async def _read(self, name: str, sets: Any) -> ChoiceData:
        """Read choice sets, in a thread if there are many sets or if the sets contain rich values such as images."""
        read = self.readers[name].read
        slow = isinstance(sets, list) and (len(sets) > _MAX_SETS_IN_LOOP or bool(self.models[name].schema.kinds))
        return await _in_thread(self._readers, read, sets) if slow else read(sets)

    async def _log_proba(
        self, name: str, data: ChoiceData, admission: Admission, request_sets: ChoiceData | None = None
    ) -> Floats:
        log_p: Floats = await asyncio.wrap_future(admission.put(Job(name, "log_proba", data, request_sets)))
        return log_p


async def _in_thread(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread, so that the event loop stays free. Skip the call if the request is cancelled."""
    return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
