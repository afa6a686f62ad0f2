"""K copies and K adapters: what they share, what they learn, what is kept."""

from __future__ import annotations

import json

import pytest

from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import AdapterPolicies, CopiedPolicies, load_policies, make_policies
from edpbrl_gym.language.policy_set import policy_stream
from edpbrl_gym.language.rollouts import EVALUATING, PLAYING, TRAINING, random_stream
from edpbrl_gym.language.training import _generator
from tests.helpers.tiny_language_model import write_tiny_model

KINDS = ("adapters", "copies")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def load(folder):
    return load_language_model(folder, device="cpu")


def logits(language):
    import torch

    with torch.no_grad():
        return language.model(input_ids=torch.arange(12)[None]).logits


def shake(policies, index, seed=0):
    """Move what a policy learns."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in policies.named_parameters(index):
            parameter.add_(torch.empty(parameter.shape).normal_(generator=generator), alpha=0.1)


def test_first_weights_share_no_stream_with_other_draws_of_the_seed():
    """Training the prompt model, sampling, and the weights of the policies all begin at one small seed."""
    for seed in (0, 1, 1000):
        found = [policy_stream(seed, q) for q in range(4)]
        found += [_generator(seed, stream).initial_seed() for stream in range(4)]
        found += [
            random_stream(seed, purpose, iteration, q, 0).initial_seed()
            for purpose in (TRAINING, EVALUATING, PLAYING)
            for iteration in range(3)
            for q in range(4)
        ]
        assert len({number % 2**32 for number in found}) == len(found)  # torch keeps 32 bits


@pytest.mark.parametrize("kind", KINDS)
def test_policies_begin_as_the_base_and_move_alone(folder, kind):
    import torch

    expected = logits(load(folder))
    policies = make_policies(load(folder), 3, kind=kind)
    for q in range(3):
        with policies.policy(q) as language:
            torch.testing.assert_close(logits(language), expected, rtol=0, atol=0)
    shake(policies, 1)
    for q, moved in enumerate((False, True, False)):
        with policies.policy(q) as language:
            assert bool((logits(language) - expected).abs().max() > 1e-3) == moved
    with policies.base_model() as language:
        torch.testing.assert_close(logits(language), expected, rtol=0, atol=0)
    with policies.policy(1) as language:
        assert (logits(language) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_policy_is_its_own(folder, kind):
    import torch

    policies = make_policies(load(folder), 2, kind=kind)
    with policies.base_model():
        pass
    with policies.policy(1) as language:
        language.model(input_ids=torch.arange(9)[None]).logits.square().sum().backward()
    assert all(p.grad is None for _, p in policies.named_parameters(0))
    grads = [p.grad for _, p in policies.named_parameters(1)]
    assert all(grad is not None for grad in grads) and any(grad.abs().max() > 0 for grad in grads)
    assert all(p.requires_grad for p in policies.parameters())


def test_an_adapter_is_a_correction_of_low_rank(folder):
    """The layer's output moves by alpha / r x A' B', computed by hand from the adapter's matrices."""
    import torch

    base = load(folder)
    policies = AdapterPolicies(base, 2, rank=3, alpha=6.0)
    shake(policies, 0)
    layer = base.model.transformer.h[0].attn.c_attn
    named = dict(policies.named_parameters(0))
    a = next(p for name, p in named.items() if "h.0.attn.c_attn.lora_A" in name)
    b = next(p for name, p in named.items() if "h.0.attn.c_attn.lora_B" in name)
    assert a.shape == (3, 32) and b.shape == (96, 3)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    with policies.policy(0), torch.no_grad():
        found = layer(x)
    with policies.base_model(), torch.no_grad():
        plain = layer(x)
    torch.testing.assert_close(found - plain, x @ a.T @ b.T * 2.0, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_makes_policies_differ_by_seed(folder, kind):
    import torch

    def outputs(seed):
        policies = make_policies(load(folder), 2, kind=kind, noise=0.05, seed=seed)
        found = []
        for q in range(2):
            with policies.policy(q) as language:
                found.append(logits(language))
        return found

    first, again, other = outputs(1), outputs(1), outputs(2)
    assert (first[0] - first[1]).abs().max() > 1e-3
    assert (first[0] - other[0]).abs().max() > 1e-3
    torch.testing.assert_close(first, again, rtol=0, atol=0)


def test_making_policies_leaves_the_global_generator_alone(folder):
    import torch

    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    copies = CopiedPolicies(load(folder), 2, noise=0.1)
    torch.testing.assert_close(torch.rand(4), expected)
    assert copies.num_options == 2


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading(folder, tmp_path, kind):
    import torch

    policies = make_policies(load(folder), 2, kind=kind, noise=0.01)
    shake(policies, 0)
    shake(policies, 1, seed=5)
    policies.save(tmp_path / "kept")
    found = load_policies(tmp_path / "kept", load(folder))
    assert type(found) is type(policies) and found.options == policies.options
    for q in range(2):
        with policies.policy(q) as one, found.policy(q) as two:
            torch.testing.assert_close(logits(one), logits(two), rtol=0, atol=0)


def test_what_cannot_be_loaded(folder, tmp_path):
    policies = make_policies(load(folder), 2, rank=2)
    with pytest.raises(FileNotFoundError, match=r"no policies\.json"):
        load_policies(tmp_path, load(folder))
    policies.save(tmp_path)
    other = load(write_tiny_model(tmp_path / "other", seed=1))
    with pytest.raises(ValueError, match="other weights"):
        load_policies(tmp_path, other)
    with pytest.raises(ValueError, match="weights of 3 policies"):
        make_policies(load(folder), 3, rank=2).load_state(policies.state())
    data = json.loads((tmp_path / "policies.json").read_text())
    (tmp_path / "policies.json").write_text(json.dumps({**data, "options": {**data["options"], "rank": 4}}))
    with pytest.raises(ValueError, match="'rank': 4"):
        load_policies(tmp_path, load(folder))
    (tmp_path / "policies.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="saved policies"):
        load_policies(tmp_path, load(folder))


def test_memory_counts_shared_weights_once(folder):
    base = load(folder)
    one = sum(p.numel() * 4 for p in base.model.parameters())
    assert CopiedPolicies(base, 4).memory() == 5 * one
    adapters = AdapterPolicies(load(folder), 4, rank=2)
    assert adapters.memory() == one + 4 * sum(p.numel() * 4 for _, p in adapters.named_parameters(0))
    assert adapters.memory() < 1.5 * one


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_options": 1}, ValueError, "num_options .* >= 2"),
        ({"kind": "heads"}, ValueError, "'adapters', 'copies', got 'heads'"),
        ({"rank": 0}, ValueError, "rank >= 1"),
        ({"alpha": 0.0}, ValueError, "alpha > 0"),
        ({"noise": -1.0}, ValueError, "noise >= 0"),
        ({"target_modules": ["nothing"]}, ValueError, "target_modules"),
        ({"kind": "copies", "noise": -1.0}, ValueError, "noise >= 0"),
    ],
)
def test_wrong_arguments(folder, arguments, error, message):
    given = {"num_options": 2, **arguments}
    with pytest.raises(error, match=message):
        make_policies(load(folder), **given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_does_not_exist(folder, kind):
    with (
        pytest.raises(ValueError, match=r"policy in 0\.\.1, got 2"),
        make_policies(load(folder), 2, kind=kind).policy(2),
    ):
        pass
