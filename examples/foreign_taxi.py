"""A foreign environment made gradable in 20 lines: Gymnasium's Taxi, paid for its progress.

``python examples/foreign_taxi.py`` drives a passenger to a wrong stand and then to the right one.
Putting him down on the way takes back what picking him up had paid, and the shaping of the whole
ride sums to minus the first potential, which is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from headway.verifiers import Acceptance, Allow, Check, Row
from headway.wrappers import Graded, PotentialShaping

TAXI = next(name for name in ("Taxi-v4", "Taxi-v3") if name in gym.registry)
IN_TAXI = 4


class GradedTaxi(Graded):
    """Taxi with two checks: the passenger is in the taxi, the passenger is where he goes."""

    def tables(self) -> Mapping[str, Mapping[str, Row]]:
        """One table of one row."""
        taxi: Any = self.env.unwrapped
        row, column, place, goal = (int(number) for number in taxi.decode(taxi.s))
        return {"ride": {"1": {"taxi": [row, column], "place": place, "goal": goal}}}

    def acceptance(self) -> Acceptance:
        """The mark for being aboard outlasts the delivery, but no stop on the way."""
        goal = self.tables()["ride"]["1"]["goal"]
        aboard = {"table": "ride", "key": "1", "where": {"place": IN_TAXI}}
        delivered = {"table": "ride", "key": "1", "where": {"place": goal}}
        return Acceptance(
            checks=(
                Check("aboard", "rows", aboard, superseded_by=("delivered",)),
                Check("delivered", "rows", delivered),
            ),
            writes=(Allow("ride", keys=("1",), fields=("taxi", "place")),),
        )


def way(taxi: Any, there: Callable[[int, int], bool]) -> list[int]:
    """The shortest actions after which ``there(place, goal)`` holds of the passenger."""
    ways: dict[int, list[int]] = {int(taxi.s): []}
    queue = list(ways)
    for state in queue:  # it grows while it is read
        if there(*map(int, taxi.decode(state)[2:])):
            return ways[state]
        for action, ((_, after, _, _),) in taxi.P[state].items():
            if after not in ways:
                ways[after] = [*ways[state], action]
                queue.append(after)
    raise ValueError("no way leads there")


def main(seed: int = 0, gamma: float = 0.99) -> float:
    """Plays one ride and prints it; returns the discounted sum of its shaping."""
    env = PotentialShaping(GradedTaxi(gym.make(TAXI)), gamma=gamma, on_truncation="zero")
    env.reset(seed=seed)
    legs: dict[str, Callable[[int, int], bool]] = {
        "fetch": lambda place, goal: place == IN_TAXI,
        "wrong stand": lambda place, goal: place not in (IN_TAXI, goal),
        "fetch again": lambda place, goal: place == IN_TAXI,
        "deliver": lambda place, goal: place == goal,
    }
    total, discount = 0.0, 1.0
    for leg, there in legs.items():
        for action in way(env.unwrapped, there):
            _, _, terminated, _, info = env.step(action)
            record = info["headway"]
            shaping = record["channels"]["potential"]
            total, discount = total + discount * shaping, discount * gamma
            print(
                f"{leg:12} phi {record['phi']['checks']:.3f}  shaping {shaping:+.3f}"
                f"  base {record['base']:+.0f}{'  delivered' if terminated else ''}"
            )
    print(f"discounted shaping of the ride: {total:+.3f}")
    return total


if __name__ == "__main__":
    main()
