"""Write the golden folders of the present format.

    python tests/models/golden/make.py tests/models/golden/format-2 [NAME ...]

One small model of each kind, fitted to table.csv with seed 0, and expected.json with their probabilities for it. With
names, only these folders are written. The folders of a format are written once, by the version that brought it, and
never again: the tests check that they still load.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import pcmcnet as pn
from pcmcnet.data.files.tabular import read_table

HERE = Path(__file__).parent
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "individual": ["income", "purpose"],
    "features": ["price", "minutes", "comfort"],
}
RICH: dict[str, Any] = {
    **ROLES,
    "individual": ["income", "purpose", "at"],
    "features": ["price", "minutes", "comfort", "spot", "services"],
    "kinds": {"at": "datetime", "spot": "vector", "services": "multi", "minutes": "spline"},
}
NETWORK: dict[str, Any] = {"hidden": (3,), "epochs": 2, "weight_decay": 0.01}


def models() -> dict[str, Any]:
    """One of each kind, as small as it can be."""
    forest = pn.RandomForest(trees=2, max_depth=2)
    return {
        "boosted": pn.Boosted(trees=2, min_samples_leaf=5),
        "bradley-terry": pn.BradleyTerry(),
        "cdm": pn.CDM(),
        "calibrated": pn.Calibrated(forest),
        "cross-nested-mnl": pn.CrossNestedMNL(
            formula="price", nests={"road": ["car", "bus"], "public": ["bus", "train"]}
        ),
        "deephalo": pn.DeepHalo(order=3, width=3, heads=2, **NETWORK),
        "dlcl": pn.DLCL(epochs=2, weight_decay=0.01),
        "dpn": pn.PointerNetwork(hidden=3, epochs=2, weight_decay=0.01),
        "ensemble": pn.Ensemble("mnl", n=2),
        "fate": pn.FATE(set_hidden=(3, 2), **NETWORK),
        "feta": pn.FETA(**NETWORK),
        "hb-mnl": pn.HierarchicalMNL(
            formula="price + minutes", covariates="income", signs={"price": "-"}, chains=2, burn_in=20, draws=20, thin=1
        ),
        "lc-mnl": pn.LatentClassMNL(classes=2),
        "lcl": pn.LCL(epochs=2, weight_decay=0.01),
        "lmnl": pn.LearningMNL(**NETWORK),
        "mixed-mnl": pn.MixedMNL(
            formula="price + minutes",
            random={"price": "-lognormal", "minutes": "normal"},
            correlated=True,
            components={"car": "road", "bus": "road"},
            means={"price": "income"},
            draws=20,
        ),
        "mnl": pn.MNL(formula="log(price) + comfort:purpose + . | income"),
        "nested-mnl": pn.NestedMNL(formula="price", nests={"car": "road", "bus": "road", "train": "rail"}),
        "pcmc": pn.PCMC(),
        "pcmc-bins": pn.PCMC(bins={"price": 3}, identified=["car"]),
        "pcmc-linear": pn.LinearPCMC(),
        "pcmcnet": pn.PCMCNet(**NETWORK),
        "pcmcnet-average": pn.PCMCNet(hidden=(3,), epochs=2, members=3),  # with a learnt decay, and perhaps bins
        "pcmcnet-classes": pn.PCMCNet(**NETWORK, classes=2),
        "pcmcnet-rich": pn.PCMCNet(**NETWORK),
        "rank-by": pn.RankBy(column="price"),
        "reslogit": pn.ResLogit(layers=2, epochs=2, weight_decay=0.01),
        "rf": forest,
        "stacking": pn.Stacking([pn.MNL(formula="price"), pn.Uniform()], folds=2),
        "tcnet": pn.TCNet(width=4, heads=2, **NETWORK),
        "rumnet": pn.RUMnet(**NETWORK, samples=2, noise=2),
        "tastenet": pn.TasteNet(**NETWORK),
        "thurstone": pn.Thurstone(),
        "uniform": pn.Uniform(),
        "with-constants": pn.WithConstants(forest, {"car": 0.5, "bus": 0.25, "train": 0.25}),
    }


def main(folder: Path, names: list[str]) -> None:
    """Fit and save the models, all or those named, and note their probabilities."""
    file = folder / "expected.json"
    expected = json.loads(file.read_bytes()) if file.exists() else {}
    for name, model in models().items():
        if names and name not in names:
            continue
        table: pa.Table = read_table(HERE / "table.csv")
        data = pn.ChoiceData.from_long(table, **(RICH if name.endswith("rich") else ROLES))
        model.fit(data, data if name == "calibrated" else None, device="cpu", progress=False).save(folder / name)
        expected[name] = model.predict_proba(data).round(9).tolist()
    file.write_text(json.dumps(dict(sorted(expected.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
