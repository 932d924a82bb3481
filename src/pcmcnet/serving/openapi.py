"""What requests and answers look like, as JSON Schema: the columns of the served model are part of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pcmcnet.data.kinds import KINDS, category, number
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.request_sets import Input, input_columns
from pcmcnet.serving.service import POINTS, sizes_of
from pcmcnet.serving.settings import ServeSettings

Value = float | bool | str | list[float | str] | None
_LARGEST = float(np.finfo(np.float32).max)


class Answer(BaseModel):
    """An answer with these entries and no others."""

    model_config = ConfigDict(extra="forbid")


class Error(Answer):
    """What was expected, what was found, where, and what to do."""

    error: str


class SetProbabilities(Answer):
    """Probabilities of a set's alternatives, in the order of the request."""

    probabilities: list[float]


class Probabilities(Answer):
    """One entry for each set, in the order of the request."""

    sets: list[SetProbabilities]


class Rates(Answer):
    """``rates[i][j]`` is the rate of leaving alternative i for j; the probabilities are its stationary law."""

    rates: list[list[float]]
    probabilities: list[float]


class Map(Answer):
    """``share[k][l]`` is the share of a against b where the moving alternative has ``y[k]`` and ``x[l]``."""

    x: list[float]
    y: list[float]
    share: list[list[float | None]]


class OfferResponse(Answer):
    """The best offer that was found; places count the alternatives of the request."""

    shown: list[int] = Field(description="places of the alternatives to show")
    probabilities: list[float] = Field(description="of all alternatives, 0 for those not shown")
    value: float = Field(description="expected revenue of one choice, or probability of the target")
    current_value: float = Field(description="of the alternatives that are available now")
    exact: bool = Field(description="whether no offer is better")
    gap: float | None = Field(description="how far at most the best offer is better, relative; null where not known")
    added: list[int] = Field(description="places to show that are not available now")
    dropped: list[int] = Field(description="places that are available now and not to be shown")


class ColumnDescription(Answer):
    """A column of a request, and what the training table had in it; null where that is not known."""

    name: str
    title: str = Field(description="what people call it; the name where nothing else was said")
    unit: str = Field(description="what it is measured in; empty where that was not said")
    role: str = Field(description="individual, feature, alternative (the label) or available")
    kind: str = Field(description=f"number, category, flag, {', '.join([*KINDS][:-1])} or {[*KINDS][-1]}")
    field: str = Field(description="how the page lets it be edited: mostly as its kind")
    required: bool
    may_be_null: bool
    typical: float | bool | str | None
    min: float | str | None = Field(description="a number, or an instant as text")
    max: float | str | None = Field(description="likewise")
    quartiles: list[float] | None
    categories: list[str] | None = Field(description="the most frequent ones, sorted")
    distinct: int | None = Field(description="how many categories, or distinct contents, there are")
    size: int | None = Field(description="how many numbers a vector has")


class TrainedOn(Answer):
    """The size of the training table."""

    choice_sets: int | None
    alternatives: int | None


class Limits(Answer):
    """Limits of a request."""

    sets: int
    alternatives: int
    pairs: int
    points: int
    body: int
    values: int
    depth: int
    seconds: float
    pixels: int


class ServedModel(Answer):
    """A model that is served."""

    model: str
    class_: str = Field(alias="class")
    options: dict[str, Any]
    gives: str
    caveats: list[str]
    has_rates: bool
    trained_on: TrainedOn


class About(ServedModel):
    """The main model, what requests to it look like, and whether there is a baseline."""

    version: str
    title: str = Field(description="what the page calls the model")
    choice_set: str = Field(description="the column of a table that says which rows make up a choice set")
    label: str | None = Field(description="the column that names an alternative")
    columns: list[ColumnDescription]
    limits: Limits
    has_baseline: bool
    baseline: ServedModel | None


class ExampleSet(Answer):
    """A choice set as requests give it."""

    individual: dict[str, Value]
    alternatives: list[dict[str, Value]]


class Example(Answer):
    """Choice sets of the training table, as the body of a request for their probabilities."""

    sets: list[ExampleSet]


class Health(Answer):
    """The server answers."""

    status: str


class RequestSchemas:
    """The JSON Schemas of the request bodies of some served models."""

    def __init__(self, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> None:
        schema = models["main"].schema
        inputs = input_columns(schema).values()
        gaps, sizes = schema.missing == "indicator", sizes_of(models["main"])
        self.settings = settings
        self.model = {"enum": list(models), "default": "main"}
        self.set = _object(
            {
                "individual": _columns([c for c in inputs if c.of_individual], sizes, gaps=gaps),
                "alternatives": {
                    "type": "array",
                    "items": _columns([c for c in inputs if not c.of_individual], sizes, gaps=gaps),
                    "minItems": 1,
                    "maxItems": settings.max_alternatives,
                },
            },
            required=["alternatives", *(["individual"] if schema.individual else [])],
        )
        self.moving = [c.name for c in inputs if c.role == "feature" and c.kind == "number"]

    def probabilities(self) -> dict[str, Any]:
        """Return the schema of a question about several sets."""
        sets = {"type": "array", "items": self.set, "minItems": 1, "maxItems": self.settings.max_sets}
        return _object({"sets": sets, "model": self.model}, required=["sets"])

    def rates(self) -> dict[str, Any]:
        """Return the schema of a question about the rates of one set."""
        return _object({"set": self.set, "model": self.model}, required=["set"])

    def map(self) -> dict[str, Any]:
        """Return the schema of a question for a map."""
        column = {"enum": self.moving} if self.moving else {"type": "string"}
        place = {"type": "integer", "minimum": 0, "maximum": self.settings.max_alternatives - 1}
        range_ = {"type": "array", "items": number.json_schema(), "minItems": 2, "maxItems": 2}
        most = self.settings.max_points
        points = {"type": "integer", "minimum": 2, "maximum": most, "default": min(POINTS, most)}
        entries = {
            "set": self.set,
            "x": column,
            "y": column,
            "place": place,
            "between": {"type": "array", "items": place, "minItems": 2, "maxItems": 2, "uniqueItems": True},
            "points": points,
            "x_range": range_,
            "y_range": range_,
            "model": self.model,
        }
        return _object(entries, required=["set", "x", "y", "place", "between"])

    def offer(self) -> dict[str, Any]:
        """Return the schema of a question for an offer."""
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
        return _object(entries, required=["set"])


def request_body(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an operation that describes its body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _object(properties: Mapping[str, Any], *, required: Iterable[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def _columns(columns: Iterable[Input], sizes: Mapping[str, int], *, gaps: bool) -> dict[str, Any]:
    columns = list(columns)
    required = [c.name for c in columns if c.role != "available"]
    known = {c.name: _column(c, sizes.get(c.name), gaps=gaps and c.role != "alternative") for c in columns}
    return _object(known, required=required)


def _column(column: Input, size: int | None, *, gaps: bool) -> dict[str, Any]:
    if column.kind in KINDS:
        kind = KINDS[column.kind]
        schema = kind.json_schema(size)
        return {**schema, "type": [schema["type"], "null"]} if gaps and kind.may_be_missing else schema
    if column.kind == "flag":
        return {"enum": [True, False, 0, 1]}
    return number.json_schema(gaps=gaps) if column.kind == "number" else category.json_schema(gaps=gaps)
