"""Figures of textbooks and of the documentation of other packages, on tables from installed packages."""

from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError


def columns_of(name: str) -> dict[str, Any]:
    """Return the columns of a packaged table, or skip the test if the package is not installed."""
    try:
        table = packaged.load(name)
    except DatasetError as error:
        pytest.skip(str(error))
    return {column: table[column].to_numpy() for column in table.column_names}


def printed(figure: str) -> Any:
    """Return a comparison with a printed figure: equal up to one unit of its last digit, or to a relative 1e-6.

    Two optimisers stop at slightly different points, so more than six digits need not agree.
    """
    decimals = len(figure.partition(".")[2])
    return pytest.approx(float(figure), abs=10.0**-decimals, rel=1e-6)


def require_figures(model: Any, figures: dict[str, tuple[str, str]]) -> None:
    """Require that all estimates and classical standard errors agree with printed ones."""
    errors = model.standard_errors("classical")
    assert set(figures) == set(model.coefficients)
    for name, (value, error) in figures.items():
        assert model.coefficients[name] == printed(value), name
        assert errors[name] == printed(error), name


# -- Heating systems in California: mlogit, vignette "Exercise 1: Multinomial logit model" (Train and Croissant) -------


@pytest.fixture(scope="module")
def heating() -> pn.ChoiceData:
    table = columns_of("heating")
    for system in ("gc", "gr", "ec", "er", "hp"):
        table[f"lcc.{system}"] = table[f"ic.{system}"] + table[f"oc.{system}"] / 0.12
        table[f"share.{system}"] = table[f"ic.{system}"] / table["income"]
    return pn.ChoiceData.from_wide(
        table,
        chosen="depvar",
        alternatives=["gc", "gr", "ec", "er", "hp"],
        features={name: f"{name}.{{alternative}}" for name in ("ic", "oc", "lcc", "share")},
        individual=["income"],
    )


def test_heating_costs_have_the_estimates_of_mlogit(heating: pn.ChoiceData) -> None:
    """mlogit(depvar ~ ic + oc | 0), mean fitted probabilities, and the ratio oc / ic of 0.7349453."""
    model = pn.MNL(formula="ic + oc | 0").fit(heating)
    require_figures(model, {"ic": ("-0.00623187", "0.00035277"), "oc": ("-0.00458008", "0.00032216")})
    assert model.willingness_to_pay("oc", "ic").value == printed("-0.7349453")
    shares = {"ec": 0.10413057, "er": 0.05141477, "gc": 0.51695653, "gr": 0.24030898, "hp": 0.08718915}
    before = pn.scenario(model, heating, "ic *= 1").shares
    assert {label: before[label].before for label in shares} == pytest.approx(shares, abs=1e-7)


def test_a_fixed_discount_rate_is_rejected_as_in_mlogit(heating: pn.ChoiceData) -> None:
    """Life-cycle costs at a discount rate of .12: lrtest(m, mlcc) prints -1248.7 and 306.93."""
    free = pn.MNL(formula="ic + oc | 0").fit(heating)
    fixed = pn.MNL(formula="lcc | 0").fit(heating)
    test = pn.likelihood_ratio(fixed, free)
    assert test.statistic == printed("306.93")
    assert test.degrees_of_freedom == 1
    assert fixed.estimates_.log_likelihood == printed("-1248.7")


def test_heating_constants_have_the_estimates_of_mlogit(heating: pn.ChoiceData) -> None:
    """mlogit(depvar ~ ic + oc, reflevel = "hp"), and lrtest(mc, mi2), with the income: 4.680, p = .322."""
    model = pn.MNL(formula="ic + oc", reference="hp").fit(heating)
    estimates = {
        "ic": ("-0.00153315", "0.00062086"),
        "oc": ("-0.00699637", "0.00155408"),
        "constant[ec]": ("1.65884594", "0.44841936"),
        "constant[er]": ("1.85343697", "0.36195509"),
        "constant[gc]": ("1.71097930", "0.22674214"),
        "constant[gr]": ("0.30826328", "0.20659222"),
    }
    require_figures(model, estimates)
    test = pn.likelihood_ratio(model, pn.MNL(formula="ic + oc | income", reference="hp").fit(heating))
    assert (test.statistic, test.p_value) == (printed("4.680"), printed("0.322"))
    assert test.degrees_of_freedom == 4


def test_heating_costs_over_income_have_the_estimates_of_mlogit(heating: pn.ChoiceData) -> None:
    """mlogit(depvar ~ oc + I(ic / income))."""
    model = pn.MNL(formula="oc + share", reference="ec").fit(heating)
    estimates = {
        "oc": ("-0.0071066", "0.0015518"),
        "share": ("-0.0027658", "0.0018944"),
        "constant[er]": ("0.0639934", "0.1944893"),
        "constant[gc]": ("0.0563481", "0.4650251"),
        "constant[gr]": ("-1.4653063", "0.5033845"),
        "constant[hp]": ("-1.8700773", "0.4364248"),
    }
    require_figures(model, estimates)
    assert model.estimates_.log_likelihood == printed("-1010.2")


