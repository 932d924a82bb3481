"""The same work on several processes or machines, by Ray. Ray itself is loaded by the functions only."""

from pcmcnet.cluster.offers import write_offers
from pcmcnet.cluster.prediction import predict
from pcmcnet.cluster.scanning import scan
from pcmcnet.cluster.search import tune
from pcmcnet.cluster.training import fit

__all__ = ["fit", "predict", "scan", "tune", "write_offers"]
