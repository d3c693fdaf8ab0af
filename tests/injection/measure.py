"""How well the scan tells texts that want to be obeyed from others: `python -m tests.injection.measure`."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from models.injection import RULES_VERSION, scan

FOLDER = Path(__file__).parent
# The rules may be written from the files of `development`, never from `held_out`.
SPLITS = {"development": ("development", "first", "second", "third", "fourth"), "held_out": ("held_out",)}


@dataclass(frozen=True, slots=True)
class Example:
    hostile: bool
    language: str
    disguise: str
    text: str

    @property
    def right(self) -> bool:
        return bool(scan(self.text)) == self.hostile


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of examples: hostile and marked, hostile and missed, harmless and marked, harmless and left."""

    marked: int
    missed: int
    false: int
    left: int

    @property
    def precision(self) -> float:
        return self.marked / (self.marked + self.false)

    @property
    def recall(self) -> float:
        return self.marked / (self.marked + self.missed)


def examples(split: str) -> Iterator[Example]:
    """Those of a split, in the order of its files: by verdict, language and disguise."""
    for file in SPLITS[split]:
        by_verdict = yaml.safe_load((FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))
        for verdict, by_language in by_verdict.items():
            for language, by_disguise in by_language.items():
                for disguise, texts in by_disguise.items():
                    for text in texts:
                        yield Example(verdict == "hostile", language, disguise, text)


def score(found: list[Example]) -> Score:
    hostile = [one.right for one in found if one.hostile]
    harmless = [one.right for one in found if not one.hostile]
    return Score(sum(hostile), hostile.count(False), harmless.count(False), sum(harmless))


def table() -> str:
    """The scores of both splits, as the page on security shows them."""
    lines = [
        "| split | hostile | harmless | hostile, marked | harmless, marked | precision | recall |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for split in SPLITS:
        found = score(list(examples(split)))
        lines.append(
            f"| {split} | {found.marked + found.missed} | {found.false + found.left} | {found.marked} "
            f"| {found.false} | {found.precision:.3f} | {found.recall:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", choices=SPLITS, help="also print what a split gets wrong")
    chosen = parser.parse_args()
    print(f"rules {RULES_VERSION}", table(), sep="\n")
    if chosen.misses:
        for one in examples(chosen.misses):
            if not one.right:
                kind = (
                    "hostile, not marked" if one.hostile else f"harmless, marked {', '.join(scan(one.text))}"
                )
                print(f"{one.language} {one.disguise} {kind}: {one.text!r}")


if __name__ == "__main__":
    main()
