"""A page for every registered environment: its docstring, its spaces, and an episode that was played."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from texts import first_paragraph, markdown_table

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.envs import ENVIRONMENTS

__all__ = ["index", "page_name", "pages"]

SEED = 0


def page_name(env_id: str) -> str:
    """Name of an environment's page: "edpbrl/PromptConstruction-v0" has "PromptConstruction-v0"."""
    return env_id.split("/")[-1]


def pages() -> Mapping[str, str | bytes]:
    """The pages of all registered environments, with their pictures, and the page that lists them."""
    made: dict[str, str | bytes] = {"environments/index.md": index()}
    for entry in ENVIRONMENTS:
        name = page_name(entry["id"])
        text, picture = _page(entry)
        made[f"environments/{name}.md"] = text
        if picture is not None:
            made[f"environments/{name}.png"] = picture
    return made


def index() -> str:
    """The page that lists them."""
    rows = [
        (f"[`{entry['id']}`]({page_name(entry['id'])}.md)", first_paragraph(_env_class(entry)))
        for entry in ENVIRONMENTS
    ]
    names = "\n".join(page_name(entry["id"]) for entry in ENVIRONMENTS)
    return (
        "# Environments\n\n`import edpbrl_gym` registers them with Gymnasium.\n\n"
        + markdown_table(("id", "what an episode is"), rows)
        + "\nWrappers, which ask a user, learn a reward or let algorithms without masks play, are in "
        "[edpbrl_gym.envs.wrappers](../api/envs.wrappers.rst). "
        "[Your own environment](../../own-environment.md) needs no registration.\n\n"
        f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    )


def _env_class(entry: Mapping[str, Any]) -> Any:
    return gymnasium.envs.registration.load_env_creator(entry["entry_point"])


def _page(entry: Mapping[str, Any]) -> tuple[str, bytes | None]:
    env_id, cls = entry["id"], _env_class(entry)
    title, _, rest = (inspect.getdoc(cls) or "").partition("\n")
    modes = cls.metadata["render_modes"]
    env: Any = gymnasium.make(env_id, render_mode="ansi")
    facts = [
        ("Action space", f"`{env.action_space}`"),
        ("Observation space", f"`{_short(env.observation_space)}`"),
        ("Longest episode", f"{env.spec.max_episode_steps} steps"),
        ("Render modes", ", ".join(f"`{mode}`" for mode in modes)),
        ("Make it", f'`gymnasium.make("{env_id}")`'),
        ("In lanes", f'`gymnasium.make_vec("{env_id}", num_envs=8)`'),
        ("Classes", f"`{_class_name(entry['entry_point'])}`, `{_class_name(entry['vector_entry_point'])}`"),
    ]
    env.close()
    played, how = _played(env_id, "ansi")
    episode = "\n".join(f"step {number}  {line}".rstrip() for number, line in enumerate(played))
    picture = _filmstrip(env_id) if _draws_pictures(cls) else None
    text = (
        f"# {page_name(env_id)}\n\n{title}\n\n"
        + markdown_table(("", "with its default arguments"), facts)
        + f'\n## An episode\n\nPlayed when this page was built, with `render_mode="ansi"`, seed {SEED} and {how}:\n\n'
        f"```text\n{episode}\n```\n\n"
        + (
            f'The same with `render_mode="rgb_array"`:\n\n![One picture a step]({page_name(env_id)}.png)\n\n'
            if picture
            else ""
        )
        + rest.strip()
        + "\n"
    )
    return text, picture


def _class_name(entry_point: str) -> str:
    return entry_point.split(":")[1]


def _short(space: gymnasium.Space) -> str:
    """A space on one line; a MultiDiscrete of equal numbers as its docstring writes it, a Box by its shape."""
    if isinstance(space, gymnasium.spaces.Box):
        return f"Box({space.shape}, {space.dtype})"
    if isinstance(space, gymnasium.spaces.MultiDiscrete) and len(set(space.nvec.tolist())) == 1:
        return f"MultiDiscrete([{space.nvec[0]}] * {len(space.nvec)})"
    return " ".join(str(space).split())


def _draws_pictures(cls: Any) -> bool:
    """Whether what it renders is an image and not a text that is drawn."""
    from edpbrl_gym.envs.base import PromptLanes

    return "rgb_array" in cls.metadata["render_modes"] and not issubclass(cls.lanes_class, PromptLanes)


def _played(env_id: str, render_mode: str) -> tuple[list[Any], str]:
    """What an episode renders at its start and after each step, and how its actions were chosen."""
    env: Any = gymnasium.make(env_id, render_mode=render_mode)
    rng = np.random.default_rng(SEED)
    writer = getattr(env.unwrapped, "next_token_probabilities", None)
    _, info = env.reset(seed=SEED)
    frames, done = [env.render()], False
    while not done:
        if writer is None:
            action = rng.choice(np.flatnonzero(info["action_mask"]))
        else:
            probabilities = writer()
            action = rng.choice(len(probabilities), p=probabilities)
        _, _, terminated, truncated, info = env.step(int(action))
        done = terminated or truncated
        frames.append(env.render())
    env.close()
    return frames, "random legal actions" if writer is None else "actions drawn from its language model"


def _filmstrip(env_id: str) -> bytes:
    """The pictures of an episode side by side, as PNG."""
    from PIL import Image

    frames = [np.asarray(frame) for frame in _played(env_id, "rgb_array")[0]]
    gap = np.full((frames[0].shape[0], 8, 3), 255, dtype=np.uint8)
    strip = np.concatenate([part for frame in frames for part in (frame, gap)][:-1], axis=1)
    buffer = io.BytesIO()
    Image.fromarray(strip).save(buffer, "PNG")
    return buffer.getvalue()
