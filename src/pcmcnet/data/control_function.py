"""Control function for an endogenous price (Petrin and Train, 2010): the residual of a first stage as a feature.

A price is endogenous if sellers know something about demand that is not in the table, such as quality. The price then
follows the quality, and a model attributes part of the effect of quality to the price. Suppose that

    p_i = g'z_i + d'x_i + mu_i,         U_i = b p_i + c'x_i + l mu_i + e_i,

where the instruments z_i shift the price but do not enter the utility, such as costs, and the unobserved part mu_i of
the price is related to the unobserved quality. The first stage estimates g and d by least squares over the rows of the
table. Its residual, an estimate of mu_i, is a further feature of any choice model. Given the residual, the rest of the
variation of the price comes from the instruments.

The second stage treats the residual as data, so its standard errors are too small. The bootstrap estimates both stages
in each replicate. In a scenario, the residual stays at its value in the table while the price changes.

Shapes: N alternatives of S sets; the regressors of the first stage form a matrix (N, K), of which the last M columns
are the instruments.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.ragged import spread
from pcmcnet.data.outside import with_blank_outside_features
from pcmcnet.errors import InputError, SchemaError, did_you_mean
from pcmcnet.reports.formats import Summary, SummaryMixin
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import number

log = logging.getLogger("pcmcnet")

WEAK_F = 10.0  # below this first-stage F, estimates are biased towards the naive ones (Staiger and Stock, 1997)
_MIN_PIVOT = 1e-6  # relative size of the part of an instrument that other regressors do not explain
_CATEGORY_SEPARATOR = ": "  # separates a column from its category in the name of a regressor


def residual_name(price: str) -> str:
    """Return the name of the feature that holds the residual of a price."""
    return f"{price}_residual"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ControlFunction(SummaryMixin):
    """First stage of a control function, returned by :func:`control_function` and printed as a table.

    Attributes
    ----------
    price
        Name of the endogenous feature.
    instruments
        Names of the M instruments.
    names
        Names of the K regressors of the first stage.
    coefficients
        Estimates of the first stage, (K,).
    covariance
        Covariance matrix (K, K) of the estimates, clustered by person, or by choice set if there are no persons.
    f_statistic
        F statistic of the hypothesis that the coefficients of all instruments are 0, from this covariance matrix.
    r_squared
        Share of the variance of the price that the first stage explains.
    data
        The choice sets for the second stage: without the instruments, and with the residual as a feature.
    source
        The choice sets that the first stage was estimated on.
    """

    price: str
    instruments: tuple[str, ...]
    names: tuple[str, ...]
    coefficients: Floats  # (K,)
    covariance: Floats  # (K, K)
    f_statistic: float
    r_squared: float
    data: ChoiceData
    source: ChoiceData

    @property
    def residual(self) -> str:
        """Name of the feature with the residual."""
        return residual_name(self.price)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of the first stage."""
        if self.f_statistic >= WEAK_F:
            return ()
        sentence = (
            f"the instruments are weak: their F statistic of {self.f_statistic:.1f} is below {WEAK_F:g}, so the "
            f"estimates of the second stage are biased towards those without a control function"
        )
        return (sentence,)

    def apply(self, data: ChoiceData) -> ChoiceData:
        """Return other choice sets for the second stage, such as a test part, with the residual of this first stage.

        Parameters
        ----------
        data
            Choice sets with the price, the instruments and the other regressors.

        Returns
        -------
        ChoiceData
            The choice sets without the instruments and with the residual.

        Raises
        ------
        SchemaError
            If the table lacks a column, or has categories that are not in the table of the first stage.
        InputError
            If ``data`` is not ChoiceData.
        """
        if not isinstance(data, ChoiceData):
            raise InputError(
                f"data: expected ChoiceData, got {type(data).__name__}: read the table as that of the first stage, "
                "with ChoiceData.from_long."
            )
        columns, rows = _regressors(data, self.price, self.instruments, self.names)
        predicted = columns @ self.coefficients
        residuals = np.full(len(rows), np.nan)
        residuals[rows] = _numbers(data, self.price)[rows] - predicted
        return _second_stage(data, self.price, self.instruments, residuals)

    def refit(self, weights: Floats) -> ControlFunction:
        """Return the first stage estimated with other weights of the choice sets, as a replicate of the bootstrap.

        Parameters
        ----------
        weights
            Weights (S,) of the choice sets.
        """
        return _estimate(replace(self.source, weights=weights), self.price, self.instruments)

    def summary(self) -> Summary:
        """Return the table of coefficients and the strength of the instruments."""
        errors = np.sqrt(np.diag(self.covariance))
        rows = [
            (name, number(value), f"{error:.3g}", number(value / error) if error else "-")
            for name, value, error in zip(self.names, self.coefficients.tolist(), errors.tolist(), strict=True)
        ]
        facts = {
            "instruments": ", ".join(self.instruments),
            "F of the instruments": f"{self.f_statistic:,.1f}",
            "R-squared": f"{self.r_squared:.3f}",
        }
        return Summary(f"First stage of {self.price}", facts, ("", "coef", "std err", "z"), tuple(rows), self.caveats)

    def to_frame(self) -> Any:
        """Return a pandas data frame indexed by regressor, with columns coefficient, std_error and z."""
        errors = np.sqrt(np.diag(self.covariance))
        with np.errstate(divide="ignore"):
            z = self.coefficients / errors
        columns = {"regressor": self.names, "coefficient": self.coefficients, "std_error": errors, "z": z}
        table = pa.table({name: list(values) for name, values in columns.items()})
        return data_frame(table, index="regressor", instead="coefficients and covariance")


