"""``edpbrl personalize``."""

from __future__ import annotations

from typing import Any

from edpbrl_gym.cli.console import output, quiet_libraries, shown
from edpbrl_gym.cli.errors import UsageError, bad_arguments
from edpbrl_gym.cli.options import Personalize

__all__ = ["run"]


def run(options: Personalize) -> None:
    """Search the best prompts for a taste and write them as CSV."""
    import pandas
    from rich.table import Table

    from edpbrl_gym._validation import check_array, check_count
    from edpbrl_gym.experiments.personalize import best_prompts
    from edpbrl_gym.experiments.runs import write_atomically
    from edpbrl_gym.experiments.taste import load_taste
    from edpbrl_gym.vocabulary import load_vocabulary

    with bad_arguments():
        for name in ("count", "width", "shortlist", "per_base"):
            check_count(getattr(options, name), f"--{name.replace('_', '-')}")
        check_count(options.seed, "--seed", minimum=0)
        if not options.theta.is_file():
            raise UsageError(f"Expected a taste file at {options.theta}, found none; make one with `edpbrl estimate`")
    quiet_libraries()
    taste = load_taste(options.theta)
    vocabulary = load_vocabulary(options.vocabulary)
    if options.split != "all":
        vocabulary = vocabulary.split(options.seed)[0 if options.split == "train" else 1]
    encoder = _encoder(options, taste.provenance)
    check_array(taste.theta, "theta", shape=(encoder.dimension,), hint=f"it was not estimated with {encoder.name}")
    encoder.encode(vocabulary.all_tokens, progress=True)
    prompts = best_prompts(
        vocabulary,
        encoder,
        taste.theta,
        count=options.count,
        base=options.base,
        width=options.width,
        shortlist=options.shortlist,
        per_base=options.per_base,
    )
    rows = pandas.DataFrame(
        {
            "rank": range(1, len(prompts) + 1),
            "score": [prompt.score for prompt in prompts],
            "prompt": [prompt.text for prompt in prompts],
        }
    )
    write_atomically(options.out, lambda name: rows.to_csv(name, index=False))
    table = Table(title="Best prompts by the estimated taste", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("estimated score", justify="right")
    table.add_column("prompt")
    for row in rows.itertuples():
        table.add_row(str(row.rank), f"{row.score:.3f}", row.prompt)
    console = output()
    console.print(table)
    console.print(f"Written: {shown(options.out)}", markup=False)


def _encoder(options: Personalize, provenance: dict[str, Any]) -> Any:
    """The encoder of the taste; another one would give scores without meaning."""
    from edpbrl_gym.features import load_encoder

    spec = options.encoder or provenance.get("encoder")
    if spec is None:
        raise UsageError(f"Expected --encoder, as {options.theta} doesn't say with which one it was estimated")
    encoder = load_encoder(spec)
    wanted = provenance.get("encoder_fingerprint")
    if wanted is not None and encoder.fingerprint != wanted:
        raise ValueError(
            f"Expected the encoder with which the taste was estimated ({provenance.get('encoder')}, sha256 "
            f"{wanted[:16]}), got {encoder.name} (sha256 {encoder.fingerprint[:16]}); load the same weights"
        )
    return encoder
