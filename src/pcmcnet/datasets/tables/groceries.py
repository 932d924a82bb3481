"""Choices of a brand, recorded by the scanners of shops: panels of households, in wide form."""

from __future__ import annotations

from typing import Any

from pcmcnet.datasets.tables.packaged_table import PackagedTable


def _brands(
    member: str, *, brands: list[str], features: tuple[str, ...], chosen: str = "choice", person: str = "id"
) -> dict[str, Any]:
    """Return what these tables have in common: their archive, and columns named feature.brand."""
    return {
        "distribution": "pydataset",
        "version": "0.2.0",
        "filename": "resources.tar.gz",
        "member": f"resources/rdata/csv/Ecdat/{member}.csv",
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

# The price is 0 in 3 rows, each time that of the brand bought: what was paid, it seems, not what was asked.
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
