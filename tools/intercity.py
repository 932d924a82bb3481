"""Write the table of trips between cities that is part of the package: ``python -m tools.intercity``.

The simulator, ``pcmcnet.datasets.intercity``, documents the true choice probabilities.
"""

from __future__ import annotations

import io

import pyarrow.csv

from pcmcnet.datasets import intercity

TRIPS = 1_000


def csv_file() -> bytes:
    """Return the bytes of the CSV file."""
    table = intercity.simulate(TRIPS, seed=intercity.SEED)
    buffer = io.BytesIO(",".join(table.column_names).encode() + b"\n")
    buffer.seek(0, io.SEEK_END)
    pyarrow.csv.write_csv(table, buffer, pyarrow.csv.WriteOptions(include_header=False, quoting_style="none"))
    return buffer.getvalue()


if __name__ == "__main__":
    intercity.PATH.write_bytes(csv_file())
