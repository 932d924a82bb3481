"""Tables larger than memory: rows are distributed to partitions on disk, which become shards that are read in turn."""

from pcmcnet.data.scan.scanned import ScannedData, learn_or_load_encoder

__all__ = ["ScannedData", "learn_or_load_encoder"]
