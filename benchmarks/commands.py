"""Time of commands that need no network, compared with ``python -c "import torch"`` in the same run.

Each command runs in a new process, as in a terminal. The processes run in turn, and the shortest CPU time of some runs
counts: user and system seconds, which do not depend on other programs as much as elapsed time does. The first run may
compile modules to bytecode, as pip does when it installs the package. The column ``torch`` states whether a command has
imported PyTorch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.harness import Row, Table, in_turn
from pcmcnet.datasets import intercity

RUNS = 3
COLUMNS = {"command": "", "cpu s": ".2f", "x import torch": ".2f", "elapsed s": ".2f", "torch": ""}
ROLES = ["--choice-set", "trip", "--chosen", "chosen", "--alternative", "mode", "--features", "price,time"]
TABLE = str(intercity.PATH)
COMMANDS: dict[str, list[str]] = {
    "--help": ["--help"],
    "fit --help": ["fit", "--help"],
    "models": ["models"],
    "datasets": ["datasets"],
    "check TABLE": ["check", TABLE],
    "split TABLE": ["split", TABLE, "--choice-set", "trip", "-o", "parts"],
    "fit, wrong path": ["fit", "nowhere.csv", *ROLES, "-o", "m"],
    "fit, wrong option": ["fit", TABLE, *ROLES, "--epochs", "3", "-o", "m"],
    "fit --model mnl": ["fit", TABLE, *ROLES, "--model", "mnl", "--overwrite", "-o", "mnl"],
    "fit --model lc-mnl": ["fit", TABLE, *ROLES, "--model", "lc-mnl", "--set", "starts=2", "--overwrite", "-o", "lc"],
    "show MODEL": ["show", "mnl"],
    "predict MODEL": ["predict", "mnl", TABLE, "-o", "p.csv"],
    "evaluate MODEL": ["evaluate", "mnl", TABLE],
}
_TORCH_AT_EXIT = "import atexit, sys; atexit.register(lambda: print('torch:', 'torch' in sys.modules, file=sys.stderr))"
_RUN = f"{_TORCH_AT_EXIT}; from pcmcnet.cli import main; main()"


def main() -> list[Row]:
    """Measure all commands in turn, and print their CPU times and the ratios."""
    table = Table(f"commands on {len(intercity.read()):,} choice sets", COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        ways = {"import torch": partial(measure, ["-c", "import torch"], folder, [])}
        elapsed: dict[str, list[float]] = {}
        loaded: dict[str, bool] = {}
        ways |= {name: partial(_command, name, words, folder, elapsed, loaded) for name, words in COMMANDS.items()}
        times = {name: min(seconds) for name, seconds in in_turn(ways, RUNS).items()}
    for name, seconds in times.items():
        ratio = seconds / times["import torch"]
        took = min(elapsed[name]) if name in elapsed else None
        state = "yes" if loaded.get(name, True) else "no"
        table.add({"command": name, "cpu s": seconds, "x import torch": ratio, "elapsed s": took, "torch": state})
    return table.rows


def _command(
    name: str, words: list[str], folder: str, elapsed: dict[str, list[float]], loaded: dict[str, bool]
) -> float:
    notes: list[str] = []
    before = os.times().elapsed
    seconds = measure(["-c", _RUN, *words], folder, notes)
    elapsed.setdefault(name, []).append(os.times().elapsed - before)
    loaded[name] = any("torch: True" in note for note in notes)
    return seconds


def measure(words: list[str], folder: str, notes: list[str]) -> float:
    """Run Python with these arguments, collect its messages, and return its CPU seconds."""
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    before = os.times()
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    after = os.times()
    notes.append(done.stderr)
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    main()
