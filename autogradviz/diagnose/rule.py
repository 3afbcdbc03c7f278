"""Rules: each detects one kind of problem in a recording.

CONTRIBUTING.md says how to add one ("Your first rule"). State the conditions under which a rule
applies in ``when``, not in the function: ``NoError()`` for gradients that are wrong without an
exception, ``ErrorMessage("part of PyTorch's message")`` for an exception. If a finding of the same
kind exists, reuse its slug and its page. Where the order within a group matters, name a neighbor:
``after="other-slug"``. A test runs the example of each page and expects the slug first, with the
marked line as culprit.

A rule imports from ``evidence``, ``source`` and ``blame``, never from another rule. Code that two
rules need belongs in ``evidence`` (facts about the recording), ``source`` (facts about the user's
source) or ``blame`` (which line changed something).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from autogradviz.analysis.types import Node, Recomputation, Region, SavedTensor, SourceLocation
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding import MECHANISMS, Confidence, Finding, Mechanism
from autogradviz.diagnose.finding_text import paragraphs, quote_source
from autogradviz.diagnose.rule_order import Group, in_order, inserted
from autogradviz.entry_points import failures_reported, plugins
from autogradviz.explanations.read_pages import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from autogradviz.analysis import Analysis, HistoryEntry, Op, RaisedError, Unpack
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.finding import Change
    from autogradviz.events import Event

Need: TypeAlias = Literal["ops", "fingerprints"]
"""An option of ``record()`` without which a rule can find nothing."""


# --- conditions -------------------------------------------------------------------------------


class Condition(Protocol):
    """The recordings that a rule applies to."""

    def holds(self, analysis: Analysis) -> bool:
        """Return whether the rule applies."""


@dataclass(frozen=True, slots=True)
class Always:
    """Every recording."""

    def holds(self, analysis: Analysis) -> bool:  # noqa: ARG002
        """Return True."""
        return True


@dataclass(frozen=True, slots=True)
class NoError:
    """Recordings that no exception left."""

    def holds(self, analysis: Analysis) -> bool:
        """Return whether the recorded block ended without an exception."""
        return analysis.error is None


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """Recordings that an exception left whose message contains a fragment.

    Attributes:
        fragment: one string, or several of which one has to occur; "" occurs in every message.
        without: a string that must not occur; "" is none.
        type: the end of the exception's qualified type name, "CheckpointError"; "" is any.
    """

    fragment: str | tuple[str, ...] = ""
    without: str = ""
    type: str = ""

    def holds(self, analysis: Analysis) -> bool:
        """Return whether the recorded block raised such an exception."""
        error = analysis.error
        if error is None or not error.type_name.endswith(self.type):
            return False
        if self.without and self.without in error.message:
            return False
        return any(fragment in error.message for fragment in self.fragments)

    @property
    def fragments(self) -> tuple[str, ...]:
        """The strings of which one has to occur."""
        return (self.fragment,) if isinstance(self.fragment, str) else self.fragment


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Recordings for which any of some conditions holds."""

    conditions: tuple[Condition, ...]

    def holds(self, analysis: Analysis) -> bool:
        """Return whether any of the conditions holds."""
        return any(condition.holds(analysis) for condition in self.conditions)


# --- drafts -----------------------------------------------------------------------------------


class HasLocation(Protocol):
    """An op, node, saved tensor, region, hook, error ...: anything with a source line."""

    @property
    def location(self) -> SourceLocation | None:
        """The line, None if unknown."""


Place: TypeAlias = "SourceLocation | HasLocation | None"
"""A source line, or something that has one."""

Shown: TypeAlias = (
    "Node | Op | SavedTensor | Unpack | Region | Recomputation | RaisedError | HistoryEntry | "
    "Event | int | None"
)
"""Something recorded that shows a problem. An int is the sequence number of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A problem found by a rule. ``finding()`` turns it into a ``Finding``.

    Attributes:
        title: one sentence without a period.
        culprit: the line to change.
        victim: the line whose result, gradient or backward is wrong.
        explanation: paragraphs. A source location, or an object that has one, becomes an excerpt
            of that line; None and "" are left out.
        fix: the change to make, as code.
        evidence: what shows the problem, in the order of the explanation. Sequence numbers, node
            ids and the region are taken from these objects; None is left out.
        confidence: None: "certain" if the culprit's line is known, else "likely".
        region_id: the region concerned, if ``evidence`` does not contain the region or one of its
            recomputations.
        slug: one of the rule's slugs; "" is the first.
        changes: the fix for programs to read, with predicted effects.
        parameters: the tensor ids of the parameters concerned; without any, those to which
            gradients flow from the nodes in ``evidence``.
    """

    title: str
    culprit: Place
    victim: Place
    explanation: Sequence[str | Place]
    fix: str
    evidence: Sequence[Shown] = ()
    confidence: Confidence | None = None
    region_id: int | None = None
    slug: str = ""
    changes: tuple[Change, ...] = ()
    parameters: Iterable[int] = ()


