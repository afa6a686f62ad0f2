"""No file is unpickled: the code that could is named here, and files with pickled objects run nothing."""

from __future__ import annotations

import ast
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("edpbrl_gym", "agents", "envs", "examples", "benchmarks")

# who unpickles, and why that is right
ALLOWED = {
    "edpbrl_gym/workers/cluster.py": "functions and results between a run and the workers of its own cluster",
    "edpbrl_gym/workers/forked.py": "requests and answers between a process and those that it forked",
    "edpbrl_gym/study/planning.py": "the prior that a server sends to the worker processes that it forked",
}
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "pickle5", "jsonpickle", "yaml"}
# calls that unpickle whatever their other arguments are
CALLS = {"read_pickle", "to_pickle", "load_from_zip_file", "set_parameters", "load_replay_buffer", "Memory"}
# calls that unpickle unless an argument forbids it: (module, function) -> that argument
GUARDED = {
    ("torch", "load"): ("weights_only", True),
    ("np", "load"): ("allow_pickle", False),
    ("numpy", "load"): ("allow_pickle", False),
}
UNPICKLING_LIBRARIES = {"stable_baselines3", "sb3_contrib", "joblib"}  # their ``load`` unpickles


def sources() -> list[Path]:
    return sorted({path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")})


def unpickling(tree: ast.AST) -> list[str]:
    """Each place of a module that may unpickle, as "line: what"."""
    found, from_libraries = [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            found += [f"{node.lineno}: import of {name}" for name in modules if name.split(".")[0] in MODULES]
            if any(name.split(".")[0] in UNPICKLING_LIBRARIES for name in modules):
                from_libraries |= {(one.asname or one.name).split(".")[0] for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            found.append(f"{node.value.lineno}: trust_remote_code")
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        owner, _, function = name.rpartition(".")
        if function in CALLS or (function == "load" and owner.split(".")[0] in from_libraries):
            found.append(f"{node.lineno}: {name}")
        argument = GUARDED.get((owner, function))
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if argument is not None:
            value = given.get(argument[0])
            if not (isinstance(value, ast.Constant) and value.value is argument[1]):
                found.append(f"{node.lineno}: {name} without {argument[0]}={argument[1]}")
    return found


def test_no_module_unpickles():
    found = {
        str(path.relative_to(ROOT)): places
        for path in sources()
        if (places := unpickling(ast.parse(path.read_text(encoding="utf-8"))))
    }
    others = {path: places for path, places in found.items() if not path.startswith(tuple(ALLOWED))}
    assert not others, f"these may unpickle what a stranger wrote: {others}"
    assert all(any(path.startswith(name) for path in found) for name in ALLOWED), "a name that is not needed any more"


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "def f():\n    from cloudpickle import loads",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "np.load(path, mmap_mode='r')",
        "numpy.load(path, allow_pickle=True)",
        "from joblib import Memory, load\nMemory('x')",
        "import joblib\njoblib.load(path)",
        "from stable_baselines3 import PPO\nPPO.load(path)",
        "import sb3_contrib as more\nmore.MaskablePPO.load(path)",
        "pandas.read_pickle(path)",
        "model.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_the_check_sees_what_it_should(code):
    assert unpickling(ast.parse(code))


class Bomb:
    """An object whose unpickling makes the folder ``mark``."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture(params=["torch", "pickle"])
def bomb(request, tmp_path):
    """Writes a pickled object in place of a file of weights, which nobody may unpickle."""
    import torch

    mark = tmp_path / "mark"

    def write(path: Path) -> None:
        if request.param == "pickle":
            path.write_bytes(pickle.dumps({"weight": Bomb(mark)}, protocol=2))
        else:
            torch.save({"weight": Bomb(mark)}, path)

    yield write
    assert not mark.exists()


def test_arrays_of_objects_are_refused(tmp_path):
    from edpbrl_gym.features.precomputed import PrecomputedEncoder

    mark = tmp_path / "mark"
    np.savez(tmp_path / "rows.npz", texts=np.array(["a", "b"]), embeddings=np.array([[Bomb(mark)], [1]], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        PrecomputedEncoder(tmp_path / "rows.npz")
    assert not mark.exists()


def test_a_language_models_weights_run_nothing(bomb, tmp_path):
    from edpbrl_gym.language import load_language_model
    from tests.helpers.tiny_language_model import write_tiny_model

    folder = Path(write_tiny_model(tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    bomb(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="causal language model"):
        load_language_model(folder)


def test_a_sentence_models_weights_run_nothing(bomb, tmp_path):
    from edpbrl_gym.features import load_encoder
    from tests.helpers.encoders import save_tiny_sentence_model

    folder = save_tiny_sentence_model(tmp_path / "model")
    weights = next(folder.rglob("model.safetensors"))
    bomb(weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with pytest.raises((ValueError, OSError)):
        load_encoder(f"sentence-transformers:{folder}", cache=False).encode(["a"])


@pytest.mark.parametrize("name", ["open_clip_pytorch_model.bin", "open_clip_model.pt", "open_clip_model.pth"])
def test_the_weights_of_a_clip_run_nothing(name, bomb, tmp_path):
    from edpbrl_gym.features import load_encoder
    from tests.helpers.encoders import save_tiny_clip

    folder = save_tiny_clip(tmp_path / "one")
    (folder / "open_clip_model.safetensors").unlink()
    bomb(folder / name)
    for spec in (f"open_clip:local-dir:{folder}", f"open_clip:tiny-one/{folder / name}"):
        with pytest.raises((ValueError, OSError)):
            load_encoder(spec, cache=False).encode(["a"])


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model", "text_encoder/pytorch_model"])
def test_the_weights_of_a_pipeline_run_nothing(part, bomb, tmp_path, tiny_pipeline):
    from edpbrl_gym.rendering import RenderSettings
    from edpbrl_gym.rendering.diffusers.pipelines import load_pipeline

    folder = Path(shutil.copytree(tiny_pipeline, tmp_path / "model"))
    for weights in (folder / part).parent.glob("*.safetensors"):
        weights.unlink()
    bomb(folder / f"{part}.bin")
    with pytest.raises(ValueError, match="text-to-image pipeline"):
        load_pipeline(RenderSettings(model=str(folder)))


def test_a_checkpoint_of_training_runs_nothing(bomb, tmp_path):
    from edpbrl_gym.language.trainer import CHECKPOINT, read_checkpoint

    bomb(tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match="Expected a checkpoint"):
        read_checkpoint(tmp_path, None)
