"""Text to measure with: made here from a few word lists, the same in every run, so that nothing needs to be fetched."""

from __future__ import annotations

from random import Random

WORDS = (
    "the a of to and in that it is for on with as by from this which at or be are not an has its than when where while "
    "river harbour engine signal lantern garden market journey winter copper window ladder chapter mountain bridge "
    "measure answer reason pattern carries follows between because although therefore slowly quickly almost nearly "
    "seventeen forty thousand percent degrees Oslo Lisbon Kyoto naïve café façade über señor 東京 数据 прибор λ → ✓"
).split()
NAMES = "index total buffer item cursor row limit offset key value node left right".split()


def prose(characters: int, seed: int = 7) -> str:
    """Sentences and paragraphs with a little punctuation, numbers and other scripts."""
    random = Random(seed)
    parts: list[str] = []
    length = 0
    while length < characters:
        sentence = [random.choice(WORDS) for _ in range(random.randint(5, 18))]
        text = " ".join(sentence).capitalize() + random.choice((". ", ". ", "? ", ": ", ".\n\n"))
        parts.append(text)
        length += len(text)
    return "".join(parts)[:characters].strip() + "."


def code(characters: int, seed: int = 11) -> str:
    """Python-like source: indentation, quotes, backslashes, brackets and comparisons."""
    random = Random(seed)
    parts: list[str] = []
    length = 0
    while length < characters:
        a, b, c = (random.choice(NAMES) for _ in range(3))
        text = random.choice(
            (
                f"def {a}_{b}({c}, {b}=None):\n    return {c} if {b} is None else {c} + {b}\n\n",
                f"    if {a} < {b} and not {c}:\n        {a} += {random.randint(1, 99)}\n",
                f'    print("{a}:\\t{{}}\\n".format({b}[{c}]))  # {random.choice(WORDS)}\n',
                f'    {a} = {{\'{b}\': [{c}, {random.randint(0, 9999)}], "{c}": r"\\d+"}}\n',
                f"    for {a} in range(len({b})): {c}.append(({a}, {b}[{a}]))\n",
            )
        )
        parts.append(text)
        length += len(text)
    return "".join(parts)[:characters].rstrip() + "\n#"


def angles(characters: int, seed: int = 13) -> str:
    """Text in which every other thing starts like a tag: the worst honest case for markers that are spelled."""
    random = Random(seed)
    parts: list[str] = []
    length = 0
    while length < characters:
        a, b = random.choice(NAMES), random.choice(NAMES)
        text = random.choice(
            (
                f"<p>{a} < {b}</p>\n",
                f"<{a}><{b}/></{a}>",
                f"{a}<{b}<3 ",
                "<<< ",
                f'<fun x="{a}">',
                "</para",
                "<!-- < -->",
            )
        )
        parts.append(text)
        length += len(text)
    return "".join(parts)[:characters].strip() + ">."
