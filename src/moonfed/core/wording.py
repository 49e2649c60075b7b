"""Numbers in sentences and labels: 1 round, 2 rounds, +0.3 points, mu=5."""

import hashlib

MAX_LABEL_CHARS = 24  # of a value; a longer one is cut


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun, in the singular where it is one.

    >>> counted(1, "round"), counted(20, "round"), counted(2, "party", "parties")
    ('1 round', '20 rounds', '2 parties')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def signed(value: float, digits: int = 1) -> str:
    """Write a difference with its sign; what rounds to zero is +0.0.

    >>> signed(2.34), signed(-2.34), signed(-0.04)
    ('+2.3', '-2.3', '+0.0')
    """
    return f"{unsigned_zero(value, digits):+.{digits}f}"


def unsigned_zero(value: float, digits: int) -> float:
    """Round a value for display; a zero loses its sign."""
    return round(value, digits) + 0.0


def short_value(value: float | int | str) -> str:
    """Write a setting's value for a label; of a long text its beginning and a digest, so that labels still differ.

    >>> short_value(5.0), short_value("ring"), short_value("0-1 0-2 1-2 1-3 2-3 2-4 3-4")
    ('5', 'ring', '0-1 0-2 1-2...f2cc81')
    """
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    if len(text) <= MAX_LABEL_CHARS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: MAX_LABEL_CHARS // 2].rstrip()}...{digest[:6]}"
