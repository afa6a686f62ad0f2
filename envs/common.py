"""Shared code of the environments: one encoder per process, plain arguments, autoreset modes, reset masks, infos.

Infos are made when they are read (`LaneInfos`); wrappers follow by them which lanes acted and ended (`LaneTracker`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans
from edpbrl_gym.features import ImageEncoder, TextEncoder, check_encoder_spec, load_encoder, load_image_encoder

__all__ = [
    "LaneInfos",
    "LaneTracker",
    "check_complete",
    "check_encoder_argument",
    "check_jsonable",
    "check_lane_actions",
    "check_observations",
    "final_infos",
    "first_seed",
    "lane_infos",
    "lanes_to_reset",
    "parse_autoreset_mode",
    "shared_encoder",
    "shared_image_encoder",
    "shared_model",
]


@functools.lru_cache(maxsize=8)  # encoders, tokenizers and diffusion models
def _loaded(loader: Callable[[str], Any], spec: str, files: tuple[tuple[str, int, int], ...]) -> Any:
    return loader(spec)


def shared_model(loader: Callable[[str], Any], spec: str, place: str) -> Any:
    """Return ``loader(spec)``: one object for all environments of a process, loaded again when local files change."""
    path = Path(place)
    if not place or not path.exists():  # a name, not a path on this machine
        return _loaded(loader, spec, ())
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    return _loaded(loader, spec, tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats))


def _place_of(spec: str) -> str:
    return spec.partition(":")[2].removeprefix("local-dir:")


def shared_encoder(spec: str) -> TextEncoder:
    """One text encoder for all single environments of a process."""
    encoder: TextEncoder = shared_model(load_encoder, spec, _place_of(spec))
    return encoder


def shared_image_encoder(spec: str) -> ImageEncoder:
    """One image encoder for all single environments of a process, without a cache: no picture comes twice."""
    encoder: ImageEncoder = shared_model(_uncached_image_encoder, spec, _place_of(spec))
    return encoder


def _uncached_image_encoder(spec: str) -> ImageEncoder:
    return load_image_encoder(spec, cache=False)


def check_jsonable(**arguments: Any) -> None:
    """Raise a TypeError for an argument that JSON can't hold: the arguments of an environment are part of its spec."""
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except TypeError:
            raise TypeError(
                f"Expected {name} as a plain name, path string, number or list, got {type(value).__name__}: an "
                "environment's arguments are written to its spec as JSON. Pass str(path) for a path; name the class "
                "of your own encoder, such as 'my_encoders:Letters', or hand an instance to "
                "env.unwrapped.model.use_encoder(); an oracle goes to a wrapper."
            ) from None


def check_encoder_argument(encoder: Any) -> str:
    """Return the name of an encoder if it has a known form, else a TypeError or ValueError; nothing is loaded."""
    if not isinstance(encoder, str):
        raise TypeError(f'Expected encoder as a string such as "minilm", got {encoder!r}.')
    return check_encoder_spec(encoder)


def parse_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Return Gymnasium's autoreset mode for "next_step", "same_step" or "disabled"."""
    for member in AutoresetMode:
        if mode in (member, member.name.lower(), member.value):
            return member
    names = sorted(member.name.lower() for member in AutoresetMode)
    raise ValueError(f"Expected autoreset_mode to be one of {names}, got {mode!r}.")


def check_observations(observations: ArrayLike, horizon: int, padding: int, *, length: str) -> NDArray[np.int64]:
    """Return observations, one or many, as integers (n, horizon) in 0..padding, else a ValueError."""
    lanes = np.asarray(observations)
    if lanes.ndim == 1:
        lanes = lanes[None]
    if (
        lanes.ndim != 2
        or lanes.shape[1] != horizon
        or lanes.dtype.kind not in "iu"
        or (lanes.size and (lanes.min() < 0 or lanes.max() > padding))
    ):
        raise ValueError(
            f"Expected observations as integers in 0..{padding} of shape (n, {length}) = (n, {horizon}), "
            f"got {lanes.dtype} of shape {lanes.shape}."
        )
    return lanes.astype(np.int64, copy=False)


