"""A table whose sets lie together -> the same table with the probability of each row, without a scan.

    pieces of whole sets, decoded and checked in threads  ->  their probabilities  ->  files that a thread copies

What is wrong with a piece is left to the scan, which says it of the whole table.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.ahead import ahead
from pcmcnet.data.kinds.category import reported_together
from pcmcnet.data.pieces import ROWS
from pcmcnet.data.scan.contents import row_bytes
from pcmcnet.data.scan.sources import CsvStream, Stream, open_stream
from pcmcnet.data.scan.whole_sets import piece_lengths, read_pieces
from pcmcnet.data.write_files import appending
from pcmcnet.errors import ArtifactError, PcmcNetError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.storage.files import replacing, require_folder, writing
from pcmcnet.training.device import undisturbed

log = logging.getLogger("pcmcnet")

_SHARES = 32  # of the memory, one of which a piece may take: several are under way, and checks take copies


class File(NamedTuple):
    """A file of a table, and the one that is made of it."""

    stream: Stream
    target: Path
    at_once: int  # rows that are copied at a time


@undisturbed()
def predict_in_one_pass(model: ChoiceModel, table: Path, copies: Copies, *, memory: int) -> int | None:
    """Write files with the probability of each row as one more column; returns the number of rows.

    None where the table is to be scanned, for what is in it or for how it lies.
    """
    try:
        lengths = _copy(model, table, copies, memory)
        return None if lengths is None else int(lengths.sum())
    except ArtifactError:  # there is no space for it, for example
        raise
    except PcmcNetError:
        return None


def _copy(model: ChoiceModel, table: Path, copies: Copies, memory: int) -> Ints | None:
    """Copy all files, and return the numbers of rows of the pieces; None where the table is to be scanned."""
    schema = model.schema.for_prediction()
    stream = open_stream(table, schema.columns)
    if schema.outside is not None or schema.contents or isinstance(stream, CsvStream):
        return None
    share = memory // (_SHARES * model._pieces_at_once)
    rows = max(min(ROWS, share // row_bytes(stream, schema)), 1)
    lengths = piece_lengths(stream.only(schema.choice_set), rows, memory // 2)
    if lengths is None:
        return None
    log.info("predicting %s as it is read", table)
    read = read_pieces(stream, lengths, rows, schema.choice_set)
    with closing(read) as pieces, closing(copies.written()) as writer, reported_together():
        found = (np.exp(log_p) for log_p in model._log_proba_of_pieces(pieces))
        complete = [next(writer), *ahead(partial(writer.send, p) for p in found)]
    return lengths if complete[-1] else None  # the table was changed meanwhile


@dataclass
class Copies:
    """Files of a table with one more column, made in a folder, which is removed at the end, and put in their places."""

    files: Callable[[], Iterable[File]]
    column: str
    folder: Path
    made: list[tuple[Path, Path]] = field(default_factory=list)  # each file, and its place

    def __enter__(self) -> Self:
        require_folder(self.folder)
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder)

    def written(self) -> Generator[bool, Floats, None]:
        """Write all files as far as values of the new column are known, which are sent.

        Yields whether as many were sent as there are rows.
        """
        self.made.clear()
        known = np.empty(0)
        for k, (stream, target, at_once) in enumerate(self.files()):
            path = self.folder / str(k)
            with writing(target), appending(path, stream.schema, self.column) as append:
                for batch in stream.batches(at_once):
                    while len(known) < batch.num_rows:
                        known = np.concatenate([known, (yield False)])
                    append(batch, known[: batch.num_rows])
                    known = known[batch.num_rows :]
            self.made.append((path, target))
        yield not len(known)
        while True:
            yield False

    def put_in_place(self) -> None:
        """Put all files in their places."""
        for path, target in self.made:
            with replacing(target) as beside:
                path.replace(beside)
