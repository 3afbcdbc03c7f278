"""Values that a custom Function's backward returns, against the arguments of its forward.

The engine numbers the gradients that it checks by the tensors among the arguments. The node has one
edge for each of them, so the edges have the shapes that are expected. The ops of the failed
backward have the shapes that are returned.
"""

from __future__ import annotations

import ast
import re
from copy import copy
from dataclasses import dataclass
from itertools import combinations, permutations, zip_longest
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.custom_functions import applied_at, class_name
from autogradviz.diagnose.finding_text import join_names
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import NO_ID, ContextTensorKept, NodeSeen, NodeStarted
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Node, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

_COUNT: Final = re.compile(r"incorrect number of gradients \(expected (\d+), got (\d+)\)")
_INDEX: Final = re.compile(r"invalid gradient at index (\d+) - (.*)")
_SHAPES: Final = re.compile(r"got \[([\d, ]*)\] but expected shape compatible with \[([\d, ]*)\]")
_NOT_NONE: Final = re.compile(r"different than None at position (\d+)")  # counted from 1
_NO_TENSORS: Final = frozenset({"int", "float", "bool", "str", "tuple", "list", "dict", "None"})
_MOST_VALUES: Final = 5  # of which each order is tried
_ORDER: Final = "  # in the order of forward's arguments: "
_GENERAL: Final = "  # as many as forward has arguments, each of its shape"


@dataclass(slots=True)
class _Argument:
    """One argument of forward."""

    name: str
    is_tensor: bool | None = None  # None: unknown
    needs_gradient: bool = False
    shape: tuple[int, ...] | None = None  # None: unknown


@dataclass(slots=True)
class _Value:
    """One value that backward returns, or computes."""

    expression: ast.expr
    shape: tuple[int, ...] | None = None  # None: unknown
    is_checked: bool = False  # the engine accepted it

    @property
    def is_none(self) -> bool:
        return isinstance(self.expression, ast.Constant) and self.expression.value is None


def corrected_return(
    evidence: Evidence, node: Node, place: SourceLocation, message: str, *, is_only: bool
) -> tuple[str, str]:
    """Return a sentence on the refused gradient, and the fix.

    Args:
        evidence: the evidence.
        node: the node of the custom Function.
        place: the return statement of its backward.
        message: the message of PyTorch.
        is_only: whether backward has no other return statement.

    Returns:
        "" for a sentence if the message says all. The fix is a statement only if all that is known
        of its values fits the arguments; else it is a comment.
    """
    returned = _Returned(evidence, node, place, message)
    sentence, statement, words = returned.answer()
    return sentence, statement if statement and is_only else words


