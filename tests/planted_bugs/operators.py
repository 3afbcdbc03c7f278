"""Operators: each plants one kind of bug at a place of a correct program."""

from __future__ import annotations

import ast
import copy
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

KEPT = "KEPT_ = []"
NEAR = (".step()", ".backward(", ".zero_grad(")
"""Statements that are as good a place as one that was removed near them."""


@dataclass(frozen=True)
class Site:
    """A place of a program: ``apply`` changes the syntax tree there."""

    apply: Callable[[], None]


@dataclass(frozen=True)
class Operator:
    """One kind of bug.

    Attributes:
        name: of the function that finds its sites.
        mechanism: the mechanism of ``trace.audit()`` that it is an instance of.
        sites: returns the places of a syntax tree at which it can be planted.
    """

    name: str
    mechanism: str
    sites: Callable[[ast.Module], list[Site]]


OPERATORS: dict[str, Operator] = {}


def operator(mechanism):
    def register(sites):
        OPERATORS[sites.__name__] = Operator(sites.__name__, mechanism, sites)
        return sites

    return register


def is_call(node: ast.AST, name: str) -> bool:
    """Return whether a node calls a method of a name."""
    function = getattr(node, "func", None)
    return isinstance(function, ast.Attribute) and function.attr == name


def statements(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, list[ast.stmt], int]]:
    """Yield every statement in a function: the function, the block, the index in the block."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                for field in ("body", "orelse"):
                    block = getattr(node, field, None)
                    if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                        for index in range(len(block)):
                            yield function, block, index


def assignments(tree, *, forward=True):
    """Yield block, index and statement of ``name = expression``; ``forward``: not in main."""
    for function, block, index in statements(tree):
        statement = block[index]
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
            and isinstance(statement.value, (ast.Call, ast.BinOp))
            and function.name != "__init__"
            and not (forward and function.name == "main")
        ):
            yield block, index, statement


def calls(tree, name):
    """Yield block and index of the statements that call a method of a name."""
    for _, block, index in statements(tree):
        if isinstance(block[index], ast.Expr) and is_call(block[index].value, name):
            yield block, index


def replaced(template: str, value: ast.expr) -> ast.expr:
    """Return an expression with ``V`` replaced by a value."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, node):
            return copy.deepcopy(value) if node.id == "V" else node

    return Put().visit(ast.parse(template, mode="eval").body)


def wrapping(name: str, mechanism: str, template: str, *, forward: bool = True) -> None:
    """Add an operator that replaces the value V of an assignment by a template."""

    def sites(tree):
        def apply(statement):
            statement.value = replaced(template, statement.value)

        return [
            Site(lambda s=statement: apply(s))
            for _, _, statement in assignments(tree, forward=forward)
        ]

    OPERATORS[name] = Operator(name, mechanism, sites)


wrapping("detach", "cut", "(V).detach()")
wrapping("data", "cut", "(V).data")
wrapping("new_from_list", "cut", "torch.tensor((V).tolist())")
wrapping("through_numpy", "cut", "torch.from_numpy((V).detach().numpy())")
wrapping("new_leaf", "cut", "torch.nn.Parameter((V).clone())")
wrapping("rounded", "cut", "torch.round(V)")
wrapping("in_place_scale", "write", "(V).mul_(0.9)")
wrapping("root_of_zero", "value", "((V) * 0).sqrt() + (V)")
wrapping("overflow", "value", "(V) * 1e30 * 1e30")
wrapping("cancels", "value", "(V) + 1e6 - 1e6")
wrapping("double_operand", "refuse", "(V).double()")
wrapping("longer_operand", "refuse", "torch.cat([V, V], -1)")


@operator("cut")
def no_grad(tree):
    def apply(block, index):
        statement = block[index]
        mode = ast.withitem(ast.parse("torch.no_grad()", mode="eval").body)
        block[index] = ast.With(items=[mode], body=[statement])

    return [Site(lambda b=b, i=i: apply(b, i)) for b, i, _ in assignments(tree)]


@operator("cut")
def no_create_graph(tree):
    def apply(call, word):
        call.keywords.remove(word)
        call.keywords.append(ast.keyword("retain_graph", ast.Constant(value=True)))

    return [
        Site(lambda c=call, w=word: apply(c, w))
        for call in ast.walk(tree)
        for word in getattr(call, "keywords", ())
        if isinstance(call, ast.Call) and word.arg == "create_graph"
    ]


