"""The questions that clients put: what a request holds -> what the models are asked -> the answer as plain values."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.kinds import KINDS
from pcmcnet.decisions.branch_and_bound import PROVEN_GAP, SearchResult, local_search, starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.offer_value import BlackBoxModel, OfferValue, expected_revenue
from pcmcnet.decisions.optimise_offer import improve_and_bound, structure_of
from pcmcnet.errors import PcmcNetError, describe_value, did_you_mean
from pcmcnet.insight.queries import compose_sets, with_values
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.request_body import LARGE, Bodies, RefusalError, Size, parse, unusable
from pcmcnet.serving.request_sets import Input, SetReader, input_columns, require_keys, require_within
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import Admission, HasRates, Job, Worker, has_single_chain
from pcmcnet.storage import json_bytes, package_version

# -- About -------------------------------------------------------------------------------------------------------------
# What a client should know of the served models: their columns with ranges, an example, the limits.


_LIMITS = ("sets", "alternatives", "pairs", "points", "body", "values", "depth", "pixels")  # of a request
_FACTS = ("min", "max", "quartiles", "categories", "distinct", "size")


def about(models: Mapping[str, ChoiceModel], settings: ServeSettings) -> dict[str, Any]:
    """Describe what is served, as plain values."""
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
    }


def _model(model: ChoiceModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "class": type(model).__name__,
        "options": json.loads(json_bytes(asdict(model.config))),
        "gives": model.gives,
        "caveats": list(model.caveats),
        "has_rates": has_single_chain(model),
        "trained_on": {key: getattr(model.table_, key) for key in ("choice_sets", "alternatives")},
    }


def _describe_column(model: ChoiceModel, column: Input) -> dict[str, Any]:
    """Describe a column; what the training table is not known to have is None."""
    found = column_facts(model, column.name)
    facts: dict[str, Any] = dict.fromkeys((*_FACTS, "typical"))
    facts |= {key: found[key] for key in _FACTS if key in found}
    if column.kind in KINDS:
        facts["distinct"] = found.get(KINDS[column.kind].choices)
    typical = found["quartiles"][1] if found.get("quartiles") else found.get("most")
    facts["typical"] = True if column.kind == "flag" else typical
    missing = model.schema.missing == "indicator" and column.role in ("individual", "feature")
    optional = column.role == "available"
    field = KINDS[column.kind].page_field if column.kind in KINDS else column.kind
    words = {"title": model.schema.names[column.name], "unit": model.schema.names.unit(column.name)}
    if column.kind == "category":
        facts["categories"] = _all_categories(model, column.name, facts)
    return {**asdict(column), **words, "field": field, "required": not optional, "may_be_null": missing, **facts}


def _all_categories(model: ChoiceModel, name: str, facts: Mapping[str, Any]) -> list[str] | None:
    """Return the categories of the training table; a network saved with fewer has those it knows in its encoder."""
    listed: list[str] | None = facts["categories"]
    if listed is not None and facts["distinct"] is not None and len(listed) < facts["distinct"]:
        encoder: Any = getattr(model, "encoder_", None)
        sides = [getattr(encoder, side).categorical for side in ("features", "individual") if hasattr(encoder, side)]
        known = {code.name: code.categories for side in sides for code in side}
        return sorted({*known.get(name, ()), *listed})
    return listed


def column_facts(model: ChoiceModel, name: str) -> dict[str, Any]:
    """Return what is known of a column of the training table."""
    facts: dict[str, Any] = model.table_.columns.get(name, {})
    return facts


def sizes_of(model: ChoiceModel) -> dict[str, int]:
    """Return the sizes of the model's vectors, as far as they are known."""
    sizes = {name: column_facts(model, name).get("size") for name in model.schema.kinds}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def examples(model: ChoiceModel) -> list[dict[str, Any]]:
    """Return choice sets of the training table as requests give them, a typical one first."""
    description = model.table_.description
    sets = [one for one in (description.get("example"), *description.get("more_examples", ())) if one is not None]
    return [{key: one[key] for key in ("individual", "alternatives")} for one in sets]


