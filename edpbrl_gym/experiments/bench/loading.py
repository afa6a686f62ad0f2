"""The world of a regime: prepared once for each run folder, loaded by every unit of work."""

from __future__ import annotations

from pathlib import Path

from edpbrl_gym.experiments.bench.item_worlds import load_items, prepare_items
from edpbrl_gym.experiments.bench.prompt_worlds import load_prompts, prepare_prompts
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import BenchSettings
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.features import TextEncoder

__all__ = ["load_world", "prepare_world"]


def prepare_world(
    settings: BenchSettings, regime: Regime, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Write what the units of a regime read, unless it is there: token files, and embeddings where there are prompts.

    Args:
        settings: Of the benchmark.
        regime: Whose world.
        encoder: With the cache on disk.
        folder: The run folder.
        progress: Show progress bars while texts are encoded.
    """
    prepare = prepare_items if regime.items else prepare_prompts
    prepare(settings, regime, encoder, folder, progress=progress)


def load_world(settings: BenchSettings, regime: Regime, folder: Path, fingerprint: str, *, seed: int = 0) -> World:
    """The world of a unit; each process keeps the last ones in memory.

    Args:
        settings: Of the benchmark.
        regime: Which one.
        folder: The run folder, in which ``prepare_world`` has written.
        fingerprint: Of the encoder.
        seed: Of the unit; it draws the items and the taste of "sphere" and "clustered".
    """
    if regime.items:
        return load_items(settings, regime, folder, fingerprint, seed)
    return load_prompts(settings, regime, folder, fingerprint)
