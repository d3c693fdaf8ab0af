"""How words sound, so that a name is found in another spelling or script: `Oeztuerk` for Öztürk,
`Shcherbakova` for Щербакова, `Min-jun` for 민준.

A word is written in Latin letters (anyascii), and of those count the consonants, in classes that different
scripts and spellings write for one another: Soundex (R. C. Russell, US 1,261,167, 1918), but of all of them.
"""

import re
from functools import lru_cache

from anyascii import anyascii

ENOUGH, MANY = 3, 5  # letters that tell a name, and consonants that tell any word
LONGEST = 40  # letters of a name
_DIGRAPHS = [
    (re.compile(pattern), letters)
    for pattern, letters in (
        ("shch|tsch|tch|sch|sh|zh|ch|cz|ts|tz|c(?=[eiy])", "s"),
        ("ph", "f"),
        ("ck|q", "k"),
        ("x", "ks"),
        ("(?<=[aou])e|h", ""),  # Jaeger is Jäger
    )
]
_CLASSES = str.maketrans("bdgczjvwy", "ptkkssffi")
_ARTICLE = "\u0627\u0644"  # Arabic joins it to the name
_VOWEL = re.compile("[aeiou]")
_TWICE = re.compile(r"(.)\1+")
# The commonest family names of China and Korea, by which names are told where no space or capital does.
FAMILY_NAMES = frozenset(
    "王李張张劉刘陳陈楊杨黃黄趙赵吳吴周徐孫孙馬马朱胡郭何高林羅罗鄭郑梁謝谢宋唐許许韓韩馮冯鄧邓曹彭曾肖蕭萧田董潘袁蔡蒋余于杜葉叶程魏"
    "蘇苏呂吕丁任盧卢姚沈鍾钟姜崔譚谭陸陆范汪廖石金韋韦賈贾夏付方鄒邹熊白孟秦邱侯江尹薛閻闫段雷龍龙黎史陶毛郝顧顾龔龚邵萬万嚴严武"
    "김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노하곽성차주우구민진지엄채원천방공현함변염여추도소석선설마길연위표명기"
)


def is_name(word: str) -> bool:
    """Whether a word may be a name: it begins with a capital letter, or its script has none; no digit."""
    small = word[0].islower() and not "\u10d0" <= word[0] <= "\u10ff"  # Georgian does not use its capitals
    return not small and word[0].isalpha() and len(word) <= LONGEST and not any(map(str.isdigit, word))


def family_names(run: str) -> list[str]:
    """The names that may stand in Chinese or Korean text: of two and three characters, and without the
    family's."""
    return [
        name
        for at, first in enumerate(run)
        if first in FAMILY_NAMES
        for name in dict.fromkeys((run[at : at + 2], run[at : at + 3], run[at + 1 : at + 3]))
        if len(name) > 1
    ]


@lru_cache(maxsize=50_000)
def sounds(word: str, *, sure: bool = True) -> tuple[str, ...]:
    """How a word sounds, in letters a-z: with its vowels, and by its consonants alone. Empty for one that is
    too short, or is none. Of a word that may be no name, not `sure`, only MANY consonants count."""
    letters = re.sub("[^a-z]", "", anyascii(word.removeprefix(_ARTICLE)).lower())
    for pattern, short in _DIGRAPHS:
        letters = pattern.sub(short, letters)
    letters = _TWICE.sub(r"\1", letters.translate(_CLASSES))
    first = "a" if _VOWEL.match(letters) else ""
    consonants = _TWICE.sub(r"\1", _VOWEL.sub("", letters))
    if len(first + consonants) < ENOUGH or (not sure and len(consonants) < MANY):
        return (letters,) if len(letters) >= ENOUGH else ()
    return (letters, first + consonants)
