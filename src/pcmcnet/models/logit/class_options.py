"""Options of models with latent classes that refer to coefficients of all classes, or of one class.

"price" stands for the coefficients of all classes, and "class 2: price" for that of the second class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pcmcnet.errors import ConfigError
from pcmcnet.models.logit.parameter_bounds import Equality

T = TypeVar("T")


def options_by_class(named: Mapping[str, T], generic: Sequence[str], classes: int) -> dict[str, T]:
    """Return options by name, where a name without a class stands for the coefficients of all classes.

    Examples
    --------
    >>> options_by_class({"price": 0, "class 2: time": 1}, ["price", "time"], 2)
    {'class 1: price': 0, 'class 2: price': 0, 'class 2: time': 1}
    """
    of_all = {name: value for name, value in named.items() if name in generic}
    each = {f"class {c}: {name}": v for c in range(1, classes + 1) for name, v in of_all.items()}
    return each | {name: value for name, value in named.items() if name not in of_all}


def equal_in_classes(
    equalities: Sequence[Equality], generic: Sequence[str], shared: Sequence[str], fixed: Mapping[str, float], n: int
) -> list[Equality]:
    """Return the groups of equal parameters of ``n`` classes.

    Parameters
    ----------
    equalities
        Groups of equal names. Names without a class are equal within each class.
    generic
        Names of the parameters of one class.
    shared
        Parameters that are the same in all classes that do not fix them.
    fixed
        Fixed values by name.

    Raises
    ------
    ConfigError
        If the classes do not differ.
    """
    numbers, equal = range(1, n + 1), list[Equality]()
    # 1. Equal coefficients without a class are equal within each class.
    for names in equalities:
        if {*names} <= {*generic}:
            equal += [tuple(f"class {c}: {name}" for name in names) for c in numbers]
        else:
            equal.append(names)
    # 2. A shared coefficient is the same in all classes that do not fix it.
    groups = [[f"class {c}: {name}" for c in numbers if f"class {c}: {name}" not in fixed] for name in shared]
    if n > 1 and {*shared} == {*generic} and all(len(names) == n for names in groups):
        raise ConfigError(
            "shared contains all coefficients, so the classes do not differ: leave one out, or fix it in a class, "
            f"as in fixed={{'class 2: {shared[0]}': 0}}."
        )
    return equal + [tuple(names) for names in groups if len(names) > 1]
