"""Rendering on worker processes: the images of one process to the bit, also where workers are killed."""

from __future__ import annotations

import pytest

from edpbrl_gym.rendering import RenderSettings
from edpbrl_gym.workers import LocalProcesses
from tests.helpers.tiny_diffusion import renderer_of, save_tiny_stable_diffusion
from tests.helpers.worker_kills import KILLS, Killer

PROMPTS = 4 + 4 * KILLS


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    model = save_tiny_stable_diffusion(tmp_path_factory.mktemp("models") / "tiny")
    return RenderSettings(model=str(model), steps=1, height=16, width=16)


@pytest.fixture(scope="module")
def expected(settings, tmp_path_factory):
    """The images of one process, in batches of two."""
    renderer = renderer_of(settings, cache_folder=tmp_path_factory.mktemp("here"), batch_size=2)
    return renderer.render([f"a gate, number {number}" for number in range(PROMPTS)], seed=range(PROMPTS))


def finished(folder):
    """How many images are in a cache."""
    return len([path for path in folder.glob("??/*.json") if not path.name.startswith(".")])


def made_at(folder):
    """When each image was written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("??/*.png")}


def test_workers_killed_at_random_points_lose_nothing_and_render_nothing_twice(settings, expected, tmp_path):
    folder, seen = tmp_path / "images", []
    prompts = [image.prompt for image in expected]
    with Killer(lambda: finished(folder), PROMPTS * 9 // 10, seed=KILLS) as killer:
        renderer = renderer_of(settings, cache_folder=folder, batch_size=2, executor=LocalProcesses(2))
        images = renderer.render(prompts, seed=range(PROMPTS), progress=lambda done, total: seen.append(done))
    print(f"{len(killer.killed)} kills at {killer.points} of {PROMPTS} images")
    assert len(killer.killed) == KILLS
    assert "loaded" not in renderer.renderer.__dict__  # only the workers have the model
    for image, here in zip(images, expected, strict=True):
        assert (image.key, image.png, image.path.is_relative_to(folder)) == (here.key, here.png, True)
    assert seen == sorted(seen) and seen[-1] == PROMPTS
    assert len(made_at(folder)) == PROMPTS and not list((folder / "batches").glob("*"))
    before = made_at(folder)
    again = renderer_of(settings, cache_folder=folder, executor=LocalProcesses(2)).render(prompts, seed=range(PROMPTS))
    assert again == images and made_at(folder) == before


def test_a_worker_with_other_weights_is_refused(settings, tmp_path):
    renderer = renderer_of(settings, cache_folder=tmp_path, batch_size=1, executor=LocalProcesses(2))
    renderer.renderer.fingerprint = "0" * 64  # as if this machine had another model under the same name
    with pytest.raises(ValueError, match="Expected the same files of .* on all workers"):
        renderer.render(["a gate", "a sea"])
