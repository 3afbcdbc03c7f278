"""Write docs/findings.md, docs/findings/ and docs/errors.md from autogradviz/explanations/.

python docs/generate_findings.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.causes.choose_findings_among_facts import OWN_SLUGS
from autogradviz.diagnose.rule import ErrorMessage, own_rules
from autogradviz.explanations.codes import code_of
from autogradviz.explanations.read_pages import pages as read_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.rule import Rule
    from autogradviz.explanations.read_pages import Page

DOCS: Final = Path(__file__).parent
PICTURES: Final = DOCS / "pictures" / "findings"

EXCEPTIONS: Final = "Causes of an exception"
WRONG_VALUES: Final = "Wrong values and gradients without an exception"
GRADIENTS: Final = "Gradients and memory"
RUNS: Final = "Runs of several ranks"
GROUPS_OF_GRADIENTS: Final = {"optimizer", "gradient", "waste", "compilation"}
"""The groups of rules about gradients as such; see ``Rule.group``."""


RUN_PAGES: Final = read_pages("runs")
ERROR_PAGES: Final = read_pages("errors")


def rules_with_pages() -> list[tuple[Page, Rule | None]]:
    """Return the pages of findings with the rule that yields each, in the order of the rules.

    Those without a rule, which the causal graph yields, are the last.
    A finding that several rules yield belongs to the first one that yields it by default.
    """
    pages = {page.slug: page for page in read_pages("findings")}
    owners: dict[str, Rule] = {}
    for rule in own_rules():
        for slug in rule.slugs:
            if slug not in owners or (slug == rule.slugs[0] and slug != owners[slug].slugs[0]):
                owners[slug] = rule
    ordered = [(slug, rule) for rule in own_rules() for slug in rule.slugs]
    found: list[tuple[Page, Rule | None]] = [
        (pages[slug], rule) for slug, rule in ordered if owners[slug] is rule
    ]
    return [*found, *((pages[slug], None) for slug in OWN_SLUGS)]


def group_of(rule: Rule | None) -> str:
    """Return the title of the group that a rule's findings belong to."""
    if rule is None:
        return GRADIENTS
    if isinstance(rule.when, ErrorMessage):
        return EXCEPTIONS
    return GRADIENTS if rule.group in GROUPS_OF_GRADIENTS else WRONG_VALUES


def tables() -> Iterator[str]:
    """Yield a heading and a Markdown table for each group of findings."""
    groups: dict[str, list[Page]] = {EXCEPTIONS: [], WRONG_VALUES: [], GRADIENTS: []}
    for page, rule in rules_with_pages():
        groups[group_of(rule)].append(page)
    for title, pages in (groups | {RUNS: list(RUN_PAGES)}).items():
        rows = [
            f"| {code_of(page.slug)} | [{page.slug}](findings/{page.slug}.md) | {page.title} |"
            for page in sorted(pages, key=lambda page: code_of(page.slug))
        ]
        yield "\n".join([f"## {title}\n", "| code | finding | meaning |", "|---|---|---|", *rows])


def body(page: Page) -> list[str]:
    """Return meaning, causes and fix of a finding or an error."""
    texts = (" ".join(text.split()) for text in (page.means, page.happens, page.fix))
    means, happens, fix = map(_escape_stars, texts)
    return [means, f"**How it happens.** {happens}", f"**How to fix it.** {fix}"]


def _escape_stars(text: str) -> str:
    """Escape stars that are not in code, where a backslash would be shown."""
    parts = text.split("`")
    return "`".join(each if at % 2 else each.replace("*", "\\*") for at, each in enumerate(parts))


def messages() -> dict[str, str]:
    """Return PyTorch's message of each finding that has one, as the index lists it, by slug."""
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| (`+) ?(.*?) ?\1 \| \[([\w-]+)\]\(findings/\3.md\) \|$", re.MULTILINE)
    return {slug: message for _, message, slug in row.findall(index)}


def heading(page: Page) -> list[str]:
    """Return title and first paragraph: people search for the message that they see."""
    message = messages().get(page.slug, "")
    name = f"`{page.slug}` · {code_of(page.slug)}"
    if not message:
        return [f"# {page.title}", name]
    text = re.sub(r"([*_<])", r"\\\1", message)
    if text.partition(" ")[0].isalpha():
        text = text[:1].upper() + text[1:]
    return [f"# {text}", f"{name} · **{page.title}.**"]


def finding(page: Page, rule: Rule | None) -> str:
    """Return one finding's page as Markdown; findings of runs and of causes have no rule."""
    parts = [*heading(page), *body(page), "## Example"]
    if page.processes > 1:
        parts.append(
            f"`torchrun --nproc-per-node {page.processes} example.py` runs it, and `autogradviz "
            "diagnose run/` prints the finding."
        )
    if "# <-- named" in page.example:
        parts.append("`# <-- named` marks the line that the finding names.")
    parts.append(f"```python\n{page.example.strip()}\n```")
    printed = PICTURES / f"{page.slug}.txt"
    if printed.exists():
        parts += ["The finding:", f"```text\n{printed.read_text(encoding='utf-8').strip()}\n```"]
    if page in RUN_PAGES or page.on_accelerator:
        pass
    elif (PICTURES / f"{page.slug}.svg").exists():
        parts.append(f"![The graph of the example](../pictures/findings/{page.slug}.svg)")
    elif printed.exists():
        parts.append("There is no picture, because the example has no autograd graph.")
    if rule is not None and "fingerprints" in rule.needs:
        parts.append(
            "This finding needs fingerprints of tensor contents: `record(fingerprints=True)`."
        )
    parts.append("[All findings](../findings.md)")
    return "\n\n".join(parts) + "\n"


def error(page: Page) -> str:
    """Return one error's section as Markdown."""
    example = f"```python\n{page.example.strip()}\n```"
    return "\n\n".join([f"## {page.slug}", f"**{page.title}.**", *body(page), example])


def documents() -> dict[Path, str]:
    """Return the content of each generated file."""
    findings = (
        "# Findings\n\n"
        "`trace.diagnose()` and, for a [run of many ranks](guides/find-the-rank-that-differs.md), "
        "`run.diagnose()` return findings. Each has one of these names; `autogradviz explain "
        "NAME` prints its page. A code never changes. Every page has a program that causes the "
        "finding. [Findings and their confidence](confidence.md) explains how reliable they "
        "are. [Which error do you see?](README.md#which-error-do-you-see) leads from the messages "
        "of PyTorch to the pages."
    )
    errors = (
        "# Errors\n\nThe message of every exception of autogradviz ends with a name in brackets; "
        "`autogradviz explain NAME` prints its page."
    )
    pages = [*rules_with_pages(), *((p, None) for p in RUN_PAGES)]
    return {
        DOCS / "findings.md": "\n\n".join([findings, *tables()]) + "\n",
        DOCS / "errors.md": "\n\n".join([errors, *map(error, ERROR_PAGES)]) + "\n",
    } | {DOCS / "findings" / f"{p.slug}.md": finding(p, rule) for p, rule in pages}


def main() -> None:
    """Write all files and delete pages of findings that no longer exist.

    With names of findings as arguments, only their pages and the list of all are written.
    """
    found = documents()
    if sys.argv[1:]:
        wanted = {DOCS / "findings" / f"{slug}.md" for slug in sys.argv[1:]}
        for path in (DOCS / "findings.md", *sorted(wanted)):
            path.write_text(found[path], encoding="utf-8")
        return
    (DOCS / "findings").mkdir(exist_ok=True)
    for path in (DOCS / "findings").glob("*.md"):
        if path not in found:
            path.unlink()
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
