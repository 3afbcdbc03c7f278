"""Fixes are rewritten from the user's own statement."""

from __future__ import annotations

import pytest

from autogradviz.analysis import SourceLocation
from autogradviz.diagnose.source.statements_rewritten_as_fixes import (
    detached_store,
    detached_sum,
    safe_input,
    with_torch_random,
    without_detach,
)


def at(text, lineno=3):
    return SourceLocation(filename="missing.py", lineno=lineno, function="f", text=text)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("total += loss", "total += loss.detach()"),
        ("total = total + f(x) / 2", "total = total + (f(x) / 2).detach()"),
        ("self.total = loss + self.total", "self.total = loss.detach() + self.total"),
        ("kept.append(loss)", None),
        ("total = other + loss", None),
        ("total -= loss", None),
        ("total += (", None),
    ],
)
def test_what_a_sum_adds_is_detached(text, fix):
    assert detached_sum(at(text)) == fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("losses.append(loss)", "losses.append(loss.detach())"),
        ("self.last = out.loss", "self.last = out.loss.detach()"),
        ("log[step] = {'loss': loss, 'lr': lr}", "log[step] = {'loss': loss.detach(), 'lr': lr}"),
        ("buffer.append((x, loss))", "buffer.append((x, loss.detach()))"),
        ("buffer.append((x, y))", None),
        ("losses.append(f(loss))", None),
        ("loss = 3", None),
        ("losses.append(", None),
    ],
)
def test_what_a_container_keeps_is_detached(text, fix):
    assert detached_store(at(text), frozenset({"loss"})) == fix


@pytest.mark.parametrize(
    ("made", "chosen", "fix"),
    [
        (
            "std = torch.where(var > 0, var.sqrt(), 0.0)",
            "std = torch.where(var > 0, var.sqrt(), 0.0)",
            "std = torch.where(var > 0, torch.where(var > 0, var, 1.0).sqrt(), 0.0)",
        ),
        (
            "h = x.exp()", "y = torch.where(x < 9, h, x)",
            "h = torch.where(x < 9, x, 0.0).exp()",
        ),
        (
            "h = torch.sqrt(x)", "return torch.where(x == 0, x, h)",
            "h = torch.sqrt(torch.where(x == 0, 1.0, x))",
        ),
        ("h = x.sqrt() + y.sqrt()", "y = torch.where(x < 9, h, x)", None),
        ("h = x.sqrt()", "y = torch.where(x < 9, g, x)", None),
        ("h = x.sqrt()", "y = h.masked_fill(x < 9, 0)", None),
    ],
)  # fmt: skip
def test_the_input_is_chosen_by_the_condition_of_the_user(made, chosen, fix):
    assert safe_input(at(made), made and ("exp" if "exp" in made else "sqrt"), at(chosen)) == fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (
            "weights = torch.softmax(self.router(x).detach(), dim=-1)",
            "weights = torch.softmax(self.router(x), dim=-1)",
        ),
        ("return self.head(x.data)", "return self.head(x)"),
        ("y = x.detach() + z.detach()", "y = x + z"),
        ("y = z.detach() + (q - q.detach())", "y = z + (q - q.detach())"),
        ("y = x / x.detach()", None),
        ("y = z + (q - z).detach()", None),
        ("loss = mse_loss(x, x.detach())", None),
        ("loss = mse_loss(x.detach(), y.detach())", "loss = mse_loss(x, y)"),
        ("x.data = y", None),
        ("y = torch.tensor(x)", None),
    ],
)
def test_a_detach_is_removed(text, fix):
    assert without_detach(at(text)) == fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("if random.random() < self.p:", "if torch.rand(()).item() < self.p:"),
        ("s = random.uniform(0.5, 1.5)", "s = torch.empty(()).uniform_(0.5, 1.5).item()"),
        ("k = random.randint(0, n)", "k = torch.randint(0, n + 1, ()).item()"),
        ("k = np.random.randint(0, n)", "k = torch.randint(0, n, ()).item()"),
        ("x = x * np.random.rand()", "x = x * torch.rand(()).item()"),
        ("a = random.choice(acts)", "a = acts[torch.randint(len(acts), ()).item()]"),
        ("x = random.random() * random.betavariate(1, 2)", None),
        ("noise = np.random.rand(4, 4)", None),
        ("rng.random()", None),
        ("x = (", None),
    ],
)
def test_numbers_of_other_generators_are_drawn_by_torch(text, fix):
    assert with_torch_random(at(text)) == fix
