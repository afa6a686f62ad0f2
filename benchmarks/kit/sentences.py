"""Sentences of simulated users, whose tastes are their embeddings: to report on, and to choose constants on.

Every group was written before any result on it was seen. A constant, a default or a rule of the library may be chosen
on ``DEVELOPMENT`` only. A taste is a direction of the encoder, so no development sentence resembles a reported one of
either vocabulary: their MiniLM cosine is below 0.5 (`tests/benchmarks/test_sentences.py`).
"""

from __future__ import annotations

from pathlib import Path

from edpbrl_gym.experiments.settings import PAPER_USERS

# the paper's three users and seven more
SENTENCES: dict[str, str] = {
    **PAPER_USERS,
    "underwater": "An underwater world of coral reefs and drifting light",
    "noir": "A black and white street at night in the mood of film noir",
    "storybook": "Soft pastel colours and gentle shapes of a children's picture book",
    "industrial": "Rusty machines and broken concrete in an abandoned factory",
    "botanical": "Fine botanical drawings of wild flowers and leaves",
    "minimal": "A minimal composition with much empty space and clean lines",
    "festival": "A crowded street festival full of bright colours and music",
}
"""User -> sentence of the studies "efficiency" and "comparison"."""

REPORTED: dict[str, dict[str, str]] = {
    "images": SENTENCES,
    "interiors": {
        "nordic": "A bright Scandinavian flat with pale timber and hardly any furniture",
        "cottage": "An old English country cottage with roses and crooked beams",
        "loft": "A converted warehouse with exposed pipes and bare brick",
        "palace": "A splendid palace hall with gilded mirrors and chandeliers",
        "tea-room": "A calm Japanese tea room with paper screens",
        "beach-house": "A breezy beach house full of palms and rattan",
        "seventies": "A groovy seventies lounge in orange and brown",
        "scholar": "A professor's study crammed with old books and maps",
        "nursery": "A playful bedroom where small children would love to live",
        "riad": "A Moroccan riad with patterned tiles, lanterns and cushions",
    },
}
"""Built-in vocabulary -> user -> sentence that results are reported on."""

VOCABULARIES: tuple[str, ...] = tuple(REPORTED)
"""The built-in vocabularies that benchmarks are about."""

SMALL: dict[str, str | Path] = {"styles": "styles", "posters": "posters", "gardens": Path(__file__).parent / "gardens"}
"""Small vocabularies of first answers -> where they are; "gardens" was written after the prior of small ones was
chosen, like the sentences of all three."""

