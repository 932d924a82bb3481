"""Unusual tables such as machines produce, and models to fit to them.

Hypothesis draws the shape of a table: its columns' kinds, its sets, its roles, its container. The values come from a
seed that it draws too, so that a table of 3,000 rows costs no more draws than one of three.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import strategies as st

from pcmcnet.models import MODELS
from quick_models import NETWORKS

Rng = np.random.Generator
Ints = np.ndarray[Any, Any]
Column = Callable[[Rng, int], Any]  # the generator and the number of rows -> a column of any kind

TEXTS = ["", " ", "a", "A", "bus", "ünï", "漢字", "🚲", "e\u0301", "é", "\u202ertl", "a\nb", "a,b", '"', "NaN", "null"]
TEXTS += ["<missing>", "007", "7", "7.0", "1e400", "-0", "1_000", "1,000", "inf", "True", "x" * 300, "\x7f", "None"]
NAMES = ["price", "time", "", " ", "ä", "漢", "🚲", "a b", "a:b", "a~b", "1", "x/y", "..", "'q'", '"', "\\"]
NAMES += ["probability", "{x}", "%s", "a\nb", "\t", "const", "chosen_", "nan", "n" * 200]
BIG = 2**62


def _texts(rng: Rng, n: int, few: int = 4) -> list[str]:
    return [TEXTS[k] for k in rng.choice(rng.permutation(len(TEXTS))[:few], n)]


def _gaps(values: Any, rng: Rng) -> pa.Array:
    """Return the values with some nulls."""
    array = pa.array(values)
    return pa.array(array.to_pylist(), array.type, mask=rng.random(len(array)) < 0.2)


def _take(values: Any, index: np.ndarray[Any, Any]) -> Any:
    """Return some rows of a column of any container."""
    if isinstance(values, list):
        return [values[k] for k in index]
    if isinstance(values, np.ndarray):
        return values[index]
    if pa.types.is_string_view(values.type):  # Arrow cannot take rows from a view
        return pa.array([values[int(k)].as_py() for k in index], values.type)
    return values.take(pa.array(index))


def _whole(rng: Rng, n: int, kind: Any) -> Any:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, n, dtype=kind, endpoint=True)


NUMBERS: dict[str, Column] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "prices": lambda rng, n: rng.lognormal(3, 2, n),
    "float32": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "float16": lambda rng, n: rng.normal(size=n).astype(np.float16),
    "counts": lambda rng, n: rng.integers(0, 4, n),
    "int8": lambda rng, n: _whole(rng, n, np.int8),
    "int64": lambda rng, n: _whole(rng, n, np.int64),
    "uint64": lambda rng, n: _whole(rng, n, np.uint64),
    "constant": lambda rng, n: np.full(n, rng.normal()),
    "zero": lambda rng, n: np.zeros(n),
    "tiny": lambda rng, n: rng.normal(size=n) * 1e-300,
    "denormal": lambda rng, n: rng.integers(0, 5, n) * 5e-324,
    "small": lambda rng, n: rng.normal(size=n) * 1e-40,
    "huge": lambda rng, n: rng.normal(size=n) * 1e300,
    "large": lambda rng, n: rng.normal(size=n) * 1e37,
    "magnitudes": lambda rng, n: rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-320, 308, n),
    "outlier": lambda rng, n: np.where(np.arange(n) == rng.integers(n), 1e38, rng.normal(size=n)),
    "seconds": lambda rng, n: 1.7e9 + rng.integers(0, 60, n),
    "close": lambda rng, n: 1 + rng.normal(size=n) * 1e-15,
    "bool": lambda rng, n: rng.random(n) < 0.5,
    "decimal": lambda rng, n: pa.array([Decimal(int(x)) / 8 for x in rng.integers(-999, 999, n)], pa.decimal128(20, 4)),
    "decimal256": lambda rng, n: pa.array([Decimal(int(x)) * 10**40 for x in rng.integers(-9, 9, n)]),
    "ordinal": lambda rng, n: np.arange(n),
}
BAD_NUMBERS: dict[str, Column] = {
    "nan": lambda rng, n: np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
    "all nan": lambda rng, n: np.full(n, np.nan),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.2, np.inf, rng.normal(size=n)),
    "null number": lambda rng, n: _gaps(rng.normal(size=n), rng),
    "null int": lambda rng, n: _gaps(rng.integers(-3, 3, n), rng),
    "null bool": lambda rng, n: _gaps(rng.random(n) < 0.5, rng),
    "null decimal": lambda rng, n: _gaps(NUMBERS["decimal"](rng, n), rng),
    "nothing": lambda rng, n: pa.nulls(n),
    "null text": lambda rng, n: _gaps(_texts(rng, n), rng),
    "null dictionary": lambda rng, n: _gaps(_texts(rng, n), rng).dictionary_encode(),
}
WORDS: dict[str, Column] = {
    "text": _texts,
    "all texts": lambda rng, n: _texts(rng, n, len(TEXTS)),
    "one text": lambda rng, n: [TEXTS[rng.integers(len(TEXTS))]] * n,
    "distinct text": lambda rng, n: [f"t{k}" for k in rng.permutation(n)],
    "numbers as text": lambda rng, n: [str(x) for x in rng.normal(size=n)],
    "commas": lambda rng, n: [f"{x:,.2f}" for x in rng.normal(size=n) * 1e4],
    "mostly numbers": lambda rng, n: [str(x) if x < 1.5 else "n/a" for x in rng.normal(size=n)],
    "large text": lambda rng, n: pa.array(_texts(rng, n), pa.large_string()),
    "text view": lambda rng, n: pa.array(_texts(rng, n), pa.string_view()),
    "dictionary": lambda rng, n: pa.array(_texts(rng, n)).dictionary_encode(),
    "int dictionary": lambda rng, n: pa.array(rng.integers(-3, 3, n)).dictionary_encode(),
    "float dictionary": lambda rng, n: pa.array(rng.normal(size=n)).dictionary_encode(),
    "unused dictionary": lambda rng, n: pa.DictionaryArray.from_arrays(
        rng.integers(0, 2, n).astype(np.int8), ["a", "b", "unused"]
    ),
    "repeating dictionary": lambda rng, n: pa.DictionaryArray.from_arrays(rng.integers(0, 3, n), ["a", "b", "a"]),
    "gap in dictionary": lambda rng, n: pa.DictionaryArray.from_arrays(rng.integers(0, 2, n), pa.array(["a", None])),
    "bytes": lambda rng, n: [rng.bytes(int(k)) for k in rng.integers(0, 3, n)],
    "fixed bytes": lambda rng, n: pa.array([rng.bytes(2) for _ in range(n)], pa.binary(2)),
}
TIMES: dict[str, Column] = {
    "timestamp": lambda rng, n: pa.array(rng.integers(-BIG, BIG, n), pa.timestamp("ns")),
    "zoned": lambda rng, n: pa.array(rng.integers(0, 2**31, n), pa.timestamp("s", "Europe/Madrid")),
    "far timestamp": lambda rng, n: pa.array(rng.integers(-BIG, BIG, n), pa.timestamp("s")),
    "date": lambda rng, n: [dt.date(2024, 1, 1) + dt.timedelta(int(k)) for k in rng.integers(0, 9, n)],
    "date64": lambda rng, n: pa.array(rng.integers(0, 2**40, n) // 86_400_000 * 86_400_000, pa.date64()),
    "time": lambda rng, n: pa.array(rng.integers(0, 86_400, n).astype(np.int32), pa.time32("s")),
    "duration": lambda rng, n: pa.array(rng.integers(-BIG, BIG, n), pa.duration("ns")),
    "interval": lambda rng, n: pa.array([(int(k), 0, 0) for k in rng.integers(0, 3, n)], pa.month_day_nano_interval()),
}
NESTED: dict[str, Column] = {
    "list": lambda rng, n: pa.array([[int(k)] * int(k) for k in rng.integers(0, 3, n)], pa.list_(pa.int64())),
    "fixed list": lambda rng, n: pa.array([[int(k), 1] for k in rng.integers(0, 3, n)], pa.list_(pa.int64(), 2)),
    "struct": lambda rng, n: [{"x": int(k)} for k in rng.integers(0, 3, n)],
    "map": lambda rng, n: pa.array([[("k", int(k))] for k in rng.integers(0, 3, n)], pa.map_(pa.string(), pa.int64())),
}
MIXED: dict[str, Column] = {  # columns of Python objects, for containers that allow them
    "mixed": lambda rng, n: [[1, "a", 2.5, None, True][k] for k in rng.integers(0, 5, n)],
    "big ints": lambda rng, n: [10 ** int(k) for k in rng.integers(0, 400, n)],
    "objects": lambda rng, n: [[object(), set(), 1j, b"x"][k] for k in rng.integers(0, 4, n)],
    "decimals": lambda rng, n: [Decimal("NaN") if k == 0 else Decimal(int(k)) for k in rng.integers(0, 9, n)],
}
KINDS = {**NUMBERS, **BAD_NUMBERS, **WORDS, **TIMES, **NESTED}
ANY = {**KINDS, **MIXED}
REFUSED = ("huge", "magnitudes", "decimal256", "seconds", "close", "tiny", "denormal")  # beyond 32-bit numbers
SOUND = [kind for kind in NUMBERS if kind not in REFUSED]
SOUND += ["text", "all texts", "one text", "distinct text", "dictionary", "unused dictionary", "large text"]

IDS: dict[str, Callable[[Rng, Ints], Any]] = {
    "whole": lambda rng, of: of,
    "negative": lambda rng, of: -of - 1,
    "int8": lambda rng, of: (of % 100).astype(np.int8),
    "far": lambda rng, of: of + BIG,
    "unsigned": lambda rng, of: of.astype(np.uint64) + np.uint64(2**63),
    "text": lambda rng, of: [f"set {k}" for k in of],
    "any text": lambda rng, of: [TEXTS[k % len(TEXTS)] for k in of],
    "halves": lambda rng, of: of / 2,
    "far floats": lambda rng, of: of * 1e300,
    "dates": lambda rng, of: [dt.date(2024, 1, 1) + dt.timedelta(int(k)) for k in of],
    "timestamps": lambda rng, of: pa.array(of, pa.timestamp("us")),
    "decimals": lambda rng, of: pa.array([Decimal(int(k)) for k in of], pa.decimal128(12, 2)),
    "dictionary": lambda rng, of: pa.array([f"s{k}" for k in of]).dictionary_encode(),
    "bool": lambda rng, of: of % 2 == 0,
    "bytes": lambda rng, of: [str(k).encode() for k in of],
    "nulls": lambda rng, of: _gaps(of, rng),
    "lists": lambda rng, of: pa.array([[int(k)] for k in of]),
    "nan": lambda rng, of: np.where(rng.random(len(of)) < 0.2, np.nan, of),
}
SOUND_IDS = ["whole", "negative", "far", "unsigned", "text", "halves", "dates", "decimals", "dictionary", "timestamps"]
FLAGS: dict[str, Callable[[Rng, Ints], Any]] = {  # 0/1 of rows -> a column
    "int": lambda rng, ones: ones.astype(np.int64),
    "bool": lambda rng, ones: ones,
    "float": lambda rng, ones: ones.astype(np.float32),
    "decimal": lambda rng, ones: pa.array([Decimal(int(k)) for k in ones]),
    "text": lambda rng, ones: [str(int(k)) for k in ones],
    "dictionary": lambda rng, ones: pa.array(ones.astype(int)).dictionary_encode(),
    "nulls": lambda rng, ones: _gaps(ones, rng),
    "none": lambda rng, ones: np.zeros(len(ones)),
    "all": lambda rng, ones: np.ones(len(ones)),
    "numbers": lambda rng, ones: rng.normal(size=len(ones)),
}

CONTAINERS = ["arrow", "mapping", "pandas", "polars", "csv", "parquet", "chunks"]

# Options that make a model quick to fit; those that name columns or labels are drawn for each table.
QUICK: dict[str, dict[str, Any]] = {
    "cdm": {"max_iter": 5},
    **NETWORKS,
    "dpn": {"hidden": 4, "epochs": 1, "weight_decay": 0.0},
    "lc-mnl": {"classes": 2, "starts": 1, "em_steps": 5, "max_iter": 5},
    "mixed-mnl": {"draws": 16, "max_iter": 5},
    "mnl": {"max_iter": 60},
    "nested-mnl": {"max_iter": 20},
    "cross-nested-mnl": {"max_iter": 20},
    "pcmc": {"restarts": 1, "max_iter": 5},
    "pcmc-linear": {"max_iter": 5},
    "pcmcnet": {"hidden": (4,), "epochs": 1, "members": 1},
    "rf": {"trees": 3},
    "bradley-terry": {"max_iter": 20},
    "thurstone": {"max_iter": 5},
}


def _beyond_polars(kind: pa.DataType) -> bool:
    """Return True for types at which polars panics."""
    return any(test(kind) for test in (pa.types.is_decimal256, pa.types.is_interval, pa.types.is_map))


@dataclass
class Case:
    """A table, roles for its columns, and a model for it."""

    kinds: dict[str, str]  # of the first columns, shown when an example fails
    sizes: list[int]
    container: str
    roles: dict[str, Any]
    model: str
    options: dict[str, Any]
    arrays: dict[str, Any] = field(repr=False)
    other: dict[str, Any] = field(repr=False)  # some of the columns with values of another kind, to predict
    twin: bool = False  # whether a column name occurs twice

    def with_other_values(self) -> dict[str, Any]:
        """Return the table with other values in some columns, as a later file may have."""
        return {**self.arrays, **self.other}

    def table(self, folder: Path) -> Any:
        """Return the table in its container; raise the error of the library if the container cannot hold it."""
        if self.container == "mapping":
            return {**self.arrays}
        table = pa.table({name: pa.array(values) for name, values in self.arrays.items()})
        if self.twin:
            table = table.append_column(table.column_names[-1], table.column(0))
        match self.container:
            case "pandas":
                return table.to_pandas()
            case "polars" if not any(map(_beyond_polars, table.schema.types)):
                import polars

                return polars.from_arrow(table)
            case "csv":
                pyarrow.csv.write_csv(table, folder / "table.csv")
                return folder / "table.csv"
            case "parquet":
                pyarrow.parquet.write_table(table, folder / "table.parquet")
                return folder / "table.parquet"
            case "chunks":
                half = table.num_rows // 2
                return pa.concat_tables([table.slice(0, half), table.slice(half)])
        return table


@st.composite
def cases(draw: st.DrawFn, *, large: bool = False) -> Case:
    """Draw a table and a model; two thirds of the tables are valid."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sound = draw(st.integers(0, 2)) > 0
    rare = draw(st.integers(0, 60 if large else 300))  # few tables are large
    sizes = _sizes(draw, rng, 3_000 if rare == 1 else 6, 3 if rare == 1 else 40, least=1 + sound)
    begin = np.cumsum(sizes) - sizes
    of = np.repeat(np.arange(len(sizes)), sizes)
    chosen = np.isin(np.arange(len(of)), begin + rng.integers(0, sizes))
    container = draw(st.sampled_from(CONTAINERS))
    id_kind = draw(st.sampled_from(SOUND_IDS if sound else [*IDS]))
    flag = draw(st.sampled_from(["int", "bool", "float", "decimal"] if sound else [*FLAGS]))
    arrays: dict[str, Any] = {"set": IDS[id_kind](rng, of), "took": FLAGS[flag](rng, chosen)}
    kinds = {"set": id_kind, "took": flag, **_inputs(draw, sound, 2_000 if rare == 2 else None, container)}
    for name, kind in list(kinds.items())[2:]:
        arrays[name] = ANY[kind](rng, len(of))
    inputs = list(kinds)[2:]
    individual = [name for name in inputs[:3] if draw(st.integers(0, 4)) == 0]
    for name in individual:  # constant within nearly every set
        if sound or draw(st.integers(0, 5)):
            arrays[name] = _take(arrays[name], begin[of])
    roles: dict[str, Any] = {"choice_set": "set", "chosen": "took", "individual": individual}
    roles["features"] = [name for name in inputs if name not in individual]
    place = np.arange(len(of)) - np.repeat(begin, sizes)
    for column, (role, kind, values) in _extras(draw, rng, sound, of, place, chosen).items():
        arrays[column], kinds[column], roles[role] = values, kind, column
    _options_of_reading(draw, roles, sound, inputs, [*arrays])
    if draw(st.booleans()):  # shuffle the rows, or sample them with replacement
        again = not sound and draw(st.integers(0, 3)) == 0
        order = rng.integers(0, len(of), len(of)) if again else rng.permutation(len(of))
        arrays = {name: _take(values, order) for name, values in arrays.items()}
    model, options = _model(draw, inputs, kinds)
    other = {name: ANY[draw(st.sampled_from([*KINDS]))](rng, len(of)) for name in inputs[:6] if draw(st.booleans())}
    twin = not sound and draw(st.integers(0, 5)) == 0
    shown = dict(list(kinds.items())[:12])
    return Case(shown, sizes.tolist()[:50], container, roles, model, options, arrays, other, twin)