@operator("free")
def not_detached(tree):
    class Drop(ast.NodeTransformer):
        def __init__(self, target):
            self.target = target

        def visit_Call(self, node):
            self.generic_visit(node)
            return node.func.value if node is self.target else node

    return [
        Site(lambda n=node: Drop(n).visit(tree))
        for node in ast.walk(tree)
        if is_call(node, "detach") or is_call(node, "item")
    ]


@operator("free")
def backward_twice(tree):
    return [
        Site(lambda b=block, i=index: b.insert(i, copy.deepcopy(b[i])))
        for block, index in calls(tree, "backward")
    ]


@operator("write")
def in_place_operator(tree):
    def apply(block, index, statement):
        value = statement.value
        block[index] = ast.AugAssign(target=statement.targets[0], op=value.op, value=value.right)

    return [
        Site(lambda b=block, i=index, s=statement: apply(b, i, s))
        for block, index, statement in assignments(tree, forward=False)
        if isinstance(statement.value, ast.BinOp)
        and isinstance(statement.value.op, (ast.Add, ast.Mult, ast.Sub))
        and isinstance(statement.value.left, ast.Name)
        and statement.value.left.id == statement.targets[0].id
    ]


@operator("write")
def write_input(tree):
    """A forward changes its first argument in place after its last use."""

    def apply(function, last):
        name = function.args.args[1].arg
        keep, write = ast.parse(f"result_ = 0; {name}.mul_(0.5)").body
        keep.value = last.value
        function.body[-1:] = [keep, write, ast.Return(value=ast.Name("result_", ast.Load()))]

    return [
        Site(lambda f=function, r=function.body[-1]: apply(f, r))
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and function.name == "forward"
        and not function.decorator_list
        and len(function.args.args) > 1
        and isinstance(function.body[-1], ast.Return)
        and function.body[-1].value is not None
    ]


@operator("mix")
def no_zero_grad(tree):
    def apply(block, index):
        block[index] = ast.Pass()

    return [Site(lambda b=b, i=i: apply(b, i)) for b, i in calls(tree, "zero_grad")]


def _inserted(name, before, method):
    """Return sites that insert a call of a method before the statements that call another."""

    def of(tree):
        def apply(block, index):
            extra = copy.deepcopy(block[index])
            extra.value.func.attr = method
            block.insert(index, extra)

        return [
            Site(lambda b=b, i=i: apply(b, i))
            for b, i in calls(tree, before)
            if not block_calls_scheduler(b[i])
        ]

    of.__name__ = name
    return of


def block_calls_scheduler(statement):
    """Return whether a statement steps something that is no optimizer."""
    return "schedul" in ast.unparse(statement)


operator("drop")(_inserted("zero_before_step", "step", "zero_grad"))


@operator("drop")
def zero_before_backward(tree):
    """Gradients are zeroed before each backward; matters if several belong to one step."""
    zeroing = [block[index] for block, index in calls(tree, "zero_grad")]

    def apply(block, index):
        block.insert(index, copy.deepcopy(zeroing[0]))

    return [Site(lambda b=b, i=i: apply(b, i)) for b, i in calls(tree, "backward") if zeroing]


@operator("order")
def step_before_backward(tree):
    def apply(block, first, second):
        block.insert(first, block.pop(second))

    return [
        Site(lambda b=block, f=index, s=later: apply(b, f, s))
        for block, index in calls(tree, "backward")
        for other, later in calls(tree, "step")
        if other is block and later > index and not block_calls_scheduler(block[later])
    ][:1]


@operator("own")
def plain_list(tree):
    def apply(call):
        call.func = ast.Name("list", ast.Load())

    return [
        Site(lambda n=node: apply(n))
        for node in ast.walk(tree)
        if is_call(node, "ModuleList") and len(node.args) == 1
    ]


@operator("own")
def plain_tensor(tree):
    def apply(call):
        call.func = ast.parse("torch.clone", mode="eval").body

    return [
        Site(lambda n=node: apply(n))
        for node in ast.walk(tree)
        if is_call(node, "Parameter") and len(node.args) == 1
    ]


@operator("own")
def fewer_parameters(tree):
    """An optimizer gets all parameters but the first."""

    def apply(call):
        call.args[0] = replaced("list(V)[1:]", call.args[0])

    return [
        Site(lambda n=node: apply(n))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("torch.optim.")
        and "lr_scheduler" not in ast.unparse(node.func)
        and node.args
    ]


