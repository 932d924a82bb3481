"""``pcmcnet shares``: simulated shares of products over the people of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result


def shares(
    model: arguments.SavedModel,
    products: Annotated[Path, typer.Argument(help="Table with a row for each product and the columns of the model.")],
    names: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the names of the products.")] = None,
    rule: Annotated[str, typer.Option(metavar="WORD", help="logit, or first-choice.")] = "logit",
    people: Annotated[
        str, typer.Option(metavar="WORD", help="known (persons of the training table) or new (the population).")
    ] = "known",
    price: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the price, for revenue.")] = None,
    known_share: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHARE", help="Share that the simulation must reproduce; one for each product."),
    ] = None,
    sensitivity: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column for elasticities of the shares, such as the price.")
    ] = None,
    json_: Json = False,
) -> None:
    r"""Use MODEL, a hierarchical or mixed logit, to simulate the shares of PRODUCTS over people.

    Shares and revenue of the products in a table:

        pcmcnet shares model products.csv --names name --price price

    First choices, and how the shares react to prices:

        pcmcnet shares model products.csv --names name --rule first-choice \
            --sensitivity price

    Calibrated to known shares:

        pcmcnet shares model products.csv --names name \
            --known-share Oak=0.6 --known-share Elm=0.4
    """
    from pcmcnet.errors import ConfigError
    from pcmcnet.insight.market_shares import market_shares
    from pcmcnet.models import load
    from pcmcnet.reports.formats import to_json

    known_shares: dict[str, float] | None = None
    for text in known_share or []:
        name, _, value = text.rpartition("=")
        if known_shares and name in known_shares:
            raise ConfigError(f"--known-share: expected one share of each product, got two of {name!r}.")
        try:
            known_shares = {**(known_shares or {}), name: float(value)}
        except ValueError:
            raise ConfigError(f"--known-share: expected NAME=SHARE such as Oak=0.6, got {text!r}.") from None
    words: dict[str, Any] = {"rule": rule, "people": people}
    result = market_shares(load(model), products, names=names, price=price, known_shares=known_shares, **words)
    content: dict[str, Any] = {"shares": [row._asdict() for row in result.rows], "constants": dict(result.constants)}
    text = str(result)
    if sensitivity is not None:
        reaction = result.sensitivity(sensitivity)
        content["sensitivity"] = reaction.to_arrow().to_pylist()
        text += f"\n\nElasticities of the shares\n\n{reaction}"
    print_result(text, to_json(content), as_json=json_)
