from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.attribution import Attribution
from pcmcnet.insight.importance import Importance, ImportanceRow
from pcmcnet.plots.importance import attribution_bars, draw_attribution, draw_importance, importance_bars


def importances(*values: float, high: float = 1.0) -> Importance:
    rows = tuple(ImportanceRow(f"column $ {k}", (f"{k}",), v, 0.1, -high, high) for k, v in enumerate(values))
    return Importance("MNL", "nll", "within", 1.5, 5, rows)


def attributed(rivals: int) -> Attribution:
    push = -np.linspace(0.5, 0.1, rivals)
    names = tuple(f"rival {k}" for k in range(rivals))
    p = np.full(rivals, 0.1)
    return Attribution(1, "a $", 0.3, names, np.arange(rivals), p, p, push, push / 2)


def test_bars_hold_values_and_intervals() -> None:
    assert importance_bars(importances(0.5, 0.2))[0] == ("column $ 0", 0.5, -1.0, 1.0)
    assert importance_bars(importances(0.5, high=np.inf))[0] == ("column $ 0", 0.5, 0.5, 0.5)
    assert len(importance_bars(importances(*[0.1] * 30), most=7)) == 7
    assert attribution_bars(attributed(3))[0] == ("rival 0", -0.5, -0.25)
    assert len(attribution_bars(attributed(30))) == 12
    with pytest.raises(ConfigError, match="most"):
        importance_bars(importances(0.1), most=0)


def test_bars_become_pngs(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    path = draw_importance(importances(0.5, 0.2, -0.1), tmp_path / "importance.png", title="$5", most=2)
    assert png_size(path)[0] == 1280
    path = draw_attribution(attributed(15), tmp_path / "attribution.png", title="$5")
    assert png_size(path)[0] == 1280
    with pytest.raises(InputError, match="does not exist"):
        draw_importance(importances(0.5), tmp_path / "nowhere" / "importance.png")
