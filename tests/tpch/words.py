"""The values of TPC-H's columns: all of them (specification, 4.2.2.13), or the few that its queries use.

With all values, a few hundred rows would give an empty result for nearly every query. A small population therefore has
few nations, dates and kinds of parts, including those that the queries name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
)
"""Names and numbers of their regions."""

PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
TODAY = date(1995, 6, 17)
"""The benchmark's current date."""

_COLORS = (
    "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood burnished "
    "chartreuse chiffon chocolate coral cornflower cornsilk cream cyan dark deep dim dodger drab firebrick "
    "floral forest frosted gainsboro ghost goldenrod green grey honeydew hot indian ivory khaki lace lavender "
    "lawn lemon light lime linen magenta maroon medium metallic midnight mint misty moccasin navajo navy olive "
    "orange orchid pale papaya peach peru pink plum powder puff purple red rose rosy royal saddle salmon sandy "
    "seashell sienna sky slate smoke snow spring steel tan thistle tomato turquoise violet wheat white yellow"
)
_TYPES = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
_CONTAINERS = (("SM", "LG", "MED", "JUMBO", "WRAP"), ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"))

ADVERBS = "quickly slowly carefully blithely furiously fluffily daringly silently"
ADJECTIVES = (
    "special pending unusual express final regular ironic even bold silent furious sly careful blithe quick "
    "fluffy slow quiet ruthless thin close dogged daring brave stealthy permanent enticing idle busy"
)
NOUNS = (
    "requests packages accounts deposits foxes ideas theodolites instructions dependencies excuses platelets "
    "dolphins asymptotes courts multipliers sauternes warthogs frets dinos attainments"
)
VERBS = "sleep wake are cajole haggle nag use boost affix detect integrate maintain nod was lose sublate solve"
"""The words of comments."""


@dataclass(frozen=True)
class Words:
    """The values that are drawn from.

    - `brands`, `types`, `sizes`, `containers`: of parts; with `together`, a part has the values of one position.
    - `colors`: five of them are a part's name. `nations`: by number.
    - `first_days`: an order's date is within `days` days from one of them.
    - `quantities`: of a line. `lines`: the possible numbers of lines per order. `modes`: of shipping.
    - `complaints`: one supplier in this many has complaints.
    """

    brands: tuple[str, ...]
    types: tuple[str, ...]
    sizes: tuple[int, ...]
    containers: tuple[str, ...]
    together: bool
    colors: tuple[str, ...]
    nations: tuple[int, ...]
    segments: tuple[str, ...]
    first_days: tuple[date, ...]
    days: int
    quantities: tuple[int, ...]
    lines: tuple[int, ...]
    modes: tuple[str, ...]
    complaints: int


ALL = Words(
    brands=tuple(f"Brand#{maker}{number}" for maker in range(1, 6) for number in range(1, 6)),
    types=tuple(map(" ".join, product(*_TYPES))),
    sizes=tuple(range(1, 51)),
    containers=tuple(map(" ".join, product(*_CONTAINERS))),
    together=False,
    colors=tuple(_COLORS.split()),
    nations=tuple(range(len(NATIONS))),
    segments=("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"),
    first_days=(date(1992, 1, 1),),
    days=(date(1998, 12, 31) - timedelta(days=151) - date(1992, 1, 1)).days + 1,
    quantities=tuple(range(1, 51)),
    lines=tuple(range(1, 8)),
    modes=("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"),
    complaints=2000,
)

FEW = Words(
    brands=("Brand#12", "Brand#23", "Brand#34", "Brand#45", "Brand#51"),
    types=(
        "PROMO PLATED TIN",
        "ECONOMY ANODIZED STEEL",
        "STANDARD BRUSHED BRASS",
        "MEDIUM POLISHED NICKEL",
        "LARGE BURNISHED BRASS",
    ),
    sizes=(3, 9, 14, 49, 15),
    containers=("SM CASE", "MED BOX", "LG PACK", "JUMBO JAR", "WRAP CAN"),
    together=True,
    colors=("forest", "green", "ivory", "navajo", "rose", "saddle"),
    nations=(2, 3, 6, 7, 8, 20),
    segments=("BUILDING", "MACHINERY"),
    first_days=(
        date(1993, 8, 10),
        date(1993, 11, 20),
        date(1994, 1, 15),
        date(1994, 8, 1),
        date(1995, 2, 20),
        date(1995, 8, 1),
        date(1995, 12, 10),
    ),
    days=20,
    quantities=(2, 20, 46, 48, 50, 50, 50),
    lines=(1, 2, 2, 7),
    modes=("AIR", "MAIL", "SHIP"),
    complaints=4,
)
