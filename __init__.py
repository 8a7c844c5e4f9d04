"""Gymnasium environments for tool-using language agents that pay verified progress.

Importing registers the ids; ``gym.make("headway:headway/Apps-v0")`` needs no import at all.
"""

from __future__ import annotations

from headway import envs as envs
from headway.envs.fork import fork as fork
from headway.envs.spaces import CUT as CUT
from headway.envs.vector import TextVec as TextVec
from headway.envs.vector import make_vec as make_vec
