"""Names of array types by element type (the docstrings give the shapes), and read-only views."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["AnyFloats", "Booleans", "Floats", "Floats32", "Indices", "Positions", "read_only"]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
Indices = NDArray[np.int64]
Positions = NDArray[np.intp]
Booleans = NDArray[np.bool_]

Array = TypeVar("Array", bound=NDArray[Any])


def read_only(array: Array) -> Array:
    """A read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view
