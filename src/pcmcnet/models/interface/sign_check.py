"""Check whether the probabilities of a fitted model move in the expected direction.

Expected signs are declared with the roles of the table (``signs={"price": "-"}``). Without a declared sign, columns
that look like prices or durations are expected to have the sign "-". The check

    1. draws choice sets of the training table, and one alternative i of each set
    2. raises the value of i by a tenth, and predicts the set before and after
    3. counts the sets in which log P(i) moves against the sign by more than rounding errors
    4. if log P(i) hardly moves in most sets, moves the value of i to the 10% or 90% quantile of the column instead,
       whichever is farther away, and counts the sets in which log P(i) still hardly moves.

A model that obeys the declared signs never moves against them. But if the data suggest the opposite sign, its effect is
0. Then scenarios change nothing, the optimal price is the highest one, and a caveat says so. The effect is also 0 if
the column has one value per choice set. Then the caveat says that the data contain no information about the sign. Other
models may move against the sign in some or all sets. Only the column itself changes: if the table contains a price
twice, for example also as its logarithm, each column is checked separately. The draws do not depend on the seed of the
fit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData, Sets
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.schema import Schema, Sign
from pcmcnet.errors import PcmcNetError

if TYPE_CHECKING:
    from pcmcnet.models.interface.choice_model import ChoiceModel

log = logging.getLogger("pcmcnet")

MAX_SETS = 500  # choice sets that are drawn: the standard error of a share is at most .022
MAX_PAIRS = 500_000  # ordered pairs of alternatives in the drawn sets, which bounds the time for large sets
STEP = 0.1  # increase of a value, relative to the value, or to the standard deviation of the column if the value is 0
MIN_CHANGE = 1e-5  # change of log P that counts; smaller changes may be rounding errors in float32
MIN_EFFECT = 1e-4  # change of log P that counts as an effect: an elasticity of .001
MAX_DECLARED_SHARE = 0.01  # tolerated share of sets against a declared sign, for models that round coarsely
MAX_EXPECTED_SHARE = 0.25  # tolerated share of sets against an undeclared sign: some networks err in a few sets
MAX_SHARE_WITHOUT_EFFECT = 0.5  # tolerated share of sets without an effect, for models that obey declared signs
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class SignCheck:
    """How often the probability of an alternative moves against the expected sign of a column.

    Parameters
    ----------
    column
        The column.
    sign
        Expected sign: "+" if the probability should rise with the value, "-" if it should fall.
    declared
        Whether the table declares the sign. Otherwise the name or unit of the column suggests it.
    wrong
        Share of the checked choice sets in which the probability moves in the wrong direction.
    sets
        Number of checked choice sets.
    persons
        Share of the persons in the sample for whom the direction is wrong in at least one choice set; None if the table
        has no persons.
    no_effect
        Share of the checked choice sets in which the probability hardly changes with a declared column.
    varies
        Whether the column differs between the alternatives of at least one checked choice set.
    """

    column: str
    sign: Sign
    declared: bool
    wrong: float
    sets: int
    persons: float | None = None
    no_effect: float = 0.0
    varies: bool = True

    @property
    def is_wrong(self) -> bool:
        """Whether the sign is wrong in more choice sets than are tolerated."""
        return self.wrong > (MAX_DECLARED_SHARE if self.declared else MAX_EXPECTED_SHARE)

    @property
    def is_held_at_zero(self) -> bool:
        """Whether a model that obeys a declared sign has no effect of the column."""
        return self.declared and not self.is_wrong and self.no_effect > MAX_SHARE_WITHOUT_EFFECT

    @property
    def result(self) -> str:
        """The result in a few words, such as "right in all 500 sampled choice sets"."""
        if not self.wrong and self.no_effect > MAX_SHARE_WITHOUT_EFFECT:
            return f"no effect in {self.no_effect:.0%} of {self.sets:,} sampled choice sets"
        share = f"{1 - max(self.wrong, 0.001):.1%} of" if self.wrong else "all"
        return f"right in {share} {self.sets:,} sampled choice sets"

    def sentence_without_effect(self) -> str:
        """Return a sentence without a final stop on a column with a declared sign and no effect."""
        result = (
            f"the probability of an alternative does not depend on its {self.column} in {self.no_effect:.0%} of "
            f"{self.sets:,} sampled choice sets"
        )
        if not self.varies:
            return (
                f"{result}: all alternatives of a set have the same {self.column}, so the data say nothing about its "
                f"effect. Remove {self.column!r} from the features, or add choice sets in which it differs"
            )
        return (
            f"{result}: the declared sign {self.sign!r} may contradict the data. Fit without it to see the effect that "
            f"it prevents"
        )

    def sentence(self, remedy: str) -> str:
        """Return the result as a sentence without a final stop, followed by what to do about it."""
        direction = "falls" if self.sign == "+" else "rises"
        people = "" if self.persons is None else f", and for {self.persons:.0%} of their persons"
        result = (
            f"the probability of an alternative {direction} with its {self.column} in {self.wrong:.0%} of "
            f"{self.sets:,} sampled choice sets{people}"
        )
        if self.declared:
            return f"{result}, against the declared sign {self.sign!r}: {remedy}"
        return f"{result}. Is this plausible? If not, {remedy}"


def check_signs(model: ChoiceModel, train: Sets) -> tuple[SignCheck, ...]:
    """Check the declared signs, and the signs of columns that look like prices or durations.

    Parameters
    ----------
    model
        A fitted model.
    train
        Training part, from which choice sets are drawn: from the first chunk if the table is scanned.

    Returns
    -------
    tuple of SignCheck
        One entry per checked column, empty if no column has an expected sign or the model gives only a ranking.
    """
    expected = expected_signs(train.schema)
    data = next(iter(train.parts()), None) if expected and model.gives != "ranking" else None
    if data is None:
        return ()
    # 1. Draw choice sets.
    sample = _draw_sets(data)
    if not len(sample):
        return ()
    checks = []
    try:
        before = model._checked_log_proba(sample)
        for column, sign in expected.items():
            numbers = sample.features.get(column)
            if not isinstance(numbers, Numeric):  # a text column turned out to be categorical
                continue

            def change(values: NDArray[np.float32], rows: Ints, column: str = column) -> Floats:
                """Return the change of log P of the given rows if the column has other values."""
                changed = replace(sample, features={**sample.features, column: Numeric(values)})
                with np.errstate(invalid="ignore"):  # a probability of 0 before and after the change
                    difference: Floats = (model._checked_log_proba(changed) - before)[rows]
                return difference

            # 2. Raise the value of one alternative of each set, and predict again.
            rows = _draw_alternatives(sample, ~np.isnan(numbers.values))
            rise = change(_raised(numbers.values, rows), rows)
            # 3. Count the sets in which the probability moves against the sign.
            is_wrong = rise > MIN_CHANGE if sign == "-" else rise < -MIN_CHANGE
            if len(rows):
                check = _sign_check(column, sign, sample, rows, is_wrong)
                check = replace(check, varies=_varies_within_sets(sample, numbers.values))
                # 4. Look for an effect of larger changes, because trees may not notice a small one.
                if check.declared and _share_without_effect(rise) > MAX_SHARE_WITHOUT_EFFECT:
                    far = change(_moved_far(numbers.values, rows), rows)
                    check = replace(check, no_effect=_share_without_effect(far))
                checks.append(check)
    except PcmcNetError as error:  # a finished fit is worth more than its check
        log.warning("expected signs were not checked, because a changed choice set cannot be predicted: %s", error)
        return ()
    return tuple(checks)


def declared_signs_text(signs: Mapping[str, Sign], checks: Iterable[SignCheck]) -> str:
    """Return the declared signs with the results of their check, as text for a summary.

    Examples
    --------
    >>> price = SignCheck(column="price", sign="-", declared=True, wrong=0.0, sets=300)
    >>> comfort = SignCheck(column="comfort", sign="+", declared=True, wrong=0.25, sets=300)
    >>> declared_signs_text({"price": "-", "comfort": "+"}, [price, comfort])
    'price -: right in all 300 sampled choice sets; comfort +: right in 75.0% of 300 sampled choice sets'
    """
    results = {check.column: check.result for check in checks}
    columns: dict[str, list[str]] = {}
    for column, sign in signs.items():
        columns.setdefault(results.get(column, "not checked"), []).append(f"{column} {sign}")
    return "; ".join(f"{', '.join(names)}: {result}" for result, names in columns.items())


def _sign_check(column: str, sign: Sign, data: ChoiceData, rows: Ints, is_wrong: Bools) -> SignCheck:
    """Return the shares of choice sets and persons for which the direction is wrong; one alternative per set."""
    persons = None
    if data.schema.person is not None:
        person = data.groups()[data.set_of_alternative[rows]]
        persons = len(np.unique(person[is_wrong])) / len(np.unique(person))
    declared = column in data.schema.signs
    wrong = float(is_wrong.mean())
    return SignCheck(column=column, sign=sign, declared=declared, wrong=wrong, sets=len(rows), persons=persons)


def _draw_sets(data: ChoiceData) -> ChoiceData:
    """Return at most ``MAX_SETS`` random choice sets with several alternatives, within a limit of ordered pairs."""
    drawn = np.random.default_rng(0).permutation(np.flatnonzero((data.sizes > 1) & (data.weights > 0)))[:MAX_SETS]
    is_within_limit = np.cumsum(data.sizes[drawn].astype(np.int64) ** 2) <= MAX_PAIRS
    return data.subset(np.sort(drawn[: max(int(is_within_limit.sum()), 1)]))


def _draw_alternatives(data: ChoiceData, candidates: Bools) -> Ints:
    """Return the row of one random candidate of each set that has candidates."""
    keys = np.where(candidates, np.random.default_rng(0).random(len(candidates)), -1.0)
    best: Floats = np.maximum.reduceat(keys, data.offsets[:-1])
    rows: Ints = np.flatnonzero((keys == np.repeat(best, data.sizes)) & candidates)
    return rows


def _raised(values: NDArray[np.float32], rows: Ints) -> NDArray[np.float32]:
    """Return a copy of the values in which those of the given rows are raised by a tenth."""
    raised = values.copy()
    x = values[rows].astype(np.float64)
    spread = float(np.nanstd(values.astype(np.float64))) or 1.0
    raised[rows] = np.minimum(x + STEP * np.where(x == 0, spread, np.abs(x)), _LARGEST).astype(np.float32)
    return raised


def _moved_far(values: NDArray[np.float32], rows: Ints) -> NDArray[np.float32]:
    """Return a copy of the values in which those of the given rows are the farther one of two quantiles."""
    low, high = np.nanquantile(values, (0.1, 0.9))
    moved = values.copy()
    moved[rows] = np.where(values[rows] - low > high - values[rows], low, high)
    return moved


def _share_without_effect(change: Floats) -> float:
    """Return the share of changes of log P that are negligible."""
    return float((np.abs(change) < MIN_EFFECT).mean())


def _varies_within_sets(data: ChoiceData, values: NDArray[np.float32]) -> bool:
    """Return True if known values differ between the alternatives of at least one choice set."""
    least = np.fmin.reduceat(values, data.offsets[:-1])  # NaN only if all values of a set are missing
    return bool((np.fmax.reduceat(values, data.offsets[:-1]) > least).any())


# -- Expected signs ---------------------------------------------------------------------------------------------------
# A column looks like a price or a duration if a word of its name, or its unit, is in these lists. Clock times are not
# durations: their names also contain a word such as departure.

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_PRICES = {"price", "prices", "cost", "costs", "fare", "fares", "fee", "fees", "toll", "tolls", "tariff", "rent"}
_PRICE_NAMES = {"totalprice", "totalcost", "totcost", "travelcost", "ticketprice"}  # words written without a break
_DURATIONS = {"duration", "wait", "waiting", "delay", "ivt", "ovt", "ivtt", "ovtt", "traveltime", "tottime"}
_TIME_WORDS = {"time", "tt", "minutes", "hours"}
_MOMENTS = {"dep", "departure", "arr", "arrival", "start", "begin", "end", "day", "clock", "stay", "until", "before"}
_MOMENTS |= {"since"}  # time_since of a history: tastes for variety and habits have opposite signs
_DERIVED = {"residual"}  # the residual of a price stands for unobserved quality
_MONEY = {"eur", "€", "usd", "$", "gbp", "£", "chf", "cad", "aud", "jpy", "¥", "sek", "nok", "dkk", "cents", "dollars"}


def expected_signs(schema: Schema) -> dict[str, Sign]:
    """Return the declared signs, and "-" for other features that look like prices or durations.

    Examples
    --------
    >>> expected_signs(Schema(choice_set="trip", features=["totalPrice", "depTime", "ivt", "seats"]))
    {'totalPrice': '-', 'ivt': '-'}
    >>> expected_signs(Schema(choice_set="trip", features=["price_residual", "time_since"]))
    {}
    """
    return {**dict(_guessed_signs(schema)), **schema.signs}


def _guessed_signs(schema: Schema) -> Iterator[tuple[str, Sign]]:
    """Yield the features that look like prices or durations, with the sign "-"."""
    for name in schema.table_features:
        if name in schema.kinds or name in (schema.categorical or ()):
            continue
        words = {word.lower() for word in _WORD.findall(name)}
        if words & _DERIVED:
            continue
        is_duration = bool(words & _DURATIONS) or (bool(words & _TIME_WORDS) and not words & _MOMENTS)
        if is_price(schema, name) or is_duration:
            yield name, "-"


def is_price(schema: Schema, name: str) -> bool:
    """Return True if a word of the name of a column, or its unit, suggests a price.

    Examples
    --------
    >>> schema = Schema(choice_set="trip", features=["totalPrice", "minutes"])
    >>> is_price(schema, "totalPrice"), is_price(schema, "minutes")
    (True, False)
    """
    words = {word.lower() for word in _WORD.findall(name)}
    return bool(words & (_PRICES | _PRICE_NAMES)) or schema.names.unit(name).strip().lower() in _MONEY
