"""Two processes on the CPU (gloo): together they take the step that one process would take with their prompts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edpbrl_gym.language.credit import Rewards
from edpbrl_gym.language.gradient import accumulate_gradient
from edpbrl_gym.language.objective import TruncatedObjective
from edpbrl_gym.language.processes import Processes
from edpbrl_gym.language.rollouts import TRAINING, roll_out
from edpbrl_gym.language.trainer import Trainer
from tests.helpers.tiny_language_model import write_tiny_model
from tests.helpers.tiny_reinforce import HashEncoder, tiny_policies, tiny_settings

ROOT = Path(__file__).resolve().parents[2]
CREDIT, KL = "marginal_causal", 0.1

CHILD = f"""
import sys
from pathlib import Path
from accelerate import Accelerator
from edpbrl_gym.language.trainer import train
from tests.helpers.tiny_reinforce import HashEncoder, tiny_policies, tiny_settings
import torch
model, out = sys.argv[1:]
accelerator = Accelerator(cpu=True)
policies = tiny_policies(model)
history = train(
    policies, HashEncoder(), tiny_settings(iterations=1, credit={CREDIT!r}, kl_weight={KL}), folder=Path(out) / "run",
    accelerator=accelerator,
)
torch.save({{"state": policies.state(), "history": history.as_dict(), "count": accelerator.num_processes}},
           Path(out) / f"{{accelerator.process_index}}.pt")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def by_hand(folder):
    """One step of one process with the prompts of both: streams of process 0 and 1, two meta-samples each."""
    policies, encoder = tiny_policies(folder), HashEncoder()
    settings = tiny_settings(credit=CREDIT, kl_weight=KL)
    trainer = Trainer(policies, encoder, settings)
    parts = [
        roll_out(policies, encoder, settings, meta_samples=2, purpose=TRAINING, process=process) for process in (0, 1)
    ]
    features = np.concatenate([part.features for part in parts])
    rewards = Rewards.of(TruncatedObjective(features, settings.regularization))
    weights = trainer.credit.weights(rewards)
    divergences = [
        accumulate_gradient(policies, part, weights[2 * process : 2 * process + 2], settings, meta_samples=4)
        for process, part in enumerate(parts)
    ]
    trainer.optimiser.step()
    words = [np.mean([len(text.split()) for one in part.samples for text in one.texts]) for part in parts]
    assert words[0] != words[1] and divergences[0] != pytest.approx(divergences[1])
    return policies, rewards, np.mean(words), np.mean(divergences)


def test_two_processes_take_one_step_together(folder, tmp_path):
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ, "PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
        "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, folder, str(tmp_path)],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    policies, rewards, words, divergence = by_hand(folder)
    errors = [child.communicate(timeout=300)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], errors
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["count"] == second["count"] == 2
    for name, value in policies.state().items():
        assert torch.equal(first["state"][name], second["state"][name])  # the processes stay together
        torch.testing.assert_close(first["state"][name], value, rtol=1e-5, atol=1e-7)
    step = first["history"]["iterations"][0]
    assert step["objective"] == pytest.approx(rewards.values.mean(), rel=1e-9)
    assert step["words"] == pytest.approx(words, rel=1e-12)
    assert step["divergence"] == pytest.approx(divergence, rel=1e-5, abs=1e-7)
    assert {**step, "seconds": 0} == {**second["history"]["iterations"][0], "seconds": 0}
    assert first["history"]["evaluations"] == second["history"]["evaluations"]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"best", "checkpoint.pt"}  # one process writes


class Both:
    """An accelerator of two processes that have the same arrays."""

    process_index, num_processes, device = 1, 2, "cpu"

    @staticmethod
    def gather(tensor):
        import torch

        return torch.cat([tensor, tensor])

    @staticmethod
    def reduce(tensor, reduction):
        assert reduction == "sum"
        return tensor * 2


def test_shares():
    processes = Processes(Both())
    assert not processes.is_first and processes.share(6, "samples") == 3
    with pytest.raises(ValueError, match="meta_samples as a multiple of the 2 processes, got 3"):
        processes.share(3, "meta_samples")
    array = np.random.default_rng(0).normal(size=(3, 2))
    both = processes.gather(array)
    np.testing.assert_array_equal(both, np.concatenate([array, array]))
    np.testing.assert_array_equal(processes.local(both), array)
    one = Processes()
    assert one.is_first and one.share(3, "samples") == 3 and one.gather(array) is array


def test_a_mean_is_that_of_all_processes():
    class Other(Both):
        """The other process has 4.0."""

        @staticmethod
        def gather(tensor):
            import torch

            return torch.cat([torch.from_numpy(np.array([[4.0]]).view(np.uint8)), tensor])

    assert Processes(Other()).mean(1.0) == 2.5
    assert Processes().mean(1.0) == 1.0


def test_a_missing_gradient_counts_as_zero():
    import torch

    there, missing = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))
    there.grad = torch.full((2,), 3.0)
    Processes(Both()).sum_gradients([there, missing])
    assert there.grad.tolist() == [6.0, 6.0] and missing.grad.tolist() == [0.0, 0.0, 0.0]