@suggests_arguments()
def control_function(data: ChoiceData, price: str, *, instruments: Sequence[str]) -> ControlFunction:
    """Estimate the first stage of a control function: regress an endogenous price on instruments.

    The regressors are the instruments, all other numeric and categorical columns, and a constant for each label. The
    residual becomes the feature ``<price>_residual`` of ``result.data``, to which any model can be fitted. Pass
    ``first_stage=result`` to :func:`pcmcnet.bootstrap` for standard errors that include the first stage.

    Parameters
    ----------
    data
        Choice sets with the price and the instruments among their features.
    price
        Name of the endogenous feature.
    instruments
        Names of numeric features that change the price but not the utility, such as costs. They are not features of
        ``result.data``, so models do not use them.

    Returns
    -------
    ControlFunction
        The estimates of the first stage, and the choice sets for the second stage.

    Raises
    ------
    SchemaError
        If the price or an instrument is not a numeric feature, or if a regressor has missing values.
    InputError
        If there is no instrument, or if other columns determine an instrument or the price.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cost, quality = rng.normal(size=(2, 400))
    >>> table = {"trip": np.repeat(np.arange(200), 2), "cost": cost, "price": 5 + cost + quality}
    >>> data = ChoiceData.from_long(table, choice_set="trip", features=["price", "cost"])
    >>> stage = control_function(data, "price", instruments=["cost"])
    >>> stage.names, list(stage.data.features)
    (('constant', 'cost'), ['price', 'price_residual'])
    """
    # 1. Check the arguments.
    if not isinstance(data, ChoiceData):
        raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
    instruments = require_instruments(data, price, instruments)
    if residual_name(price) in (*data.schema.features, *data.schema.individual):
        raise SchemaError(f"the table already has a column {residual_name(price)!r}: rename it.")
    # 2. Estimate.
    stage = _estimate(data, price, instruments)
    for caveat in stage.caveats:
        log.warning("%s", caveat)
    return stage


