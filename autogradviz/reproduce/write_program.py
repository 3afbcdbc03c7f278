"""The text of a program: leaves first, then functions where they are called, then statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from autogradviz.reproduce.program_statements import (
    FIRST_ONLY,
    Known,
    returns_list,
    spell,
    statements_of,
)
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from autogradviz.reproduce.program_statements import Body, Contrast, Program, Statement, Value

_FLOATS: Final = ("float", "bfloat", "complex")
_FILLED: Final = {
    "rand": ".uniform_()", "randn": ".normal_()",
    "ones": ".fill_(1)", "large": ".uniform_(-1000, 1000)",
}  # fmt: skip
_INDENT: Final = "    "
_ASSERTED: Final = {
    "missing": "{}.grad is None",
    "zero": "not {}.grad.any()",
    "not finite": "not {}.grad.isfinite().all()",
    "finite value": "{}.isfinite().all()",
    "not finite value": "not {}.isfinite().all()",
}
_PAIRS: Final = {
    "user": "saved_tensors_hooks", "offload": "save_on_cpu()",
    "allow_mutation": "allow_mutation_on_saved_tensors()",
}  # fmt: skip
_MARK: Final = "  # statement "
_PROBE: Final = (
    "def differ(a, b):",
    "    return b is None or a.shape != b.shape or not torch.allclose(a, b, equal_nan=True)",
    "pairs = enumerate(zip(right, wrong))",
    "found = [(n, b is None) for n, (a, b) in pairs if a is not None and differ(a, b)]",
    "raise LookupError(repr(found))",
)
"""The end of a program that says which results differ, by their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """The choices by which a program is written."""

    known: Known = field(default_factory=dict)  # functions of PyTorch
    plain: bool = False  # call operators by their own names
    source: bool = False  # add the user's lines as comments
    contents: str = "rand"  # of new tensors: "rand", "randn", "ones", "zeros", "eye"
    root: Value | None = None  # backward starts from this tensor


def statement_at(
    program: Program, spelling: Spelling, dropped: Collection[Statement], lineno: int
) -> Statement | None:
    """Return the statement on a line of the program's text."""
    writer = _Writer(program, spelling, set(map(id, dropped)), marked=True)
    lines = writer.text().split("\n")
    if not 0 < lineno <= len(lines):
        return None
    _, found, number = lines[lineno - 1].rpartition(_MARK)
    return writer.marked[int(number)] if found else None


def compared_values(
    program: Program, spelling: Spelling, dropped: Collection[Statement]
) -> list[Value]:
    """Return the tensors whose gradients and contents a program's probe compares."""
    writer = _Writer(program, spelling, set(map(id, dropped)))
    writer.text()
    return writer.compared


def write_program(program: Program, spelling: Spelling, dropped: Collection[Statement] = ()) -> str:
    """Return the text of a program without some of its statements.

    What the other statements need of those is a new tensor in the text. Statements of the main
    program whose results are not used, and that write nothing, are left out too.

    Raises:
        ValueError: if an argument of an operator is not known.
    """
    return _Writer(program, spelling, set(map(id, dropped))).text()


