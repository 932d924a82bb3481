"""How soon the market view of the served page gets its figures, and the memory that the server needs for them.

    python -m benchmarks.market

The markets are the 1,000 trips between cities in the package, as the table of the server, and 2,000 simulated airline
choice sets (64,716 itineraries), sent as CSV text with every question. The models are the default PCMC-Net (up to six
networks), a single network and a multinomial logit. For each market and model, the table shows the time of the first
answer, of a question with a changed price, and of the eleven points of a curve, each a question, as on the page. Times
are seconds, followed by the CPU seconds of the server, which depend less on other programs. The table also shows the
memory of the server before the first and after the last question, and the largest difference of a share from that of
``pn.scenario``.
"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.csv

import pcmcnet as pn
from benchmarks.serving import cpu, memory, start
from pcmcnet.datasets import airline, intercity

POINTS = range(-25, 30, 5)  # of a curve, in per cent of the price


def save_models(folder: Path) -> dict[str, tuple[Path, Path, str]]:
    """Fit and save the models; return the folder of each with its market and its price column."""
    trips = intercity.read()
    flights = pn.ChoiceData.from_long(airline.simulate(400, seed=0), **airline.ROLES)
    sample = airline.simulate(2_000, seed=1).drop_columns(["true_prob", "alternative", "choice"])
    pyarrow.csv.write_csv(sample, folder / "flights.csv")
    formula = "totalPrice + totalTripDurationMinutes + nFlights"
    cases = {
        "trips, PCMCNet": (pn.PCMCNet(epochs=1), trips, intercity.PATH, "price"),
        "trips, MNL": (pn.MNL(), trips, intercity.PATH, "price"),
        "flights, PCMCNet": (pn.PCMCNet(epochs=1), flights, folder / "flights.csv", "totalPrice"),
        "flights, one network": (pn.PCMCNet(epochs=1, members=1), flights, folder / "flights.csv", "totalPrice"),
        "flights, MNL": (pn.MNL(formula=formula), flights, folder / "flights.csv", "totalPrice"),
    }
    saved = {}
    for k, (name, (model, data, table, price)) in enumerate(cases.items()):
        model.fit(data, progress=False).save(folder / str(k))
        saved[name] = (folder / str(k), table, price)
    return saved


def ask(address: str, **question: Any) -> Any:
    """Return the answer to a question about a market."""
    content = json.dumps(question).encode()
    request = urllib.request.Request(f"{address}/v1/market", content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def measure(folder: Path, table: Path, price: str) -> list[str]:
    """Return the figures of one model and one market as texts."""
    is_served = table == intercity.PATH
    process, address = start(folder, "--deadline", "600", *(["--table", str(table)] if is_served else []))
    source = {"table": True} if is_served else {"csv": table.read_text("utf-8")}
    options = {**source, "revenue": price, "by": [None]}

    def timed(*scenarios: list[str]) -> str:
        began, spent = time.perf_counter(), cpu(process.pid)
        answers.extend(ask(address, **options, scenarios=[scenario]) for scenario in scenarios)
        return f"{time.perf_counter() - began:.2f} ({cpu(process.pid) - spent:.2f})"

    answers: list[Any] = []
    try:
        before = memory(process.pid)
        times = [timed([]), timed([f"{price} *= 1.1"]), timed(*([f"{price} *= {1 + k / 100}"] for k in POINTS))]
        after = memory(process.pid)
    finally:
        process.terminate()
        process.wait()
    expected = pn.scenario(pn.load(folder), table, f"{price} *= 1.1", intervals=False).shares
    groups = answers[1]["scenarios"][0]["groupings"][0]["groups"]
    gap = max(abs(group["share"]["after"] - expected[group["group"]].after) for group in groups)
    return [*times, f"{before:.0f}, {after:.0f}", f"{gap:.0e}"]


def main() -> None:
    """Measure all markets and models, and print a table."""
    heads = ["market, model", "first", "changed price", "curve", "memory before and after, MB", "difference"]
    print(f"| {' | '.join(heads)} |\n|---{'|---:' * (len(heads) - 1)}|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, table, price) in save_models(Path(folder)).items():
            print(f"| {name} | {' | '.join(measure(model, table, price))} |", flush=True)


if __name__ == "__main__":
    main()
