"""How good a result is, beyond whether it passes."""

from __future__ import annotations

from headway.arguments import number, whole


def staged(
    stage: float, stages: int, passed: bool, *, cost: float, base: float, ref: float
) -> float:
    """A failure by how far it came, in [0, 0.5]; a pass by how cheap it was, in [0.5, 1].

    ``0.5 * stage / stages`` for a failure. ``0.5 + 0.5 * clip((base - cost) / (base - ref), 0, 1)``
    for a pass: 1 at the reference's cost, 0.5 at the base's and above, and 0.5 where the base is no
    more than the reference.

    Args:
        stage: Stages passed, in part perhaps, in [0, stages]; of no matter for a pass.
        stages: How many there are, at least 1.
        passed: Whether the task is done.
        cost: What it took, in [0, inf): turns, calls, seconds.
        base: The cost that earns nothing extra, in [0, inf).
        ref: The cost that earns all of it, in [0, inf).

    Raises:
        ValueError: An argument is outside its range.

    Source: RLPF (2026).
    """
    stages = whole("stages", stages, 1)
    stage = number("stage", stage, f"[0, {stages}]")
    cost, base, ref = (
        number(name, value, "[0, inf)")
        for name, value in (("cost", cost), ("base", base), ("ref", ref))
    )
    if not passed:
        return 0.5 * stage / stages
    if base <= ref:
        return 0.5
    return 0.5 + 0.5 * max(0.0, min(1.0, (base - cost) / (base - ref)))
