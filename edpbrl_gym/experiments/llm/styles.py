"""The ten styles of the experiment, and the paper's results for each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAPER_AVERAGE", "PAPER_RESULTS", "STYLES", "PaperResult"]

# The names are the paper's; of the guidance texts only the first is (the example it gives), the others are not.
STYLES: dict[str, str] = {
    "futuristic": "Futuristic style with advanced technologies",
    "sunny": "Sunny style: warm colours under a bright, clear sun",
    "forest": "Forest style: deep woods, tall trees, moss and a lot of green",
    "landscape": "Landscape style: wide open scenery of hills, valleys and far horizons",
    "ancient": "Ancient style: ruins, temples and relics of early civilisations",
    "noir": "Film noir style: black and white, hard shadows and suspense in night streets",
    "watercolor": "Watercolour style: soft washes of transparent paint on textured paper",
    "cyberpunk": "Cyberpunk style: neon lights and wired machines in a crowded city at night",
    "minimalist": "Minimalist style: a few simple shapes, plain colours and much empty space",
    "medieval": "Medieval style: castles, knights and village life of the Middle Ages",
}


@dataclass(frozen=True)
class PaperResult:
    """Held-out accuracy in the paper at lambda = 100 and 50 training episodes, in percent (its Table 2).

    Attributes:
        design: Accuracy with the questions of ED-PBRL.
        random: Accuracy with Random questions.
        difference: Their difference as printed, percentage points; rounded from more digits than the other two.
    """

    design: float
    random: float
    difference: float


PAPER_RESULTS: dict[str, PaperResult] = {
    "futuristic": PaperResult(77.2, 57.2, 20.0),
    "sunny": PaperResult(48.9, 35.0, 13.9),
    "forest": PaperResult(45.0, 67.8, -22.8),
    "landscape": PaperResult(51.1, 61.7, -10.6),
    "ancient": PaperResult(71.7, 48.9, 22.8),
    "noir": PaperResult(47.2, 51.7, -4.4),
    "watercolor": PaperResult(61.7, 39.4, 22.2),
    "cyberpunk": PaperResult(81.1, 52.8, 28.3),
    "minimalist": PaperResult(53.9, 45.6, 8.3),
    "medieval": PaperResult(66.7, 50.6, 16.1),
}
PAPER_AVERAGE = PaperResult(60.4, 51.1, 9.4)
