"""The targets of a contrastive model have no gradient."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "src/fairseq2/models/wav2vec2/model.py"
CASE = Case(
    repository="facebookresearch/fairseq2",
    fix="8b8a14865",
    license="MIT",
    kind="detach",
    what="`seqs.detach().clone()` cuts the path from the quantizer to the feature extractor",
    paths=(FILE,),
)


class Frontend(nn.Module):
    first_pass_dropout = None

    def __init__(self):
        super().__init__()
        self.features, self.project = nn.Linear(4, 8), nn.Linear(8, 8)

    def extract_features(self, seqs, padding_mask):
        return self.features(seqs), padding_mask

    def process_features(self, seqs, padding_mask, masker):
        mask = torch.zeros(seqs.shape[:2], dtype=torch.bool)
        mask[:, 1::2] = True
        return self.project(seqs).masked_fill(mask[..., None], 0.0), padding_mask, mask


def build():
    names = {
        "torch": torch, "Tensor": torch.Tensor, "PaddingMask": object,
        "extract_masked_elements": lambda seqs, mask: seqs[mask].unflatten(0, (len(seqs), -1)),
    }  # fmt: skip
    statement(FILE, "def run_frontend(", names)
    model = nn.ModuleDict({
        "frontend": Frontend(), "encoder": nn.GRU(8, 8, batch_first=True),
        "quantizer": nn.Linear(8, 8),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    owner = SimpleNamespace(encoder_frontend=model["frontend"], masker=None)
    x = torch.randn(3, 8, 4)

    def step(number):
        optimizer.zero_grad()
        seqs, _, targets, mask = names["run_frontend"](owner, x, None)
        context = model["encoder"](seqs)[0][mask]
        targets = model["quantizer"](targets.flatten(0, 1))
        scores = nn.functional.normalize(context) @ nn.functional.normalize(targets).t()
        loss = nn.functional.cross_entropy(scores / 0.1, torch.arange(len(scores)))
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["frontend.features.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.2 * right.norm())
