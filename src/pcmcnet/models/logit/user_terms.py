"""Transformations of columns that users define, for formulas such as ``saturation(time)`` or ``density(people, area)``.

A function f(x_1, ..., x_k; p) maps the values of k columns in a row, and parameters p, to the value of a factor in this
row. It is written with torch, so the derivative in p is exact (automatic differentiation). Each row depends on its own
values only, so with a separate copy p_n of the parameters for each row n, one backward pass of sum_n f_n gives the
derivatives df_n / dp_n of all rows.

Functions are neither saved nor pickled. A saved model contains the values of f at a few points, and a process that
loads the model must define the same function first.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.errors import ArtifactError, ConfigError, InputError, such_rows

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("pcmcnet")

_ROUNDING = 1e-6  # relative difference of values of the same function on two machines
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class UserTerm:
    """A transformation that a user has defined."""

    name: str
    function: Callable[..., Any]
    parameters: Mapping[str, float]  # names with starting values
    n_columns: int

    def values(self, columns: Sequence[Floats], parameters: Sequence[float]) -> Floats:  # k x (N,) -> (N,)
        """Return the value of the function in each row."""
        import torch

        with torch.no_grad():
            return np.asarray(self._call(columns, parameters)[0].numpy(), np.float64)

    def slopes(self, columns: Sequence[Floats], parameters: Sequence[float], name: str) -> Floats:  # -> (N,)
        """Return the derivative of the function with respect to a parameter in each row."""
        import torch

        with torch.enable_grad():
            value, leaves = self._call(columns, parameters)
            if not value.requires_grad:
                return np.zeros(len(columns[0]))
            (slope,) = torch.autograd.grad(value.sum(), leaves[name], allow_unused=True)
        return np.zeros(len(columns[0])) if slope is None else np.asarray(slope.numpy(), np.float64)

    def _call(self, columns: Sequence[Floats], parameters: Sequence[float]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the values, and a copy (N,) of each parameter for every row. Raise InputError if the call fails."""
        import torch

        n = len(columns[0])
        rows = [torch.tensor(column, dtype=torch.float64) for column in columns]
        leaves = {
            name: torch.full((n,), value, dtype=torch.float64, requires_grad=torch.is_grad_enabled())
            for name, value in zip(self.parameters, parameters, strict=True)
        }
        try:
            value = self.function(*rows, **leaves)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"the term {self.name!r} failed: {error}. Its function must map tensors to a tensor, with functions of "
                f"torch such as torch.exp."
            ) from error
        if not (isinstance(value, torch.Tensor) and value.shape == (n,)):
            got = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputError(f"the term {self.name!r}: expected a tensor with a value for each of {n} rows, got {got}.")
        return value.to(torch.float64), leaves

    def require_valid(self, columns: Sequence[Floats], text: str, name_row: Callable[[int], str]) -> None:
        """Raise InputError if a value is not finite, or depends on the values in other rows.

        ``text`` is the term in the formula, and ``name_row`` returns the name of a row, for the message.
        """
        start = list(self.parameters.values())
        values = self.values(columns, start)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            at = ", ".join(f"{column[bad[0]]:g}" for column in columns)
            raise InputError(
                f"{text}: expected finite values, but the function of the term returns {values[bad[0]]} for {at} in "
                f"{name_row(int(bad[0]))}; {such_rows(bad.size)}. Change the function, the starting values of its "
                f"parameters, or the column."
            )
        half = (len(values) + 1) // 2
        if not np.allclose(self.values([column[:half] for column in columns], start), values[:half], rtol=_ROUNDING):
            raise InputError(
                f"{text}: the value in a row depends on other rows, but a term must be computed row by row. Add a "
                f"column to the table instead."
            )


_USER_TERMS: dict[str, UserTerm] = {}


