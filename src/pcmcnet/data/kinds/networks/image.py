"""Pixels -> vectors."""

from torch import Tensor, nn

_DROPPED = 0.3  # share of what a picture's fields show: pictures are few, and soon learnt by heart


class Picture(nn.Module):
    """Convolutions of 3 x 3, each halving the sides until they are at most 4, then a linear map to a unit scale.

    The vector is narrow: with less room for a picture's own traits, unseen pictures are told by what they share with
    others.
    """

    def __init__(self, shape: tuple[int, int, int], width: int = 8, channels: int = 32) -> None:
        super().__init__()
        seen, *sides = shape
        layers: list[nn.Module] = [nn.Conv2d(seen, channels // 2, 3, padding=1), nn.ReLU()]
        seen = channels // 2
        while max(sides) > 4:
            layers += [nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(seen, channels, 3, padding=1), nn.ReLU()]
            seen, sides = channels, [-(-side // 2) for side in sides]
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Dropout(_DROPPED), nn.Linear(seen * sides[0] * sides[1], width)
        )
        self.scale = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """(u, C, H, W) from 0 to 1 -> (u, width)."""
        vectors: Tensor = self.scale(self.layers(2 * pixels - 1))
        return vectors
