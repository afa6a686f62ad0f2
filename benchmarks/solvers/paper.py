"""The paper's Frank-Wolfe (Alg. 2) as its text describes it: automatic differentiation, oracle, line search.

The variables are the occupancies of all K policies, a tensor (K, H, n). One iteration: the gradient of s(I_total) with
respect to all of them by torch's autograd is the reward; value iteration (in the prompt MDP: the best token of each
step) gives each policy its vertex; a line search over [0, 1] mixes the vertices in. The paper says neither how it
searches nor in which precision; here it is Brent's bounded method to 1e-9, on moments that are formed once for each
search, in float64. Its start, d = 0, is no occupancy: this starts at the uniform policy, as the library does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.solvers.cases import EPISODES, HORIZON, POLICIES, Block, Instance
from benchmarks.solvers.recorder import Recorder

__all__ = ["paper_frank_wolfe"]


def paper_frank_wolfe(instance: Instance, recorder: Recorder) -> tuple[list[Block], int]:
    """Run the paper's algorithm; returns the design and the number of iterations.

    Args:
        instance: The problem.
        recorder: Told the design in every iteration, off its clock.
    """
    import torch

    torch.set_num_threads(1)
    model = _Model(torch, instance)
    recorder.start()
    occupancies = model.uniform()
    iteration = 0
    while not recorder.measure(partial(model.blocks, occupancies), iteration):
        rewards = model.rewards(occupancies)
        vertices = model.best_response(rewards)
        step = model.line_search(occupancies, vertices)
        occupancies = (1.0 - step) * occupancies + step * vertices
        iteration += 1
    return model.blocks(occupancies), iteration


class _Model:
    """The objective of the paper's Eq. 6 as a function of the occupancies (K, H, n), in torch."""

    def __init__(self, torch: Any, instance: Instance) -> None:
        self.torch = torch
        self.instance = instance
        self.features = torch.from_numpy(np.array(instance.features, dtype=np.float64))
        self.prior = instance.case.regularization * torch.eye(instance.case.dimension, dtype=torch.float64)
        self.target = None if instance.kind == "D" else torch.from_numpy(instance.target_factor)
        self.rows = instance.blocks * (HORIZON // len(instance.blocks))  # of each step

    def uniform(self) -> Any:
        occupancies = self.torch.zeros((POLICIES, HORIZON, len(self.features)), dtype=self.features.dtype)
        for step, own in enumerate(self.rows):
            occupancies[:, step, own] = 1.0 / (own.stop - own.start)
        return occupancies

    def moments(self, occupancies: Any) -> tuple[Any, Any]:
        """Phi' diag(sum_h dbar_h) Phi and the means m_h; the sum over the steps is taken first, for speed."""
        mean = occupancies.mean(dim=0)
        weights = mean.sum(dim=0)
        return self.features.T @ (weights[:, None] * self.features), mean @ self.features

    def information(self, second: Any, means: Any) -> Any:
        return EPISODES * (second - means.T @ means) + self.prior

    def objective(self, matrix: Any) -> Any:
        factor = self.torch.linalg.cholesky(matrix)
        if self.target is None:
            return 2.0 * self.torch.log(self.torch.diagonal(factor)).sum()
        half = self.torch.linalg.solve_triangular(factor, self.target, upper=False)
        return -(half * half).sum()

    def rewards(self, occupancies: Any) -> Any:
        """Gradient of s(I_total) with respect to the occupancies of all policies, (K, H, n), by autograd."""
        variable = occupancies.detach().requires_grad_(True)
        value = self.objective(self.information(*self.moments(variable)))
        (gradient,) = self.torch.autograd.grad(value, variable)
        return gradient

    def best_response(self, rewards: Any) -> Any:
        """Value iteration in the prompt MDP, for each policy: all mass on the best token of each step."""
        vertices = self.torch.zeros_like(rewards)
        for step, own in enumerate(self.rows):
            best = own.start + rewards[:, step, own].argmax(dim=1)
            vertices[self.torch.arange(POLICIES), step, best] = 1.0
        return vertices

    def line_search(self, occupancies: Any, vertices: Any) -> float:
        """The best mixture of both, by Brent's bounded method on the objective."""
        second, means = self.moments(occupancies)
        shown = self.torch.nonzero(vertices.sum(dim=(0, 1))).ravel()  # a vertex has at most K H tokens
        mean = vertices.mean(dim=0)[:, shown]
        chosen = self.features[shown]
        second_there, means_there = chosen.T @ (mean.sum(dim=0)[:, None] * chosen), mean @ chosen

        def loss(step: float) -> float:
            mixed_second = (1.0 - step) * second + step * second_there
            mixed_means = (1.0 - step) * means + step * means_there
            return -float(self.objective(self.information(mixed_second, mixed_means)))

        return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9}).x)

    def blocks(self, occupancies: Any) -> list[Block]:
        """The mean of the K policies as blocks, renormalised in float64."""
        mean = occupancies.mean(dim=0).double().numpy()
        found = []
        for step, own in enumerate(self.rows):
            weights = mean[step, own]
            found.append(Block(own, weights / weights.sum(), float(EPISODES)))
        return found
