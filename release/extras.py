"""Each extra alone: installed from a wheel in a bare environment, with one use of its own and one of another extra.

The use of its own must work without a network; that of another must end with one line that names the extra to install.
Prints a row of a table for each: packages, size, seconds of the installation. Environments are made one after the other
in a temporary folder, outside the checkout, and deleted.

python release/extras.py WHEEL [EXTRA ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OWN = "--vocabulary vocabulary --encoder precomputed:embeddings.npz"
INPUTS = """
from pathlib import Path
from edpbrl_gym.experiments.settings import PAPER_USERS
from tests.helpers.small_vocabulary import write_embedded

write_embedded(Path("."), PAPER_USERS.values())
Path("texts.txt").write_text("a gate\\nfog over a harbour\\n")
"""
STUDY = """
import re, sys
from pathlib import Path

config = Path("study/study.toml")
text = config.read_text()
for name, value in {"vocabulary": "../vocabulary", "encoder": "precomputed:embeddings.npz", **dict(
    one.split("=", 1) for one in sys.argv[1:]
)}.items():
    text = re.sub(rf"(?m)^#? *{name} = .*$", f'{name} = "{value}"', text, count=1)
config.write_text(text)
"""
CLIP = "from pathlib import Path; from tests.helpers.encoders import save_tiny_clip as save; save(Path('clip'))"
JUDGE = """
import io
from PIL import Image
from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings
from edpbrl_gym.oracles.judge.messages import make_messages

pictures = []
for colour in ("red", "blue"):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(stream, format="PNG")
    pictures.append(stream.getvalue())
settings = JudgeSettings(model="m", style="noir", base_url="http://127.0.0.1:1/v1", show="images")
assert "image/png" in str(make_messages(settings, JudgeQuestion(images=pictures), (1, 0)))
"""
DIGITS = """
import gymnasium
import edpbrl_gym

env = gymnasium.make("edpbrl/DiffusionGuidance-v0", render_mode="rgb_array")
env.reset(seed=0)
env.step(0)
assert env.render().ndim == 3
"""
LANGUAGE = """
from edpbrl_gym.language import load_language_model, make_policies

policies = make_policies(load_language_model(), 2, kind="adapters", rank=2)
assert policies.num_options == 2
"""
CLUSTER = """
from pathlib import Path
from distributed import LocalCluster
from edpbrl_gym.workers import DaskCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as local:
        with DaskCluster(local.scheduler_address, timeout=60) as cluster:
            assert sorted(cluster.map_unordered(abs, [(-1,), (-2,)], Path.cwd())) == [1, 2]
"""


@dataclass(frozen=True)
class Trial:
    """Uses of an extra.

    Attributes:
        own: What works with it: commands of a shell, and programs by their text.
        other: A command that needs more.
        missing: The extras which it then names.
        beside: Another extra that is of no use without.
    """

    own: tuple[str, ...]
    other: str
    missing: str
    beside: str = ""


def program(text: str, *arguments: str) -> str:
    """The command that runs a program."""
    return f"cat >program.py <<'END_OF_PROGRAM'\n{text}\nEND_OF_PROGRAM\npython program.py {' '.join(arguments)}"


TRIALS = {
    "text": Trial(("edpbrl encode texts.txt --out features.npy",), "edpbrl study check study", "study"),
    "experiments": Trial(
        (
            f"edpbrl reproduce synthetic {OWN} --episodes 2 --runs 2 --prompts 8 --pairs 28 --iterations 5 --jobs 1 "
            "--out run",
        ),
        "edpbrl design",
        "text",
    ),
    "study": Trial(
        ("edpbrl study init study", program(STUDY), "edpbrl study check study"),
        "edpbrl study report study",
        "experiments",
    ),
    "postgresql": Trial(
        (
            "edpbrl study init study",
            program(STUDY, "database=postgresql://user@host/name"),
            "edpbrl study check study",
        ),
        "edpbrl study report study",
        "experiments",
        beside="study",
    ),
    "images": Trial((program(DIGITS),), "edpbrl demo", "experiments,pictures"),
    "clip": Trial(
        (program(CLIP), "edpbrl encode texts.txt --encoder open_clip:local-dir:clip --out features.npy"),
        "edpbrl render texts.txt --renderer somebody/model",
        "images",
    ),
    "judge": Trial((program(JUDGE),), "edpbrl reproduce llm", "text,experiments"),
    "language": Trial((program(LANGUAGE),), "edpbrl reproduce reinforce", "experiments"),
    "rl": Trial((f"edpbrl design {OWN} --solver deep --episodes 4 --out design",), "edpbrl ask --terminal", "text"),
    "reference": Trial(
        (f"edpbrl design {OWN} --solver reference --episodes 12 --out design",), "edpbrl ask --terminal", "text"
    ),
    "cluster": Trial((program(CLUSTER),), "edpbrl reproduce synthetic", "text,experiments"),
}


def try_extra(wheel: Path, extra: str, trial: Trial, place: Path) -> str:
    """Install and use an extra; return its row.

    Raises:
        RuntimeError: A use of its own failed, or that of another one did not name what is missing.
    """
    environment, run = place / "env", place / "run"
    shutil.copytree(ROOT / "tests" / "helpers", run / "tests" / "helpers")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    names = ",".join(filter(None, [extra, trial.beside]))
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(run),  # the tests' helpers
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "EDPBRL_CACHE": str(place / "cache"),
    }

    def said(command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=run, env=variables, capture_output=True, text=True
        )
        return done.returncode, f"{done.stdout}\n{done.stderr}".strip()

    start = time.monotonic()
    status, text = said(f'pip install -q -c "{ROOT / "constraints.txt"}" "{wheel}[{names}]"')
    if status:
        raise RuntimeError(f"{extra}: the installation failed\n{text}")
    seconds = time.monotonic() - start
    for command in (program(INPUTS), *trial.own):
        status, text = said(command)
        if status:
            raise RuntimeError(f"{extra}: expected this to work, got status {status}\n{command}\n{text}")
    status, text = said(trial.other)
    if status != 1 or f'pip install "edpbrl-gym[{trial.missing}]"' not in text or len(text.splitlines()) != 1:
        raise RuntimeError(f"{extra}: expected `{trial.other}` to ask for {trial.missing}, got {status}\n{text}")
    site = said("python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'")[1]
    megabytes = int(said(f"du -sm {site}")[1].split()[0])
    packages = len(said("pip list --format freeze 2>/dev/null")[1].splitlines())
    return f"| `{names}` | {packages} | {megabytes:,} | {seconds:.0f} |"


def main() -> None:
    """Try the extras that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extra", nargs="*", choices=[[], *TRIALS], help="default: all")
    arguments = parser.parse_args()
    print("| extra | packages | MB | seconds |\n|---|---:|---:|---:|", flush=True)
    failed = []
    for extra in arguments.extra or TRIALS:
        with tempfile.TemporaryDirectory() as place:
            try:
                print(try_extra(arguments.wheel.resolve(), extra, TRIALS[extra], Path(place)), flush=True)
            except RuntimeError as error:
                failed.append(extra)
                print(error, file=sys.stderr, flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
