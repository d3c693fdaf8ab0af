"""Made-up sentences with the statistics of real ones: a fixed vocabulary of some thousand words, drawn by
Zipf's law, 12 to 30 words each. No third party's data, and the same texts in every run."""

import random
from itertools import accumulate

_COMMON = """the of and to a in is that for it was on with as be at by this have from or had not are but we
they which you one were all their there been has when who will more if no out so what up into than them can
only other time new some could these two may then first any now such like our over also back after
use""".split()
_ROOTS = """account agent answer archive batch board book branch bridge budget build cache call camera card
change chart check city claim client cloud coast code coffee colour comment commit contract copy cost count
course cover crash cup customer cycle daily data date deal debug delay deploy design desk detail device
dinner doctor door draft drive edit editor email engine error event export family farm fault field file
filter final finger fix flight floor flow folder forest format forward frame friend front garden gate ghost
glass goal graph green grid group guard guest guide habit hand harbour header health help hold holiday home
hospital hotel hour house idea image import index input invoice island issue item join journey judge key
kitchen label lake language laptop launch layer lead leaf learn ledger letter level library light limit link
list load lock log lunch machine mail manager map market matrix measure meeting member memory merge message
method metric minute mirror model module moment monitor month morning motor mountain move music name need
network night note notice number object offer office open option order output owner package page paper parent
park part partner path patient pattern payment people phone photo picture piece place plan plant plate player
pocket point policy port post power press price print process product profile program project prompt proof
provider public purchase quarter query question queue quiet quick rain range rate reader reason record region
release remote rename render rent repair reply report request reset result retry return review ring risk river
road robot role room root route rule sample scale school score screen script search season second secret
section sensor server service session setting shape share shelf ship shop signal silver simple site size
sleep slide smart snow socket solid sound source space speaker spring stable staff stage start state station
status step stock stone storage store storm story stream street string student studio style subject summer
supply support surface switch system table target task teacher team test text theme thread ticket tide title
token tool topic total touch tower town track trade traffic train travel tree trial trip truck trust type
unit update upload user value vector version video view village visit voice wait walk wall warning watch water
weather week weight wheel window winter wire wood word work worker writer yard year yellow zone""".split()
_ENDINGS = ("", "s", "ed", "ing", "er", "ly", "less", "ment")

VOCABULARY = (*_COMMON, *(root + ending for ending in _ENDINGS for root in _ROOTS))


def sentences(count: int, seed: int) -> list[str]:
    """So many different sentences; another seed gives others."""
    draw = random.Random(seed + 1)
    words = list(VOCABULARY[len(_COMMON) :])
    random.Random(0).shuffle(words)
    words = [*_COMMON, *words]
    odds = list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))
    made: list[str] = []
    for _ in range(count):
        picked = draw.choices(words, cum_weights=odds, k=draw.randint(12, 30))
        made.append(f"{' '.join(picked).capitalize()}.")
    return made