def _sizes(draw: st.DrawFn, rng: Rng, size: int, sets: int, *, least: int) -> np.ndarray[Any, Any]:
    sizes = rng.integers(least, draw(st.integers(least, size)) + 1, draw(st.integers(1, sets)))
    return np.where(rng.random(len(sizes)) < 0.1, 1, sizes)  # some sets have a single alternative


def _inputs(draw: st.DrawFn, sound: bool, width: int | None, container: str) -> dict[str, str]:
    """Draw names of columns and their kinds."""
    odd = [*KINDS, *MIXED] if container == "mapping" else [*KINDS]
    usual = st.sampled_from(SOUND)
    kind = usual if sound else st.one_of(usual, st.sampled_from(odd))
    pool = draw(st.lists(kind, min_size=1, max_size=6))
    names = draw(st.permutations(NAMES))
    width = width or (len(pool) if sound else draw(st.integers(0, len(pool))))
    return {names[k] if k < len(names) else f"column {k}": pool[k % len(pool)] for k in range(width)}


def _extras(
    draw: st.DrawFn, rng: Rng, sound: bool, of: Ints, place: Ints, chosen: Ints
) -> dict[str, tuple[str, str, Any]]:
    """Draw columns for the other roles: name -> role, kind, values."""
    columns: dict[str, tuple[str, str, Any]] = {}
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["places", "names"] if sound else ["places", "names", "texts"]))
        names = _texts(rng, len(of)) if kind == "texts" else [f"alternative {k}" for k in place]
        columns["label"] = ("alternative", kind, place if kind == "places" else names)
    if draw(st.integers(0, 5)) == 0:
        kind = draw(st.sampled_from(["int", "bool"] if sound else [*FLAGS]))
        columns["open"] = ("available", kind, FLAGS[kind](rng, chosen | (rng.random(len(of)) < 0.7)))
    if draw(st.integers(0, 5)) == 0:
        some = ["prices", "ordinal", "constant", "large"]
        kind = draw(st.sampled_from(some if sound else [*some, "tiny", "huge", "nan", "zero", "text"]))
        values = KINDS[kind](rng, int(of[-1]) + 1)
        values = np.abs(values) if isinstance(values, np.ndarray) else values
        columns["weight"] = ("weight", kind, _take(values, of))
    return columns


