"""``pcmcnet optimise``: find the best alternatives to offer from a catalogue, or the best prices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result

if TYPE_CHECKING:
    from pcmcnet.decisions import Constraints

Repeated = list[str] | None
_OFFERS = "offers.parquet"


def optimise(
    context: typer.Context,
    model: arguments.SavedModel,
    catalogue: Annotated[Path, typer.Argument(help="Table with one row for each alternative that could be offered.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the result.")],
    revenue: Annotated[str | None, typer.Option(help="Column with the revenue if the alternative is chosen.")] = None,
    price: Annotated[str | None, typer.Option(help="Optimise the prices in this column instead of the offer.")] = None,
    cost: Annotated[str | None, typer.Option(help="With --price: column with the cost of each alternative.")] = None,
    ladder: Annotated[str | None, typer.Option(help="With --price: comma-separated list of allowed prices.")] = None,
    bounds: Annotated[str | None, typer.Option(help="With --price: lowest and highest price, such as 50..200.")] = None,
    inventory: Annotated[
        str | None, typer.Option(help="With --price: column with the stock of each alternative.")
    ] = None,
    customers: Annotated[
        float | None, typer.Option(help="With --inventory: number of customers that the stock must serve.")
    ] = None,
    exogenous: Annotated[
        bool,
        typer.Option(
            "--exogenous",
            help="With --price: the prices of the training table did not depend on unobserved demand, as in a survey. "
            "Omits the warning about endogenous prices.",
        ),
    ] = False,
    outside: Annotated[str | None, typer.Option(help="Label of the outside option, which is always available.")] = None,
    individual: Annotated[
        Repeated,
        typer.Option(help="Value of an individual-level column, such as income=40; repeatable.", show_default=False),
    ] = None,
    individuals: Annotated[
        Path | None, typer.Option(help="Table of individuals; find an offer for each individual by local search.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Number of alternatives to show: 5 for at most 5, or a range such as 2..5.")
    ] = None,
    capacity: Annotated[
        Repeated,
        typer.Option(help="Upper limit on the sum of a column, such as shelf=120; repeatable.", show_default=False),
    ] = None,
    at_least: Annotated[
        Repeated,
        typer.Option(
            help="Minimum number of alternatives with a given value, such as airline=A5:2; repeatable.",
            show_default=False,
        ),
    ] = None,
    at_most: Annotated[
        Repeated,
        typer.Option(
            help="Maximum number of alternatives with a given value, such as airline=A5:2; repeatable.",
            show_default=False,
        ),
    ] = None,
    always: Annotated[str, typer.Option(help="Comma-separated labels that must be shown.")] = "",
    never: Annotated[str, typer.Option(help="Comma-separated labels that must not be shown.")] = "",
    current: Annotated[
        str | None, typer.Option(help="Comma-separated labels of the current offer, for comparison with the result.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0, help="Time limit for the search, in seconds.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the random starts of the search.")] = 0,
    engine: arguments.Engine = "local",
    workers: arguments.Workers = None,
    json_: Json = False,
) -> None:
    r"""Find the offer with the largest expected revenue under MODEL, or the best prices, with an optimality bound.

    The command writes result.json and, for a table of individuals, offers.parquet to the output folder.

    The best offer of at most five itineraries:

        pcmcnet optimise model itineraries.csv --revenue margin \
            --outside none --size 5 -o offer

    The best prices from a list:

        pcmcnet optimise model itineraries.csv --price price --cost cost \
            --ladder 99,119,149 -o prices

    One offer for each individual of a table. The table is processed in chunks, by several workers with --engine ray:

        pcmcnet optimise model shelf.csv --revenue margin \
            --individuals people.parquet -o offers
    """
    from pcmcnet.decisions import optimise_offer, optimise_prices
    from pcmcnet.errors import ConfigError
    from pcmcnet.models import load
    from pcmcnet.storage import json_bytes, require_folder, sole_writer, write_bytes

    # 1. Check that the options fit together, and parse them.
    if (revenue is None) == (price is None):
        raise ConfigError(
            "expected either --revenue COLUMN to optimise the offer or --price COLUMN to optimise the prices."
        )
    pricing: dict[str, Any] = {"cost": cost, "ladder": ladder, "bounds": bounds}
    pricing |= {"inventory": inventory, "customers": customers, "exogenous": exogenous or None}
    if price is None and (superfluous := [name for name, value in pricing.items() if value is not None]):
        raise ConfigError(f"--{superfluous[0]} applies only to prices: add --price.")
    constraints = _constraints(size, capacity, at_least, at_most, always, never)
    chooser = dict(_pair("--individual", word) for word in individual or []) or None
    estimator = load(model)
    context.with_resource(sole_writer(output))
    require_folder(output)
    common: dict[str, Any] = {"outside": outside, "seed": seed}
    for_one = {**common, "individual": chooser, "time_limit": time_limit}
    many = arguments.worker_count(engine, workers)
    if individuals is None and many:
        raise ConfigError("--engine ray needs a table of individuals: add --individuals, or remove --engine ray.")
    # 2. Optimise the offers of many individuals, one offer, or the prices.
    shown: Any
    if individuals is not None:
        if price is not None or chooser is not None or current is not None:
            raise ConfigError("--individuals optimises offers only: remove --price, --individual and --current.")
        inputs = (estimator, catalogue, individuals, output / _OFFERS, str(revenue))
        offers = _offer_writer(many)(*inputs, constraints=constraints, **common)
        mean = offers.mean_expected_revenue
        result = {"individuals": offers.individuals, "mean_expected_revenue": mean, "exact": False}
        result["notes"] = list(offers.notes)
        shown = f"{offers.individuals:,} offers found by a heuristic; mean expected revenue {mean:.4g}"
        shown = "\n".join([shown, *(f"note: {note}" for note in offers.notes)])
    elif price is None:
        today = None if current is None else arguments.comma_separated(current)
        shown = optimise_offer(estimator, catalogue, str(revenue), constraints=constraints, current=today, **for_one)
        result = shown.to_dict()
    else:
        pricing |= {**_allowed_prices(bounds, ladder), "exogenous": exogenous}
        restrictions = None if constraints == type(constraints)() else constraints
        shown = optimise_prices(estimator, catalogue, price, constraints=restrictions, **pricing, **for_one)
        result = shown.to_dict()
    # 3. Write and print the result.
    write_bytes(output / "result.json", json_bytes(result))
    print_result(f"{shown}\n\nwritten: {output}", result, as_json=json_)


def _offer_writer(workers: int) -> Callable[..., Any]:
    """Return the function that writes an offer for each individual, in this process if ``workers`` is 0."""
    if not workers:
        from pcmcnet.decisions import write_offers

        return write_offers
    from pcmcnet.cluster import write_offers as write_by_workers

    return partial(write_by_workers, workers=workers)


def _allowed_prices(bounds: str | None, ladder: str | None) -> dict[str, Any]:
    """Parse ``--bounds`` and ``--ladder``."""
    from pcmcnet.errors import ConfigError

    prices = None if ladder is None else [_number("--ladder", word) for word in arguments.comma_separated(ladder)]
    span = None if bounds is None else _span("--bounds", bounds)
    if span is not None and None in span:
        raise ConfigError(f"--bounds: expected a lowest and a highest price, such as 50..200, got {bounds!r}.")
    return {"bounds": span, "ladder": prices}


def _constraints(
    size: str | None, capacity: Repeated, at_least: Repeated, at_most: Repeated, always: str, never: str
) -> Constraints:
    """Parse the options that constrain an offer."""
    from pcmcnet.decisions import Constraints

    least, most = (None, None) if size is None else _span("--size", size)
    return Constraints(
        size=None if size is None else (None if least is None else int(least), None if most is None else int(most)),
        capacity={name: _number("--capacity", limit) for name, limit in _pairs("--capacity", capacity)},
        at_least=_counts("--at-least", at_least),
        at_most=_counts("--at-most", at_most),
        always=tuple(arguments.comma_separated(always)),
        never=tuple(arguments.comma_separated(never)),
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
    """Parse entries such as airline=A5:2 into counts by column and value."""
    from pcmcnet.errors import ConfigError

    counts: dict[str, dict[str, int]] = {}
    for name, rest in _pairs(option, words):
        value, colon, count = rest.rpartition(":")
        if not (colon and count.isdecimal()):
            raise ConfigError(f"{option}: expected COLUMN=VALUE:COUNT, such as airline=A5:2, got {name}={rest}.")
        counts.setdefault(name, {})[value] = int(count)
    return counts


def _span(option: str, text: str) -> tuple[Any, Any]:
    """Parse a range such as 2..5, 2.. or ..5 into its limits. A single number is the upper limit."""
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
