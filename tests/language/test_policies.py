"""K copies and K adapters: what they share, what they learn, what is kept."""

import json

import pytest

from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import AdapterPolicies, CopiedPolicies, load_policies, make_policies
from tests.helpers.tiny_language_model import write_tiny_model

KINDS = ("adapters", "copies")


def load(gpt2):
    return load_language_model(gpt2, device="cpu")


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


@pytest.mark.parametrize("kind", KINDS)
def test_policies_begin_as_the_base_and_move_alone(gpt2, kind):
    import torch

    expected = logits(load(gpt2))
    policies = make_policies(load(gpt2), 3, kind=kind)
    for q in range(3):
        with policies.policy(q) as language:
            torch.testing.assert_close(logits(language), expected, rtol=0, atol=0)
    shake(policies, 1)
    with pytest.raises(ValueError, match=r"policy in 0\.\.2, got 3"), policies.policy(3):
        pass
    for q, moved in enumerate((False, True, False)):
        with policies.policy(q) as language:
            assert bool((logits(language) - expected).abs().max() > 1e-3) == moved
    with policies.base_model() as language:
        torch.testing.assert_close(logits(language), expected, rtol=0, atol=0)
    with policies.policy(1) as language:
        assert (logits(language) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_policy_is_its_own(gpt2, kind):
    import torch

    policies = make_policies(load(gpt2), 2, kind=kind)
    with policies.base_model():
        pass
    with policies.policy(1) as language:
        language.model(input_ids=torch.arange(9)[None]).logits.square().sum().backward()
    assert all(p.grad is None for _, p in policies.named_parameters(0))
    grads = [p.grad for _, p in policies.named_parameters(1)]
    assert all(grad is not None for grad in grads) and any(grad.abs().max() > 0 for grad in grads)
    assert all(p.requires_grad for p in policies.parameters())


def test_an_adapter_is_a_correction_of_low_rank(gpt2):
    """The layer's output moves by alpha / r x A' B', computed by hand from the adapter's matrices."""
    import torch

    base = load(gpt2)
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
def test_noise_makes_policies_differ_by_seed(gpt2, kind):
    import torch

    def outputs(seed):
        policies = make_policies(load(gpt2), 2, kind=kind, noise=0.05, seed=seed)
        found = []
        for q in range(2):
            with policies.policy(q) as language:
                found.append(logits(language))
        return found

    first, again, other = outputs(1), outputs(1), outputs(2)
    assert (first[0] - first[1]).abs().max() > 1e-3
    assert (first[0] - other[0]).abs().max() > 1e-3
    torch.testing.assert_close(first, again, rtol=0, atol=0)


def test_making_policies_leaves_the_global_generator_alone(gpt2):
    import torch

    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    copies = CopiedPolicies(load(gpt2), 2, noise=0.1)
    torch.testing.assert_close(torch.rand(4), expected)
    assert copies.num_options == 2


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading(gpt2, tmp_path, kind):
    import torch

    policies = make_policies(load(gpt2), 2, kind=kind, noise=0.01)
    shake(policies, 0)
    shake(policies, 1, seed=5)
    policies.save(tmp_path / "kept")
    found = load_policies(tmp_path / "kept", load(gpt2))
    assert type(found) is type(policies) and found.options == policies.options
    for q in range(2):
        with policies.policy(q) as one, found.policy(q) as two:
            torch.testing.assert_close(logits(one), logits(two), rtol=0, atol=0)


def test_what_cannot_be_loaded(gpt2, tmp_path):
    policies = make_policies(load(gpt2), 2, rank=2)
    with pytest.raises(FileNotFoundError, match=r"no policies\.json"):
        load_policies(tmp_path, load(gpt2))
    policies.save(tmp_path)
    other = load(write_tiny_model(tmp_path / "other", seed=1))
    with pytest.raises(ValueError, match="other weights"):
        load_policies(tmp_path, other)
    with pytest.raises(ValueError, match="weights of 3 policies"):
        make_policies(load(gpt2), 3, rank=2).load_state(policies.state())
    data = json.loads((tmp_path / "policies.json").read_text())
    (tmp_path / "policies.json").write_text(json.dumps({**data, "options": {**data["options"], "rank": 4}}))
    with pytest.raises(ValueError, match="'rank': 4"):
        load_policies(tmp_path, load(gpt2))
    (tmp_path / "policies.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="saved policies"):
        load_policies(tmp_path, load(gpt2))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_options": 1}, ValueError, "num_options .* >= 2"),
        ({"kind": "heads"}, ValueError, "'adapters', 'copies', got 'heads'"),
        ({"rank": 0}, ValueError, "rank >= 1"),
        ({"noise": -1.0}, ValueError, "noise >= 0"),
        ({"target_modules": ["nothing"]}, ValueError, "target_modules"),
    ],
)
def test_wrong_arguments(gpt2, arguments, error, message):
    given = {"num_options": 2, **arguments}
    with pytest.raises(error, match=message):
        make_policies(load(gpt2), **given)
