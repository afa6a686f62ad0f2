"""Where things are in a picture: what the parts of a drawing share."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.rendering.posters.brush import Brush
from edpbrl_gym.rendering.posters.shapes import Subject, motif

__all__ = ["Stage"]


@dataclass
class Stage:
    """A landscape of ``width`` x ``height`` units with a subject.

    Attributes:
        brush: Draws, in the tones of palette and light.
        width: Of the landscape.
        height: Of the landscape.
        horizon: Its y.
        places: The x of each subject's foot.
        base: The y of their feet.
        size: Units of the page in one of the subject's.
        subject: What is shown.
        light: The token of the light.
        seed: Of all details.
        view: Share of the width that a window shows.
        floor: The y down to which sky and far land are drawn.
    """

    brush: Brush
    width: float
    height: float
    horizon: float
    places: tuple[float, ...]
    base: float
    size: float
    subject: Subject
    light: str
    seed: int
    view: float
    floor: float

    @property
    def tones(self) -> dict[str, str]:
        """The colours by their parts."""
        return self.brush.tones

    @property
    def depth(self) -> float:
        """From the horizon to the lower edge."""
        return self.height - self.horizon

    @property
    def middle(self) -> float:
        """The x of the subject in the middle."""
        return self.places[len(self.places) // 2]

    def rng(self, part: str) -> Random:
        """Random numbers of one part of the picture; another part's do not change them."""
        return Random(derive_seed(self.seed, "posters", part, self.subject.title))

    def motif(self, name: str, x: float, y: float, size: float = 1.0) -> None:
        """Draw one of ``motifs.txt``."""
        motif(self.brush, name, f"translate({x:.1f} {y:.1f}) scale({size:.3f})", size)