def first_seed(seed: int | Sequence[int | None] | None, num_envs: int) -> int | None:
    """Return the one seed of a vector environment; a sequence must hold one for each lane, and the first counts."""
    if seed is not None and not isinstance(seed, int | np.integer):
        if len(seed) != num_envs:
            raise ValueError(f"Expected one seed for each of {num_envs} lanes, got {len(seed)}.")
        seed = seed[0]
    return None if seed is None else int(seed)


def lanes_to_reset(options: dict[str, Any] | None, num_envs: int, *, was_reset: bool) -> NDArray[np.bool_]:
    """Return the lanes to reset, boolean (num_envs,): those of ``options["reset_mask"]``, or all.

    Raises:
        ValueError: A mask that is no boolean array, or empty.
        ResetNeeded: A mask that leaves lanes out before the first reset of all.
    """
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, dtype=np.bool_)
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        kind = f"{mask.dtype} of shape {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise ValueError(f"Expected options['reset_mask'] as a boolean array of shape ({num_envs},), got {kind}.")
    if not mask.any():
        raise ValueError("Expected options['reset_mask'] with at least one True, got none.")
    if not was_reset and not mask.all():
        raise ResetNeeded("The first reset must begin all lanes; call reset() without a reset_mask.")
    return mask


def check_complete(complete: NDArray[np.bool_], mode: AutoresetMode) -> None:
    """Raise ResetNeeded for complete lanes (n,) in the mode in which the caller must reset them."""
    if mode is AutoresetMode.DISABLED and complete.any():
        lanes = np.flatnonzero(complete).tolist()
        raise ResetNeeded(f'Lanes {lanes} are complete; call reset(options={{"reset_mask": mask}}) first.')


def check_lane_actions(actions: ArrayLike, num_envs: int) -> NDArray[np.int64]:
    """Return one action for each lane as integers (num_envs,), else a ValueError."""
    array = np.asarray(actions)
    if array.shape != (num_envs,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"Expected actions as integers of shape ({num_envs},), got {array.dtype} of shape {array.shape}."
        )
    return array.astype(np.int64)


class _Deferred(NamedTuple):
    """A value that is made when it is first asked for, and once."""

    value: Callable[[], Any]


if TYPE_CHECKING:
    _Readable = dict[str, Any]
else:

    class _Readable(MutableMapping, dict):
        """A dict whose values are read by ``__getitem__`` only; what reads none is the dict's own."""

        __setitem__ = dict.__setitem__
        __delitem__ = dict.__delitem__
        __contains__ = dict.__contains__
        __len__ = dict.__len__
        __reversed__ = dict.__reversed__
        clear = dict.clear


class LaneInfos(_Readable):
    """A dict some of whose values are made when they are first read, by functions without arguments.

    A step of many lanes would spend nearly all its time on texts and masks that most programs never read. Every way of
    reading a value gives what the function returned; ``keys()``, ``in`` and ``len`` make nothing. ``dict(infos)``,
    ``{**infos}``, pickles and deep copies are plain dicts with all values made; ``copy()`` and ``infos | other`` leave
    them to be made. The functions must not depend on anything that later steps change.
    """

    def defer(self, key: str, make: Callable[[], Any]) -> None:
        """Store a value that ``make()`` returns when it is first read."""
        self[key] = _Deferred(functools.cache(make))

    def __getitem__(self, key: str) -> Any:
        """The value of a key, made now if it is read for the first time."""
        value = dict.__getitem__(self, key)
        if isinstance(value, _Deferred):
            value = self[key] = value.value()
        return value

    def __iter__(self) -> Iterator[str]:
        """The keys. Defined here so that ``dict(infos)`` and ``{**infos}`` read values by ``__getitem__``."""
        return dict.__iter__(self)

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with its value."""
        key = next(reversed(self))
        return key, self.pop(key)

    def copy(self) -> Self:
        """A shallow copy."""
        other = type(self)()
        for key in self:
            other[key] = dict.__getitem__(self, key)
        return other

    __copy__ = copy

    def __or__(self, other: Mapping[str, Any]) -> Self:  # type: ignore[override]
        """A shallow copy, updated."""
        if not isinstance(other, Mapping):
            return NotImplemented
        together = self.copy()
        together.update(other)
        return together

    def __ne__(self, other: object) -> bool:
        """Inequality as dicts."""
        return not self == other

    def __repr__(self) -> str:
        """As that of a dict."""
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """A plain dict."""
        return dict, (dict(self),)


def lane_infos(
    mask: Booleans,
    texts: Callable[[], list[str]],
    masks: Callable[[], NDArray[np.int8]],
    counts: Mapping[str, NDArray[np.int64]],
    *,
    text: str = "prompt",
) -> LaneInfos:
    """Return Gymnasium's vector infos: an array over lanes for each key, and which lanes it holds for under "_key"."""
    present = mask.copy()

    def make_masks() -> NDArray[np.int8]:
        made = masks()  # a new array
        made[~present] = 0
        return made

    def make_texts() -> NDArray[np.object_]:
        made = np.full(len(present), None, dtype=object)
        made[present] = texts()
        return made

    infos = LaneInfos()
    infos.defer("action_mask", make_masks)
    infos["_action_mask"] = mask.copy()
    infos.defer(text, make_texts)
    infos[f"_{text}"] = mask.copy()
    for key, count in counts.items():
        infos[key] = np.where(mask, count, 0)
        infos[f"_{key}"] = mask.copy()
    return infos


