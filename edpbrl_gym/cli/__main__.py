"""``python -m edpbrl_gym.cli``: the command line where ``edpbrl`` is not on the path, or a launcher wants a module."""

import sys

from edpbrl_gym.cli import main

if __name__ == "__main__":
    sys.exit(main())
