"""Pages as a browser's parser sees them."""

from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A page taken apart; raises AssertionError where an element is closed that is not open.

    Attributes:
        elements: elements with their attributes, in order.
        rows: texts of each table row's cells.
        texts: texts of elements without elements in them.
        places: distances from the left and upper edge of all that its figures draw, in widths and
            heights of the figure.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.texts: list[tuple[str, str]] = []
        self.places: list[tuple[float, float]] = []
        self._open: list[str] = []
        self._text = ""
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, dict(attrs))
        self._text = ""
        if tag == "tr":
            self.rows.append([])
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, dict(attrs))

    def _add(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.elements.append((tag, attributes))
        numbers: list[str] = []
        if tag == "svg":
            self._size = [float(number) for number in (attributes["viewbox"] or "").split()[2:]]
        elif tag == "path" and "id" not in attributes:  # one with an id is drawn where it is used
            numbers = [word for word in (attributes["d"] or "").split() if word not in "MLQCz"]
        elif tag in {"use", "text"}:
            numbers = [attributes[name] or "" for name in ("x", "y") if name in attributes]
        for x, y in zip(numbers[::2], numbers[1::2], strict=True):
            self.places.append((float(x) / self._size[0], float(y) / self._size[1]))

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
