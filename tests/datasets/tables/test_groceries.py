"""Purchases of brands: shares counted in the files with pandas."""

from collections.abc import Callable

import pytest

from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES


@pytest.mark.parametrize(
    ("name", "purchases"),
    [
        ("catsup", {"heinz41": 182, "heinz32": 1_458, "heinz28": 851, "hunts32": 307}),
        ("cracker", {"sunshine": 239, "kleebler": 226, "nabisco": 1_792, "private": 1_035}),
        ("yogurt", {"yoplait": 818, "dannon": 970, "hiland": 71, "weight": 553}),
        ("ketchup", {"heinz": 2_526, "hunts": 1_019, "delmonte": 256, "stb": 1_155}),
        ("tuna", {"skw": 6_055, "cosw": 2_238, "sko": 2_439, "coso": 1_923, "pw": 1_050}),
    ],
)
def test_every_brand_is_bought_as_often_as_in_the_file(
    name: str, purchases: dict[str, int], needs: Callable[[str], None]
) -> None:
    needs(name)
    frame = packaged.long_form(name)[0].to_pandas()
    bought = frame[frame["chosen"] == 1]["alternative"].astype(str).value_counts().to_dict()
    assert bought == purchases
    assert TABLES[name].roles["alternatives"] == list(purchases)
    free = frame[frame["price"] <= 0]
    assert free["chosen"].tolist() == ([1, 1, 1] if name == "cracker" else [])