def _location(place: Place) -> SourceLocation | None:
    return place if place is None or isinstance(place, SourceLocation) else place.location


def _paragraph(part: str | Place) -> str:
    return part if isinstance(part, str) else quote_source(_location(part))


def _seq(fact: Shown) -> int | None:
    if fact is None or isinstance(fact, (Node, int)):
        return fact if isinstance(fact, int) else None
    if isinstance(fact, SavedTensor):
        return fact.saved_seq
    if isinstance(fact, Region):
        return fact.entered_seq
    return fact.started_seq if isinstance(fact, Recomputation) else fact.seq


def _unique(numbers: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for number in numbers if number is not None))


# --- rules ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to find a problem.

    Attributes:
        find: yields a draft for each problem.
        slugs: the kinds of problem that it may yield; drafts have the first unless they say
            otherwise.
        when: the recordings that it applies to.
        group: the group in whose place of the order it runs; see ``rule_order.Group``.
        after: another rule of the group that runs earlier: a slug, which stands for all rules
            that may yield it, or the name of a function.
        before: in the same way, another rule of the group that runs later.
        needs: the options of ``record()`` without which it can find nothing.
        supersedes: slugs. If this rule finds something in a checkpointed region, findings of
            these kinds in the same region are dropped.
        only_new_lines: drop a finding whose culprit and region an earlier finding names already.
        at_most: the number of findings after which ``find`` is stopped; None is no limit.
        fallback: keep its findings only if no other rule finds anything.
        mechanism: how a line has its effect: of all its kinds, or by slug.
        origin: the plug-in that it comes from, "" if autogradviz; not an argument of ``rule``.
    """

    find: Callable[[Evidence], Iterator[Draft]]
    slugs: tuple[str, ...]
    when: Condition
    group: Group = "gradient"
    after: str = ""
    before: str = ""
    needs: frozenset[Need] = field(default_factory=frozenset)
    supersedes: tuple[str, ...] = ()
    only_new_lines: bool = False
    at_most: int | None = 1
    fallback: bool = False
    mechanism: Mechanism | Mapping[str, Mechanism] = "other"
    origin: str = ""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.find.__name__

    @property
    def full_name(self) -> str:
        """The name of the function, and the plug-in that it comes from."""
        return f"{self.name} of the plug-in {self.origin}" if self.origin else self.name

    def applies(self, evidence: Evidence) -> bool:
        """Return whether the rule applies to a recording that has what it needs."""
        return self.when.holds(evidence.analysis) and self.needs <= evidence.recorded

    def facts(self, evidence: Evidence) -> Iterator[Fact]:
        """Yield the facts of the rule in a recording that it applies to."""
        if self.applies(evidence):
            for draft in islice(self.find(evidence), self.at_most):
                yield self.fact(draft)

    def findings(self, evidence: Evidence) -> Iterator[Finding]:
        """Yield the findings of the rule in a recording that it applies to."""
        return (fact.finding() for fact in self.facts(evidence))

    def mechanism_of(self, slug: str) -> Mechanism:
        """Return the mechanism of one of the rule's kinds of problems.

        Raises:
            KeyError: the rule names mechanisms by slug, and none for this one.
        """
        return self.mechanism if isinstance(self.mechanism, str) else self.mechanism[slug]

    def fact(self, draft: Draft) -> Fact:
        """Return the fact that a draft describes.

        Raises:
            ValueError: the draft's slug is none of the rule's, or its confidence is unknown.
            TypeError: another attribute has another type than that of ``Draft``.
        """
        slug = draft.slug or self.slugs[0]
        if slug not in self.slugs:
            message = f"{self.name} is not declared to yield {slug!r}"
            raise ValueError(message)
        if draft.confidence not in {None, *get_args(Confidence)}:
            message = f"{draft.confidence!r} is none of the confidences of findings"
            raise ValueError(message)
        culprit, victim = _location(draft.culprit), _location(draft.victim)
        regions = (f.region_id for f in draft.evidence if isinstance(f, (Region, Recomputation)))
        region_id = draft.region_id if draft.region_id is not None else next(regions, None)
        nodes = (f.node_id for f in draft.evidence if isinstance(f, (Node, SavedTensor)))
        texts: tuple[object, ...] = (draft.title, draft.fix)
        places: tuple[object, ...] = (culprit, victim)
        if not (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(place, SourceLocation | None) for place in places)
            and isinstance(region_id, int | None)
        ):
            message = "title and fix of a draft are texts, places have lines, a region has a number"
            raise TypeError(message)
        return Fact(
            slug=slug,
            mechanism=self.mechanism_of(slug),
            effect=draft.title,
            culprit=culprit,
            victim=victim,
            weight=0.0,
            explanation=(paragraphs([_paragraph(part) for part in draft.explanation]),),
            fix=draft.fix,
            confidence=draft.confidence or ("likely" if culprit is None else "certain"),
            events=_unique(map(_seq, draft.evidence)),
            nodes=_unique(nodes),
            region_id=region_id,
            changes=draft.changes,
            parameters=_unique(draft.parameters),
            of_rule=True,
        )


def rule(
    *slugs: str,
    when: Condition,
    group: Group = "gradient",
    after: str = "",
    before: str = "",
    needs: Iterable[Need] = (),
    supersedes: tuple[str, ...] = (),
    only_new_lines: bool = False,
    at_most: int | None = 1,
    fallback: bool = False,
    mechanism: Mechanism | Mapping[str, Mechanism] = "other",
) -> Callable[[Callable[[Evidence], Iterator[Draft]]], Rule]:
    """Return a decorator that makes a ``Rule`` of a generator function.

    The function takes an ``Evidence`` and yields a ``Draft`` for each problem. The arguments are
    the attributes of ``Rule``.

    Raises:
        ValueError: there is no such mechanism.
    """
    named = [mechanism] if isinstance(mechanism, str) else list(mechanism.values())
    unknown = [each for each in named if each not in MECHANISMS]
    if unknown:
        message = f"no mechanism {unknown[0]!r}; the mechanisms are {', '.join(MECHANISMS)}"
        raise ValueError(message)

    def decorate(find: Callable[[Evidence], Iterator[Draft]]) -> Rule:
        return Rule(
            find=find,
            slugs=slugs,
            when=when,
            group=group,
            after=after,
            before=before,
            needs=frozenset(needs),
            supersedes=supersedes,
            only_new_lines=only_new_lines,
            at_most=at_most,
            fallback=fallback,
            mechanism=mechanism,
        )

    return decorate


@cache
def own_rules() -> tuple[Rule, ...]:
    """Return the rules of every module in ``diagnose.rules``, in order; see ``rule_order``."""
    package = importlib.import_module("autogradviz.diagnose.rules")
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
    ]
    return in_order([rule for module in modules for rule in _rules_in(module)])


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return our rules and those of plug-ins, in order.

    Warns:
        AutogradvizWarning: for each plug-in whose rules cannot be used.
    """
    rules = own_rules()
    for plugin in plugins("autogradviz.rules"):
        with failures_reported(plugin.origin):
            rules = _with_rules_of(plugin.value, plugin.origin, rules)
    return rules


