"""Shared code of all benchmarks: running ways in turn, tables, and the record of a run.

A section is a function that measures, prints one table and returns its rows. A run of some sections is written as JSON:
machine, versions, date, command, and all figures by section.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
Section = Callable[[], list[Row]]
RUNS = Path("runs")  # ignored by git
PACKAGES = ("pcmcnet", "torch", "triton", "numpy")


class Table:
    """A table that is printed row by row, and stored for the record.

    ``columns`` maps headers to number formats; a missing value is printed as a dash. ``first`` is the width of the
    first column.
    """

    def __init__(self, title: str, columns: Mapping[str, str], *, first: int = 18) -> None:
        self.columns, self.rows = dict(columns), list[Row]()
        self.widths = [first, *(max(len(name), 9) for name in list(columns)[1:])]
        print(title)
        self._print(list(columns))

    def add(self, row: Row) -> None:
        """Print a row and store it, including values without a column."""
        self.rows.append(row)
        self._print([f"{row[k]:{form}}" if row.get(k) is not None else "-" for k, form in self.columns.items()])

    def _print(self, words: list[str]) -> None:
        cells = zip(words, self.widths, strict=True)
        print(
            "  ".join(f"{word:<{w}}" if at == 0 else f"{word:>{w}}" for at, (word, w) in enumerate(cells)), flush=True
        )


def seconds(run: Callable[[], Any], device: str = "cpu") -> float:
    """Return the time of one call, including its work on the device."""
    _wait(device)
    began = time.perf_counter()
    run()
    _wait(device)
    return time.perf_counter() - began


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Call the ways in turn, so that noise of the machine affects all of them; return their measurements."""
    results: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            results[name].append(way())
    return results


def best_seconds(ways: Mapping[str, Callable[[], Any]], rounds: int, device: str = "cpu") -> dict[str, float]:
    """Return the shortest time of each way, called in turn after a warm-up round."""
    timed = {name: lambda way=way: seconds(way, device) for name, way in ways.items()}
    return {name: min(times[1:]) for name, times in in_turn(timed, rounds + 1).items()}


def recorded(run: Callable[[], Any], times: int = 1) -> Callable[[], None]:
    """Record some calls as a CUDA graph: a replay has no launch overhead of Python."""
    run()  # compiles and allocates
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    replay: Callable[[], None] = graph.replay
    return replay


def surroundings(command: str) -> dict[str, Any]:
    """Return the machine, the versions and the command of a run."""
    return {
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{name: v for name in PACKAGES if (v := _version(name))}},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }


def machine() -> str:
    """Return the names of processor, cores and GPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    parts = [names[0] if names else platform.processor() or platform.machine(), f"{os.cpu_count()} cores"]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def run(
    module: str,
    sections: Mapping[str, Section],
    *,
    description: str,
    json_file: Path,
    device: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run the sections given on the command line, or all, and write the record after each.

    A module that has options of its own passes the other ``arguments``.
    """
    parser = argparse.ArgumentParser(
        f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"one of {', '.join(sections)}; default: all")
    parser.add_argument("--json", type=Path, default=json_file, help="output file (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.sections if name not in sections]
    if unknown:
        parser.error(f"unknown section {unknown[0]!r}: expected one of {', '.join(sections)}")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"python -m {module} needs a CUDA device; torch {torch.__version__} found none.")
    if device == "cpu":
        torch.set_num_threads(1)
    record = surroundings(" ".join(["python -m", module, *sys.argv[1:]]))
    print(f"{record['machine']}; {', '.join(f'{k} {v}' for k, v in record['versions'].items())}\n{record['command']}\n")
    record["figures"] = {}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen.sections or sections:
        began = time.perf_counter()
        record["figures"][name] = sections[name]()
        chosen.json.write_text(json.dumps(record, indent=2))
        print(f"({name}: {time.perf_counter() - began:.0f} s)\n", flush=True)
    print(f"wrote {chosen.json}")


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
