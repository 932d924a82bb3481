"""Offers to the individuals of a table, by several workers.

This process reads the pieces of the table and writes their offers, in their order; workers search. Twice as many pieces
as workers are under way at most, so that memory is bounded. When a worker dies, Ray gives its piece to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pcmcnet.cluster.engine import connected
from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.offer_files import Written, searched_piece, write_searched
from pcmcnet.decisions.offer_search import OfferSearch
from pcmcnet.decisions.optimise_offer import Revenue
from pcmcnet.errors import PcmcNetError
from pcmcnet.models import ChoiceModel, load
from pcmcnet.storage.files import as_path


def write_offers(
    model: ChoiceModel | str | Path,
    catalogue: Any,
    individuals: str | Path,
    path: str | Path,
    revenue: Revenue = "revenue",
    *,
    outside: Any = None,
    constraints: Constraints | None = None,
    seed: int = 0,
    workers: int = 2,
) -> Written:
    """Find an offer for each individual of a table by several workers: the same file as from one process.

    Parameters
    ----------
    model
        A fitted model, or the folder of one.
    workers
        Processes that search.
    catalogue, individuals, path, revenue, outside, constraints, seed
        As for :func:`pcmcnet.write_offers`.
    """
    fitted = model if isinstance(model, ChoiceModel) else load(model)
    search = OfferSearch(fitted, catalogue, revenue, outside, constraints or Constraints(), seed)
    with connected(workers) as ray:

        def by_workers(search: OfferSearch, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
            task = ray.remote(num_cpus=1, max_retries=-1)(_searched)
            shared, waiting = ray.put(search), deque[Any]()
            for number, piece in enumerate(pieces):
                waiting.append(task.remote(shared, number, piece))
                if len(waiting) >= 2 * workers:
                    yield _unless_refused(ray.get(waiting.popleft()))
            while waiting:
                yield _unless_refused(ray.get(waiting.popleft()))

        return write_searched(search, as_path(individuals), as_path(path), by_workers)


def _searched(search: OfferSearch, number: int, piece: pa.Table) -> pa.Table | PcmcNetError:
    """Search a piece; that it cannot be is an answer too, since another try would not help."""
    try:
        return searched_piece(search, number, piece)
    except PcmcNetError as error:
        return error


def _unless_refused(found: pa.Table | PcmcNetError) -> pa.Table:
    if isinstance(found, PcmcNetError):
        raise found
    return found
