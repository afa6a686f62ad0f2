"""Options of the renderer that don't affect the images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edpbrl_gym._validation import check_count

if TYPE_CHECKING:
    from edpbrl_gym._executor import Executor
    from edpbrl_gym.rendering import Renderer, RenderSettings

__all__ = ["Drawing"]


@dataclass(frozen=True)
class Drawing:
    """Device, batches and cache of the renderer.

    Attributes:
        device: Torch device (None: cuda where there is one, else cpu).
        batch_size: Maximum number of images per batch; halved when the memory is too small.
        attention_slicing: Use less memory and more time.
        cache: Folder of the image cache (None: images/ in the folder that EDPBRL_CACHE names, else in the user's
            cache).

    Raises:
        ValueError: A batch size below 1.
    """

    device: str | None = None
    batch_size: int = 4
    attention_slicing: bool = False
    cache: Path | None = None

    def __post_init__(self) -> None:
        check_count(self.batch_size, "--batch-size")

    def renderer(self, settings: RenderSettings, executor: Executor | None = None) -> Renderer:
        """A renderer; its model is loaded when the first image is missing in the cache."""
        from edpbrl_gym.features import default_cache_folder
        from edpbrl_gym.rendering import Renderer

        return Renderer(
            settings,
            cache_folder=self.cache or default_cache_folder() / "images",
            device=self.device,
            batch_size=self.batch_size,
            attention_slicing=self.attention_slicing,
            executor=executor,
        )
