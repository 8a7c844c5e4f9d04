"""The two tools that every world has: handing in, and asking the user of a vague request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.envs.box import Box
from headway.envs.tools import ToolError, tool
from headway.envs.user import answer


@tool(writes=True)
def submit(box: Box) -> str:
    """Hand in the work as it stands; this ends the episode."""
    box.put("submission", "final", {"answer": ""})
    return "Submitted."


@tool(writes=True)
def submit_answer(box: Box, answer: str) -> str:
    """Hand in the work as it stands together with the answer; this ends the episode.

    Args:
        answer: The answer to the question that the task asks, and nothing else.
    """
    box.put("submission", "final", {"answer": answer})
    return "Submitted."


@tool
def ask_user(box: Box, question: str) -> Any:
    """Ask the user about the request.

    Args:
        question: One question in plain words.
    """
    if not question.strip():
        raise ToolError("question must not be empty")
    text, told = answer(box.table("user"), question)
    box.saw(*(f"user/{topic}" for topic in told))
    return text


SUBMIT = submit
SUBMIT_ANSWER = replace(submit_answer, name="submit")
ASK_USER = ask_user
