"""Tables larger than memory: files -> piles -> shards on disk -> one part after the other."""

from pcmcnet.data.scan.encoder_cache import learnt
from pcmcnet.data.scan.scanned import ScannedData
from pcmcnet.data.scan.stream import EncodedStream

__all__ = ["EncodedStream", "ScannedData", "learnt"]
