"""What the commands share that train a model into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edpbrl_gym.cli.console import shown
from edpbrl_gym.cli.errors import Stopped

__all__ = ["training_into"]


@contextmanager
def training_into(folder: Path, check_replaceable: Callable[[Path], None]) -> Iterator[None]:
    """Hold the folder of a model while it is trained and reported.

    Args:
        folder: Where the model will be written, whole or not at all.
        check_replaceable: Raises a ValueError if something else is there.

    Raises:
        Stopped: After Ctrl-C; nothing is written.
    """
    from edpbrl_gym._places import hold_place

    check_replaceable(folder)
    lock = hold_place(folder)
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped by you; nothing was written to {shown(folder)}, the same command starts again"
        ) from None
    finally:
        del lock  # else the error's traceback keeps the lock's file
