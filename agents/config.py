"""One training run as plain data: what stands in a TOML file, on the command line and in a log."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from headway.agents.placebo import PLACEBOS
from headway.agents.trajectory import TEMPERATURES
from headway.arguments import nearest, number, one_of, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A training run.

    Attributes:
        env: Id of the environment, or ``"module:attribute"`` for a function that makes one.
        policy: Folder of a Hugging Face causal language model, or a GGUF file.
        gamma: Discount per turn of the learner and of every reward layer, in (0, 1].
        stack: Reward layers by name, see :func:`headway.wrappers.build`.
        credit: A name in ``headway.agents.credit.ESTIMATORS``, or ``"module:function"`` for one
            that makes an estimator.
        placebo: A name in ``headway.agents.placebo.PLACEBOS``, to pay what says nothing; None to
            pay what was earned.
        allow_std_on_dense: Let an estimator divide dense rewards by a standard deviation.
        allow_dominance: Let the stack pay as much as success does, or more.
        environment: Keywords of the environment, such as ``difficulty``.
        seed: Names all streams: tasks, sampling, placebos.
        tokens: Budget of generated tokens, see :class:`~headway.agents.ledger.Ledger`.
        seconds: Budget of training time; None for no limit.
        groups: Tasks of an update.
        size: Trajectories of each task.
        lanes: Episodes that are sampled side by side.
        turn_tokens: Most tokens of one turn.
        context: Most tokens of one episode, all together.
        temperature: Of sampling, in [0.001, 1000].
        rate: Learning rate of AdamW.
        lora: Rank of low-rank adapters; None trains all weights.
        batch_tokens: Most tokens of a micro-batch, padding included; a longer episode is one alone.
        kl_limit: An update is taken back where the divergence from the policy that sampled is
            above this, in nats per token.
        information: Weight of information gain by the policy's own likelihood of the answer, in
            [0, 1); 0 for none.
        control: Of information gain, see :class:`~headway.agents.probe.Probe`: ``"subtract"``,
            ``"blank"``, or ``"mismatch"`` for the answer of another task; None for none.
        continuations: Continuations from every turn, whose mean outcome is the value of its state;
            0 for none.
        edge: Draw twice as many tasks and learn from those whose success, in a pilot of two
            trajectories each, is nearest to one half.
        auxiliary: Weight of an auxiliary loss on what tools will say, at least 0.
        evaluate: Updates between two evaluations; 0 for none but those at both ends.
        episodes: Episodes of an evaluation.
        save: Updates between two checkpoints.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        dtype: To compute in, ``"bfloat16"`` or ``"float32"``; None for the first on a GPU and the
            second elsewhere. What learns is float32 always.

    Raises:
        ValueError: A value is outside its range.
    """

    env: str
    policy: str
    gamma: float
    stack: str = "progress"
    credit: str = "turn"
    placebo: str | None = None
    allow_std_on_dense: bool = False
    allow_dominance: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    tokens: int = 1_000_000
    seconds: float | None = None
    groups: int = 8
    size: int = 8
    lanes: int = 64
    turn_tokens: int = 64
    context: int = 2048
    temperature: float = 1.0
    rate: float = 1e-5
    lora: int | None = None
    batch_tokens: int = 16_384
    kl_limit: float = 0.05
    information: float = 0.0
    control: str | None = None
    continuations: int = 0
    edge: bool = False
    auxiliary: float = 0.0
    evaluate: int = 0
    episodes: int = 64
    save: int = 10
    device: str = "auto"
    dtype: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, number(name, value, allowed))
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, whole(name, value, least))
        for name in ("edge", "allow_std_on_dense", "allow_dominance"):
            one_of(name, getattr(self, name), (False, True))
        one_of("control", self.control, (None, "blank", "subtract", "mismatch"))
        one_of("placebo", self.placebo, (None, *PLACEBOS))
        if self.control is not None and not self.information:
            raise ValueError(f"control must be None where information is 0, got {self.control!r}")
        one_of("device", self.device, ("auto", "cpu", "cuda"))
        one_of("dtype", self.dtype, (None, "bfloat16", "float32"))
        for name in ("env", "policy", "stack", "credit"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a text, got {getattr(self, name)!r}")
        if not isinstance(self.environment, Mapping):
            raise ValueError(f"environment must be a table, got {self.environment!r}")


_NUMBERS = {
    "gamma": "(0, 1]",
    "seconds": "(0, inf)",
    "temperature": TEMPERATURES,
    "rate": "(0, 1]",
    "kl_limit": "(0, inf)",
    "information": "[0, 1)",
    "auxiliary": "[0, inf)",
}
_COUNTS = {
    **dict.fromkeys(("seed", "continuations", "evaluate"), 0),
    **dict.fromkeys(("tokens", "groups", "lanes", "turn_tokens", "batch_tokens"), 1),
    **dict.fromkeys(("lora", "episodes", "save"), 1),
    **dict.fromkeys(("size", "context"), 2),
}
_OPTIONAL = ("seconds", "lora")


def config(values: Mapping[str, Any]) -> Config:
    """A configuration from plain data.

    Raises:
        ValueError: A key is unknown or missing, or a value outside its range.
    """
    names = [one.name for one in fields(Config)]
    for key in values:
        if key not in names:
            raise ValueError(f"configuration has no key {key!r}{nearest(key, names)}")
    needed = [
        one.name
        for one in fields(Config)
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values
    ]
    if needed:
        raise ValueError(f"configuration must have {', '.join(needed)}")
    return Config(**values)


def load(file: str | Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration in a TOML file.

    Args:
        file: Keys are the attributes of :class:`Config`; ``environment`` is a table.
        changes: Take the place of what the file says.

    Raises:
        ValueError: The file is not TOML, or not a configuration.
        OSError: It cannot be read.
    """
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} must be TOML: {error}") from error
    return config({**found, **(changes or {})})