def rules_about(message: str) -> list[Rule]:
    """Return the rules for exceptions with a message, or part of one, in order.

    Args:
        message: what PyTorch raised; at least as long as the part that a rule looks for, or a part
            of that.
    """
    text = " ".join(message.split()).lower()

    def applies(condition: Condition) -> bool:
        if isinstance(condition, AnyOf):
            return any(map(applies, condition.conditions))
        if not isinstance(condition, ErrorMessage):
            return False
        fragments = [each.lower() for each in condition.fragments if " " in each]
        return any(each in text or text in each for each in fragments)

    return [rule for rule in all_rules() if applies(rule.when)]


_SLUG: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


def _rules_in(module: ModuleType) -> list[Rule]:
    return [value for value in vars(module).values() if isinstance(value, Rule)]


def _with_rules_of(module: object, origin: str, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return rules with those of a plug-in's module.

    Raises:
        TypeError: it is no module, or a rule does not take one argument.
        ValueError: it has no rule, or the slug or the place of a rule is not possible.
    """
    if not isinstance(module, ModuleType):
        message = f"{module!r} is not a module"
        raise TypeError(message)
    found = _rules_in(module)
    if not found:
        message = f"the module {module.__name__} has no rule"
        raise ValueError(message)
    taken = {slug for rule in rules for slug in rule.slugs} | {page.slug for page in pages()}
    for each in found:
        for slug in each.slugs or ("",):
            if slug in taken or not _SLUG.fullmatch(slug):
                problem = "is taken" if slug in taken else "is not words joined by hyphens"
                message = f"the slug {slug!r} of {each.name} {problem}"
                raise ValueError(message)
        inspect.signature(each.find).bind(None)
        rules = inserted(rules, replace(each, supersedes=tuple(each.supersedes), origin=origin))
    return rules