class _Writer:
    def __init__(
        self, program: Program, spelling: Spelling, dropped: set[int], *, marked: bool = False
    ) -> None:
        self.marked: list[Statement] = []
        self._is_marked = marked
        self._program = program
        self._spelling = spelling
        self._gone = set(dropped)
        self._names: dict[int, str] = {}
        self._leaves: list[str] = []
        self._pair_names: dict[int, list[str]] = {}
        self._leaf_values: list[Value] = []
        self._counts: dict[str, int] = {}
        self._owner = {
            id(value): body for body in _bodies(program.main) for each in body.statements
            for value in each.outputs
        }  # fmt: skip
        self._drop_unused()

    # --- what is left -------------------------------------------------------------------------

    def _drop_unused(self) -> None:
        statements = list(self._program.statements())
        for each in statements:  # what is inside a dropped call is dropped too
            if id(each) in self._gone:
                self._gone |= {id(inner) for body in each.bodies for inner in statements_of(body)}
        while True:
            used = {
                id(value) for each in statements if id(each) not in self._gone
                for value in self._inputs(each)
            } | {id(value) for value, _ in self._program.symptoms} | {
                id(value) for each in statements if id(each) not in self._gone
                for body in each.bodies for value in (*body.returned, *body.saved) if value
                and each.kind == "function"
            }  # fmt: skip
            unused = {
                id(each)
                for each in self._program.main.statements
                if id(each) not in self._gone and self._is_pure(each)
                and not any(id(value) in used for value in each.outputs)
                and not self._is_used_region(each, used)
            }  # fmt: skip
            if not unused:
                self._used = used
                return
            self._gone |= unused
            for each in statements:
                if id(each) in unused:
                    self._gone |= {id(i) for body in each.bodies for i in statements_of(body)}

    def _inputs(self, statement: Statement) -> list[Value]:
        root = self._spelling.root
        if statement.kind == "backward" and root is not None:
            count = len(statement.inputs) - int(str(statement.options["wanted"]))
            return [root, *statement.inputs[count:]]
        return statement.inputs

    def _is_pure(self, statement: Statement) -> bool:
        if (
            statement.kind in {"backward", "hook", "pair", "disabled"}
            or statement.written
            or statement.failed
        ):
            return False
        return not any(
            inner.written or inner.failed or inner.kind == "backward"
            for body in statement.bodies
            if statement.kind == "checkpoint"
            for inner in statements_of(body)
            if id(inner) not in self._gone
        )

    def _is_used_region(self, statement: Statement, used: set[int]) -> bool:
        return statement.kind == "checkpoint" and any(
            id(value) in used and self._used_outside(value, statement)
            for body in statement.bodies
            for inner in statements_of(body)
            for value in inner.outputs
        )

    def _used_outside(self, value: Value, region: Statement) -> bool:
        inside = {id(each) for body in region.bodies for each in statements_of(body)}
        return any(
            value in self._inputs(each)
            for each in self._program.statements()
            if id(each) not in inside and id(each) not in self._gone
        )

    # --- names --------------------------------------------------------------------------------

    def _name(self, value: Value) -> str:
        """Return the name of a variable; one that no statement makes is a new tensor."""
        known = self._names.get(id(value))
        if known is not None:
            return known
        if value.maker is not None and id(value.maker) not in self._gone:
            name = self._next("t")  # used before it is made: as an argument of its own function
        else:
            name = self._next("w" if value.is_parameter else "x")
            self._leaves.append(f"{name} = {self._new_tensor(value)}")
            self._leaf_values.append(value)
        self._names[id(value)] = name
        return name

    def _next(self, letter: str) -> str:
        self._counts[letter] = self._counts.get(letter, 0) + 1
        return f"{letter}{self._counts[letter]}"

    def _define(self, value: Value) -> str:
        # A recomputation is written before the statements that run between it and its forward.
        return self._names.setdefault(id(value), "") or self._rename(value)

    def _rename(self, value: Value) -> str:
        name = self._names[id(value)] = self._next("t")
        return name

    def _new_tensor(self, value: Value) -> str:
        tensor = value.tensor
        shape = ", ".join(map(str, tensor.shape)) if tensor.shape else "()"
        more = "" if tensor.dtype == "float32" else f", dtype=torch.{tensor.dtype}"
        if tensor.device not in {"cpu", ""}:
            more += f", device='{tensor.device}'"
        is_float = tensor.dtype.startswith(_FLOATS) and "float8" not in tensor.dtype
        grad = value.requires_grad and is_float
        maker = "ones" if tensor.dtype == "bool" else "zeros"
        if is_float:
            maker = self._spelling.contents
        if maker == "eye" and tensor.shape != (tensor.shape[:1] * 2 or None):
            maker = "ones"
        if maker == "eye":
            shape = str(tensor.shape[0])
        if value.strides and maker != "eye":
            text = f"torch.empty_strided({tensor.shape}, {value.strides}{more})"
            text += _FILLED.get(maker, ".zero_()")
            text += ".requires_grad_()" if grad else ""
        elif maker == "large":
            text = f"torch.empty({shape}{more}){_FILLED[maker]}"
            text += ".requires_grad_()" if grad else ""
        else:
            text = f"torch.{maker}({shape}{more}{', requires_grad=True' if grad else ''})"
        was_made = value.maker is not None and grad
        return text + (".clone()" if was_made and self._is_written(value) else "")

    def _is_written(self, value: Value) -> bool:
        return any(
            value in each.written
            for each in self._program.statements()
            if id(each) not in self._gone and not each.op.startswith("aten.requires_grad_.")
        )

    # --- text ---------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the whole text."""
        lines = list(self._body(self._program.main))
        shown = [
            f"assert {_ASSERTED[kind].format(self._name(value))}"
            for value, kind in self._program.symptoms
        ]
        contrast = self._program.contrast
        if contrast is None:
            found = "\n".join([*self._leaves, *lines, *shown])
        else:
            found = "\n".join(self._contrast(contrast, lines))
        head = ["import torch"]
        if "F." in found:
            head.append("import torch.nn.functional as F")
        if "nullcontext()" in found:
            head.insert(0, "from contextlib import nullcontext\n")
        if "checkpoint(" in found:
            head.append("from torch.utils.checkpoint import checkpoint")
        if contrast is None and ("torch.rand(" in found or ".uniform_(" in found):
            head += ["", "torch.manual_seed(0)"]
        return "\n".join([*head, "", found, ""])

    def _contrast(self, contrast: Contrast, lines: list[str]) -> Iterator[str]:
        """Yield the program as a function that runs right or wrong, and what differs."""
        left = [each for each in self._program.main.statements if id(each) not in self._gone]
        losses = [self._name(each.inputs[0]) for each in left if each.kind == "backward"]
        if contrast.shown is None:
            names = [self._name(value) for value in self.compared]
            places = [f"{name}.{place}" for place in ("grad", "data") for name in names]
            returned = f"[{', '.join(places)}]"
        else:
            value, place = contrast.shown
            returned = f"{self._name(value)}.{place}"
        body = ["torch.manual_seed(0)", *self._leaves, *lines]
        yield "def step(right):"
        yield from _indented([*body, f"return [{', '.join(losses)}], {returned}"])
        yield ""
        yield "loss, right = step(right=True)"
        yield "same_loss, wrong = step(right=False)"
        yield "assert all(map(torch.equal, loss, same_loss))"
        if contrast.shown is None:
            yield from _PROBE
        elif contrast.is_missing:
            yield "assert right is not None and wrong is None"
        else:
            yield "assert not torch.allclose(right, wrong, equal_nan=True)"

    @property
    def compared(self) -> list[Value]:
        """The tensors that the program begins with, and those that regions take."""
        taken = [
            value for each in self._program.main.statements
            if each.kind == "checkpoint" and id(each) not in self._gone
            for value in self._arguments_of_region(each)
            if value.maker is None or not value.requires_grad
        ]  # fmt: skip
        return list({id(value): value for value in (*self._leaf_values, *taken)}.values())

    def _body(self, body: Body) -> Iterator[str]:
        before: list[str] = []
        for statement in body.statements:
            if id(statement) in self._gone:
                continue
            lines = [*self._comment(statement), *self._lines(statement)]
            contexts = list(self._contexts(statement))
            for depth, context in enumerate(contexts if contexts != before else ()):
                yield f"{_INDENT * depth}with {context}:"
            before = contexts
            yield from (_INDENT * len(contexts) + line if line else line for line in lines)

    def _contexts(self, statement: Statement) -> Iterator[str]:
        """Yield the contexts that are entered around a statement."""
        for pair in statement.pairs:
            if id(pair) not in self._gone:
                call = f"torch.autograd.graph.{_PAIRS[pair.op]}"
                if pair.op == "user":
                    call += f"({', '.join(self._pair_names[id(pair)])})"
                yield f"nullcontext() if right else {call}" if self._is_cause(pair) else call
        if statement.grad_off:
            yield "torch.no_grad()"

    def _comment(self, statement: Statement) -> Iterator[str]:
        line = statement.location
        if self._spelling.source and line is not None and line.text:
            yield f"# {line.text}"

    def _lines(self, statement: Statement) -> Iterator[str]:
        if statement.kind == "backward":
            yield from self._backward(statement)
        elif statement.kind == "checkpoint":
            yield from self._checkpoint(statement)
        elif statement.kind == "function":
            yield from self._function(statement)
        elif statement.kind == "hook":
            yield from self._hook(statement)
        elif statement.kind == "pair":
            yield from self._pair(statement)
        elif statement.kind == "disabled":
            yield f"with torch.autograd.graph.disable_saved_tensors_hooks({statement.op!r}):"
            call = "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)"
            yield f"{_INDENT}{call}.__enter__()"
        else:
            line = self._op(statement)
            if self._is_marked:
                line += f"{_MARK}{len(self.marked)}"
                self.marked.append(statement)
            if self._is_cause(statement):
                yield "if not right:"
                line = _INDENT + line
            yield line

    def _is_cause(self, statement: Statement) -> bool:
        contrast = self._program.contrast
        return contrast is not None and statement in contrast.causes

    def _op(self, statement: Statement) -> str:
        names = [self._name(value) for value in statement.inputs]
        if statement.through_data:
            names = [
                f"{name}.data" if value in statement.written else name
                for name, value in zip(names, statement.inputs, strict=True)
            ]
        used = [id(value) in self._used for value in statement.outputs]
        first_only = not any(used[1:])
        call = spell(
            statement, names, self._spelling.known, plain=self._spelling.plain,
            first_only=first_only,
        )  # fmt: skip
        if not statement.outputs:
            return call
        dtype = statement.outputs[0].tensor.dtype
        if not statement.inputs and dtype.startswith(_FLOATS) and "dtype=" not in call:
            call = call.removesuffix(")") + f", dtype=torch.{dtype})"
        if returns_list(statement.op):
            targets = [self._define(value) for value in statement.outputs]
            return f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {call}"
        is_plain = call.startswith("torch.ops.")
        if short_op_name(statement.op) in FIRST_ONLY and first_only and not is_plain:
            return f"{self._define(statement.outputs[0])} = {call}"
        if len(statement.outputs) == 1 and short_op_name(statement.op) not in FIRST_ONLY:
            return f"{self._define(statement.outputs[0])} = {call}"
        if first_only:
            return f"{self._define(statement.outputs[0])} = {call}[0]"
        return f"{', '.join(self._define(value) for value in statement.outputs)} = {call}"

    def _backward(self, statement: Statement) -> Iterator[str]:
        call, wanted = self._engine_call(statement)
        pairs = zip(statement.outputs, statement.sources, strict=True)
        used = [(value, source) for value, source in pairs if id(value) in self._used]
        if not call.startswith("torch.autograd.grad("):
            names = [self._name(source) for _, source in used]  # before it runs
            yield call
            for (value, _), name in zip(used, names, strict=True):
                yield f"{self._define(value)} = {name}.grad"
        elif len(used) == 1:
            value, source = used[0]
            yield f"{self._define(value)} = {call}[{wanted.index(source)}]"
        elif used:
            made = {id(source): self._define(value) for value, source in used}
            yield f"{', '.join(made.get(id(each), '_') for each in wanted)} = {call}"
        else:
            yield call

    def _engine_call(self, statement: Statement) -> tuple[str, list[Value]]:
        """Return the call of a backward, and the tensors whose gradients it returns."""
        options = statement.options
        wanted = int(str(options["wanted"]))
        inputs = self._inputs(statement)
        roots = inputs[: len(inputs) - wanted]
        keywords = ""
        if options["create_graph"]:
            keywords = "create_graph=True"
        elif options["retain_graph"]:
            keywords = "retain_graph=True"
        scalars = [
            self._name(root) if root.tensor.shape == () else f"{self._name(root)}.sum()"
            for root in roots
        ]
        if wanted:
            names = ", ".join(self._name(value) for value in inputs[len(roots) :])
            more = f", {keywords}" if keywords else ""
            if options["accumulate"]:
                return f"{scalars[0]}.backward(inputs=[{names}]{more})", []
            more = more if options.get("strict") else f", allow_unused=True{more}"
            call = f"torch.autograd.grad({' + '.join(scalars)}, [{names}]{more})"
            return call, inputs[len(roots) :]
        if len(scalars) == 1:
            return f"{scalars[0]}.backward({keywords})", []
        more = f", {keywords}" if keywords else ""
        return f"torch.autograd.backward([{', '.join(scalars)}]{more})", []

    # --- functions ----------------------------------------------------------------------------

    def _checkpoint(self, statement: Statement) -> Iterator[str]:
        options = statement.options
        number = self._next("region")
        forward = statement.bodies[0]
        outputs = [
            value
            for each in statements_of(forward)
            if id(each) not in self._gone
            for value in each.outputs
            if self._owner.get(id(value)) is forward and self._used_outside(value, statement)
        ]
        arguments = self._arguments_of_region(statement)
        for value in arguments:
            self._name(value)
        names = [number] if len(statement.bodies) == 1 else [
            f"{number}_{place}" for place in range(len(statement.bodies))
        ]  # fmt: skip
        taken = ", ".join(self._name(value) for value in arguments)
        returned: list[str] = []
        for name, body in zip(names, statement.bodies, strict=True):
            lines = list(self._body(body))
            kept = self._kept_for_later(body, outputs)
            yield f"def {name}({taken}):"
            if kept:
                yield f"{_INDENT}global {', '.join(self._names[id(value)] for value in kept)}"
            yield from _indented(lines)
            if body is forward:
                returned = [self._names[id(value)] for value in outputs]
                last = self._last_output(body)
                first = taken.split(", ")[0] or None
                given = ", ".join(returned or last) or first
                yield f"{_INDENT}return {f'[{given}]' if options['nested'] else given}"
            else:
                pairs = self._twin_outputs(body, outputs)
                yield f"{_INDENT}return {', '.join(pairs) or 'None'}"
        called = number
        if len(names) > 1:
            yield "# it runs other operators when it is computed again"
            yield f"calls = iter([{', '.join(names)}])"
            yield f"{number} = lambda *args: next(calls)(*args)"
        keywords = f"use_reentrant={options['use_reentrant']}"
        if not options["preserve_rng_state"]:
            keywords += ", preserve_rng_state=False"
        if options["determinism_check"] not in {"default", ""} and not options["use_reentrant"]:
            keywords += f", determinism_check={options['determinism_check']!r}"
        if not options["early_stop"] and not options["use_reentrant"]:
            keywords += ", early_stop=False"
        target = ", ".join(returned)
        target = f"[{target}] = " if options["nested"] and returned else target and f"{target} = "
        plain = f"{called}({taken}) if right else " if self._is_cause(statement) else ""
        call = f"checkpoint({', '.join([called, *filter(None, [taken])])}, {keywords})"
        yield f"{target}{plain}{call}"

    def _arguments_of_region(self, statement: Statement) -> list[Value]:
        """Return the tensors from outside that a region takes; it reads the others itself."""
        inside = {
            id(value) for body in statement.bodies for each in statements_of(body)
            for value in each.outputs if id(each) not in self._gone
        }  # fmt: skip
        kept: Any = statement.options["kept"]
        found: dict[int, Value] = {}
        for each in statements_of(statement.bodies[0]):
            if id(each) in self._gone:
                continue
            for value in each.inputs:
                is_taken = (
                    value.tensor.tensor_id in kept if kept is not None else not value.is_parameter
                )
                if id(value) not in inside and is_taken:
                    found.setdefault(id(value), value)
        return list(found.values())

    def _last_output(self, body: Body) -> list[str]:
        names = [
            self._names[id(v)] for e in body.statements if id(e) not in self._gone
            for v in e.outputs if id(v) in self._names
        ]  # fmt: skip
        return names[-1:]

    def _kept_for_later(self, body: Body, outputs: Sequence[Value]) -> list[Value]:
        """Return the values that later statements need although the region does not return them."""
        own = {id(v): v for each in statements_of(body) for v in each.outputs
               if id(each) not in self._gone}  # fmt: skip
        others = [
            each for each in self._program.statements()
            if id(each) not in self._gone and each not in list(statements_of(body))
        ]  # fmt: skip
        returned = set(map(id, outputs))
        found = {
            id(value): value
            for each in others
            for value in self._inputs(each)
            if id(value) in own and id(value) not in returned and id(value) in self._names
        }
        return list(found.values())

    def _twin_outputs(self, body: Body, outputs: Sequence[Value]) -> list[str]:
        own = set(map(id, body.statements))
        found = []
        for value in outputs:
            for twin in value.maker.twins if value.maker is not None else ():
                if id(twin) in own and id(twin) not in self._gone:
                    place = value.maker.outputs.index(value) if value.maker else 0
                    if place < len(twin.outputs) and id(twin.outputs[place]) in self._names:
                        found.append(self._names[id(twin.outputs[place])])
        last = self._last_output(body)
        return found if len(found) == len(outputs) else last * max(1, len(outputs))

    def _hook(self, statement: Statement) -> Iterator[str]:
        (body,) = statement.bodies
        owner, name = self._name(statement.inputs[0]), self._next("hook")
        gradient = self._define(body.parameters[0]) if body.parameters else "gradient"
        lines = list(self._body(body))
        returned = [
            self._names.get(id(value), gradient) if value is not None else gradient
            for value in body.returned
        ]
        yield f"def {name}({gradient}):"
        yield from _indented([*lines, f"return {returned[0]}" if returned else "return None"])
        yield f"{owner}.{statement.op}({name})"

    def _pair(self, statement: Statement) -> Iterator[str]:
        """Yield the hooks of a pair."""
        number = self._next("hooks").removeprefix("hooks")
        names = self._pair_names[id(statement)] = [f"pack{number}", f"unpack{number}"]
        if statement.op != "user":
            return
        if not statement.bodies:  # nothing was saved
            yield f"{names[0]} = {names[1]} = lambda t: t"
        for name, body in zip(names, statement.bodies, strict=False):
            taken = [self._define(value) for value in body.parameters]
            is_tuple = body.kind == "unpack" and len(taken) > 1
            lines = list(self._body(body))
            given = [self._names.get(id(v), taken[0]) for v in body.returned if v is not None]
            yield f"def {name}({'packed' if is_tuple else taken[0]}):"
            if is_tuple:
                yield f"{_INDENT}{', '.join(taken)} = packed"
            yield from _indented([*lines, f"return {', '.join(given)}"])

    def _function(self, statement: Statement) -> Iterator[str]:
        name = str(statement.options["name"])
        forward = statement.bodies[0]
        made = enumerate(statement.outputs)
        outputs = [place for place, value in made if id(value) in self._used]
        outputs = outputs or [len(statement.outputs) - 1]
        taken = [self._name(value) for value in statement.inputs]
        outer = dict(self._names)
        yield f"class {name}(torch.autograd.Function):"
        yield f"{_INDENT}@staticmethod"
        more = int(str(statement.options.get("more_inputs", 0)))
        ignored = [f"more{place}" for place in range(more)]
        yield f"{_INDENT}def forward({', '.join(['ctx', *taken, *ignored])}):"
        lines = list(self._body(forward))
        saved = [self._names[id(value)] for value in forward.saved if id(value) in self._names]
        if saved:
            lines.append(f"ctx.save_for_backward({', '.join(saved)})")
        if forward.dirty:
            lines.append(f"ctx.mark_dirty({', '.join(self._names[id(v)] for v in forward.dirty)})")
        results = []
        for place in outputs:
            value = forward.returned[place]
            if value is not None and id(value) in self._names:
                results.append(self._names[id(value)])
        lines.append(f"return {', '.join(results) or taken[0]}")
        yield from _indented(_indented(lines))
        if len(statement.bodies) > 1:
            backward = statement.bodies[1]
            grads = [self._define(value) for value in backward.parameters]
            yield f"{_INDENT}@staticmethod"
            yield f"{_INDENT}def backward({', '.join(['ctx', *grads])}):"
            lines = [f"({', '.join(saved)},) = ctx.saved_tensors"] if saved else []
            lines += self._body(backward)
            given = [
                self._names.get(id(value), "None") if value is not None else "None"
                for value in backward.returned
            ]
            lines.append(f"return {', '.join(given) or 'None'}")
            yield from _indented(_indented(lines))
        self._names.update(outer)
        targets = ", ".join(self._define(statement.outputs[place]) for place in outputs)
        yield f"{targets} = {name}.apply({', '.join([*taken, *['None'] * more])})"


def _bodies(body: Body) -> Iterator[Body]:
    yield body
    for statement in body.statements:
        for inner in statement.bodies:
            yield from _bodies(inner)


def _indented(lines: Iterable[str]) -> list[str]:
    return [_INDENT + line if line else line for line in lines]