def require_instruments(
    data: ChoiceData, price: str, instruments: Sequence[str], *, without: str = ""
) -> tuple[str, ...]:
    """Return the distinct instruments, or raise an error if they or the price do not fit the table.

    Parameters
    ----------
    data, price, instruments
        As in :func:`control_function`.
    without
        What to do without instruments, added to the message. Default: nothing.

    Raises
    ------
    SchemaError
        If the price or an instrument is not a numeric feature.
    InputError
        If there is no instrument, or the price is one.
    """
    if isinstance(instruments, str):
        raise InputError(f"instruments: expected a list of columns, got {instruments!r}: write [{instruments!r}].")
    names = tuple(dict.fromkeys(instruments))
    if not names:
        raise InputError(
            f"instruments: expected at least one column, got none. Name columns that change the price but not the "
            f"utility, such as costs{without}."
        )
    if price in names:
        raise InputError(f"instruments: {price!r} is the price itself: name columns that change the price.")
    numeric = [name for name, column in data.features.items() if isinstance(column, Numeric)]
    for role, name in (("price", price), *(("instruments", name) for name in names)):
        if name not in numeric:
            raise SchemaError(
                f"{role}: {name!r} is not a numeric feature of the table: read the table with features=[..., {name!r}]."
                + did_you_mean(name, numeric)
            )
    return names


# -- First stage -------------------------------------------------------------------------------------------------------


def _estimate(data: ChoiceData, price: str, instruments: tuple[str, ...]) -> ControlFunction:
    """Estimate the first stage by weighted least squares."""
    names = _regressor_names(data, price, instruments)
    columns, rows = _regressors(data, price, instruments, names)
    target = _numbers(data, price)[rows]
    weights = spread(data.weights, data.offsets)[rows]
    # 1. Drop regressors that earlier ones determine, such as a constant; instruments come last and must not be dropped.
    independent = _independent(columns * np.sqrt(weights)[:, None])
    lost = [name for name, is_kept in zip(names, independent, strict=True) if not is_kept and name in instruments]
    if lost:
        raise InputError(f"instruments: the other columns of the table determine {lost[0]!r}: leave it out.")
    names = tuple(name for name, is_kept in zip(names, independent, strict=True) if is_kept)
    columns = columns[:, independent]
    # 2. Estimates, residuals, and the covariance matrix with scores summed by person or choice set.
    bread = np.linalg.inv(columns.T @ (weights[:, None] * columns))
    coefficients = bread @ (columns.T @ (weights * target))
    errors = target - columns @ coefficients
    mean = np.average(target, weights=weights)
    explained = 1 - float(weights @ errors**2) / max(float(weights @ (target - mean) ** 2), np.finfo(float).tiny)
    if explained > 1 - _MIN_PIVOT**2:
        raise InputError(
            f"price: the other columns determine {price!r}, so there is no unobserved part to control for."
        )
    groups = spread(data.groups(), data.offsets)[rows]
    scores = np.zeros((int(groups.max(initial=0)) + 1, len(names)))
    np.add.at(scores, groups, (weights * errors)[:, None] * columns)
    covariance = bread @ (scores.T @ scores) @ bread
    # 3. F statistic of the instruments, and the residuals of all rows.
    last = slice(len(names) - len(instruments), None)
    f_statistic = _f_statistic(coefficients[last], covariance[last, last])
    residuals = np.full(len(rows), np.nan)
    residuals[rows] = errors
    return ControlFunction(
        price=price,
        instruments=instruments,
        names=names,
        coefficients=coefficients,
        covariance=covariance,
        f_statistic=f_statistic,
        r_squared=explained,
        data=_second_stage(data, price, instruments, residuals),
        source=data,
    )


def _f_statistic(coefficients: Floats, covariance: Floats) -> float:
    """Return the Wald statistic of coefficients of 0, divided by their number; inf if the covariance is singular."""
    try:
        return float(coefficients @ np.linalg.solve(covariance, coefficients)) / len(coefficients)
    except np.linalg.LinAlgError:
        return np.inf


