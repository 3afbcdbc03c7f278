"""Findings that need an accelerator, by the examples of their pages, and programs without them."""

import pytest

from autogradviz.explanations.read_pages import pages
from tests.accelerator.engines import run_program as run

__all__ = ["run"]
EXAMPLES = {page.slug: page.example for page in pages("findings") if page.on_accelerator}


@pytest.mark.parametrize("slug", EXAMPLES)
def test_page_example_gives_its_finding(run, slug):
    found = run("""
import autogradviz, functools
autogradviz.record = functools.partial(autogradviz.record, engine=ENGINE)
""", EXAMPLES[slug], """
first = trace.diagnose()[0]
answer([first.slug, first.culprit.text, first.confidence, first.explanation])
""")  # fmt: skip
    assert found[0] == slug
    assert found[1].endswith("# <-- named")
    assert found[2] != "certain"


def test_training_that_reads_its_loss_once_in_a_step_has_no_finding(run):
    found = run("import autogradviz", """
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to("sim")
optimizer = torch.optim.AdamW(model.parameters())
with autogradviz.record(model, engine=ENGINE) as trace:
    for step in range(3):
        x, y = torch.ones(4, 8).to("sim"), torch.ones(4, 1).to("sim")
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(loss.item())
    state = {name: value.cpu() for name, value in model.state_dict().items()}
answer([each.slug for each in trace.diagnose()])
""")  # fmt: skip
    assert found == []


def test_many_values_that_a_line_reads_in_a_step_are_one_finding_with_their_number(run):
    found = run("import autogradviz", """
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)]).to("sim")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 8, device="sim")
with autogradviz.record(model, engine=ENGINE) as trace:
    for step in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        norms = [p.grad.norm().item() for p in model.parameters()]
        optimizer.step()
answer([[each.title, each.culprit.text, each.confidence] for each in trace.diagnose()])
""")  # fmt: skip
    assert found == [[
        "The host waits for sim:0 at this line, 16 times in 2 steps",
        "norms = [p.grad.norm().item() for p in model.parameters()]",
        "hint",
    ]]  # fmt: skip
