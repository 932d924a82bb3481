"""Results -> pictures: every plot computes first and draws second; matplotlib is loaded by drawing only."""

from pcmcnet.plots.learning_curve import LearningCurve, draw_learning_curve, learning_curve
from pcmcnet.plots.preference_map import PreferenceMap, draw_preference_maps, preference_map

__all__ = [
    "LearningCurve",
    "PreferenceMap",
    "draw_learning_curve",
    "draw_preference_maps",
    "learning_curve",
    "preference_map",
]