def _regressor_names(data: ChoiceData, price: str, instruments: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all regressors: constants, other columns, and the instruments last."""
    names = ["constant"]
    if data.labels is not None:
        names += [_dummy(str(data.schema.alternative), label) for label in data.labels.categories]
    for name, column in {**data.individual, **data.features}.items():
        if name == price or name in instruments:
            continue
        if isinstance(column, Numeric):
            names.append(name)
        elif isinstance(column, Categorical):
            names += [_dummy(name, category) for category in column.categories]
    return (*names, *instruments)


def _dummy(column: str, category: str) -> str:
    return f"{column}{_CATEGORY_SEPARATOR}{category}"


def _regressors(data: ChoiceData, price: str, instruments: Sequence[str], names: Sequence[str]) -> tuple[Floats, Bools]:
    """Return the regressors (n, K) of the rows with a price, and the mask (N,) of these rows.

    Outside options have no price.
    """
    outside = data.outside
    rows = np.ones(len(data.rows), bool) if outside is None else ~outside
    # 1. The columns of all rows by name; labels and categories become dummies.
    columns: dict[str, Floats] = {"constant": np.ones(len(data.rows))}
    if data.labels is not None:
        columns |= _dummies(str(data.schema.alternative), data.labels)
    for name, column in {**data.individual, **data.features}.items():
        values = column.take(data.set_of_alternative) if name in data.individual else column
        if isinstance(values, Numeric):
            columns[name] = values.values.astype(np.float64)
        elif isinstance(values, Categorical):
            columns |= _dummies(name, values)
    # 2. Those of the first stage. A category that the table lacks has a column of zeros.
    for name in (price, *names):
        if name not in columns and _CATEGORY_SEPARATOR not in name:
            raise SchemaError(f"column {name!r} of the first stage is not in the table: read the table with it.")
        if not np.isfinite(columns.get(name, np.zeros(1))[rows if name in columns else ...]).all():
            raise SchemaError(
                f"column {name!r}: a control function needs complete columns: fill in the missing values."
            )
    zeros = np.zeros(int(rows.sum()))
    return np.column_stack([columns[name][rows] if name in columns else zeros for name in names]), rows


def _dummies(name: str, column: Categorical) -> dict[str, Floats]:
    """Return a 0/1 column for each category."""
    return {
        _dummy(name, category): (column.codes == code).astype(np.float64)
        for code, category in enumerate(column.categories)
    }


def _independent(columns: Floats) -> Bools:
    """Return the columns that the columns before them do not determine, by Gram-Schmidt orthogonalisation."""
    independent = np.zeros(columns.shape[1], bool)
    basis = np.empty((len(columns), 0))
    for k, column in enumerate(columns.T):
        size = np.linalg.norm(column)
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)  # a second time, against rounding errors
        if size > 0 and np.linalg.norm(rest) > _MIN_PIVOT * size:
            independent[k] = True
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return independent


def _numbers(data: ChoiceData, name: str) -> Floats:
    values: Floats = data.features[name].plain().astype(np.float64)
    return values


def _second_stage(data: ChoiceData, price: str, instruments: Sequence[str], residuals: Floats) -> ChoiceData:
    """Return the choice sets with the residuals and without the instruments."""
    schema, name = data.schema, residual_name(price)
    features = (*(n for n in schema.features if n not in instruments), name)
    columns = {**data.features, name: Numeric(residuals.astype(np.float32))}
    signs = {n: sign for n, sign in schema.signs.items() if n not in instruments}
    kinds = {n: kind for n, kind in schema.kinds.items() if n not in instruments}
    named = {n: words for n, words in schema.named.items() if n not in instruments}
    reduced = replace(schema, features=features, signs=signs, kinds=kinds, named=named, wide={})
    result = replace(data, schema=reduced, features={n: columns[n] for n in features})
    return with_blank_outside_features(result)
