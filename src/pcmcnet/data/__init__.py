"""Table -> choice sets -> batches."""

from pcmcnet.data.batches import Batch, EncodedSets, Source
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoding import Encoder
from pcmcnet.data.scan import EncodedStream, ScannedData
from pcmcnet.data.schema import Schema

Sets = ChoiceData | ScannedData  # in memory, or on disk

__all__ = ["Batch", "ChoiceData", "EncodedSets", "EncodedStream", "Encoder", "ScannedData", "Schema", "Sets", "Source"]
