"""How Sphinx builds the site: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``.

What the pages of environments, agents, planners, oracles, experiments, commands and the API say is written out of the
code when a build begins, into ``docs/reference/``; the gallery into ``docs/gallery/``. The extensions in ``docs/_ext``
do this, link the pages with the repository, and check the finished HTML.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

# models run in one thread and from the disk, as in the tests
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from gallery import gallery_settings  # noqa: E402

import edpbrl_gym  # noqa: E402

project = "edpbrl-gym"
author = "the edpbrl-gym developers"
copyright = "edpbrl-gym developers, MIT license"
version = release = edpbrl_gym.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "generated_pages",
    "claim_sections",
    "repository_links",
    "short_names",
    "page_titles",
    "html_checks",
]
exclude_patterns = ["_build", "_ext", "_static", "gallery/*.ipynb", "gallery/*.py", "**/sg_execution_times.rst"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

default_role = "py:obj"
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
viewcode_line_numbers = True

sphinx_gallery_conf = gallery_settings(HERE.parent / "examples")

copybutton_exclude = ".linenos, .gp, .go"  # prompts and output are not copied

html_theme = "pydata_sphinx_theme"
html_title = "edpbrl-gym"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "edpbrl-gym"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navigation_depth": 3,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
}
html_sidebars = {"index": []}
