"""Files that are written whole or not at all, and files that one process holds."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

__all__ = ["hold", "replacing"]


def hold(handle: int) -> bool:
    """Lock an open file for this handle until it is closed; return whether no other handle holds it.

    The lock ends with its process, however that ends. Without locks (Windows) nothing is held and the answer is True.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to and then put it in the place of ``path``: readers see the old file or the new.

    On an exception, and on a kill, ``path`` stays as it was; an exception also removes the temporary file.

    Raises:
        OSError: If the folder does not exist or can't be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.part")
    try:
        yield part
        with open(part, "r+b") as written:
            os.fsync(written.fileno())  # the new name must not reach the disk before the contents
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
