"""Scores of tasks under any fitted model that is the prior of a design.

A network has many parameters, and a survey cannot determine all of them. So a design is optimal for one parameter of
each column of the utility, as in a logit. Let m_k be the middle of the levels of a numeric attribute k. Replace the
values that the model sees by

    x'_k = m_k + (1 + t_k) (x_k - m_k):    t_k scales the effect of the attribute, and t_k = 0 is the fitted model.

d log p_j / d t_k follows from two predictions, by central differences. In a logit with coefficient b_k it is
b_k (x_jk - sum_i p_i x_ik), so it is b_k times the gradient in b_k. The scores are therefore divided by the size of b_k
in the logit that is closest to the model,

    |b_k| = sqrt(mean of (d log p_j / d t_k)^2 / mean of (x_jk - sum_i p_i x_ik)^2),

with means over the alternatives of random tasks, weighted by p.

So the scores contain what distinguishes the model from a logit: substitution between similar alternatives, and effects
that are not linear. Columns of categorical attributes and of "none", and attributes without an effect, have the
gradients of a logit with the model's probabilities.

Shapes: levels (N, J, K) -> probabilities (N, J or J + 1), scores (N, 1, J or J + 1, P).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.designs.attributes import NONE, ProfileSpace
from pcmcnet.designs.information import Scores, logit_scores
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel

STEP = 0.05  # of t: with a much smaller one, the rounding errors of float32 predictions dominate
MIN_EFFECT = 0.02  # |b_k| times the largest size of the column, below which an attribute has no effect
RANDOM_TASKS = 200  # tasks from which |b_k| is computed
MIN_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class ModelScores:
    """Scores of a fitted model. Each distinct task is predicted once."""

    space: ProfileSpace
    model: ChoiceModel
    scales: Floats
    effects: dict[int, float]  # |b_k| of numeric attributes in units of the scales, by position of the column
    cache: dict[bytes, Floats]

    @classmethod
    def of(cls, space: ProfileSpace, model: ChoiceModel, alternatives: int) -> ModelScores:
        """Return the scores of a model, with the sizes of its effects in random tasks."""
        rng = np.random.default_rng(0)
        levels = np.stack([rng.integers(size, size=(RANDOM_TASKS, alternatives)) for size in space.sizes], axis=-1)
        scalable = _scalable_columns(space, model.schema)
        p, slopes = _predictions(space, model, levels, scalable)
        x = space.encode(levels) / space.scales()
        deviations = x - (p[..., None] * x).sum(axis=1, keepdims=True)
        effects = {}
        for column, slope in zip(scalable, np.moveaxis(slopes, -1, 0), strict=True):
            square = (p * slope**2).sum() / max(float((p * deviations[..., column] ** 2).sum()), 1e-300)
            if (effect := math.sqrt(square)) > MIN_EFFECT:
                effects[column] = effect
        return cls(space, model, space.scales(), effects, {})

    def __call__(self, levels: Ints) -> Scores:
        """Return the scores of tasks."""
        predicted = self._predicted(levels)
        p, slopes = predicted[..., 0], predicted[..., 1:]
        scores = logit_scores(self.space.encode(levels) / self.scales, p[:, None])
        sizes = np.array(list(self.effects.values()))
        scores[:, 0, :, list(self.effects)] = np.moveaxis(np.sqrt(p)[..., None] * slopes / sizes, -1, 0)
        return scores

    def probabilities(self, levels: Ints) -> Floats:  # (N, J, K) -> (N, J or J + 1)
        """Return the predicted probabilities of tasks."""
        return self._predicted(levels)[..., 0]

    def _predicted(self, levels: Ints) -> Floats:  # -> (N, J or J + 1, 1 + effects)
        """Return probabilities, followed by the derivatives of their logarithms."""
        keys = [task.tobytes() for task in levels]
        new = {key: number for number, key in enumerate(keys) if key not in self.cache}
        if new:
            p, slopes = _predictions(self.space, self.model, levels[list(new.values())], list(self.effects))
            self.cache.update(zip(new, np.concatenate([p[..., None], slopes], axis=-1), strict=True))
        return np.stack([self.cache[key] for key in keys])


def _scalable_columns(space: ProfileSpace, schema: Schema) -> list[int]:
    """Return the columns of the attributes that are numbers for the design and for the model."""
    columns, first = [], 0
    for attribute in space.attributes:
        if not attribute.is_categorical and attribute.name not in (*(schema.categorical or ()), *schema.kinds):
            columns.append(first)
        first += len(attribute.names)
    return columns


def _predictions(
    space: ProfileSpace, model: ChoiceModel, levels: Ints, columns: list[int]
) -> tuple[Floats, Floats]:  # (N, J, K) -> (N, J or J + 1), (N, J or J + 1, columns)
    """Return the probabilities of tasks, and the derivatives of their logarithms in t of some columns."""
    # 1. All tasks with t = 0, then with t = STEP and t = -STEP for each column.
    names = {attribute.name: space.names.index(attribute.names[0]) for attribute in space.attributes}
    table = {}
    for k, attribute in enumerate(space.attributes):
        values = np.array(attribute.levels)[levels[..., k]]
        variants = [values] * (1 + 2 * len(columns))
        if names[attribute.name] in columns:
            place = 1 + 2 * columns.index(names[attribute.name])
            middle = (float(min(attribute.levels)) + float(max(attribute.levels))) / 2
            variants[place] = middle + (1 + STEP) * (values - middle)
            variants[place + 1] = middle + (1 - STEP) * (values - middle)
        table[attribute.name] = np.stack(variants).ravel()
    p = _probabilities(space, model, table, levels.shape[1]).reshape(1 + 2 * len(columns), len(levels), -1)
    # 2. Central differences. They sum to 0 over the alternatives, weighted by p, but for rounding errors.
    logs = np.log(np.maximum(p, MIN_PROBABILITY))
    slopes = np.moveaxis(logs[1::2] - logs[2::2], 0, -1) / (2 * STEP)
    slopes -= (p[0][..., None] * slopes).sum(axis=1, keepdims=True)
    return p[0], slopes


def _probabilities(space: ProfileSpace, model: ChoiceModel, table: dict[str, Any], alternatives: int) -> Floats:
    """Return the probabilities (N, J or J + 1) that a model predicts for the rows of a table of tasks."""
    rows = len(next(iter(table.values())))
    choice_set = np.repeat(np.arange(rows // alternatives), alternatives)
    schema = _prediction_schema(model.schema, space)
    sets = ChoiceData.from_schema({**table, schema.choice_set: choice_set}, schema)
    p = model.predict_proba(sets)[:rows].reshape(-1, alternatives)
    return np.concatenate([p, 1 - p.sum(axis=1, keepdims=True)], axis=1).clip(0, 1) if space.none else p


def _prediction_schema(schema: Schema, space: ProfileSpace) -> Schema:
    """Return the schema of tables with the attributes alone, or raise InputError if the model needs other columns."""
    names = {attribute.name for attribute in space.attributes}
    needed = [*schema.features, *schema.individual, *([schema.alternative] if schema.alternative else [])]
    if missing := [name for name in needed if name not in names]:
        raise InputError(
            f"prior: the fitted model needs the columns {', '.join(missing)}, which are not attributes of the design. "
            "Add them as attributes, or fit a model without them."
        )
    if unused := [name for name in names if name not in schema.features]:
        raise InputError(
            f"prior: the fitted model does not use the attributes {', '.join(sorted(unused))}. Fit a model with them, "
            "or leave them out of the design."
        )
    if space.none != (schema.outside is not None):
        state = "has no outside option: read its table with" if space.none else "has an outside option: design with"
        raise InputError(f"prior: the fitted model {state} {'outside=' + repr(NONE) if space.none else 'none=True'}.")
    return replace(schema, chosen=None, rank=None, weight=None, person=None, keep=(), available=None)
