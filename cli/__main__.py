"""``python -m headway.cli`` is ``headway``."""

import sys

from headway.cli import main

sys.exit(main())
