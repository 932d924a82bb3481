"""What the comments of the declarations say of the files, counted with pandas."""

from collections.abc import Callable

from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES

Needs = Callable[[str], None]


def test_a_contract_has_no_price_where_its_rate_goes_by_time_or_season(needs: Needs) -> None:
    needs("electricity")
    frame = packaged.load("electricity").to_pandas()
    assert ((frame["pf"] == 0) == (frame["tod"] + frame["seas"] == 1)).all()
    assert frame.groupby("id")["chid"].nunique().max() == 12


def test_cars_come_in_pairs_that_differ_in_type_alone(needs: Needs) -> None:
    needs("car")
    frame = packaged.load("car").to_pandas()
    for first, second in ((1, 2), (3, 4), (5, 6)):
        equal = {f: (frame[f"{f}{first}"] == frame[f"{f}{second}"]).mean() for f in TABLES["car"].roles["features"]}
        assert equal.pop("type") == 0
        assert set(equal.values()) == {1}
    assert (frame[["fuel1", "fuel3", "fuel5"]].nunique(axis=1) == 3).all()


def test_cooling_costs_only_where_there_is_cooling(needs: Needs) -> None:
    needs("hc")
    frame, raw = packaged.long_form("hc")[0].to_pandas(), packaged.load("hc").to_pandas()
    cools = frame["alternative"].isin(["gcc", "ecc", "erc", "hpc"])
    assert (frame.loc[~cools, ["cooling_installation", "cooling_operation"]] == 0).all(axis=None)
    assert frame.loc[cools, "cooling_installation"].tolist() == raw["icca"].repeat(4).tolist()
    assert frame.loc[cools, "cooling_operation"].tolist() == raw["occa"].repeat(4).tolist()


def test_a_vehicle_is_electric_hybrid_or_petrol(needs: Needs) -> None:
    needs("vehicle")
    frame = packaged.load("vehicle").to_pandas()
    assert (frame[["ev", "hybrid", "gas"]].sum(axis=1) == 1).all()


def test_the_columns_that_tell_the_choice_of_an_angler_play_no_role(needs: Needs) -> None:
    needs("fishing")
    frame = packaged.load("fishing").to_pandas()
    chosen = [row[f"p{row['mode']}"] for _, row in frame.iterrows()]
    assert frame["price"].tolist() == chosen
    assert not {"price", "catch"} & set(TABLES["fishing"].roles["features"].values())
