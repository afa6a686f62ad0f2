"""Where the products over all tokens run: numpy, or torch on a CPU or a CUDA device.

The solvers keep their small matrices in numpy, float64; a backend holds the features (float32, or float64 for checks)
and multiplies them. Both give the same results to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from edpbrl_gym._compat import require
from edpbrl_gym._threads import for_each

__all__ = ["ArrayBackend", "NumpyBackend", "TorchBackend", "make_backend"]


_SMALL = 64 * 2**20  # bytes
_TRIANGLE_PARTS = 4  # strips of a triangular factor: 5/8 of the full product


class ArrayBackend(ABC):
    """Products of rows that live on a device; a native array is whatever the device works with.

    Native arrays know `-`, `*`, `@`, `.T`, `.sum(axis)`, slices, and rows chosen by an array of integers.
    """

    name: str

    @abstractmethod
    def array(self, values: NDArray, dtype: np.dtype) -> Any:
        """A native array of these values."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A native array to be filled."""

    @abstractmethod
    def numpy(self, values: Any) -> NDArray:
        """The values of a native array."""

    @abstractmethod
    def factor_squares(self, rows: Any, factor: Any, triangle: str | None) -> Any:
        """Squared norms of F x for native rows x, shape (m,); the rows may be overwritten.

        Args:
            rows: X, shape (m, d).
            factor: F, shape (r, d).
            triangle: "lower" or "upper" if F is triangular, else None.
        """

    @abstractmethod
    def resident(self, size: int, dtype: np.dtype) -> bool:
        """Whether to keep an array of so many bytes on the device beside the features as they were given."""

    def for_each(self, function: Callable[[Any], object], items: Sequence[Any]) -> None:
        """Call a function with every item, in any order and perhaps several at a time."""
        for item in items:
            function(item)

    def full_precision(self) -> AbstractContextManager[None]:
        """A context in which float32 products use all digits of float32; it leaves every setting as it was."""
        return nullcontext()


