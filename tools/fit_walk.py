"""List the modules that a fit runs through, from the command to the saved folder: ``python -m tools.fit_walk``.

A module is *run* if one of its functions is called. It is *entered* if the first call comes from another folder. Later
calls from other folders are *returns*: they go through an interface (``ChoiceModel``, ``ChoiceNetwork``) or a callback,
and are listed separately. The table is in memory and has numbers and categories; the model is PCMC-Net.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np

import pcmcnet
from pcmcnet.cli import main

ROOT = f"{Path(pcmcnet.__file__).parent}/"
COLUMNS = ("trip", "took", "mode", "cost", "comfort", "income")
ROLES = [
    "--choice-set",
    "trip",
    "--chosen",
    "took",
    "--alternative",
    "mode",
    "--individual",
    "income",
    "--features",
    "cost,comfort",
]


@dataclass
class Walk:
    """Modules such as data/read_long.py, in the order of their first call."""

    run: list[str] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)  # functions such as models/pcmcnet.py:_build
    calls: Counter[str] = field(default_factory=Counter)  # by function, such as data/subsets.py:fingerprint

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; Python's profiler calls this."""
        module = _module(frame)
        if event != "call" or module is None:
            return
        name = f"{module}:{frame.f_code.co_name}"
        self.calls[name] += 1
        from_other_folder = _folder(_caller(frame)) != _folder(module)
        if module not in self.run:
            self.run.append(module)
            if from_other_folder:
                self.entered.append(module)
        elif from_other_folder and module not in self.entered and name not in self.returns:
            self.returns.append(name)

    def __str__(self) -> str:
        folders = dict.fromkeys(_folder(module) for module in self.run)
        rows = [
            f"{folder:<14} {sum(_folder(m) == folder for m in self.run):>3} run   entered by "
            + (", ".join(m.removeprefix(f"{folder}/") for m in self.entered if _folder(m) == folder))
            for folder in folders
        ]
        count = f"{len(self.run)} modules run, {len(self.entered)} of them entered from another folder"
        return "\n".join([*rows, f"returns: {', '.join(self.returns)}", count])


def _module(frame: FrameType) -> str | None:
    file = frame.f_code.co_filename
    return file.removeprefix(ROOT) if file.startswith(ROOT) else None


def _caller(frame: FrameType) -> str | None:
    """Return the calling module of the package; calls may pass through torch or the standard library."""
    above = frame.f_back
    while above is not None and _module(above) is None:
        above = above.f_back
    return None if above is None else _module(above)


def _folder(module: str | None) -> str | None:
    return module if module is None else module.partition("/")[0]


def fit_walk(sets: int = 40) -> Walk:
    """Fit twice and return the walk of the second fit; the first fit also calls functions of imports."""
    rng = np.random.default_rng(0)
    walk = Walk()
    with TemporaryDirectory() as place:
        table = Path(place) / "trips.csv"
        with table.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(COLUMNS)
            for trip in range(sets):
                chosen = rng.integers(3)
                for k, mode in enumerate(("car", "bus", "bike")):
                    comfort = ("low", "high")[rng.integers(2)]
                    rows.writerow([trip, int(k == chosen), mode, rng.random(), comfort, trip % 7 + 0.5])
        for name in ("first", "second"):
            sys.argv = ["pcmcnet", "fit", str(table), *ROLES, "--set", "epochs=2", "-o", f"{place}/{name}"]
            if name == "second":
                sys.setprofile(walk.record)
            try:
                main()
            except SystemExit as end:
                if end.code:
                    raise
            finally:
                sys.setprofile(None)
    return walk


if __name__ == "__main__":
    sys.stdout.write(f"\n{fit_walk()}\n")
