"""The JSON Schemas of requests and responses, with the columns of the served model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pcmcnet.data.kinds import KINDS, category, number
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.request_sets import InputColumn, input_columns
from pcmcnet.serving.service import DEFAULT_MAP_POINTS, vector_sizes
from pcmcnet.serving.settings import ServeSettings

Value = float | bool | str | list[float | str] | None


class ResponseModel(BaseModel):
    """Base class of responses, which have no additional entries."""

    model_config = ConfigDict(extra="forbid")


class Error(ResponseModel):
    """Error message: what was expected, what was received, where, and how to correct it."""

    error: str


class SetProbabilities(ResponseModel):
    """Probabilities of the alternatives of a choice set, in the order of the request."""

    probabilities: list[float]


class Probabilities(ResponseModel):
    """Probabilities of each choice set, in the order of the request."""

    sets: list[SetProbabilities]


class Rates(ResponseModel):
    """``rates[i][j]`` is the rate of leaving alternative i for j. The probabilities are the stationary distribution."""

    rates: list[list[float]]
    probabilities: list[float]


class Map(ResponseModel):
    """``share[k][l]`` is the share of a against b if the varied alternative has the values ``y[k]`` and ``x[l]``."""

    x: list[float]
    y: list[float]
    share: list[list[float | None]]


class OfferResponse(ResponseModel):
    """The best offer found. Indices refer to the alternatives in the request."""

    shown: list[int] = Field(description="indices of the alternatives to show")
    probabilities: list[float] = Field(
        description="probabilities of all alternatives, which are 0 for alternatives not shown"
    )
    value: float = Field(description="expected revenue per choice, or probability of the target")
    current_value: float = Field(description="value of the current offer (the alternatives available now)")
    exact: bool = Field(description="whether the offer is proven optimal")
    gap: float | None = Field(description="upper bound on the relative gain of a better offer, or null if unknown")
    added: list[int] = Field(description="indices of alternatives that should be shown but are not available now")
    dropped: list[int] = Field(description="indices of alternatives that are available now but should not be shown")
    notes: list[str] = Field(
        description="limits of the offer, such as the missing outside option and effects against their expected sign"
    )


class MarketFigures(ResponseModel):
    """A figure before and after the changes. Intervals are null if there are none."""

    before: float
    after: float
    change: float
    low: float | None = Field(description="lower limit of the change")
    high: float | None = Field(description="upper limit of the change")
    after_low: float | None
    after_high: float | None


class MarketGroup(ResponseModel):
    """The figures of a group of alternatives; money is null if no column was given."""

    group: str = Field(description="label, position (#1), value, or 'segment: label'")
    segment: str | None = Field(description="segment of choice sets, or null if the grouping has none")
    name: str = Field(description="the group without its segment")
    share: MarketFigures
    volume: MarketFigures = Field(description="weighted number of choices")
    revenue: MarketFigures | None
    margin: MarketFigures | None


class MarketGrouping(ResponseModel):
    """The figures of one scenario by one column."""

    by: str | None
    groups: list[MarketGroup]


class MarketChange(ResponseModel):
    """A change, and the number of alternatives and choice sets that it affects."""

    text: str
    alternatives: int
    sets: int


class MarketScenario(ResponseModel):
    """A scenario: its changes, their limits, and the figures in total and by group."""

    changes: list[MarketChange]
    notes: list[str]
    revenue: MarketFigures | None
    margin: MarketFigures | None
    groupings: list[MarketGrouping]


class TableColumn(ResponseModel):
    """A column of a table; values are null for numbers."""

    name: str
    values: list[str] | None


class TableDescription(ResponseModel):
    """A table of choice sets."""

    name: str | None = Field(description="name of the file of the server, null for a table in a request")
    sets: int
    alternatives: int
    pairs: int = Field(description="ordered pairs of alternatives")
    labels: list[str] | None
    segments: list[TableColumn] = Field(description="columns with one value per choice set")
    features: list[TableColumn]


class ExampleChoiceSet(ResponseModel):
    """A choice set in the form of a request."""

    individual: dict[str, Value]
    alternatives: list[dict[str, Value]]


class Market(ResponseModel):
    """The market before and after the changes of each scenario, as from ``pcmcnet scenario``."""

    sets: int
    alternatives: int
    intervals: str = Field(description="how intervals were computed, or why there are none")
    scenarios: list[MarketScenario]
    table: TableDescription | None = Field(None, description="only if the request has describe=true")


class MarketSet(ResponseModel):
    """A choice set of a market, before and after changes."""

    id: str
    before: ExampleChoiceSet
    after: ExampleChoiceSet
    origins: list[int | None] = Field(
        description="index before the changes of each alternative after them, null for a new alternative"
    )


class ColumnDescription(ResponseModel):
    """A column of a request, with its description from the training table. Unknown values are null."""

    name: str
    title: str = Field(description="display name (default: the name of the column)")
    unit: str = Field(description="unit of measurement, or empty if none was declared")
    money: bool = Field(description="whether the unit is a currency")
    role: str = Field(description="individual, feature, alternative (the label) or available")
    kind: str = Field(description=f"number, category, flag, {', '.join([*KINDS][:-1])} or {[*KINDS][-1]}")
    field: str = Field(description="type of input field on the page, usually the kind")
    required: bool
    may_be_null: bool
    typical: float | bool | str | None
    min: float | str | None = Field(description="a number, or a timestamp as text")
    max: float | str | None = Field(description="a number, or a timestamp as text")
    quartiles: list[float] | None
    categories: list[str] | None = Field(description="the most frequent categories, sorted")
    distinct: int | None = Field(description="number of categories or distinct values")
    size: int | None = Field(description="length of a vector")


class TrainedOn(ResponseModel):
    """The size of the training table."""

    choice_sets: int | None
    alternatives: int | None


class Limits(ResponseModel):
    """Limits on a request."""

    sets: int
    alternatives: int
    pairs: int
    points: int
    body: int
    values: int
    depth: int
    seconds: float
    pixels: int
    market_bytes: int
    market_rows: int
    market_pairs: int
    scenarios: int


class ServedModel(ResponseModel):
    """A served model."""

    model: str
    class_: str = Field(alias="class")
    options: dict[str, Any]
    gives: str
    caveats: list[str]
    has_rates: bool
    people: int | None
    trained_on: TrainedOn


class About(ServedModel):
    """The main model and the baseline, the columns of requests, and the limits on requests."""

    version: str
    title: str = Field(description="name of the model on the page")
    choice_set: str = Field(description="table column with the id of the choice set")
    label: str | None = Field(description="column with the label of an alternative")
    columns: list[ColumnDescription]
    limits: Limits
    has_baseline: bool
    baseline: ServedModel | None
    table: TableDescription | None = Field(description="the table of the server, for markets")


class Example(ResponseModel):
    """Choice sets of the training table, in the form of a request for probabilities."""

    sets: list[ExampleChoiceSet]


class Health(ResponseModel):
    """The server is running."""

    status: str


_ONE_TABLE = [{"required": [name]} for name in ("sets", "csv", "table")]


class RequestSchemas:
    """The JSON Schemas of request bodies for the served models."""

    def __init__(self, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> None:
        schema = models["main"].schema
        inputs = input_columns(schema).values()
        nullable, sizes = schema.missing == "indicator", vector_sizes(models["main"])
        self.settings = settings
        self.model = {"enum": list(models), "default": "main"}
        self.set = _object(
            {
                "individual": _columns([c for c in inputs if c.is_individual], sizes, nullable=nullable),
                "alternatives": {
                    "type": "array",
                    "items": _columns([c for c in inputs if not c.is_individual], sizes, nullable=nullable),
                    "minItems": 1,
                    "maxItems": settings.max_alternatives,
                },
            },
            required=["alternatives", *(["individual"] if schema.individual else [])],
        )
        self.moving = [c.name for c in inputs if c.role == "feature" and c.kind == "number"]

    def probabilities(self) -> dict[str, Any]:
        """Return the schema of a request for the probabilities of several choice sets."""
        sets = {"type": "array", "items": self.set, "minItems": 1, "maxItems": self.settings.max_sets}
        return _object({"sets": sets, "model": self.model}, required=["sets"])

    def rates(self) -> dict[str, Any]:
        """Return the schema of a request for the rates of one choice set."""
        schema = _object({"set": self.set, "model": self.model}, required=["set"])
        return {**schema, "description": "The model must have a single chain; others get status 422."}

    def map(self) -> dict[str, Any]:
        """Return the schema of a request for a map. A schema cannot state that x and y differ, so a text does."""
        column = {"enum": self.moving} if self.moving else {"type": "string"}
        place = {"type": "integer", "minimum": 0, "maximum": self.settings.max_alternatives - 1}
        range_ = {"type": "array", "items": number.json_schema(), "minItems": 2, "maxItems": 2}
        most = self.settings.max_points
        points = {"type": "integer", "minimum": 2, "maximum": most, "default": min(DEFAULT_MAP_POINTS, most)}
        entries = {
            "set": self.set,
            "x": column,
            "y": {**column, "description": "A column other than x."},
            "place": place,
            "between": {"type": "array", "items": place, "minItems": 2, "maxItems": 2, "uniqueItems": True},
            "points": points,
            "x_range": range_,
            "y_range": range_,
            "model": self.model,
        }
        return _object(entries, required=["set", "x", "y", "place", "between"])

    def offer(self) -> dict[str, Any]:
        """Return the schema of a request for an offer."""
        most = self.settings.max_alternatives
        place = {"type": "integer", "minimum": 0, "maximum": most - 1}
        entries = {
            "set": self.set,
            "revenue": {"enum": self.moving} if self.moving else {"type": "string"},
            "target": place,
            "keep": {"type": "array", "items": place, "maxItems": most},
            "least": {"type": "integer", "minimum": 1, "maximum": most},
            "most": {"type": "integer", "minimum": 1, "maximum": most},
            "model": self.model,
        }
        return {**_object(entries, required=["set"]), "description": "Exactly one of revenue and target is required."}

    def market(self) -> dict[str, Any]:
        """Return the schema of a request for a market."""
        column = {"type": ["string", "null"]}
        changes = {"type": "array", "items": {"type": "string", "maxLength": 2_000}, "maxItems": 50}
        most = self.settings.max_scenarios
        names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        merged = _object({"column": column, "merge": names}, required=["column", "merge"])
        entries = {
            **self._tables(),
            "scenarios": {"type": "array", "items": changes, "minItems": 1, "maxItems": most, "default": [[]]},
            "by": {
                "type": "array",
                "items": {"anyOf": [column, merged]},
                "minItems": 1,
                "maxItems": 4,
                "default": [None],
            },
            "revenue": column,
            "unit_cost": column,
            "level": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.95},
            "intervals": {"type": "boolean", "default": True},
            "describe": {"type": "boolean", "default": False},
            "rule": {"enum": [None, "logit", "first-choice"], "default": None},
            "model": self.model,
        }
        return {**_object(entries, required=[]), "oneOf": _ONE_TABLE}

    def market_set(self) -> dict[str, Any]:
        """Return the schema of a request for one choice set of a market."""
        changes = {"type": "array", "items": {"type": "string", "maxLength": 2_000}, "maxItems": 50, "default": []}
        place = {"type": "integer", "minimum": 0, "default": 0}
        entries = {**self._tables(), "place": place, "changes": changes, "model": self.model}
        return {**_object(entries, required=[]), "oneOf": _ONE_TABLE}

    def _tables(self) -> dict[str, Any]:
        """Return the entries for the table of a market."""
        return {
            "sets": {"type": "array", "items": self.set, "minItems": 1, "maxItems": self.settings.max_sets},
            "csv": {"type": "string", "description": "A table with one line per alternative."},
            "table": {"const": True, "description": "The table of the server."},
        }


def request_body(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI entry that describes the body of an operation."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _object(properties: Mapping[str, Any], *, required: Iterable[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def _columns(columns: Iterable[InputColumn], sizes: Mapping[str, int], *, nullable: bool) -> dict[str, Any]:
    columns = list(columns)
    required = [c.name for c in columns if c.role != "available"]
    schemas = {c.name: _column(c, sizes.get(c.name), nullable=nullable and c.role != "alternative") for c in columns}
    return _object(schemas, required=required)


def _column(column: InputColumn, size: int | None, *, nullable: bool) -> dict[str, Any]:
    if column.kind in KINDS:
        kind = KINDS[column.kind]
        schema = kind.json_schema(size)
        return {**schema, "type": [schema["type"], "null"]} if nullable and kind.may_be_missing else schema
    if column.kind == "flag":
        return {"enum": [True, False, 0, 1]}
    return number.json_schema(gaps=nullable) if column.kind == "number" else category.json_schema(gaps=nullable)