# -- Modes between Montreal and Toronto: mlogit, vignette "Random utility model and the multinomial logit model" -------


@pytest.fixture(scope="module")
def canada() -> pn.ChoiceData:
    """2,769 journeys with four modes on offer, without the bus and those who chose it."""
    table = columns_of("mode-canada")
    bus_riders = table["case"][(table["alt"] == "bus") & (table["choice"] == 1)]
    rows = (table["noalt"] == 4) & (table["alt"] != "bus") & ~np.isin(table["case"], bus_riders)
    table = {name: values[rows] for name, values in table.items()}
    table["time"] = table["ivt"] + table["ovt"]
    return pn.ChoiceData.from_long(
        table,
        choice_set="case",
        chosen="choice",
        alternative="alt",
        individual=["income"],
        features=["cost", "freq", "time"],
    )


@pytest.fixture(scope="module")
def canada_model(canada: pn.ChoiceData) -> pn.MNL:
    fitted: pn.MNL = pn.MNL(formula="cost + freq | income | time", reference="car").fit(canada)
    return fitted


def test_mode_canada_has_the_estimates_of_mlogit(canada_model: pn.MNL) -> None:
    """mlogit(choice ~ cost + freq | income | time, alt.subset = c("car", "train", "air"), reflevel = "car")."""
    assert canada_model.estimates_.log_likelihood == printed("-1951.344")
    estimates = {
        "constant[train]": ("-0.97034440", "0.26513065"),
        "constant[air]": ("-1.89856552", "0.68414300"),
        "cost": ("-0.02849715", "0.00655909"),
        "freq": ("0.07402902", "0.00473270"),
        "income[train]": ("-0.00646892", "0.00310366"),
        "income[air]": ("0.02824632", "0.00365435"),
        "time[car]": ("-0.01402405", "0.00138047"),
        "time[train]": ("-0.01096877", "0.00081834"),
        "time[air]": ("-0.01755120", "0.00399181"),
    }
    require_figures(canada_model, estimates)
    for mode, hourly in {"car": "29.52728", "train": "23.09447", "air": "36.95360"}.items():
        assert -60 * canada_model.willingness_to_pay(f"time[{mode}]", "cost").value == printed(hourly)


def test_faster_trains_in_canada_have_the_shares_and_the_surplus_of_mlogit(
    canada: pn.ChoiceData, canada_model: pn.MNL
) -> None:
    """predict(ml.MC1, newdata = NMC) and summary(surplus), with the time of the train multiplied by .8."""
    result = pn.scenario(canada_model, canada, "time *= 0.8 where alt == 'train'", cost="cost")
    after = {"car": 0.4044736, "train": 0.2635801, "air": 0.3319462}
    assert {mode: result.shares[mode].after for mode in after} == pytest.approx(after, abs=1e-6)
    assert result.consumer_surplus is not None
    assert result.consumer_surplus.mean == printed("4.6971")


# -- Heating and cooling in California: mlogit, vignette "Exercise 2: Nested logit model" (Train and Croissant) --------

COOLING, NO_COOLING, ROOM = ("gcc", "ecc", "erc", "hpc"), ("gc", "ec", "er"), ("erc", "er")


@pytest.fixture(scope="module")
def cooling() -> pn.ChoiceData:
    """250 houses; costs of cooling and the income apply to some systems only."""
    table = columns_of("hc")
    labels = [*COOLING, *NO_COOLING]
    for label in labels:
        cools, is_room = label in COOLING, label in ROOM
        table |= {f"icca.{label}": table["icca"] * cools, f"occa.{label}": table["occa"] * cools}
        table |= {f"inc_cooling.{label}": table["income"] * cools, f"inc_room.{label}": table["income"] * is_room}
        table[f"int_cooling.{label}"] = np.full(len(table["income"]), float(cools))
    features = ("ich", "och", "icca", "occa", "inc_room", "inc_cooling", "int_cooling")
    return pn.ChoiceData.from_wide(
        table, chosen="depvar", alternatives=labels, features={name: f"{name}.{{alternative}}" for name in features}
    )


BY_COOLING = dict.fromkeys(COOLING, "cooling") | dict.fromkeys(NO_COOLING, "other")
BY_ROOM = {label: "room" if label in ROOM else "central" for label in (*COOLING, *NO_COOLING)}
THREE = BY_COOLING | {"hpc": "heat pump"}
HOUSES: list[tuple[dict[str, str], str, list[float]]] = [
    (BY_COOLING, "-178.1247", [-0.554878, -0.857886, -0.225079, -1.089458, -0.378971, 0.249575, -6.000415, 0.585922]),
    (BY_ROOM, "-180.0231", [-1.13818, -1.82532, -0.33746, -2.06328, -0.75722, 0.41689, -13.82487, 1.36201]),
    (THREE, "-180.26", [-0.838394, -1.331598, -0.256131, -1.405656, -0.571352, 0.311355, -10.413384, 0.956544]),
]


