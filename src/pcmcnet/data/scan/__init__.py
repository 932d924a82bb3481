"""Tables larger than memory: files -> piles -> shards on disk -> one part after the other."""

from pcmcnet.data.scan.scanned import ScannedData, learnt

__all__ = ["ScannedData", "learnt"]
