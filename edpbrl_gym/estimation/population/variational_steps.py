"""Expectation by variational Gaussians in the span of each person's answers: the E-step for many features.

Importance sampling needs too many points there. The sum of the people's variational bounds takes the place of the
log-likelihood: the best Gaussian of each person raises it, and so does each step of the population (Neal & Hinton,
1998), as every person's fit starts from the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import logsumexp

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.cloud import Expectation
from edpbrl_gym.estimation.population.parts import Moments, Parts
from edpbrl_gym.estimation.population.spans import Local, Span, fit_local
from edpbrl_gym.estimation.variational import GaussianFit

__all__ = ["SpanPeople", "WarmFits"]

_SHORTEST = 0.25  # share of a step


class WarmFits:
    """Variational Gaussians of people, each started from the last one in the coordinates z of its span."""

    def __init__(self, max_iterations: int = 1) -> None:
        self._last: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        self._max_iterations = max_iterations

    def kept(self) -> dict[tuple[int, int], tuple[Floats, Floats]]:
        """The last fits, for :meth:`restore`."""
        return dict(self._last)

    def restore(self, kept: dict[tuple[int, int], tuple[Floats, Floats]]) -> None:
        """Go on from earlier fits, after a trial that was no improvement."""
        self._last = dict(kept)

    def fit(self, person: int, part: int, local: Local, middle: Floats) -> tuple[GaussianFit, Floats]:
        """The Gaussian of w, and its covariance (r, r); ``middle`` is the prior mean of z."""
        key, lower = (person, part), local.lower
        start = None
        if key in self._last:
            mean, precision = self._last[key]
            start = (
                solve_triangular(lower, mean - middle, lower=True, check_finite=False),
                lower.T @ precision @ lower,
            )
        if start is None:
            fit = fit_local(local.answered)
        else:  # one more round comes: no long search along a step
            fit = fit_local(local.answered, start=start, max_iterations=self._max_iterations, shortest=_SHORTEST)
        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True, check_finite=False)
        self._last[key] = middle + lower @ fit.mean, inverse.T @ fit.precision @ inverse
        covariance = cho_solve(cho_factor(fit.precision, lower=True), np.eye(len(lower)))
        return fit, np.asarray(covariance)


class SpanPeople:
    """People's answers in their spans, and their fits under the parts of a population."""

    def __init__(self, people: Sequence[Answered]) -> None:
        self._spans = [Span.of(person) for person in people]
        self._fits = WarmFits()

    def expect(self, parts: Parts) -> Expectation:
        """The E-step: statistics and bounds. Weights of the parts are proportional to the exponential of the bounds."""
        count, number, dimension = len(self._spans), len(parts), parts.dimension
        bounds, fits = np.empty((count, number)), []
        for row, span in enumerate(self._spans):
            for part in range(number):
                local = span.under(parts.means[part], parts.covariances[part])
                middle = parts.means[part] if span.basis is None else span.basis.T @ parts.means[part]
                fit, covariance = self._fits.fit(row, part, local, middle)
                bounds[row, part] = fit.log_evidence
                # only this: all loadings would take d r numbers a person and part
                fits.append((fit.mean, covariance))
        logs = bounds + np.log(parts.weights)
        likelihoods = logsumexp(logs, axis=1)
        memberships = np.exp(logs - likelihoods[:, None])
        moments = Moments(np.zeros(number), np.zeros((number, dimension)), np.zeros((number, dimension, dimension)))
        for row, span in enumerate(self._spans):
            for part in range(number):
                share = float(memberships[row, part])
                if share < 1e-12:
                    continue
                local = span.under(parts.means[part], parts.covariances[part])
                inner, covariance = fits[row * number + part]
                mean = parts.means[part] + local.loadings @ inner
                moments.counts[part] += share
                moments.first[part] += share * mean
                removed = np.eye(len(covariance)) - covariance
                moments.second[part] += share * np.outer(mean, mean)
                moments.second[part] -= share * (local.loadings @ removed @ local.loadings.T)
        moments.second[:] += moments.counts[:, None, None] * parts.covariances
        return Expectation(moments, likelihoods, memberships, np.ones(count))
