"""Tables larger than memory: files -> piles -> shards on disk -> one part after the other."""

from pcmcnet.data.scan.scanned import ScannedData, learn_or_load_encoder

__all__ = ["ScannedData", "learn_or_load_encoder"]