def final_infos(observations: NDArray[Any], infos: dict[str, Any], mask: Booleans) -> dict[str, Any]:
    """Return Gymnasium's infos about lanes that terminate and restart in the same step."""
    lanes = np.flatnonzero(mask)
    final = np.full(len(mask), None, dtype=object)
    for lane, row in zip(lanes.tolist(), observations[lanes], strict=True):  # rows of one new array
        final[lane] = row
    return {"final_obs": final, "_final_obs": mask.copy(), "final_info": infos, "_final_info": mask.copy()}


class LaneTracker:
    """Follow the lanes of a vector environment through all three autoreset modes.

    Attributes:
        acted: Lanes whose last step was an action and not an automatic reset, shape (num_envs,).
        ended: Lanes whose episode ended with that action, shape (num_envs,).
        step_index: Step h (0-based) of that action within the lane's episode, shape (num_envs,); only meaningful
            where ``acted``.

    Raises:
        TypeError: If the environment doesn't state its autoreset mode, or its observations are no single array.
    """

    def __init__(self, env: VectorEnv) -> None:
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise TypeError(
                "Expected env.metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode, got "
                f"{mode!r}; set it on the vector environment."
            )
        if env.observation_space.shape is None:
            raise TypeError(
                "Expected a vector environment with observations as one array (n, ...), got the space "
                f"{type(env.observation_space).__name__}; leave TextObservation off, or flatten the observations "
                "before this wrapper."
            )
        self.mode = mode
        self.num_envs = int(env.num_envs)
        self.step_index: NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self._num_actions: NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self.acted: Booleans = np.zeros(self.num_envs, dtype=np.bool_)
        self.ended: Booleans = np.zeros(self.num_envs, dtype=np.bool_)
        self._ended: Booleans = np.zeros(self.num_envs, dtype=np.bool_)  # and not yet begun again

    @property
    def episode_start(self) -> Booleans:
        """Lanes whose next step is the first action of an episode; what ``predict`` takes as ``episode_start``."""
        return (self._num_actions == 0) & ~self._ended

    def reset_mask(self, options: dict[str, Any] | None) -> Booleans:
        """Lanes that a reset with these options begins; read before the reset, as Gymnasium removes the entry."""
        mask = (options or {}).get("reset_mask")
        return np.ones(self.num_envs, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)

    def reset(self, mask: Booleans) -> None:
        """Record that the masked lanes begin a new episode."""
        self._num_actions[mask] = 0
        self._ended[mask] = False

    def step(self, observations: Any, terminations: Booleans, truncations: Booleans, infos: dict[str, Any]) -> Any:
        """Record a step and return the observation that each lane reached, before any automatic reset.

        Returns:
            The observations, with final ones in place of the first ones of the next episode.
        """
        ended = np.logical_or(terminations, truncations)
        self.acted = ~self._ended if self.mode is AutoresetMode.NEXT_STEP else np.ones_like(self._ended)
        self.ended = ended & self.acted
        self.step_index = self._num_actions
        self._num_actions = np.where(self.acted, self._num_actions + 1, 0)
        if self.mode is not AutoresetMode.SAME_STEP:
            self._ended = ended
            return observations
        reached = np.array(observations)
        if ended.any():
            reached[ended] = np.stack(infos["final_obs"][ended])
        self._num_actions[ended] = 0
        return reached