@pytest.mark.parametrize(("nests", "log_likelihood", "estimates"), HOUSES)
def test_cooling_has_the_estimates_of_mlogit(
    cooling: pn.ChoiceData, nests: dict[str, str], log_likelihood: str, estimates: list[float]
) -> None:
    """mlogit(..., nests = list(...), un.nest.el = TRUE): one log-sum parameter, which may exceed 1."""
    model = pn.NestedMNL(formula=". | 0", nests=nests, common_logsum=True, bounds=None).fit(cooling)
    assert model.estimates_.log_likelihood == printed(log_likelihood)
    # mlogit ends its BFGS search before all printed digits have settled.
    np.testing.assert_allclose(list(model.coefficients.values()), estimates, rtol=1e-4)


# -- Train journeys in the Netherlands: Croissant (2020), Journal of Statistical Software 95(11), section 3.4 ----------


def test_train_journeys_have_the_estimates_of_mlogit() -> None:
    """mlogit(choice ~ price + time + change + comfort | -1), with prices in euros and times in hours."""
    table = columns_of("train")
    for k in (1, 2):
        table |= {f"price{k}": table[f"price{k}"] / 100 * 2.20371, f"time{k}": table[f"time{k}"] / 60}
    features = {name: f"{name}{{alternative}}" for name in ("price", "time", "change", "comfort")}
    alternatives = {"1": "choice1", "2": "choice2"}
    data = pn.ChoiceData.from_wide(table, chosen="choice", alternatives=alternatives, features=features)
    model = pn.MNL(formula="price + time + change + comfort | 0").fit(data)
    estimates = {
        "price": ("-0.0673580", "0.0033933"),
        "time": ("-1.7205514", "0.1603517"),
        "change": ("-0.3263409", "0.0594892"),
        "comfort": ("-0.9457256", "0.0649455"),
    }
    require_figures(model, estimates)
    assert model.estimates_.log_likelihood == printed("-1724.2")


# -- Fishing modes: Cameron and Trivedi (2005), Microeconometrics, chapter 15 ------------------------------------------


@pytest.fixture(scope="module")
def fishing() -> pn.ChoiceData:
    return pn.ChoiceData.from_wide(columns_of("fishing"), **packaged.TABLES["fishing"].roles)


@pytest.mark.parametrize(
    ("formula", "log_likelihood", "estimates"),
    [
        ("price + catch_rate | income", "-1215.14", {"price": "-0.025", "catch_rate": "0.358"}),
        (" | income", "-1477.15", {"constant[pier]": "0.814", "constant[boat]": "0.739", "constant[charter]": "1.341"}),
    ],
)
def test_fishing_modes_have_the_estimates_of_the_textbook(
    fishing: pn.ChoiceData, formula: str, log_likelihood: str, estimates: dict[str, str]
) -> None:
    """The mixed and the multinomial logit of table 15.2; the book prints three decimals of the estimates."""
    model = pn.MNL(formula=formula, reference="beach").fit(fishing)
    assert model.estimates_.log_likelihood == printed(log_likelihood)
    for name, value in estimates.items():
        assert model.coefficients[name] == printed(value), name


# -- Modes between Sydney and Melbourne: Greene, Econometric Analysis, the chapter on discrete choice ------------------


def test_travel_modes_have_the_estimates_of_the_textbook() -> None:
    """Generalised cost, waiting time, and income of air travellers; without air, IIA is rejected with 33.34."""
    table = columns_of("modechoice")
    table["mode"] = np.array(["", "air", "train", "bus", "car"])[table["mode"].astype(int)]
    table["air_income"] = np.where(table["mode"] == "air", table["hinc"], 0)
    features = ["gc", "ttme", "air_income"]
    data = pn.ChoiceData.from_long(
        table, choice_set="individual", chosen="choice", alternative="mode", features=features
    )
    model = pn.MNL(formula="gc + ttme + air_income", reference="car").fit(data)
    assert model.estimates_.log_likelihood == printed("-199.1284")
    estimates = {"gc": "-0.0155", "ttme": "-0.0961", "air_income": "0.0133", "constant[air]": "5.2074"}
    assert {name: model.coefficients[name] for name in estimates} == {k: printed(v) for k, v in estimates.items()}
    test = pn.hausman_mcfadden(model, data, "air")
    assert test.statistic == printed("33.34")
    assert test.degrees_of_freedom == 4
