"""Numbers in sentences: 1 round, 2 rounds, +0.3 points."""


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
