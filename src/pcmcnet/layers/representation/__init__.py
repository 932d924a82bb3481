"""Encoded columns -> vectors: embeddings, curves of numbers, and encoders of texts, pictures and other contents."""

from pcmcnet.layers.representation.content_encoders import width_of
from pcmcnet.layers.representation.module import Representation, representation_of

__all__ = ["Representation", "representation_of", "width_of"]
