"""The styles of simulated communities: sentences whose embeddings are the common part of people's tastes.

Reported styles were written before any result on them was seen. Constants are chosen on the development sentences of
the other benchmarks (`edpbrl_gym.experiments.bench.sentences`), which no reported style resembles.
"""

from __future__ import annotations

from edpbrl_gym.experiments.bench.sentences import DEVELOPMENT

__all__ = ["REPORTED_STYLES", "UNSEEN", "style_sentences"]

UNSEEN = 2
"""How many of a vocabulary's styles, the last ones, nobody in the community has."""

REPORTED_STYLES: dict[str, dict[str, str]] = {
    "images": {
        "rococo": "Cherubs, pink silk and powdered wigs in a frivolous Rococo garden",
        "cyberpunk": "A crowded megacity of holograms and wet asphalt under neon rain",
        "woodcut": "A black woodcut with coarse lines on rough paper",
        "safari": "Lions, elephants and acacia trees on the open savanna",
        "pin-up": "A cheerful fifties advertisement with a smiling housewife and a chrome car",
        "dreamlike": "Melting clocks and floating stairs in a surreal dream",
        "sacred": "Golden halos of saints on an Orthodox icon",
        "microscope": "Cells and bacteria stained in colour under a microscope",
    },
    "interiors": {
        "baroque-bedroom": "A heavy canopy bed with velvet curtains and carved dark oak",
        "office": "A sober office with standing desks, acoustic panels and glass partitions",
        "tropical": "An open tropical bungalow with ceiling fans and bamboo blinds",
        "pop": "A loud pop art lounge in primary colours with plastic chairs",
        "farmhouse": "A rustic farmhouse table under hanging herbs and copper pots",
        "chapel": "A converted chapel with stained windows and stone arches",
        "spaceship": "A futuristic white capsule with curved walls and hidden lights",
        "tent": "A nomad's tent with layered rugs, brass trays and floor cushions",
    },
}
"""Built-in vocabulary -> style -> sentence that results are reported on."""


def style_sentences(words: str, *, development: bool) -> dict[str, str]:
    """Style -> sentence of a built-in vocabulary, the unseen ones last.

    Args:
        words: "images" or "interiors".
        development: Whether constants are chosen on them; else they are reported on.
    """
    if not development:
        return REPORTED_STYLES[words]
    return dict(list(DEVELOPMENT[words].items())[: len(REPORTED_STYLES[words])])
