"""Settings of the experiment with a language model as the user: its styles, its folds, the paper's results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.experiments.settings import AgentSettings, DesignSettings, check_named

__all__ = ["PAPER_AVERAGE", "PAPER_RESULTS", "STYLES", "Fold", "LLMSettings", "PaperResult", "make_folds"]

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


class PaperResult(NamedTuple):
    """Held-out accuracy in the paper at lambda = 100 and 50 training episodes, in percent (its Table 2)."""

    design: float  # with the questions of ED-PBRL
    random: float  # with Random questions
    difference: float  # as printed, percentage points; rounded from more digits than the other two


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


class Fold(NamedTuple):
    """One split of the episodes.

    The paper fixes the test windows: with 60 episodes, fold 0 tests on episodes 50-59, fold 1 on 40-49, fold 2 on
    30-39, and all others train. It doesn't say which of the 50 train at smaller sizes. Here they are taken in cyclic
    order from the one after the test window, so a smaller training set is the beginning of a larger one.
    """

    number: int  # from 0
    test: tuple[int, ...]  # held-out episodes, ascending
    train: tuple[int, ...]  # all others, in the order in which they join the training set

    def training(self, size: int) -> tuple[int, ...]:
        """The training episodes at a size."""
        check_count(size, "train size")
        if size > len(self.train):
            raise ValueError(f"Expected a train size of at most {len(self.train)} episodes, got {size}")
        return self.train[:size]

    def masks(self, episode: NDArray[np.int64], size: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which questions train and which test, given the episode of each, two (n,) arrays."""
        return np.isin(episode, self.training(size)), np.isin(episode, self.test)


def make_folds(episodes: int, test_episodes: int, folds: int) -> tuple[Fold, ...]:
    """Return the folds: windows of ``test_episodes`` from the end of the ``episodes`` backwards."""
    check_count(episodes, "episodes (T)", minimum=2)
    check_count(test_episodes, "test_episodes")
    check_count(folds, "folds")
    if folds * test_episodes > episodes or test_episodes == episodes:
        raise ValueError(
            f"Expected {folds} test windows of {test_episodes} episodes within T = {episodes} episodes and at least "
            "one episode besides each window; use more episodes, fewer folds or smaller windows"
        )
    result = []
    for number in range(folds):
        end = episodes - number * test_episodes
        start = end - test_episodes
        train = [(end + offset) % episodes for offset in range(episodes - test_episodes)]
        result.append(Fold(number, tuple(range(start, end)), tuple(train)))
    return tuple(result)


@dataclass(frozen=True, kw_only=True)
class LLMSettings(DesignSettings):
    """Settings that decide the numbers, besides the judge and the images; the defaults are the paper's.

    Attributes:
        styles: The ten styles by name, or your own as name=guidance.
        episodes: T, episodes asked by every agent (one question for each step of a prompt), the same for all styles.
        train_sizes: Numbers of training episodes at which estimates are judged.
        test_episodes: Held-out episodes of a fold.
        folds: Test windows, from the last episodes backwards.
        lambdas: Lambdas of the paper's ridge estimates; our default estimate, which needs none, is reported too.
    """

    styles: Mapping[str, str] = field(default_factory=lambda: dict(STYLES))
    episodes: int = 60
    train_sizes: tuple[int, ...] = (10, 20, 30, 40, 50)
    test_episodes: int = 10
    folds: int = 3
    lambdas: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "styles", check_named(self.styles, STYLES, "style", "guidance text"))
        check_count(self.num_options, "num_options (K)", minimum=2, maximum=26)  # the judge's labels are letters
        super().__post_init__()
        if not self.lambdas or not self.train_sizes:
            raise ValueError("Expected at least one lambda and one train size, got none")
        for value in self.lambdas:
            check_number(value, "lambdas", minimum=0.0, exclusive=True)
        object.__setattr__(self, "lambdas", tuple(sorted({float(value) for value in self.lambdas})))
        for size in self.train_sizes:
            self.all_folds[0].training(size)
        object.__setattr__(self, "train_sizes", tuple(sorted(set(self.train_sizes))))

    @property
    def all_folds(self) -> tuple[Fold, ...]:
        """The folds."""
        return make_folds(self.episodes, self.test_episodes, self.folds)

    def planned(self, agent: AgentSettings) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """One design for all training sizes."""
        return ((self.episodes, (self.episodes,)),)
