"""Choice sets in memory or on disk: what is done with either kind by the same call."""

from __future__ import annotations

from collections.abc import Mapping

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.contents import Frozen
from pcmcnet.data.encoding import Encoder
from pcmcnet.data.scan.encoder_cache import learnt
from pcmcnet.data.scan.scanned import ScannedData

Sets = ChoiceData | ScannedData


def learn_encoder(
    data: Sets, *, bend: bool = False, labels: bool = False, frozen: Mapping[str, Frozen] | None = None
) -> Encoder:
    """Learn an encoder by :meth:`Encoder.learn`; from a table on disk only once, as it is kept beside the shards."""
    if isinstance(data, ChoiceData) or frozen:
        return Encoder.learn(data, bend=bend, labels=labels, frozen=frozen)
    return learnt(data, bend=bend, labels=labels)
