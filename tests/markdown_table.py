"""Reads the tables of a page in Markdown."""
import re


def rows(text, title):
    """The rows of all tables with this column: the first cell, and the cell of the column."""
    place = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if title in cells:
            place = cells.index(title)
        elif not cells:
            place = None
        elif place is not None and not re.fullmatch("-+", cells[0]):
            yield cells[0], cells[place]
