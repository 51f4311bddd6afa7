"""Pages as a browser's parser sees them."""

from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A page taken apart; raises AssertionError where an element is closed that is not open.

    Attributes:
        elements: elements with their attributes, in order.
        rows: texts of each table row's cells.
        texts: texts of elements without elements in them.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self._text = ""
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._text = ""
        if tag == "tr":
            self.rows.append([])
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag
        if tag in {"td", "th"}:
            self.rows[-1].append(self._text)
        self.texts.append((tag, self._text))
        self._text = ""

    def all_of(self, tag: str) -> list[str]:
        """The texts of these elements."""
        return [text for name, text in self.texts if name == tag]
