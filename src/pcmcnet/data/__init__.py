"""Data pipeline: a table becomes choice sets, which become batches of tensors.

Classes that hold tensors are imported on first use, so that reading tables, scanning tables and learning encoders do
not require PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcmcnet.data.catalogue_data import CatalogueData
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunked_data import ChunkedData, read_chunked
from pcmcnet.data.encoder import Encoder
from pcmcnet.data.pair_features import PairTable
from pcmcnet.data.scan import ScannedData
from pcmcnet.data.schema import Schema

Sets = ChoiceData | ScannedData  # in memory | on disk: what a model is fitted to

__all__ = ["Batch", "CatalogueData", "ChoiceData", "ChunkedData", "EncodedSets", "EncodedStream", "Encoder"]
__all__ += ["PairTable", "ScannedData", "Schema", "Sets", "Source", "read_chunked"]

if TYPE_CHECKING:
    from pcmcnet.data.batches import Batch, EncodedSets, Source
    from pcmcnet.data.scan.stream import EncodedStream
else:
    _TENSORS = {"Batch": "batches", "EncodedSets": "batches", "EncodedStream": "scan.stream", "Source": "batches"}

    def __getattr__(name: str) -> Any:
        if name in _TENSORS:
            return getattr(import_module(f"{__name__}.{_TENSORS[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