def _options_of_reading(
    draw: st.DrawFn, roles: dict[str, Any], sound: bool, inputs: list[str], columns: list[str]
) -> None:
    if draw(st.integers(0, 3)) == 0:
        roles["missing"] = "indicator"
    if draw(st.integers(0, 4)) == 0:
        roles["conflict"] = "first"
    if draw(st.integers(0, 5)) == 0:
        roles["categorical"] = [name for name in inputs[:6] if draw(st.booleans())]
    if not sound and draw(st.integers(0, 4)) == 0:  # an invalid role
        wrong = draw(st.sampled_from(["choice_set", "chosen", "alternative", "available", "weight", "missing", "keep"]))
        roles[wrong] = draw(st.sampled_from([*columns, "absent", "", None, 3]))


def _model(draw: st.DrawFn, inputs: list[str], kinds: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Draw a registered model with quick options, some of them invalid for the table."""
    model = draw(st.one_of(st.sampled_from(["uniform", "mnl", "pcmcnet"]), st.sampled_from(sorted(MODELS))))
    options = dict(QUICK.get(model, {}))
    if model == "rank-by":
        options["column"] = draw(st.sampled_from([*inputs[:6], "label", "absent"]))
    if model == "nested-mnl":
        nests = st.sampled_from([{"alternative 0": "a", "alternative 1": "a"}, {"0": "a", "1": "b"}, *inputs[:6]])
        options["nests"] = draw(nests)
    if model == "cross-nested-mnl":
        labels = ["alternative 0", "alternative 1"]
        nests = st.sampled_from([{"a": labels, "b": labels[1:]}, {"a": ["0", "1"], "b": ["1"]}, {"a": {"0": 1}}])
        options["nests"] = draw(nests)
    if model == "lc-mnl" and draw(st.booleans()):
        options["classes"] = "auto"
    return model, options


@pytest.fixture(scope="session")
def hostile() -> Callable[..., st.SearchStrategy[Case]]:
    """Return the strategy that draws cases."""
    return cases
