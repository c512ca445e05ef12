"""Common English words by their part in a sentence, for prompts that read like language.

Each is one token, with a space before it, in the byte-pair vocabularies of English models.
"""

from typing import Final


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


STARTS: Final = _split("The This That Each Every Our Your My Their One Another Some")
ADJECTIVES: Final = _split(
    "quiet small large early late bright dark warm cold open narrow wide simple careful gentle"
    " heavy light strong soft clear busy empty young old green blue red golden silver wooden"
    " distant local common daily modern ancient steady rapid slow patient curious honest proud calm"
    " sudden hidden broken clean fresh dry wet sharp smooth rough thin thick deep shallow high low"
    " short long new rare useful famous serious typical possible active final main"
)
NOUNS: Final = _split(
    "river garden teacher doctor market engine letter window bridge forest mountain village kitchen"
    " library station harbor farmer painter writer student captain driver machine table chair lamp"
    " door floor roof wall street road path field valley island ocean beach storm wind rain snow"
    " summer winter morning evening night clock map book paper page story song picture color shape"
    " stone metal glass bread water coffee sugar salt fruit apple horse dog cat bird fish tree"
    " flower leaf root seed soil fire smoke shadow voice sound signal message number question"
    " answer reason method system model plan project team group family friend child mother father"
    " brother sister neighbor city country nation law court judge price cost value bank budget"
    " report record server network computer program memory language science history music theater"
    " museum school college office factory ship train plane car truck boat wheel tool hammer knife"
    " rope box bag coat shirt shoe hat ring key lock"
)
VERBS: Final = _split(
    "follows keeps finds makes takes gives shows holds brings leaves reaches crosses covers carries"
    " moves turns opens closes watches hears needs wants likes loves knows remembers describes"
    " explains supports protects changes improves measures counts studies reads writes builds"
    " repairs paints visits calls meets helps joins guides serves sells buys sends receives"
)
PREPOSITIONS: Final = _split(
    "near under over behind beside after before across inside outside above below through around"
    " with without beyond along toward against"
)
DETERMINERS: Final = _split("the a our their every another this that some any each one")
JOINS: Final = _split("and but while because so until when although")