# -- Grid --------------------------------------------------------------------------------------------------------------
# A map: one alternative of a set moves over a grid of two of its columns, and two alternatives share the rest.
#
# The share of a against b is p_a / (p_a + p_b). Under independence of irrelevant alternatives it does not depend on a
# third one, so that what the map of a third alternative shows is the effect of context.


POINTS = 25
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class MapGrid:
    """The set, what moves, and the values of both axes; places count the available alternatives."""

    data: ChoiceData
    x: str
    y: str
    place: int
    between: tuple[int, int]
    x_values: Floats
    y_values: Floats

    @classmethod
    def read(cls, asked: Mapping[str, Any], data: ChoiceData, model: ChoiceModel, settings: ServeSettings) -> MapGrid:
        """Check a request for a map of the one set in ``data``; ranges are by default those of the training table."""
        x, y = (number_column(asked[axis], data, axis) for axis in ("x", "y"))
        if x == y:
            raise unusable(f"y: expected another column than x, got {x!r} twice.")
        place = place_of(asked["place"], data, "place")
        between = asked["between"]
        if not isinstance(between, list) or len(between) != 2:
            raise unusable(f"between: expected the places of two alternatives, got {describe_value(between)}.")
        a, b = (place_of(value, data, f"between, entry {k}") for k, value in enumerate(between))
        if a == b:
            raise unusable(f"between: expected two different alternatives, got {describe_value(between[0])} twice.")
        given, most = asked.get("points", min(POINTS, settings.max_points)), settings.max_points
        points = whole(given)
        if points is None or not 2 <= points <= most:
            raise unusable(
                f"points: expected a whole number from 2 to {most} along each axis, got {describe_value(given)}."
            )
        pairs = points**2 * len(data.rows) ** 2
        if pairs > settings.max_pairs:
            wanted = f"expected at most {settings.max_pairs:,} pairs of alternatives in a map, got {pairs:,}"
            raise unusable(f"points: {wanted}: ask for fewer points, or leave out alternatives.")
        axes = [
            np.linspace(*_range(asked.get(f"{axis}_range"), column, axis, data, model), points)
            for axis, column in (("x", x), ("y", y))
        ]
        return cls(data, x, y, place, (a, b), axes[0], axes[1])

    def sets(self) -> ChoiceData:
        """Return a set for each point, x running fastest."""
        n, points = len(self.data.rows), len(self.x_values) * len(self.y_values)
        many = compose_sets(self.data, [np.arange(n)] * points, np.zeros(points, np.int64))
        moving = np.arange(points) * n + self.place
        for column, values in (
            (self.x, np.tile(self.x_values, len(self.y_values))),
            (self.y, np.repeat(self.y_values, len(self.x_values))),
        ):
            before = many.features[column]
            assert isinstance(before, Numeric)
            changed = before.values.copy()
            changed[moving] = values
            many = with_values(many, column, changed)
        return many

    def answer(self, log_p: Floats) -> dict[str, Any]:
        """Return the axes and ``share[row of y][column of x]``; null where neither alternative is ever chosen."""
        each = log_p.reshape(-1, len(self.data.rows))
        a, b = (each[:, place] for place in self.between)
        with np.errstate(invalid="ignore"):  # -inf less -inf
            share = np.exp(a - np.logaddexp(a, b))
        shares = [None if np.isnan(value) else float(value) for value in share]
        width = len(self.x_values)
        rows = [shares[start : start + width] for start in range(0, len(shares), width)]
        return {"x": self.x_values.tolist(), "y": self.y_values.tolist(), "share": rows}


def number_column(name: Any, data: ChoiceData, axis: str) -> str:
    """Take the name of a feature of numbers."""
    known = [name for name, column in data.features.items() if isinstance(column, Numeric)]
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name[:100], known) if isinstance(name, str) else ""
        raise unusable(f"{axis}: expected a column of the alternatives with numbers, got {describe_value(name)}.{hint}")
    return name


