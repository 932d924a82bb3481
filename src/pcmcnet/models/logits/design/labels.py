"""Labels of alternatives -> 0/1 columns, which constants and coefficients of each alternative multiply."""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.logits.design.factor_coding import LevelCode, learn_levels
from pcmcnet.models.logits.design.formula import Formula
from pcmcnet.models.logits.design.resolution import require_labels


class UnseenLabelError(InputError):
    """An alternative has a label that was not in training; ``label`` and ``what`` are for those who know its place."""

    def __init__(self, label: str, where: str, what: str) -> None:
        super().__init__(f"alternative {label!r} ({where}) {what}")
        self.label, self.what = label, what


def learn_labels(terms: Formula, data: ChoiceData, chosen: Ints, reference: str | None) -> LevelCode | None:
    """Learn the labels, where coefficients belong to alternatives; ``chosen`` are the rows of the choices."""
    if not (terms.constants or terms.individual or terms.specific):
        return None
    labels = require_labels(data)
    present = [labels.categories[k] for k in np.unique(labels.codes)]
    if reference is None and data.schema.outside in present:
        reference = data.schema.outside
    if reference is None:
        reference = learn_levels(labels, chosen, least=0).reference
    elif reference not in present:
        raise ConfigError(f"reference {reference!r} is no alternative of the table." + did_you_mean(reference, present))
    return LevelCode(reference, tuple(sorted(set(present) - {reference})), False)


def label_marks(data: ChoiceData, code: LevelCode) -> tuple[Floats, tuple[str, ...]]:  # -> (N, k), k labels
    """Mark each alternative's label, the reference first; refuse labels that training did not have."""
    labels = require_labels(data)
    place = {level: k for k, level in enumerate(code.names)}
    table = np.array([place.get(c, -1) for c in labels.categories], np.int64)
    at = table[labels.codes]
    if (at < 0).any():
        row = int(np.argmax(at < 0))
        raise UnseenLabelError(
            labels.categories[labels.codes[row]],
            f"table row {data.rows[row]}",
            f"was not in training, so it has no constant; {int((at < 0).sum())} such rows. Fit without constants "
            f"(formula '... | 0'), or use pcmcnet, which knows alternatives by their features alone.",
        )
    numbers = np.zeros((len(at), len(code.names)))
    numbers[np.arange(len(at)), at] = 1.0
    return numbers, code.names
