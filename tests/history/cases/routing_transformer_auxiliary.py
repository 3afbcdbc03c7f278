"""An encoder and decoder drop the auxiliary loss of the encoder."""

import torch

from tests.history.case import Case

FILE = "routing_transformer/encoder_decoder.py"
CASE = Case(
    repository="lucidrains/routing-transformer",
    fix="460863b6f7",
    license="MIT",
    kind="unused",
    what="`context, _ =` drops the commitment loss of the encoder",
    paths=(FILE,),
    within={FILE: ((80, 83),)},
    stubs={
        "routing_transformer": "",
        "routing_transformer.routing_transformer": """
import torch
from torch import nn
class RoutingTransformerLM(nn.Module):
    '''Returns tokens or logits, and a loss that pulls features towards centers.'''
    def __init__(self, dim, num_tokens, **options):
        super().__init__()
        self.embed, self.out = nn.Embedding(num_tokens, dim), nn.Linear(dim, num_tokens)
        self.embeddings = options.get('return_embeddings', False)
        self.register_buffer('centers', torch.randn(4, dim))
        self.commit = nn.Linear(dim, dim)
    def forward(self, x, context=None):
        x = self.embed(x)
        features = self.commit(x)
        nearest = torch.cdist(features, self.centers).argmin(-1)
        commitment = nn.functional.mse_loss(features, self.centers[nearest])
        if context is not None:
            x = x + context.mean(1, keepdim=True)
        return (x if self.embeddings else self.out(x)), commitment
def update_kmeans_on_backwards(module):
    pass
""",
        "routing_transformer.autoregressive_wrapper": """
from torch import nn
class AutoregressiveWrapper(nn.Module):
    def __init__(self, net, ignore_index, pad_value):
        super().__init__()
        self.net = net
    def forward(self, x, return_loss, randomly_truncate_sequence, context):
        logits, commitment = self.net(x[:, :-1], context=context)
        return nn.functional.cross_entropy(logits.transpose(1, 2), x[:, 1:]) + commitment
""",
    },
)


def build():
    import sys

    from tests.history.excerpt import find

    sys.modules["routing_transformer"].__path__ = [str(find(FILE).parent)]
    from routing_transformer.encoder_decoder import RoutingTransformerEncDec

    model = RoutingTransformerEncDec(dim=8, enc_num_tokens=12, dec_num_tokens=12)
    optimizer = torch.optim.Adam(model.parameters())
    source, target = torch.randint(12, (2, 6)), torch.randint(12, (2, 6))

    def step(number):
        optimizer.zero_grad()
        loss = model(source, target, return_loss=True)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("enc.commit")
