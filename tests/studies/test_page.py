"""Pages that a study writes: what is wrapped, aligned and replaced."""

import pytest

from studies.page import (
    MarkError,
    markdown_table,
    plus_minus,
    update_document,
    with_blocks,
    write_page,
)

PART = "<!-- made: how -->\nold\n<!-- /made -->\n"
OTHER_PART = "<!-- made: measured-how -->\nold\n<!-- /made -->\n"


def test_a_page_is_written_with_wrapped_paragraphs_and_printed(tmp_path, capsys):
    """Only paragraphs are wrapped, and never within a name: in code its break would be a space."""
    table = markdown_table(["column " * 20], [["cell"]])
    write_page(tmp_path / "page.md", f"# Title\n\n{table}\n\n{'word ' * 22}`fgd-rounded`\nend.\n\n")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    words = " ".join(["word"] * 22)
    assert text == f"# Title\n\n{table}\n{words}\n`fgd-rounded` end.\n"
    assert capsys.readouterr().out == text


def test_numeric_columns_are_aligned_to_the_right():
    rows = [["exact", "1", "2"]]
    assert markdown_table(["", "a", "b"], rows) == (
        "|  | a | b |\n| --- | --- | --- |\n| exact | 1 | 2 |\n"
    )
    assert "\n| --- | ---: | ---: |\n" in markdown_table(["", "a", "b"], rows, numeric=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1234.56, 7.8, 1), "1,234.6 ± 7.8"),
        ((1234.56, None, 0), "1,235"),
        ((0.5, 0.25, 2, "+"), "+0.50 ± 0.25"),
        ((-0.5, None, 1, "+"), "-0.5"),
    ],
)
def test_an_error_stands_behind_its_number(arguments, text):
    assert plus_minus(*arguments) == text


def test_one_part_of_a_document_is_replaced():
    """The marks of another part are left alone."""
    text = PART + OTHER_PART
    assert with_blocks(text, {"how": "new\n"}) == PART.replace("old", "new") + OTHER_PART
    measured = with_blocks(text, {"how": "new\n"}, "measured-")
    assert measured == PART + OTHER_PART.replace("old", "new")
    with pytest.raises(MarkError, match="has places for how, not costs"):
        with_blocks(text, {"costs": ""}, "measured-")


def test_the_blocks_of_a_document_are_printed_too(tmp_path, capsys):
    (tmp_path / "page.md").write_text(PART, encoding="utf-8")
    update_document(tmp_path / "page.md", {"how": "new\n"}, figures={"page.png": b"PNG"})
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PART.replace("old", "new")
    assert (tmp_path / "page.png").read_bytes() == b"PNG"
    assert capsys.readouterr().out == "new\n\n"
