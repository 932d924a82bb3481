"""``pcmcnet shares``: printed shares, sensitivities, and one line for bad input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def model(cli: Callable[..., Any], table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "hb"
    roles = "--choice-set trip --chosen took --alternative mode --features price,minutes"
    options = "formula=price + minutes | 0", "chains=2", "burn_in=10", "draws=20", "thin=1"
    words = [word for option in options for word in ("--set", option)]
    fit = cli("fit", table, *roles.split(), "--model", "hb-mnl", *words, "-o", folder)
    assert fit.status == 0, fit
    return folder


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("products") / "products.csv"
    file.write_text("mode,price,minutes\ncar,10,20\nbus,4,40\n")
    return file


def test_shares_and_sensitivities_are_printed(cli: Callable[..., Any], model: Path, products: Path) -> None:
    result = cli("shares", model, products, "--price", "price", "--sensitivity", "price")
    assert result.status == 0, result
    assert result.out.splitlines()[0].split() == ["product", "share", "5%", "95%", "revenue"]
    assert "Elasticities of the shares" in result.out


def test_known_shares_are_reproduced(cli: Callable[..., Any], model: Path, products: Path) -> None:
    known = ["--known-share", "car=0.25", "--known-share", "bus=0.75", "--people", "new", "--json"]
    content = json.loads(cli("shares", model, products, *known).out)
    assert content["shares"][0]["share"] == pytest.approx(0.25, abs=1e-5)  # the tolerance of the calibration is 1e-6
    assert content["constants"]["car"] == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--known-share", "car"], "expected NAME=SHARE"),
        (["--rule", "best"], "rule"),
        (["--names", "name"], "the products have no column 'name'"),
        (["--sensitivity", "mode"], "'mode' is not a numeric column"),
        (["--price", "mode"], "price, product 'car': expected a finite number in column 'mode', got 'car'"),
        (["--known-share", "car=1", "--known-share", "car=0"], "expected one share of each product, got two of 'car'"),
        (["--known-share", "car=2", "--known-share", "bus=-1"], "expected positive numbers with a sum of 1, got 2, -1"),
    ],
)
def test_bad_input_is_one_line(
    cli: Callable[..., Any], model: Path, products: Path, words: list[str], problem: str
) -> None:
    assert problem in cli("shares", model, products, *words).message
