"""Formula -> terms -> design matrix: the columns of a utility that is linear in its coefficients."""

from pcmcnet.models.logits.design.design import Design
from pcmcnet.models.logits.design.formula import Formula, parse_formula

__all__ = ["Design", "Formula", "parse_formula"]
