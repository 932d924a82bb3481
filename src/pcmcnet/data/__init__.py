"""Table -> choice sets -> batches."""

from pcmcnet.data.batches import Batch, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoding import Encoder
from pcmcnet.data.schema import Schema

__all__ = ["Batch", "ChoiceData", "EncodedSets", "Encoder", "Schema"]
