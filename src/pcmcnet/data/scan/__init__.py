"""Tables larger than memory: files -> piles -> shards on disk -> one part after the other."""

from pcmcnet.data.scan.encoder_cache import learnt
from pcmcnet.data.scan.scanned import ScannedData

__all__ = ["ScannedData", "learnt"]
