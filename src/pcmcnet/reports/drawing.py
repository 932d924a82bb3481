"""How a result is drawn by a stage to its right: ``pcmcnet.plots`` enters its functions here, by name.

A method such as ``comparison.plot()`` says ``draw("comparison", self, ax=ax)``. The first drawing loads those functions
by ``load``, which ``pcmcnet/__init__.py`` gives: it may name stages to the right of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
load: Callable[[], object] = lambda: None  # noqa: E731 - a place to put it


def draws(name: str) -> Callable[[F], F]:
    """Enter a function that draws results of one kind; for decorating it."""

    def enter(function: F) -> F:
        _FUNCTIONS[name] = function
        return function

    return enter


def draw(name: str, *given: Any, **options: Any) -> Any:
    """Draw a result by the function of that name."""
    if name not in _FUNCTIONS:
        load()
    return _FUNCTIONS[name](*given, **options)