FRESH: dict[str, dict[str, str]] = {
    "images": {
        "alpine": "Icy mountain peaks and glaciers in clear thin air",
        "jungle": "A steaming rainforest with parrots, vines and waterfalls",
        "space": "Planets, nebulae and lonely astronauts far from Earth",
        "knitted": "Everything knitted from wool, with loose threads and buttons",
        "banquet": "A table loaded with bread, cheese, grapes and roasted meat",
        "ballet": "Graceful dancers leaping across a stage",
        "calligraphy": "A few bold strokes of a Japanese calligraphy brush",
        "horror": "Something terrifying is hiding in the dark cellar",
        "western": "Cowboys, horses and dusty saloons of the old frontier",
        "trains": "Steam locomotives crossing long iron bridges",
        "cats": "Lazy cats asleep in funny places",
        "glass": "Light broken by stained glass, crystals and prisms",
    },
    "interiors": REPORTED["interiors"],
    "styles": {
        "fresco": "Faded saints on the cracked plaster of a chapel",
        "blueprint": "Exact white lines of a machine on dark blue paper",
        "tapestry": "Knights and unicorns woven in worn wool",
        "vapour": "Pink and turquoise computer graphics of the early internet",
        "ink": "A mountain in three wet strokes of grey ink",
        "pulp": "The screaming cover of a cheap crime novel",
        "ceramic": "Shiny glazed figures on a grandmother's cupboard",
        "x-ray": "The bones of a hand glowing on black film",
        "pastoral": "Peasants resting in the warm haze of a hayfield",
        "pixel": "Big square pixels of an old video game",
        "silhouette": "Black paper cuttings of ladies and gentlemen",
        "cubist": "A violin broken into brown and grey facets",
    },
    "posters": {
        "voyage": "A long journey by ship to a sunny island",
        "north": "Pine forests and the silence of the far north",
        "carnival": "Confetti, masks and dancing until the morning",
        "harvest": "A ripe field before the harvest in the late sun",
        "city": "A big city that glitters in the rain",
        "folk": "Embroidery and painted wood from a peasant's house",
        "moon": "A lonely traveller under a pale moon",
        "bauhaus": "Three plain shapes in red, yellow and blue",
        "pond": "Still water with reeds and a single bird",
        "alps": "Bright snow and cable cars in the mountains",
        "tea": "A quiet afternoon with tea and an open window",
        "embers": "Dark red light of a dying fire",
    },
    "gardens": {
        "monks": "Medicinal plants in square beds behind a monastery",
        "tropics": "Huge wet leaves and bright flowers under a humid sky",
        "retired": "What a retired teacher tends with patience every day",
        "zen": "Raked sand, three rocks and nothing to do",
        "duke": "Avenues and fountains to impress an ambassador",
        "bees": "Buzzing insects over weeds that nobody mows",
        "haunted": "A ruined estate where brambles swallow the statues",
        "lanterns": "Lanterns, wine and laughter with friends until midnight",
        "seaside": "Salt wind, pebbles and tough silver plants by the sea",
        "harvest": "Baskets full of vegetables for the whole winter",
        "bride": "White blossom everywhere, as for a wedding",
        "architect": "Straight concrete, black water and a single tree",
    },
}
"""Vocabulary -> user -> reported sentence on which the library had never been run when it was written. For
"interiors" these are all of its reported ones."""

DEVELOPMENT: dict[str, dict[str, str]] = {
    "images": {
        "harbour": "Fishing boats in a harbour wrapped in morning fog",
        "desert": "An endless desert under a merciless noon sun",
        "insects": "Beetles and butterflies seen through a magnifying glass",
        "tender": "Tender portraits of old people and their wrinkled hands",
        "athletes": "Sweat, speed and muscles of athletes in a contest",
        "mosaic": "Little chips of coloured stone pieced together as on a Roman floor",
        "shipwreck": "Violent waves and lightning over a ship in distress",
        "toys": "Tin robots and wooden toys on a shelf in the attic",
        "autumn": "Fallen leaves, mushrooms and damp woods in October",
        "graffiti": "Loud graffiti and torn posters on a subway wall",
        "charts": "Hand-drawn maps with dotted routes and sea monsters",
        "snowfall": "Quiet snow falling on a village at Christmas",
    },
    "interiors": {
        "hotel": "A hushed hotel bar with leather, brass and whisky",
        "kitchen": "A busy kitchen for people who love to cook and bake",
        "concrete": "Raw concrete walls, sharp shadows and nothing else",
        "cabin": "A hunter's log cabin with furs by the fire",
        "greenhouse": "A greenhouse where ferns and orchids climb up to the roof",
        "candy": "Pink and mint rooms as sweet as a candy shop",
        "jazz-age": "Geometric glamour of the 1920s in black marble and chrome",
        "flea-market": "Odd chairs from flea markets that do not match at all",
        "spa": "A silent spa for bathing, with steam and smooth pebbles",
        "monk": "A whitewashed monk's cell with a plain wooden cross",
        "gamer": "A teenager's gaming den with glowing screens and cables",
        "gallery": "A collector's apartment hung with large abstract paintings",
    },
}
"""Built-in vocabulary -> user -> sentence on which the library's constants may be chosen; never reported on."""

POSTERS: dict[str, str] = {
    "deco": "Golden geometric glamour of the roaring twenties",
    "storm": "A gloomy sea before a thunderstorm",
    "child": "Cheerful animals in a picture book for small children",
    "zen": "Quiet empty landscapes in soft grey mist",
    "punk": "Loud clashing neon colours on a torn concert poster",
    "night": "Stars, moon and a calm lake at midnight",
}
"""User -> reported sentence of people who like what it says, not what pictures look like, asked about posters."""

# -- simulated communities --------------------------------------------------------------------------------------------

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