class NumpyBackend(ArrayBackend):
    """BLAS through numpy and scipy."""

    name = "numpy"

    def array(self, values: NDArray, dtype: np.dtype) -> NDArray:
        """See the base class."""
        return np.ascontiguousarray(values, dtype=dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
        """See the base class."""
        return np.empty(shape, dtype=dtype)

    def numpy(self, values: NDArray) -> NDArray:
        """See the base class."""
        return values

    def factor_squares(self, rows: NDArray, factor: NDArray, triangle: str | None) -> NDArray:
        """See the base class."""
        product = self.factor_product(rows, factor, triangle)
        return np.asarray(np.einsum("nr,nr->n", product, product))

    @staticmethod
    def factor_product(rows: NDArray, factor: NDArray, triangle: str | None) -> NDArray:
        """F x for rows x, shape (m, r); a triangular factor takes half the work. Arguments as in `factor_squares`."""
        if triangle is None:
            return np.asarray(rows @ factor.T)
        multiply = blas.strmm if rows.dtype == np.float32 else blas.dtrmm
        # BLAS takes the transposes of C-ordered arrays as they are, and overwrites the rows in place
        product = multiply(1.0, factor.T, rows.T, lower=triangle != "lower", trans_a=1, overwrite_b=True)
        return np.asarray(product.T)

    def resident(self, size: int, dtype: np.dtype) -> bool:
        """See the base class: a copy costs memory, subtracting the centre in every pass costs little."""
        return size <= _SMALL

    def for_each(self, function: Callable[[Any], object], items: Sequence[Any]) -> None:
        """See the base class: in threads of our own, each with one BLAS thread (`_threads`)."""
        for_each(function, items)


class TorchBackend(ArrayBackend):
    """Torch on a CPU or a CUDA device.

    Args:
        device: "cpu", "cuda" (the current CUDA device) or "cuda:1" and so on.

    Raises:
        ImportError: If torch is not installed.
        ValueError: If there is no such device, or it is of another kind: the certificate needs float64.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._torch = require("torch", 'the backend "torch" ("numpy" needs none)')
        self.device = _torch_device(self._torch, device)
        self.name = f"torch:{self.device}"

    def array(self, values: NDArray, dtype: np.dtype) -> Any:
        """See the base class; values that may be written are shared where the device is the CPU."""
        contiguous = np.ascontiguousarray(values, dtype=dtype)
        # torch knows no read-only arrays (of a memory map, say) and would warn: it gets a copy
        native = self._torch.from_numpy(contiguous) if contiguous.flags.writeable else self._torch.tensor(contiguous)
        return native.to(self.device)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """See the base class."""
        kind = self._torch.float32 if dtype == np.float32 else self._torch.float64
        return self._torch.empty(shape, dtype=kind, device=self.device)

    def numpy(self, values: Any) -> NDArray:
        """See the base class."""
        return np.asarray(values.cpu().numpy())

    def factor_squares(self, rows: Any, factor: Any, triangle: str | None) -> Any:
        """See the base class; torch has no product with a triangle, so it is taken in strips without their zeros."""
        with self.full_precision():
            if triangle is None:
                return (rows @ factor.T).square_().sum(1)
            count = len(factor)
            edges = [count * part // _TRIANGLE_PARTS for part in range(_TRIANGLE_PARTS + 1)]
            total = 0.0
            for begin, end in zip(edges[:-1], edges[1:], strict=True):
                columns = slice(0, end) if triangle == "lower" else slice(begin, count)
                total = total + (rows[:, columns] @ factor[begin:end, columns].T).square_().sum(1)
            return total

    def resident(self, size: int, dtype: np.dtype) -> bool:
        """See the base class: float32 on a CUDA device if it fits into half of its free memory, else as with numpy."""
        if self.device.type == "cpu" or dtype == np.float64:  # few rows are scored in float64
            return size <= _SMALL
        free, _ = self._torch.cuda.mem_get_info(self.device)
        return size <= free // 2

    def full_precision(self) -> AbstractContextManager[None]:
        """See the base class: no TF32 on CUDA, no bfloat16 on a CPU."""
        return _full_precision(self._torch)


def make_backend(backend: str | ArrayBackend | None = None) -> ArrayBackend:
    """Make a backend by name.

    Args:
        backend: "numpy" (also None), "torch" (on the CPU), "torch:cuda", "torch:cuda:1", or a backend, returned as is.

    Returns:
        The backend.

    Raises:
        ImportError: If it needs torch, which is not installed.
        ValueError: If the name is unknown or there is no such device.
    """
    if isinstance(backend, ArrayBackend):
        return backend
    if backend is None or backend == "numpy":
        return NumpyBackend()
    if isinstance(backend, str):
        library, _, device = backend.partition(":")
        if library == "torch" and (device or ":" not in backend):
            return TorchBackend(device or "cpu")
    raise ValueError(
        f'Expected the backend "numpy", "torch" (on the CPU), "torch:cuda", or an ArrayBackend, got {backend!r}.'
    )


def _torch_device(torch: Any, name: str) -> Any:
    """A device of torch that exists and can compute in float64."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(
            f'Expected a device "cpu", "cuda" or "cuda:1" of torch that computes in float64, got {name!r}; '
            'or use the backend "numpy".'
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"Expected a CUDA device for {name!r}, torch {torch.__version__} finds none; check the driver with "
            'nvidia-smi and install a torch built for CUDA, or use the device "cpu".'
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f'Expected one of the {torch.cuda.device_count()} CUDA devices "cuda:0" and so on, got {name!r}.'
        )
    return device


@contextmanager
def _full_precision(torch: Any) -> Iterator[None]:
    """Keep torch from rounding the factors of float32 products, to TF32 or bfloat16, for a while.

    Torch 2.9 gave every backend a setting of its own (`fp32_precision`) and refuses to read the older ones once the
    new ones differ, so the new ones are used where they exist.
    """
    both: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    new = [matmul for matmul in both if hasattr(matmul, "fp32_precision")]
    if new:
        before = [matmul.fp32_precision for matmul in new]
        # what is at full precision already ("none": torch's default) stays untouched
        changed = [(matmul, value) for matmul, value in zip(new, before, strict=True) if value not in ("ieee", "none")]
        try:
            for matmul, _ in changed:
                matmul.fp32_precision = "ieee"
            yield
        finally:
            for matmul, value in changed:
                matmul.fp32_precision = value
        return
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