@suggests_arguments(call="term('saturation', lambda x: 1 - torch.exp(-x))")
def term(name: str, function: Callable[..., Any], parameters: Mapping[str, float] | None = None) -> UserTerm:
    """Define a transformation of columns for the formulas of logit models.

    After ``pn.term("saturation", f)``, formulas may contain ``saturation(time)``. A function with several arguments
    takes several columns, as in ``density(people, seats)``. The definition applies to the current process. A model that
    uses the term can be saved, but the function is not saved with it: define the term before you load the model.

    Parameters
    ----------
    name
        Name in formulas: a word that is not the name of a built-in transformation.
    function
        Function that maps tensors (N,) of the values of columns, in float64, to a tensor (N,), row by row. Parameters
        are passed by name.
    parameters
        Parameters of the function that are estimated, with their starting values, as in {"rate": 0.1}. Such a utility
        is not linear in its parameters. Default: none.

    Returns
    -------
    UserTerm
        The definition.

    Raises
    ------
    ConfigError
        If the name is not a word or is taken, the function is not callable, or its arguments do not match
        ``parameters``.

    Examples
    --------
    >>> import torch
    >>> saturation = term("saturation", lambda x, rate: 1 - torch.exp(-rate * x), {"rate": 0.5})
    >>> saturation.n_columns
    1
    """
    from pcmcnet.models.logit.formula import FUNCTIONS

    # 1. A name that formulas can contain.
    if not (isinstance(name, str) and re.fullmatch(r"[^\W\d]\w*", name)):
        raise ConfigError(f"term: expected a name that is a word, got {name!r}.")
    if name in FUNCTIONS:
        raise ConfigError(f"term: {name!r} is a built-in transformation: use another name.")
    if not callable(function):
        raise ConfigError(f"term {name!r}: expected a function of tensors, got {function!r}.")
    # 2. Arguments that are not parameters are columns.
    starts = {} if parameters is None else parameters
    if not (isinstance(starts, Mapping) and all(isinstance(key, str) for key in starts)):
        raise ConfigError(f"term {name!r}: parameters must map names to starting values, got {parameters!r}.")
    for key, value in starts.items():
        require_number(f"term {name!r}: parameters[{key!r}]", value)
    try:
        arguments = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"term {name!r}: the arguments of the function are unknown: use a Python function."
        ) from error
    unknown = [key for key in starts if key not in arguments]
    columns = [key for key, a in arguments.items() if key not in starts and a.kind in _POSITIONAL]
    others = [key for key, a in arguments.items() if key not in starts and a.kind not in _POSITIONAL]
    if unknown or others or not columns:
        raise ConfigError(
            f"term {name!r}: expected a function of columns and of the parameters {list(starts)}, got the arguments "
            f"{list(arguments)}."
        )
    defined = UserTerm(name, function, {key: float(value) for key, value in starts.items()}, len(columns))
    if name in _USER_TERMS and _USER_TERMS[name].function is not function:
        log.info("the term %r is defined again: models fitted before use the new function, too", name)
    _USER_TERMS[name] = defined
    return defined


def is_user_term(name: str | None) -> bool:
    """Return True if a user has defined a transformation with this name."""
    return name in _USER_TERMS


def user_term(name: str) -> UserTerm:
    """Return the definition of a term, or raise ConfigError with the remedy."""
    if name not in _USER_TERMS:
        raise ConfigError(f"the term {name!r} is not defined: define it with pcmcnet.term({name!r}, function) first.")
    return _USER_TERMS[name]


def fingerprint(defined: UserTerm, points: Sequence[Floats]) -> dict[str, Any]:
    """Return the facts about a term that are saved with a model: its arguments, and its values at some points."""
    values = defined.values(points, list(defined.parameters.values()))
    return {
        "parameters": dict(defined.parameters),
        "columns": defined.n_columns,
        "points": [point.tolist() for point in points],
        "values": [value if np.isfinite(value) else None for value in values.tolist()],
    }


def require_same_term(name: str, saved: Mapping[str, Any]) -> None:
    """Raise ArtifactError if a term of a saved model is not defined here, or is a different function."""
    if name not in _USER_TERMS:
        raise ArtifactError(
            f"the model uses the term {name!r}, whose function is not saved: define it with pcmcnet.term({name!r}, "
            f"function) before you load the model."
        )
    defined = _USER_TERMS[name]
    parameters = {str(key): float(value) for key, value in saved["parameters"].items()}
    points = [np.array(point, np.float64) for point in saved["points"]]
    if list(parameters) != list(defined.parameters) or len(points) != defined.n_columns:
        raise ArtifactError(
            f"the term {name!r} has other arguments than when the model was saved: expected {saved['columns']} columns "
            f"and the parameters {list(parameters)}. Define the original function before you load the model."
        )
    now = defined.values(points, list(parameters.values()))
    before = np.array([np.nan if value is None else float(value) for value in saved["values"]])
    same = np.isclose(now, before, rtol=_ROUNDING) | np.isnan(before)
    if now.shape != before.shape or not same.all():
        raise ArtifactError(
            f"the term {name!r} is not the function that the model was fitted with: it has the value "
            f"{now[~same][0]:g} instead of {before[~same][0]:g}. Define the original function before you load "
            f"the model."
        )