def _hook(name, mechanism, returned):
    def of(tree):
        def apply(block, index, statement):
            target = statement.targets[0].id
            text = f"{target}.register_hook(lambda g: {returned}) if {target}.requires_grad else 0"
            block.insert(index + 1, ast.parse(text).body[0])

        return [
            Site(lambda b=block, i=index, s=statement: apply(b, i, s))
            for block, index, statement in assignments(tree)
        ]

    of.__name__ = name
    operator(mechanism)(of)


_hook("hook_halves", "change", "g * 0.5")
_hook("hook_zeroes", "change", "torch.zeros_like(g)")


@operator("change")
def wrong_backward(tree):
    """A custom Function returns twice its first gradient."""

    def apply(statement):
        value = statement.value
        first = value.elts[0] if isinstance(value, ast.Tuple) else value
        doubled = ast.BinOp(copy.deepcopy(first), ast.Mult(), ast.Constant(value=2.0))
        if isinstance(value, ast.Tuple):
            value.elts[0] = doubled
        else:
            statement.value = doubled

    return [
        Site(lambda r=node: apply(r))
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "backward"
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]


@operator("keep")
def kept_history(tree):
    """A global list keeps what was computed."""

    def apply(block, index, statement):
        kept = ast.parse(f"KEPT_.append({statement.targets[0].id})").body[0]
        block.insert(index + 1, kept)
        tree.body.insert(1, ast.parse(KEPT).body[0])

    return [
        Site(lambda b=block, i=index, s=statement: apply(b, i, s))
        for block, index, statement in assignments(tree, forward=False)
    ]


@operator("change")
def changed_by_recomputation(tree):
    """A method is checkpointed, and multiplies by the number of its calls."""

    def apply(function):
        self, *others = [argument.arg for argument in function.args.args]
        name, given = function.name, ", ".join([self, *others])
        body = ast.parse(
            f"{self}.calls_ = getattr({self}, 'calls_', 0) + 1\n"
            f"def run_({', '.join(others)}):\n"
            f"    {self}.calls_ = {self}.calls_ + 1\n"
            f"    return type({self}).{name}_plain({given}) * (1 + 0.1 * {self}.calls_)\n"
            f"return torch.utils.checkpoint.checkpoint(run_, {', '.join(others)}, use_reentrant=False)"
        ).body
        renamed = copy.deepcopy(function)
        renamed.name = f"{name}_plain"
        owner = next(
            node for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and function in node.body
        )  # fmt: skip
        function.body = body
        owner.body.append(renamed)
        tree.body[:0] = ast.parse("import torch.utils.checkpoint").body

    return [
        Site(lambda f=function: apply(f))
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and function.name == "forward"
        and not function.decorator_list
        and len(function.args.args) > 1
        and isinstance(function.body[-1], ast.Return)
        and not isinstance(function.body[-1].value, ast.Tuple)
    ]


def mutate(source: str, name: str, rng: random.Random) -> tuple[str, list[int]] | None:
    """Return the text of a mutant and the planted lines; None if the program has no site.

    Where a statement was removed or moved, the statements near it count as well.
    """
    tree = ast.parse(source)
    sites = OPERATORS[name].sites(tree)
    if not sites:
        return None
    rng.choice(sites).apply()
    ast.fix_missing_locations(tree)
    before = plain(source).splitlines()
    text = ast.unparse(tree)
    after = text.splitlines()
    planted = []
    for tag, _, _, first, last in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        changed = range(first, last)
        if tag in {"replace", "insert"}:
            planted += [j + 1 for j in changed if after[j] != KEPT and after[j].strip() != "pass"]
        if tag == "delete" or any(after[j].strip() == "pass" for j in changed):
            near = range(max(0, first - 8), min(len(after), last + 8))
            planted += [j + 1 for j in near if any(word in after[j] for word in NEAR)]
    for line in list(planted):  # of two equal statements in a row, either
        planted += [
            other
            for other in (line - 1, line + 1)
            if 0 < other <= len(after) and after[other - 1].strip() == after[line - 1].strip()
        ]
    return text, sorted(set(planted))


def plain(source: str) -> str:
    """Return a program as ``mutate`` would write it without a change."""
    return ast.unparse(ast.parse(source))
