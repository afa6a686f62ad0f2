"""Arguments of ``edpbrl reproduce llm``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edpbrl_gym.cli.options.main import CriterionName

__all__ = ["LLM"]


@dataclass(frozen=True)
class LLM:
    """A language model answers as a person who follows a style: designed against random questions, ten styles.

    Any OpenAI-compatible chat endpoint; its key is read from the environment. --dry-run says what it would cost.
    """

    dry_run: bool = False
    """Ask nothing: print how many questions there are, and estimate tokens and cost."""
    base_url: str | None = None
    """Endpoint of the judge, such as http://127.0.0.1:8399/v1 (None: OpenAI's own)."""
    judge_model: str = "gpt-4.1-mini"
    """Name of the model there (the paper's by default)."""
    key_variable: str | None = None
    """Environment variable that holds the key (None: OPENAI_API_KEY; for an endpoint given by --base-url, no key)."""
    render_model: str | None = None
    """Show the judge images by this text-to-image model: hub id or folder, such as CompVis/stable-diffusion-v1-4, the
    paper's (None: the judge reads the partial prompts)."""
    styles: tuple[str, ...] = ()
    """The ten styles by name, or your own as name=guidance (none given: all ten)."""
    agents: tuple[str, ...] = ("frank_wolfe", "random")
    """Who asks, the baseline last: name or package.module:Class[,option=value...], such as
    newton,criterion=D,regularization=1."""
    episodes: int = 60
    """T, episodes asked by every agent (one question for each step of a prompt), the same for all styles."""
    train_sizes: tuple[int, ...] = (10, 20, 30, 40, 50)
    """Numbers of training episodes."""
    test_episodes: int = 10
    """Held-out episodes of a fold."""
    folds: int = 3
    """Test windows, from the last episodes backwards."""
    lambdas: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    """Lambdas of the paper's ridge estimates; our default estimate, which needs none, stands beside them."""
    num_options: int = 4
    """K, options of a question."""
    criterion: CriterionName = "V"
    """What the designs optimise."""
    regularization: float = 100.0
    """Lambda of the designs, and of the per-style table."""
    iterations: int = 100
    """Frank-Wolfe iterations at most."""
    concurrency: int = 8
    """Most questions under way at once."""
    timeout: float = 60.0
    """Seconds for a whole attempt, up to the last byte of the answer."""
    max_retries: int = 5
    """How often a question is sent again after a timeout, 429 or 5xx."""
    structured: Literal["auto", "schema", "text"] = "auto"
    """Answers by JSON schema, as validated text, or by schema where the server takes it."""
    second_look: bool = False
    """Ask every question again with other labels; says how often the judge agrees with itself, and costs twice."""
    temperature: float | None = 0.0
    """Of the judge; None leaves it to the server (some models refuse the parameter)."""
    max_answer_tokens: int = 64
    """Most tokens of an answer; models that think before they answer need thousands."""
    image_size: int | None = 512
    """Most pixels of the longer side of an image as it is sent (None: as rendered)."""
    tokens_per_image: int = 8500
    """Most tokens that the server counts for an image; set aside against --max-tokens and used by --dry-run."""
    max_questions: int | None = None
    """Hard limit on questions put to the judge in this run folder (None: none)."""
    max_tokens: int | None = None
    """Hard limit on tokens, input and output together (None: none)."""
    input_price: float | None = None
    """Price of a million input tokens, for the cost."""
    output_price: float | None = None
    """Price of a million output tokens."""
    render_steps: int = 50
    """Denoising steps; turbo-class models take 1 to 4."""
    render_guidance: float = 7.5
    """Classifier-free guidance; turbo-class models take 0."""
    render_size: int | None = None
    """Height and width of an image in pixels (None: the model's own)."""
    render_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision of the pipeline; the latter two are for GPUs."""
    render_batch: int = 4
    """Images made at once."""
    device: str | None = None
    """Of the pipeline (None: cuda where there is one)."""
    image_seed: int = 0
    """Seed of all images."""
    images: Path | None = None
    """Folder of the images (None: images in the cache folder, shared by all runs)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder of the features: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: ViT-L/14),
    package.module:Class."""
    tokens_per_step: int | None = None
    """Use at most so many train tokens of every step (None: all)."""
    seed: int = 0
    """Seed of everything but the server."""
    jobs: int | None = None
    """Processes for designs and estimates (None: one for each core); the results do not depend on it."""
    out: Path | None = None
    """Run folder (None: runs/llm). A stopped run goes on where it was and asks nothing twice."""
