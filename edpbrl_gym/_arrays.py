"""Names of array types by element type; the docstrings give the shapes."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["AnyFloats", "Booleans", "Floats", "Floats32", "Indices", "Positions"]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
Indices = NDArray[np.int64]
Positions = NDArray[np.intp]
Booleans = NDArray[np.bool_]