def place_of(value: Any, data: ChoiceData, at: str) -> int:
    """Turn a place in the request into one among the available alternatives."""
    place = whole(value)
    if place is None or not 0 <= place < data.n_rows:
        raise unusable(
            f"{at}: expected the place of an alternative, from 0 to {data.n_rows - 1}, got {describe_value(value)}."
        )
    found = np.flatnonzero(data.rows == place)
    if not found.size:
        raise unusable(f"{at}: alternative {place} is not available: choose another.")
    return int(found[0])


def whole(value: Any) -> int | None:
    """Take a whole number, which JSON may also write as 2.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _range(asked: Any, column: str, axis: str, data: ChoiceData, model: ChoiceModel) -> tuple[float, float]:
    """Take the range asked for, that of the training table, or one around the set's own values."""
    if asked is not None:
        return _asked_range(asked, f"{axis}_range")
    facts = column_facts(model, column)
    if facts.get("min") is not None:
        low, high = float(facts["min"]), float(facts["max"])
    else:
        values = data.features[column]
        assert isinstance(values, Numeric)
        if np.isnan(values.values).all():
            raise unusable(f"{axis}: nothing is known of the range of {column!r}: give it as {axis}_range.")
        low, high = float(np.nanmin(values.values)), float(np.nanmax(values.values))
        low, high = low - (high - low) / 2, high + (high - low) / 2
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _asked_range(asked: Any, at: str) -> tuple[float, float]:
    numbers = isinstance(asked, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in asked)
    if not numbers or len(asked) != 2:
        raise unusable(f"{at}: expected the lowest and the highest value as [low, high], got {describe_value(asked)}.")
    if not all(abs(v) <= _LARGEST for v in asked) or not asked[0] < asked[1]:
        ends = f"[{describe_value(asked[0])}, {describe_value(asked[1])}]"
        raise unusable(f"{at}: expected a low end below the high one, both below {_LARGEST:.2g}, got {ends}.")
    return float(asked[0]), float(asked[1])


# -- Offers ------------------------------------------------------------------------------------------------------------
# The best offer of a request: which alternatives of a set to show, for revenue or for the choice of one of them.
#
# Alternatives that are not available now could be, so they take part. The worker asks the model how choices depend on
# the offer; the search then goes on beside it, unless only the model itself can tell what an offer earns.


MOST, MOST_ASKED = 50, 15  # alternatives; the latter where the model is asked about every offer
_SECONDS = 1.0  # for the proof
_STARTS = 2  # local searches, beside the present offer


