"""What a criterion is, a concave, matrix-monotone function of an information matrix, and all criteria by name.

A new one is a subclass of `Criterion` in a file of its own, and a line of `CRITERIA`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, lapack, solve_triangular

from edpbrl_gym._arrays import Floats, positive_semidefinite_factor, read_only
from edpbrl_gym._compat import import_string
from edpbrl_gym._files import reading
from edpbrl_gym._validation import check_array, check_number, did_you_mean, known_name

__all__ = [
    "CRITERIA",
    "Criterion",
    "CriterionAndPrior",
    "Form",
    "SingularInformationError",
    "builds_array",
    "check_criterion",
    "cholesky",
    "fingerprint_of",
    "inverse",
    "make_criterion",
    "read_criterion",
]


_HERE = "edpbrl_gym.design.criteria"
CRITERIA: dict[str, str | type] = {
    "A": f"{_HERE}.trace:ACriterion",
    "V": f"{_HERE}.trace:VCriterion",
    "D": f"{_HERE}.log_det:DCriterion",
    "phi": f"{_HERE}.phi:PhiCriterion",
    "c": f"{_HERE}.direction:CCriterion",
}
"""All criteria by name: "package.module:Class", or the class."""


class SingularInformationError(ValueError):
    """The information matrix is singular: the questions say nothing about some direction of theta.

    Attributes:
        lost: A prior precision below this would be lost in rounding; None where that is not known.
    """

    def __init__(self, message: str, *, lost: float | None = None) -> None:
        super().__init__(message)
        self.lost = lost


def cholesky(information: Floats) -> Floats:
    """Lower Cholesky factor L of an information matrix, I = L L'.

    Args:
        information: Symmetric positive definite matrix, shape (d, d).

    Returns:
        L, shape (d, d).

    Raises:
        SingularInformationError: If the matrix is not positive definite to working precision.
    """
    dimension = information.shape[0]
    # below this share of the largest the last pivots are rounding errors, and so would be the inverse
    share = dimension * np.finfo(np.float64).eps
    try:
        factor = np.linalg.cholesky(information)
        pivots = np.diag(factor)
        regular = bool(pivots.min() ** 2 > share * pivots.max() ** 2)
    except np.linalg.LinAlgError:
        regular = False
    if not regular:
        largest = float(np.diag(information).max(initial=0.0))
        threshold = share * largest
        raise SingularInformationError(
            f"Expected a positive definite information matrix, got a singular one of dimension {dimension}: the "
            f"questions say nothing about some direction of theta; use a regularization > 0 or more varied features. "
            f"Beside its largest entry, {largest:.3g}, rounding loses a regularization below {threshold:.2g}.",
            lost=threshold,
        )
    return np.asarray(factor, dtype=np.float64)


def inverse(factor: Floats) -> Floats:
    """I^-1 from the Cholesky factor L of I, shape (d, d)."""
    lower, _ = lapack.dpotri(factor, lower=1)  # a third of the work of solving for the identity
    lower = np.tril(lower)
    return np.asarray(lower + np.tril(lower, -1).T)


@dataclass(frozen=True)
class Form:
    """A criterion in closed form: log det I, or -tr(B' I^-1 B), whose second derivatives and small changes are known.

    Attributes:
        trace: Whether it is the trace; else log det I.
        factor: B, shape (d, r); None for the identity.
    """

    trace: bool
    factor: Floats | None = None

    @property
    def identity(self) -> bool:
        """Whether it is -tr I^-1."""
        return self.trace and self.factor is None

    def target(self, dimension: int) -> Floats | None:
        """B, shape (d, r); None for log det I.

        Raises:
            ValueError: If B is of another dimension.
        """
        if not self.trace:
            return None
        if self.factor is None:
            return np.eye(dimension)
        if self.factor.shape[0] != dimension:
            raise ValueError(
                f"Expected an information matrix of the dimension of the criterion's target, {self.factor.shape[0]}, "
                f"got {dimension}; build the target from the features of this problem."
            )
        return self.factor

    def value(self, information: Floats) -> float:
        """Log det I, or -tr(V I^-1)."""
        factor = cholesky(information)
        target = self.target(len(factor))
        if target is None:
            return _log_det(factor)
        half = solve_triangular(factor, target, lower=True, check_finite=False)
        return -float(np.vdot(half, half))

    def evaluate(self, information: Floats) -> tuple[float, Floats]:
        """Value and gradient, I^-1 or I^-1 V I^-1, from one Cholesky factor."""
        factor = cholesky(information)
        target = self.target(len(factor))
        if target is None:
            return _log_det(factor), inverse(factor)
        solved = cho_solve((factor, True), target, check_finite=False)
        return -float(np.vdot(target, solved)), solved @ solved.T

    def cvxpy_objective(self, cvxpy: Any, lifted: Any, dimension: int) -> Any:
        """Log det M, or the trace of B' (M^-1)_11 B as one linear matrix inequality, B scaled to norm 1."""
        target = self.target(dimension)
        if target is None:
            return cvxpy.Maximize(cvxpy.log_det(lifted))
        steps = lifted.shape[0] - dimension
        padded = np.vstack([target / np.linalg.norm(target), np.zeros((steps, target.shape[1]))])
        return cvxpy.Minimize(cvxpy.matrix_frac(padded, lifted))


def _log_det(factor: Floats) -> float:
    return 2.0 * float(np.log(np.diag(factor)).sum())


class Criterion:
    """A concave, matrix-monotone function of the information matrix, to be maximised.

    A subclass sets `form`, or gives `value` and `gradient`, all that solvers, query sets and `verify` need; `evaluate`
    may be overridden to share work. The attributes below are data that a subclass may set.

    Attributes:
        name: Its name; with a number that it is made of, as "phi:2".
        argument: What it is made of beside its name, for `make_criterion`: nothing (""), a "number", a "matrix" or a
            "vector".
        built: Whether agents build that matrix from differences of tokens where none is given.
        logarithmic: Whether s(c I) = s(I) + d log c, as of log det I; else s is negative and s(c I) = s(I) / c, as of A
            and V. Override `efficiency` where neither holds.
        form: Its closed form, if it has one: then newton takes its second derivatives and works in the metric of the
            prior, and line search, query sets and screening take less work.
    """

    name: str
    argument: ClassVar[Literal["", "number", "matrix", "vector"]] = ""
    built: ClassVar[bool] = False
    logarithmic: bool = False
    form: Form | None = None

    def value(self, information: Floats) -> float:
        """Value s(I) of an information matrix of shape (d, d); raises SingularInformationError if it is singular."""
        return self._closed().value(information)

    def gradient(self, information: Floats) -> Floats:
        """Gradient G = ds/dI, symmetric positive semidefinite, shape (d, d): ds = tr(G dI)."""
        return self._closed().evaluate(information)[1]

    def evaluate(self, information: Floats) -> tuple[float, Floats]:
        """Value and gradient together."""
        if self.form is None:
            return self.value(information), self.gradient(information)
        return self.form.evaluate(information)

    def _closed(self) -> Form:
        if self.form is None:
            raise NotImplementedError(f"The criterion {type(self).__name__} needs value and gradient, or a form.")
        return self.form

    def efficiency(self, value: float, upper_bound: float, dimension: int) -> float:
        """Certified lower bound on the efficiency of a design with this value when the optimum is below the bound.

        An efficiency e means that e times the questions, asked optimally, would give the same value (without a prior).

        Args:
            value: s(I) of the design.
            upper_bound: An upper bound of the optimum.
            dimension: d.

        Returns:
            Of a logarithmic criterion exp((value - upper_bound) / d), else upper_bound / value. In [0, 1].

        Raises:
            ValueError: If the value of a criterion that is not logarithmic is not negative.
        """
        if self.logarithmic:
            return float(np.exp(min(0.0, value - upper_bound) / dimension))
        if value >= 0:
            raise ValueError(
                f"Expected a negative value of the criterion {self.name}, got {value:.6g}; set `logarithmic`, or "
                "override `efficiency`."
            )
        return float(min(1.0, max(0.0, upper_bound / value)))

    def fingerprint(self) -> str:
        """Text that identifies the criterion, stored with designs."""
        return self.name

    def cvxpy_objective(self, cvxpy: Any, lifted: Any, dimension: int) -> Any:
        """What `reference` hands to cvxpy, a Maximize or Minimize; None solves it by cutting planes.

        Args:
            cvxpy: The module.
            lifted: An expression of the lifted matrix M, shape (d + H, d + H), with I^-1 = (M^-1)_11 / T.
            dimension: d.
        """
        return None if self.form is None else self.form.cvxpy_objective(cvxpy, lifted, dimension)


def fingerprint_of(name: str, array: Floats) -> str:
    """Name and hash of an array."""
    return f"{name} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


class CriterionAndPrior:
    """The prior and the value without data of a frozen dataclass with these fields.

    Attributes:
        criterion: One by its name (`make_criterion`), or any `Criterion`.
        regularization: lambda >= 0, prior precision lambda I; this or ``prior_precision``.
        prior_precision: Lambda in place of lambda I, symmetric positive semidefinite, shape (d, d).
    """

    criterion: Criterion
    regularization: float | None
    prior_precision: Floats | None

    if TYPE_CHECKING:  # a field here, a property there

        @property
        def dimension(self) -> int:
            """Number of features d."""
            ...

    def _check_criterion_and_prior(self) -> None:
        """Check the fields, and make the prior precision symmetric and read-only.

        Raises:
            TypeError: If the criterion is of another type.
            ValueError: If there is not exactly one of lambda and Lambda, or it does not fit.
        """
        if not isinstance(self.criterion, Criterion):
            raise TypeError(
                f'Expected a Criterion, got {self.criterion!r}; make one by its name, as make_criterion("D").'
            )
        if (self.regularization is None) == (self.prior_precision is None):
            raise ValueError(
                "Expected either a regularization (lambda) or a prior_precision matrix, got "
                f"{'neither' if self.regularization is None else 'both'}."
            )
        if self.regularization is not None:
            value = check_number(self.regularization, "regularization (lambda)", minimum=0.0)
            object.__setattr__(self, "regularization", value)
            return
        matrix = check_array(self.prior_precision, "prior_precision", shape=(self.dimension, self.dimension))
        positive_semidefinite_factor(matrix, "prior_precision")
        object.__setattr__(self, "prior_precision", read_only(np.ascontiguousarray((matrix + matrix.T) / 2)))

    @cached_property
    def prior(self) -> Floats:
        """Prior precision Lambda, shape (d, d), read-only."""
        if self.prior_precision is not None:
            return self.prior_precision
        return read_only(float(self.regularization or 0.0) * np.eye(self.dimension))

    @cached_property
    def baseline(self) -> float:
        """Value of the criterion without any data, s(Lambda); -inf if the prior alone is singular."""
        try:
            return self.criterion.value(self.prior)
        except SingularInformationError:
            return -np.inf


def make_criterion(name: str, v_matrix: ArrayLike | None = None) -> Criterion:
    """Build a criterion by its name.

    Args:
        name: A name of `CRITERIA`, or an import string "package.module:Class"; with what the criterion is made of after
            another colon, a number ("phi:2") or a file of numpy with its array ("V:target.npy").
        v_matrix: That array in place of a file, as V of shape (d, d) for "V".

    Raises:
        ValueError: If the name is unknown, or what the criterion is made of is missing, wrong, or given for one that
            takes none.
        FileNotFoundError: If there is no such file.
        ImportError: If an import string leads nowhere.
        TypeError: If it leads to no `Criterion`.
    """
    key, kind, text = _parsed(name)
    _, array = read_criterion(name, v_matrix)
    made: Any = kind
    if kind.argument in ("matrix", "vector"):
        if array is None:
            how = "; token_difference_matrix builds one" if kind.built else ""
            raise ValueError(
                f"The criterion {key} needs a {kind.argument}: give it as v_matrix, or as a file, {key}:FILE.npy{how}."
            )
        return cast(Criterion, made(array))
    return cast(Criterion, made(float(text)) if text else made())


def read_criterion(name: str, v_matrix: ArrayLike | None = None) -> tuple[str, Floats | None]:
    """The name of a criterion as in the table (with its number), and its array, from a file where the name has one.

    Whether an array is missing, or fits, says `make_criterion`, to which name and array may be given. Arguments and
    errors as there.
    """
    key, kind, text = _parsed(name)
    argument = kind.argument
    takes_array = argument in ("matrix", "vector")
    if v_matrix is not None and (text or not takes_array):
        why = "has its array from a file" if takes_array else "takes no v_matrix"
        raise ValueError(f"The criterion {name} {why}: give the array of one that takes an array, once.")
    if takes_array:
        if text:
            with reading(f"a {argument}, saved by numpy.save, for {key}:FILE.npy", text):
                shape = ("d", "r") if argument == "matrix" else ("d",)
                v_matrix = check_array(np.load(text, allow_pickle=False), argument, shape=shape)
        return key, None if v_matrix is None else np.array(v_matrix, dtype=np.float64)
    if bool(text) != bool(argument) or (text and not _is_number(text)):
        raise ValueError(f"Expected the criterion {key} as {_usage(key, kind)}, got {name!r}")
    return (f"{key}:{float(text):.12g}" if text else key), None


def check_criterion(name: str) -> None:
    """Raise the errors of `make_criterion`, but for an array that agents build."""
    key, array = read_criterion(name)
    if array is not None or not builds_array(key):
        make_criterion(key, array)


def builds_array(name: str) -> bool:
    """Whether agents build the array of a criterion where none is given."""
    return _parsed(name)[1].built


def _parsed(name: str) -> tuple[str, type[Criterion], str]:
    """Name in the table or import string, class, and what it is made of as text."""
    key, _, text = name.partition(":") if isinstance(name, str) else (name, "", "")
    known = known_name(key, CRITERIA)
    if known in CRITERIA:
        return known, _class_of(known), text
    attribute, _, text = text.partition(":")
    if not attribute.isidentifier():
        names = ", ".join(_usage(known, _class_of(known)) for known in CRITERIA)
        raise ValueError(
            f"Expected a criterion among {names} or package.module:Class, got {name!r}{did_you_mean(key, CRITERIA)}"
        )
    return f"{key}:{attribute}", _class_of(f"{key}:{attribute}"), text


def _class_of(key: str) -> type[Criterion]:
    path = CRITERIA.get(key, key)
    kind = import_string(path, "criterion") if isinstance(path, str) else path
    if not (isinstance(kind, type) and issubclass(kind, Criterion)):
        raise TypeError(f"Expected a subclass of Criterion at {path}, got {kind!r}.")
    return kind


def _usage(key: str, kind: type[Criterion]) -> str:
    """How a criterion is written."""
    if kind.argument in ("matrix", "vector"):
        return f"{key} or {key}:FILE.npy" if kind.built else f"{key}:FILE.npy"
    return f"{key}:NUMBER" if kind.argument else key


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
