"""Tables larger than memory: files -> partitions on disk -> shards, which are read one after another."""

from pcmcnet.data.scan.scanned import ScannedData, learn_or_load_encoder

__all__ = ["ScannedData", "learn_or_load_encoder"]