class _Returned:
    """The return statement of a backward, with what is known of its values."""

    def __init__(self, evidence: Evidence, node: Node, place: SourceLocation, message: str) -> None:
        self._evidence, self._node, self._place, self._message = evidence, node, place, message
        self._functions = dict(source.functions(place.filename))
        self._backward = self._functions.get(place.function)
        statements = source.simple_statements(place)
        found = [each for each in statements if isinstance(each, ast.Return)]
        self._statement = found[0] if len(found) == 1 else None
        value = self._statement.value if self._statement is not None else None
        is_several = isinstance(value, (ast.Tuple, ast.List))
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        self._values = [_Value(e) for e in parts if e and not isinstance(e, ast.Starred)]
        self._is_whole = len(self._values) == len(parts) and (
            is_several or isinstance(value, (ast.BinOp, ast.Name, ast.Call, ast.Constant))
        )
        self._is_list = isinstance(value, ast.List)
        self._read_values()
        self._arguments = self._arguments_of_forward()

    def answer(self) -> tuple[str, str, str]:
        """Return a sentence, a statement or "", and words to use in place of the statement."""
        count, refused = _COUNT.search(self._message), _INDEX.search(self._message)
        if count is not None:
            return self._of_count(int(count[1]), int(count[2]))
        if refused is not None:
            return self._of_index(int(refused[1]), refused[2].strip())
        position = _NOT_NONE.search(self._message)
        if position is not None:
            return self._of_no_tensor(int(position[1]) - 1)
        return "", "", "# each returned value is a tensor or None"

    # --- the three messages

    def _of_count(self, expected: int, got: int) -> tuple[str, str, str]:
        names = [each.name for each in self._arguments]
        of = f" (of {join_names(names)})" if len(names) == expected else ""
        words = f"# return {expected} values, not {got}: one for each argument of forward{of},\n"
        words += "# None for one that is no tensor or needs no gradient"
        if not self._is_whole or not self._are_tensors_known or len(names) != expected:
            return "", "", words
        if self._is_list and len(self._values) == expected:
            fits = self._fit(self._values)
            return "", self._returning(self._values) + _GENERAL if fits else "", words
        if len(self._values) != got or got > expected:
            return "", "", words
        found = list(self._completed())
        if len(found) == 1:
            added = [each for each in found[0] if each not in self._values and not each.is_none]
            variables = [ast.unparse(each.expression) for each in added]
            is_or_are = "is" if len(variables) == 1 else "are"
            sentence = f"{join_names(variables)} {is_or_are} computed, but not returned."
            return sentence if added else "", self._returning(found[0]) + _GENERAL, words
        return self._without_gradient(), "", words

    def _without_gradient(self) -> str:
        """Return a sentence on the arguments whose gradient is missing, if shapes decide it."""
        found = [
            [each for at, each in enumerate(self._arguments) if at not in places]
            for places in combinations(range(len(self._arguments)), len(self._values))
            if all(
                self._fits(value, self._arguments[at])
                for at, value in zip(places, self._values, strict=True)
            )
        ]
        if len(found) != 1:
            return ""
        missing = [each for each in found[0] if each.needs_gradient]
        named = [
            each.name if each.shape is None else f"{each.name}, of shape {list(each.shape)}"
            for each in missing
        ]
        return f"The gradient of {' and of '.join(named)}, is missing." if named else ""

    def _of_index(self, index: int, reason: str) -> tuple[str, str, str]:
        shapes = _SHAPES.search(reason)
        tensors = [n for n, each in enumerate(self._arguments) if each.is_tensor]
        if not self._are_tensors_known or index >= len(tensors):
            which = f"index {index} (counted by the tensors among forward's arguments)"
            return "", "", f"# the gradient at {which}: {reason}"
        at = tensors[index]
        argument = self._arguments[at]
        if shapes is None:
            return "", "", f"# the gradient at index {at}, of {argument.name}: {reason}"
        got, expected = _shape(shapes[1]), _shape(shapes[2])
        sentence = (
            f"The value at index {at} has shape {list(got)}, but it is the gradient of "
            f"{argument.name}, of shape {list(expected)}."
        )
        words = (
            f"# return at index {at} a gradient of {argument.name} of shape {list(expected)}, "
            f"not {list(got)}"
        )
        if self._is_whole and len(self._values) == len(self._arguments):
            argument.shape, self._values[at].shape = expected, got
            for each in tensors[:index]:
                self._values[each].is_checked = True
            found = self._reordered()
            if found:
                names = ", ".join(each.name for each in self._arguments)
                return sentence, self._returning(found) + _ORDER + names, words
        return sentence, "", words

    def _of_no_tensor(self, at: int) -> tuple[str, str, str]:
        name = self._arguments[at].name if at < len(self._arguments) else ""
        sentence = f"{name}, the argument of forward at index {at}, is no tensor." if name else ""
        words = f"# return None at index {at}" + (f", for {name}" if name else "")
        if (
            not self._is_whole
            or not self._are_tensors_known
            or len(self._values) != len(self._arguments)
        ):
            return sentence, "", words
        nothing = _Value(ast.Constant(None))
        given = iter([each for each in self._values if not each.is_none])
        moved = [next(given, nothing) if e.is_tensor else nothing for e in self._arguments]
        dropped = [nothing if n == at else each for n, each in enumerate(self._values)]
        for made in (dropped, moved) if next(given, None) is None else (dropped,):
            if self._fit(made):
                return sentence, self._returning(made) + _GENERAL, words
        return sentence, "", words

    # --- values that fit

    def _fits(self, value: _Value, argument: _Argument) -> bool:
        """Return whether nothing known is against a value as the gradient of an argument."""
        if value.is_none:
            return not argument.needs_gradient
        known = value.shape is not None and argument.shape is not None
        return bool(argument.is_tensor) and (not known or value.shape == argument.shape)

    def _fit(self, values: Sequence[_Value]) -> bool:
        return len(values) == len(self._arguments) and all(map(self._fits, values, self._arguments))

    def _completed(self) -> Iterator[list[_Value]]:
        """Yield the returned values with those added that are missing.

        A gradient that is missing is a variable that backward assigns and never reads.
        """
        nothing = _Value(ast.Constant(None))
        unused = self._unused_values()
        count = len(self._arguments)
        for places in combinations(range(count), len(self._values)):
            made: list[_Value | None] = [None] * count
            for at, value in zip(places, self._values, strict=True):
                made[at] = value
            added = []
            for at, argument in enumerate(self._arguments):
                if made[at] is not None:
                    continue
                of_shape = [e for e in unused if e.shape == argument.shape]
                if not argument.needs_gradient:
                    made[at] = nothing
                elif len(of_shape) == 1 and of_shape[0] not in added:
                    made[at] = of_shape[0]
                    added.append(of_shape[0])
            whole = [each for each in made if each is not None]
            if self._fit(whole):
                yield whole

    def _reordered(self) -> list[_Value] | None:
        """Return the only order of the values in which all fit, with the fewest moved."""
        count = len(self._values)
        if count > _MOST_VALUES:
            return None
        fitting: dict[int, list[list[_Value]]] = {}
        for order in permutations(range(count)):
            moved = sum(n != at for at, n in enumerate(order))
            made = [self._values[n] for n in order]
            if all(
                self._fits_at(value, argument, is_moved=n != at)
                for at, (n, value, argument) in enumerate(
                    zip(order, made, self._arguments, strict=True)
                )
            ):
                fitting.setdefault(moved, []).append(made)
        best = fitting[min(fitting)] if fitting else []
        return best[0] if len(best) == 1 else None

    def _fits_at(self, value: _Value, argument: _Argument, *, is_moved: bool) -> bool:
        """Return whether a value is known to fit, at its own place or at another one."""
        if not is_moved and (value.is_none or value.is_checked):
            return True
        is_known = value.is_none or value.shape is not None
        return is_known and argument.shape is not None and self._fits(value, argument)

    def _returning(self, values: Sequence[_Value]) -> str:
        expressions = [each.expression for each in values]
        value = expressions[0] if len(values) == 1 else ast.Tuple(expressions, ast.Load())
        statement = copy(self._statement)
        assert statement is not None
        statement.value = value
        return ast.unparse(statement)

    # --- what is known of the values

    def _read_values(self) -> None:
        """Read the shapes of the returned values from the ops of the failed backward."""
        inline = []
        for value in self._values:
            if isinstance(value.expression, ast.Name):
                value.shape = self._shape_of_variable(value.expression.id)
            elif not value.is_none:
                inline.append(value)
        if len(inline) == 1 and self._statement is not None:
            inline[0].shape = self._shape_computed(self._statement, inline[0].expression)

    def _assignments(self) -> dict[str, list[ast.AST]]:
        """Return the statements of backward that may assign each variable."""
        found: dict[str, list[ast.AST]] = {}
        for statement in source.own_nodes(self._backward) if self._backward is not None else ():
            if not isinstance(statement, (ast.stmt, ast.NamedExpr)):
                continue
            is_block = hasattr(statement, "body")
            for node in ast.iter_child_nodes(statement) if is_block else [statement]:
                if isinstance(node, ast.stmt) and is_block:
                    continue
                for part in ast.walk(node):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        found.setdefault(part.id, []).append(statement)
        return found

    def _shape_of_variable(self, name: str) -> tuple[int, ...] | None:
        assignments = self._assignments().get(name, [])
        arguments = getattr(getattr(self._backward, "args", None), "args", [])[1:]
        names = [each.arg for each in arguments]
        if not assignments and name in names:
            starts = self._evidence.analysis.log.of(NodeStarted)
            runs = [each for each in starts if each.node_id == self._node.node_id]
            given = runs[-1].inputs if runs else ()
            at = names.index(name)
            if at < len(given) and given[at] != NO_ID:
                return tuple(self._evidence.analysis.tensors[given[at]].shape)
            return None
        if len(assignments) != 1 or not isinstance(assignments[0], ast.Assign):
            return None
        statement = assignments[0]
        if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
            return None
        return self._shape_computed(statement, statement.value)

    def _shape_computed(self, statement: ast.stmt, expression: ast.expr) -> tuple[int, ...] | None:
        """Return the shape of an expression whose last op is the last one of its statement."""
        if not isinstance(expression, (ast.BinOp, ast.UnaryOp, ast.Call)):
            return None
        analysis, lines = self._evidence.analysis, lines_of(statement)
        on_lines = [
            each
            for _, each in source.statements_at(self._place.filename, statement.lineno)
            if each is not statement
        ]
        last = None
        for op in analysis.ops:
            if op.backward_node_id == self._node.node_id and any(
                frame.filename == self._place.filename
                and frame.function == self._place.function
                and frame.lineno in lines
                for frame in analysis.stack(op.stack_id)
            ):
                last = op
        if last is None or on_lines or len(last.outputs) != 1 or last.location is None:
            return None
        is_here = (last.location.function, last.location.lineno in lines)
        return tuple(last.outputs[0].shape) if is_here == (self._place.function, True) else None

    def _unused_values(self) -> list[_Value]:
        """Return the variables that backward assigns and never reads."""
        nodes = source.own_nodes(self._backward) if self._backward is not None else ()
        read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return [
            _Value(ast.Name(name, ast.Load()), shape)
            for name in self._assignments()
            if name not in read and (shape := self._shape_of_variable(name)) is not None
        ]

    # --- what is known of the arguments

    @property
    def _are_tensors_known(self) -> bool:
        return bool(self._arguments) and all(e.is_tensor is not None for e in self._arguments)

    def _arguments_of_forward(self) -> list[_Argument]:
        """Return the arguments of forward with the shapes that the edges of the node have."""
        owner = self._place.function.rpartition(".")[0]
        forward = self._functions.get(f"{owner}.forward")
        if not isinstance(forward, ast.FunctionDef) or forward.args.vararg is not None:
            return []
        given = [*forward.args.posonlyargs, *forward.args.args]
        if f"{owner}.setup_context" not in self._functions:
            given = given[1:]  # ctx
        count = _COUNT.search(self._message)
        if count is not None or self._is_whole:  # a call may leave out arguments with defaults
            given = given[: int(count[1]) if count is not None else len(self._values)]
        found = [_Argument(each.arg) for each in given]
        seen = self._evidence.analysis.log.of(NodeSeen)
        made = next((each for each in seen if each.node_id == self._node.node_id), None)
        if made is None:
            return found
        self._find_tensors(found, given, forward, len(made.next_node_ids))
        tensors = [each for each in found if each.is_tensor]
        if any(each.is_tensor is None for each in found):
            return found
        for argument, next_id, number in zip(
            tensors, made.next_node_ids, made.next_inputs, strict=True
        ):
            argument.needs_gradient = next_id != NO_ID
            argument.shape = self._shape_of_edge(next_id, number)
        return found

    def _shape_of_edge(self, node_id: int, number: int) -> tuple[int, ...] | None:
        analysis = self._evidence.analysis
        node = analysis.graph.nodes.get(node_id)
        if node is not None and node.op is not None and number < len(node.op.outputs):
            return tuple(node.op.outputs[number].shape)
        leaves = dict(analysis.log.fields(NodeSeen, "node_id", "tensor_id"))
        leaf = leaves.get(node_id)
        return tuple(analysis.tensors[leaf].shape) if leaf is not None and leaf != NO_ID else None

    def _find_tensors(
        self,
        found: list[_Argument],
        given: Sequence[ast.arg],
        forward: ast.FunctionDef,
        tensor_count: int,
    ) -> None:
        """Find which arguments are tensors, if their number decides it."""
        names = [each.name for each in found]
        is_decided = tensor_count == len(found)  # all of them are
        for name, is_tensor in () if is_decided else self._kinds_in_source(given, forward):
            if name in names:
                found[names.index(name)].is_tensor = is_tensor
        position = _NOT_NONE.search(self._message)
        if position is not None and int(position[1]) <= len(found):
            found[int(position[1]) - 1].is_tensor = False
        unknown = [each for each in found if each.is_tensor is None]
        left = tensor_count - sum(each.is_tensor is True for each in found)
        if left in {0, len(unknown)}:
            for each in unknown:
                each.is_tensor = left > 0
        else:
            for each in found:
                each.is_tensor = None

    def _kinds_in_source(
        self, given: Sequence[ast.arg], forward: ast.FunctionDef
    ) -> Iterator[tuple[str, bool]]:
        """Yield the arguments of which the source says whether they are tensors."""
        for argument, passed in zip_longest(given, self._passed()[: len(given)]):
            kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
            if "Tensor" in kind or kind in _NO_TENSORS or isinstance(passed, ast.Constant):
                yield argument.arg, "Tensor" in kind
        for node in source.own_nodes(forward):
            if isinstance(node, ast.Call) and source.last_name(node.func) == "save_for_backward":
                yield from ((part.id, True) for part in node.args if isinstance(part, ast.Name))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                kept = {each.attr for each in node.targets if isinstance(each, ast.Attribute)}
                if kept:  # on ctx, which is the node
                    yield node.value.id, bool(kept & self._tensors_on_node())

    def _tensors_on_node(self) -> set[str]:
        """Return the attributes of the node that are tensors, without parameters."""
        events = self._evidence.analysis.log.of(ContextTensorKept)
        return {each.attribute for each in events if each.node_id == self._node.node_id}

    def _passed(self) -> list[ast.expr]:
        """Return the arguments of the call that applied the Function; [] if it is not known."""
        place, name = applied_at(self._evidence, self._node), class_name(self._evidence, self._node)
        calls = [
            call
            for call in (source.calls_at(place.filename, place.lineno) if place is not None else ())
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "apply"
            and source.last_name(call.func.value) == name
        ]
        if len(calls) != 1 or any(isinstance(each, ast.Starred) for each in calls[0].args):
            return []
        return calls[0].args


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each.strip())
