"""Pages with other questions, before, between and after the choices: what they ask, when, and what was answered.

A page and its questions are read from ``[[pages]]`` of a study's configuration (``reading``), its validated instruments
from files by name (``instruments``), lists of choices such as countries from ``lists``. What a participant sends of a
page is one event of the kind ``PAGE``: it is stored once, audited, exported and deleted as all events are.

To add a kind of question, add a class to ``kinds.KINDS`` and its part of ``web/templates/page.html``. To add an
instrument, add its file and a line to ``instruments.INSTRUMENTS``.
"""
