"""What tests of pages share: a reader that forgives nothing."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}
SELF_CLOSING = {"path", "polyline"}


class Page(HTMLParser):
    """Reads a page strictly: what is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SELF_CLOSING
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def of_class(self, name: str) -> list[tuple[str, dict[str, str]]]:
        return [(t, a) for t, a in self.tags if name in (a.get("class") or "").split()]

    def needs_nothing(self) -> None:
        """Nothing is loaded from anywhere, and no attribute is a script."""
        for _, attributes in self.tags:
            assert not {"src", "srcset", "data", "action", "xlink:href"} & set(attributes)
            assert attributes.get("href", "#").startswith("#")
            assert not [name for name in attributes if name.startswith("on")]


@pytest.fixture(scope="session")
def strict_page() -> type[Page]:
    """The class: ``strict_page(html)``."""
    return Page
