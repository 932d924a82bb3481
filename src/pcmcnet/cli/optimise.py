"""``pcmcnet optimise``: which alternatives of a catalogue to offer, or what to ask for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, show

if TYPE_CHECKING:
    from pcmcnet.decisions import Constraints

Repeated = list[str] | None
_OFFERS = "offers.parquet"


def optimise(
    context: typer.Context,
    model: options.SavedModel,
    catalogue: Annotated[Path, typer.Argument(help="Table with a row for each alternative that could be offered.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the result.")],
    revenue: Annotated[str | None, typer.Option(help="Column with what a choice of each alternative earns.")] = None,
    price: Annotated[str | None, typer.Option(help="Set the prices in this column, in place of the offer.")] = None,
    cost: Annotated[str | None, typer.Option(help="With --price: column with the cost of each alternative.")] = None,
    ladder: Annotated[str | None, typer.Option(help="With --price: the prices that may be asked.")] = None,
    bounds: Annotated[str | None, typer.Option(help="With --price: lowest and highest price, as 50..200.")] = None,
    inventory: Annotated[str | None, typer.Option(help="With --price: column with what is in stock.")] = None,
    customers: Annotated[float | None, typer.Option(help="With --inventory: how many customers it is for.")] = None,
    outside: Annotated[str | None, typer.Option(help="Label of the alternative that is always there.")] = None,
    individual: Annotated[
        Repeated, typer.Option(help="A column of the individual, as income=40; repeatable.", show_default=False)
    ] = None,
    individuals: Annotated[
        Path | None, typer.Option(help="Table of individuals: an offer for each of them, by local search.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="How many to show: 5 at most, or 2..5.")] = None,
    capacity: Annotated[
        Repeated, typer.Option(help="Limit of a column's sum, as shelf=120; repeatable.", show_default=False)
    ] = None,
    at_least: Annotated[
        Repeated, typer.Option(help="How many with a value, as airline=A5:2; repeatable.", show_default=False)
    ] = None,
    at_most: Annotated[Repeated, typer.Option(help="Likewise at most; repeatable.", show_default=False)] = None,
    always: Annotated[str, typer.Option(help="Labels to be shown in any case, separated by commas.")] = "",
    never: Annotated[str, typer.Option(help="Labels not to be shown.")] = "",
    current: Annotated[str | None, typer.Option(help="Labels that are shown now, to be compared with.")] = None,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds for the search.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search's starts.")] = 0,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    json_: Json = False,
) -> None:
    """Find the offer with the largest expected revenue under MODEL, or the best prices, with a bound.

    The folder gets result.json, and offers.parquet for a table of individuals.

    Example: `pcmcnet optimise model itineraries.csv --revenue margin --outside none --size 5 -o offer`

    Prices: `pcmcnet optimise model itineraries.csv --price price --cost cost --ladder 99,119,149 -o prices`

    For each of many people, read and written part by part, with --engine ray by several workers:
    `pcmcnet optimise model shelf.csv --revenue margin --individuals people.parquet -o offers`
    """
    from pcmcnet.decisions import optimise_offer, optimise_prices
    from pcmcnet.errors import ConfigError
    from pcmcnet.models import load
    from pcmcnet.storage import json_bytes, require_folder, sole_writer, write_bytes

    if (revenue is None) == (price is None):
        raise ConfigError("say what to optimise: --revenue COLUMN for the offer, or --price COLUMN for the prices.")
    asked: dict[str, Any] = {"cost": cost, "ladder": ladder, "bounds": bounds}
    asked |= {"inventory": inventory, "customers": customers}
    if price is None and (given := [name for name, value in asked.items() if value is not None]):
        raise ConfigError(f"--{given[0]} is about prices: add --price.")
    limits = _constraints(size, capacity, at_least, at_most, always, never)
    about = dict(_pair("--individual", word) for word in individual or []) or None
    estimator = load(model)
    context.with_resource(sole_writer(output))
    require_folder(output)
    common: dict[str, Any] = {"outside": outside, "seed": seed}
    alone = {**common, "individual": about, "time_limit": time_limit}
    found: Any
    many = options.workers_of(engine, workers)
    if individuals is None and many:
        raise ConfigError("--engine ray is for many individuals: give --individuals, or leave it out.")
    if individuals is not None:
        if price is not None or about is not None or current is not None:
            raise ConfigError("--individuals is for offers alone: leave out --price, --individual and --current.")
        what = (estimator, catalogue, individuals, output / _OFFERS, str(revenue))
        done = _many(many)(*what, constraints=limits, **common)
        result = {"individuals": done.individuals, "mean_expected_revenue": done.mean_expected_revenue, "exact": False}
        found = f"{done.individuals:,} offers, heuristic; mean expected revenue {done.mean_expected_revenue:.4g}"
    elif price is None:
        now = None if current is None else options.words(current)
        found = optimise_offer(estimator, catalogue, str(revenue), constraints=limits, current=now, **alone)
        result = found.to_dict()
    else:
        fulfil = None if limits == type(limits)() else limits
        asked |= _asked_prices(bounds, ladder)
        found = optimise_prices(estimator, catalogue, price, constraints=fulfil, **asked, **alone)
        result = found.to_dict()
    write_bytes(output / "result.json", json_bytes(result))
    show(f"{found}\n\nwritten: {output}", result, as_json=json_)


def _many(workers: int) -> Callable[..., Any]:
    """Return what writes the offers to many individuals: this process, or workers."""
    if not workers:
        from pcmcnet.decisions import write_offers

        return write_offers
    from pcmcnet.cluster import write_offers as by_workers

    return partial(by_workers, workers=workers)


def _asked_prices(bounds: str | None, ladder: str | None) -> dict[str, Any]:
    """Read which prices may be asked."""
    from pcmcnet.errors import ConfigError

    steps = None if ladder is None else [_number("--ladder", word) for word in options.words(ladder)]
    span = None if bounds is None else _span("--bounds", bounds)
    if span is not None and None in span:
        raise ConfigError(f"--bounds: expected a lowest and a highest price, as 50..200, got {bounds!r}.")
    return {"bounds": span, "ladder": steps}


def _constraints(
    size: str | None, capacity: Repeated, at_least: Repeated, at_most: Repeated, always: str, never: str
) -> Constraints:
    """Read the constraints from the words of the command."""
    from pcmcnet.decisions import Constraints

    least, most = (None, None) if size is None else _span("--size", size)
    return Constraints(
        size=None if size is None else (None if least is None else int(least), None if most is None else int(most)),
        capacity={name: _number("--capacity", limit) for name, limit in _pairs("--capacity", capacity)},
        at_least=_counts("--at-least", at_least),
        at_most=_counts("--at-most", at_most),
        always=tuple(options.words(always)),
        never=tuple(options.words(never)),
    )


def _pairs(option: str, words: Repeated) -> list[tuple[str, str]]:
    return [_pair(option, word) for word in words or []]


def _pair(option: str, word: str) -> tuple[str, str]:
    from pcmcnet.errors import ConfigError

    name, equals, value = word.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise ConfigError(f"{option}: expected NAME=VALUE, got {word!r}.")
    return name.strip(), value.strip()


def _counts(option: str, words: Repeated) -> dict[str, dict[str, int]]:
    """Read airline=A5:2 and the like."""
    from pcmcnet.errors import ConfigError

    found: dict[str, dict[str, int]] = {}
    for name, rest in _pairs(option, words):
        value, colon, count = rest.rpartition(":")
        if not (colon and count.isdecimal()):
            raise ConfigError(f"{option}: expected COLUMN=VALUE:COUNT, as airline=A5:2, got {name}={rest}.")
        found.setdefault(name, {})[value] = int(count)
    return found


def _span(option: str, text: str) -> tuple[Any, Any]:
    """Read 2..5, 2.. or ..5; a number alone is the highest."""
    low, dots, high = text.partition("..")
    if not dots:
        return None, _number(option, text)
    return _number(option, low) if low.strip() else None, _number(option, high) if high.strip() else None


def _number(option: str, text: str) -> float:
    from pcmcnet.errors import ConfigError

    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{option}: expected a number, got {text!r}.") from None
