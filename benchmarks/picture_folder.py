"""A folder of 500 posters with odd files among them: 20 questions about four of them, then all are ranked.

A simulated person answers whose taste is a function of pixels (`benchmarks.picture_tastes`), which neither the names of
the files nor the features know. Reported is the share of the 20 pictures that the person likes best among the first 50
of the ranking, for questions by the adaptive planner and by chance; a ranking by chance has 50 of all pictures, 10%.

    OMP_NUM_THREADS=1 python -m benchmarks.picture_folder
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import edpbrl_gym as eg
from benchmarks.common import make_parser, show
from benchmarks.picture_tastes import TASTES
from edpbrl_gym._pictures import read_picture
from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.features import TextEncoder, default_cache_folder, load_image_encoder
from edpbrl_gym.features.images import PICTURE_FEATURES
from edpbrl_gym.likelihood import Response
from edpbrl_gym.pictures import PicturePool, prompt_pool
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.picture_files import add_odd_files

__all__ = ["asked", "found", "make_folder", "utilities"]

BEST, FIRST = 20, 50  # the true best, and the first of the ranking among which they are sought
PLANNERS = ("adaptive", "random")


def make_folder(folder: Path, count: int, seed: int, cache: Path) -> PicturePool:
    """Draw posters of random prompts into a folder, with odd files among them, and read it; drawn ones are cached."""
    prompts = prompt_pool(load_vocabulary("posters"), count + 100, seed).all_tokens
    renderer = eg.load_renderer("posters", cache_folder=cache, width=256, height=320)
    folder.mkdir()
    for number, image in enumerate(renderer.render(prompts[:count])):
        (folder / f"poster-{number:03}.png").write_bytes(image.png)
    # the odd files are posters too, so that their contents are no odd ones
    add_odd_files(
        folder, folder.parent / "outside", lambda number: renderer.render([prompts[count + number]])[0].load()
    )
    return eg.load_pictures(folder)


def utilities(pool: PicturePool, taste: str, scale: float) -> NDArray[np.float64]:
    """How much a person likes each picture: mean 0, and ``scale`` as the standard deviation."""
    values = np.array([TASTES[taste](read_picture(file)) for file in pool.files])
    return scale * (values - values.mean()) / values.std()


def asked(
    pool: PicturePool,
    encoder: TextEncoder,
    liked: NDArray[np.float64],
    planner: str,
    questions: int,
    seed: int,
    prior: str = "default",
) -> NDArray[np.float64]:
    """The scores of all pictures after so many questions about four of them."""
    rows = encoder.encode(pool.vocabulary.all_tokens)
    taste = make_prior("ridge", rows, scale="auto") if prior == "ridge" else None
    made = eg.make_planner(
        planner, pool.vocabulary, encoder, feedback="prompt", seed=derive_seed(seed, "planner"), prior=taste
    )
    session = eg.Session(made, vocabulary=pool.vocabulary, encoder=encoder, feedback="prompt")
    place = {text: item for item, text in enumerate(pool.vocabulary.all_tokens)}
    for number in range(questions):
        options = [place[text] for text in session.ask().texts]
        noise = generator(seed, "answers", number).gumbel(size=len(options))
        session.tell(Response.best(int(np.argmax(liked[options] + noise))))
    return session.memo.encode(pool.vocabulary.all_tokens) @ session.theta


def found(scores: NDArray[np.float64], liked: NDArray[np.float64]) -> float:
    """The share of the best pictures among the first of the ranking."""
    return len(set(np.argsort(-liked)[:BEST]) & set(np.argsort(-scores)[:FIRST])) / BEST


def main() -> None:
    """Draw, ask, rank and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--posters", type=int, default=500)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=8, help="folders and people for each taste (default: 8)")
    parser.add_argument("--scale", type=float, default=3.0, help="spread of the person's utilities in logits")
    parser.add_argument("--prior", choices=("default", "ridge"), default="default", help="ridge: scale auto")
    parser.add_argument("--cache", type=Path, default=default_cache_folder() / "images", help="of the posters")
    parser.add_argument("--image-encoder", default=PICTURE_FEATURES)
    arguments = parser.parse_args()
    image_encoders = [load_image_encoder(name) for name in arguments.image_encoder.split("+")]
    shares: dict[tuple[str, str], list[float]] = {}
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as place:
            pool = make_folder(Path(place) / "folder", arguments.posters, seed, arguments.cache)
            encoder = pool.encoder(*image_encoders)
            encoder.encode(pool.vocabulary.all_tokens, progress=True)
            if not seed:
                print(f"{len(pool)} pictures, {len(pool.left_out)} files left out")
            for taste in TASTES:
                liked = utilities(pool, taste, arguments.scale)
                for planner in PLANNERS:
                    scores = asked(pool, encoder, liked, planner, arguments.questions, seed, arguments.prior)
                    shares.setdefault((taste, planner), []).append(found(scores, liked))
                    print(f"seed {seed}, {taste}, {planner}: {shares[taste, planner][-1]:.2f}", flush=True)
    rows = [
        [taste, planner, f"{np.mean(some):.1%}", f"{np.std(some, ddof=1) / np.sqrt(len(some)):.1%}"]
        for (taste, planner), some in shares.items()
    ]
    show(TextTable("", ("taste", "questions by", f"best {BEST} among the first {FIRST}", "standard error"), rows))


if __name__ == "__main__":
    main()