def without_availability(entry: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return a set of a request, all of whose alternatives are available."""
    alternatives = [{k: v for k, v in one.items() if k != schema.available} for one in entry["alternatives"]]
    return {**entry, "alternatives": alternatives}


@dataclass(frozen=True, slots=True)
class OfferQuestion:
    """The set, what each alternative earns, what is shown now, and what an offer must fulfil."""

    data: ChoiceData
    revenue: Floats  # (n,)
    now: Bools  # (n,)
    rows: ConstraintRows

    @classmethod
    def read(cls, asked: Mapping[str, Any], data: ChoiceData, now: Ints) -> OfferQuestion:
        """Check a request for an offer of the one set in ``data``, all of it available; ``now`` are places."""
        n = len(data.rows)
        if n > MOST:
            raise unusable(f"set: expected at most {MOST} alternatives for an offer, got {n}: leave some out.")
        if ("revenue" in asked) == ("target" in asked):
            raise unusable("the request: expected one of 'revenue', a column, and 'target', the place of one to sell.")
        keep = asked.get("keep", [])
        if not isinstance(keep, list):
            raise unusable(f"keep: expected a list of places, got {describe_value(keep)}.")
        always = np.zeros(n, np.bool_)
        always[[place_of(place, data, f"keep, entry {k}") for k, place in enumerate(keep)]] = True
        if "revenue" in asked:
            name = number_column(asked["revenue"], data, "revenue")
            column = data.features[name]
            assert isinstance(column, Numeric)
            revenue = column.values.astype(np.float64)
            if np.isnan(revenue).any():
                bad = int(np.argmax(np.isnan(revenue)))
                raise unusable(f"revenue: alternative {bad} has no {name!r}: give it, or leave the alternative out.")
        else:
            revenue = np.zeros(n)
            revenue[place_of(asked["target"], data, "target")] = 1.0
        least, most = (_size(asked, key, default, n) for key, default in (("least", 1), ("most", n)))
        if least > most or always.sum() > most:
            raise unusable(f"most: expected no less than 'least' and the places to keep, got {most}.")
        shown_now = np.zeros(n, np.bool_)
        shown_now[now] = True
        every = np.ones((1, n))
        matrix, upper = np.concatenate([every, -every]), np.array([most, -least], np.float64)
        return cls(
            data, revenue, shown_now, ConstraintRows(matrix, upper, ("most", "least"), always, np.zeros(n, np.bool_))
        )

    def ask(self, model: ChoiceModel) -> tuple[OfferValue, SearchResult | None]:
        """Ask a model what offers earn; and search, where the model is needed for that."""
        value = structure_of(model, self.data, self.revenue)
        if not isinstance(value, BlackBoxModel):
            return value, None
        if len(self.revenue) > MOST_ASKED:
            limit = f"expected at most {MOST_ASKED} alternatives, got {len(self.revenue)}"
            raise PcmcNetError(f"{type(model).__name__} has to be asked about every offer: {limit}.")
        return value, self.search(value)

    def search(self, value: OfferValue) -> SearchResult:
        """Search from a few offers, and prove the best one where that is possible in a second."""
        starts = starting_offers(self.rows, self.revenue, _STARTS, np.random.default_rng(0))
        if self.rows.allow(self.now[None])[0]:
            starts = np.concatenate([starts, self.now[None]])
        offers, values = local_search(lambda there, _: expected_revenue(value, there), self.rows, starts)
        return improve_and_bound(value, self.rows, offers[values.argmax()], deadline=time.monotonic() + _SECONDS)

    def answer(self, value: OfferValue, found: SearchResult) -> dict[str, Any]:
        """Return the offer in places of the request."""
        p = value.probabilities(np.stack([found.offer, self.now]), np.zeros(2, np.int64))
        if not np.isfinite(p).all():
            raise unusable("the model has no answer for these values: they are too far from those it was trained on.")
        exact = found.gap < PROVEN_GAP
        return {
            "shown": np.flatnonzero(found.offer).tolist(),
            "probabilities": p[0].tolist(),
            "value": float(p[0] @ self.revenue),
            "current_value": float(p[1] @ self.revenue),
            "exact": exact,
            "gap": found.gap if (exact or found.nodes) and np.isfinite(found.gap) else None,
            "added": np.flatnonzero(found.offer & ~self.now).tolist(),
            "dropped": np.flatnonzero(self.now & ~found.offer).tolist(),
        }


def _size(asked: Mapping[str, Any], key: str, default: int, n: int) -> int:
    """Read how many alternatives are to be shown; more than there are is all of them."""
    given = asked.get(key, default)
    size = whole(given)
    if size is None or size < 1:
        raise unusable(f"{key}: expected a whole number above 0, got {describe_value(given)}.")
    return min(size, n)


# -- Service -----------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_MANY = 20  # choice sets that take milliseconds to read
_READERS = 2  # large requests that are read at once: more would keep the interpreter from all others


class Service:
    """The models that are served, and the worker that asks them."""

    def __init__(self, main: ChoiceModel, baseline: ChoiceModel | None, settings: ServeSettings) -> None:
        self.models: dict[str, ChoiceModel] = {"main": main}
        if baseline is not None:
            require_within(baseline, main)
            self.models["baseline"] = baseline
        self.settings = settings
        self.worker = Worker(self.models, settings)
        self.bodies = Bodies(settings)
        self._most = Size(settings.max_depth, settings.max_values)
        self._pool = ThreadPoolExecutor(_READERS, "pcmcnet-reader")
        self.inputs = input_columns(main.schema)
        self.readers = {
            name: SetReader(model.schema, self.inputs, settings, sizes_of(main)) for name, model in self.models.items()
        }
        self.about = about(self.models, settings)
        self.examples = examples(main)

    async def parse(self, content: bytes) -> Any:
        """Parse a body, beside the event loop if it is large."""
        large = len(content) > LARGE
        return await self._beside(parse, content, self._most) if large else parse(content, self._most)

    async def probabilities(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the probabilities of all sets."""
        asked = require_keys(body, required=["sets"], optional=["model"], at="the request")
        name = self._model(asked)
        data = await self._read(name, asked["sets"])
        log_p = await self._log_proba(name, data, admission)
        every = data.to_rows(np.exp(log_p), fill=0.0)
        ends = np.cumsum([len(entry["alternatives"]) for entry in asked["sets"]])
        return {"sets": [{"probabilities": part.tolist()} for part in np.split(every, ends[:-1])]}

    async def rates(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the rates of one set, and the probabilities they lead to."""
        asked = require_keys(body, required=["set"], optional=["model"], at="the request")
        name = self._model(asked)
        model = self.models[name]
        if not has_single_chain(model):
            several = "has several chains" if isinstance(model, HasRates) else "has no rates"
            raise unusable(f"{type(model).__name__} {several}: ask for probabilities, or serve a PCMC model.")
        data = await self._read(name, [asked["set"]])
        waiting = asyncio.wrap_future(admission.put(Job(name, "rates", data)))
        found, log_p = await asyncio.gather(waiting, self._log_proba(name, data, admission))
        n = len(asked["set"]["alternatives"])
        rates = np.zeros((n, n))
        rates[np.ix_(data.rows, data.rows)] = found
        return {"rates": rates.tolist(), "probabilities": data.to_rows(np.exp(log_p), fill=0.0).tolist()}

    async def map(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the share of one alternative against another, as some alternative moves over two columns."""
        optional = ["points", "x_range", "y_range", "model"]
        required = ["set", "x", "y", "place", "between"]
        asked = require_keys(body, required=required, optional=optional, at="the request")
        name = self._model(asked)
        given = await self._read(name, [asked["set"]])
        grid = MapGrid.read(asked, given, self.models["main"], self.settings)
        log_p = await self._log_proba(name, await self._beside(grid.sets), admission, given)
        return grid.answer(log_p)

    async def offer(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the best of the offers that can be made of the alternatives of one set."""
        optional = ["revenue", "target", "keep", "least", "most", "model"]
        asked = require_keys(body, required=["set"], optional=optional, at="the request")
        name = self._model(asked)
        now = (await self._read(name, [asked["set"]])).rows
        data = await self._read(name, [without_availability(asked["set"], self.models[name].schema)])
        question = OfferQuestion.read(asked, data, now)
        value, found = await asyncio.wrap_future(admission.put(Job(name, "offer", data, ask=question.ask)))
        if found is None:
            found = await self._beside(question.search, value)
        return question.answer(value, found)

    def shown_examples(self, most: int | None = None) -> dict[str, Any]:
        """Answer with a question about sets of the training table, all that are known or the first few."""
        if not self.examples:
            message = "the model was saved by an earlier version, without an example: fit and save it again."
            raise RefusalError(404, message)
        return {"sets": self.examples[:most]}

    def _model(self, asked: Mapping[str, Any]) -> str:
        name = asked.get("model", "main")
        if not isinstance(name, str) or name not in self.models:
            hint = did_you_mean(name[:100], self.models) if isinstance(name, str) else ""
            raise unusable(f"model: no model {describe_value(name)} is served.{hint}")
        return name

    async def _read(self, name: str, sets: Any) -> ChoiceData:
        """Read sets, many of them or with pictures beside the event loop."""
        read = self.readers[name].read
        many = isinstance(sets, list) and (len(sets) > _MANY or bool(self.models[name].schema.kinds))
        return await self._beside(read, sets) if many else read(sets)

    async def _beside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function beside the event loop, which other requests need; not at all once nobody waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def _log_proba(
        self, name: str, data: ChoiceData, admission: Admission, given: ChoiceData | None = None
    ) -> Floats:
        found: Floats = await asyncio.wrap_future(admission.put(Job(name, "log_proba", data, given)))
        return found
