"""The view model: everything a renderer may draw, and nothing it has to work out.

One ``Scene`` serves the SVG, the report and the widget. It holds numbers, text and ids; all
text is plain (renderers escape it). Lists are indexed by id: ``scene.nodes[7].index == 7``.

**Direction.** Inputs are on top, the loss is below; an edge goes from ``source`` (nearer the
loss, drawn lower) to ``target`` (nearer the inputs, drawn higher), the way the gradient flows.

**Layout.** Each group is laid out once, by itself: ``SceneGroup.cells`` in ``rows`` (top to
bottom, each left to right), and ``links`` that run from cell to cell. Opening a group changes
coordinates only: ``autogradviz.scene.layout.coordinates`` turns rows into coordinates for any set
of open groups, and the viewer's ``layout/coordinates.js`` does the same arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

GroupKind: TypeAlias = Literal["root", "module", "region", "repeat", "page", "graph"]
CellKind: TypeAlias = Literal["node", "group", "bend", "top", "bottom"]
ChipState: TypeAlias = Literal["held", "released", "recomputed", "broken"]
GradState: TypeAlias = Literal["ok", "none", "unknown", "zero", "nan"]
RunState: TypeAlias = Literal["not_run", "ran", "failed"]
StorageState: TypeAlias = Literal["held", "released", "broken"]
MomentKind: TypeAlias = Literal["saved", "recomputed", "written", "unpacked", "cloned", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One saved tensor, drawn on the right of its node.

    A node's chips follow each other from ``CHIP_GAP`` right of its box; those of width 0 are not
    drawn but counted: "+2" behind the last one.
    """

    node: int  # index into nodes
    saved_id: int  # -1 of a tensor that a custom Function keeps on ctx
    slot: str  # "self"
    version: int | None
    seen_version: int | None  # another number than version where state is "broken"
    nbytes: int
    shape: str  # "4×12×256×256"
    dtype: str
    state: ChipState
    packed_by: str
    storage_id: int | None
    width: float
    saved_ns: int = -1  # when it was saved, -1 where unknown
    released_ns: int = -1  # when it was let go, -1 where it was not


@dataclass(frozen=True, slots=True, kw_only=True)
class Pennant:
    """One parameter, drawn on the left of the node that uses it.

    Parameters of one node whose gradients fared alike share a pennant: the first one's label
    names them all ("weight, bias") and the others have width 0.
    """

    node: int  # index into nodes
    name: str  # "h.0.attn.c_attn.weight"
    label: str  # "weight"
    shape: str
    grad: GradState
    shared: int  # how many nodes use it
    width: float
    norm: float | None = None  # L2, of the gradient; None where it was not read


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneNode:
    """One box: the forward op on the left, the backward node on the right."""

    index: int
    node_id: int  # the model's
    group: int
    op: str  # "softmax"; "" where unknown
    name: str  # "SoftmaxBackward0"
    module: str  # "h.0.attn"
    sequence_nr: int | None
    filename: str
    lineno: int  # 0 where unknown
    state: RunState
    error: bool  # a finding's victim
    writes: bool  # the op is the culprit write of a finding (pencil)
    recomputes: int
    runs: int
    duration_ns: int
    shape: str  # of the forward op's output
    compact: bool  # drawn as a small circle ("+"), name beside it
    op_width: float  # left part of the box
    name_width: float  # right part of the box
    left_width: float  # pennants, 0 without
    right_width: float  # chips (and the compact node's name), 0 without
    hooks: tuple[str, ...] = ()  # one line for each: "tensor hook clip, train.py:31, ran 2×"
    notes: tuple[str, ...] = ()  # what else is known, one line each: "a root of autograd.grad"
    born_ns: int = -1  # when its forward op ran, -1 where unknown
    runs_ns: tuple[int, ...] = ()  # start and end of each run; an end of -1 never came
    forward_ns: int = 0  # how long its forward op took
    region: int = -1  # index into regions: the checkpoint that it belongs to
    wrote: str = ""  # what its op wrote in place: "v0 → v1" (pencil)
    cloned: str = ""  # what it saved and gets a clone of, as a write came: "self · 3.1 MB"
    not_finite: str = ""  # "forward gave 3 NaN"; known if fingerprints were recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneEdge:
    """One gradient edge between drawn nodes, view-only chains folded away."""

    source: int  # index into nodes
    target: int
    views: int  # folded view ops
    on_path: bool  # leads to the failing node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place in a group's layout.

    ``ref`` is a node index ("node"), a group index ("group"), or -1. A "bend" is where a long
    link passes a row. "top" and "bottom" are the ports where links leave and enter the group;
    they fill the first and the last row.
    """

    kind: CellKind
    ref: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One line between cells of one group; it stands for one or more edges.

    ``path`` lists cells from the source (lower) to the target (higher), bends between. Where an
    end is an open group, ``source_port`` or ``target_port`` is the cell of *that* group at
    which the line goes on ("top" of the source group, "bottom" of the target group), else -1.
    A link between rows more than one apart and without bends is drawn as a stub at both ends.
    """

    path: tuple[int, ...]
    edges: tuple[int, ...]
    source_port: int
    target_port: int
    reversed: bool  # against the direction of the rows: collapsing made a cycle
    views: int  # folded in its edges; counted in the group that holds both ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneGroup:
    """A module, a checkpoint region, a run of identical blocks or a page of a long list."""

    index: int
    parent: int  # -1 for the root, which is group 0
    kind: GroupKind
    label: str  # "attn", "h.0 – h.10"
    type_name: str  # "CausalSelfAttention"
    path: str  # "h.0.attn"
    depth: int
    node_count: int
    nbytes: int  # saved, every storage once
    repeat: int  # identical blocks in it, 1 where it is no run
    checkpointed: bool  # the whole group lies in one checkpoint region
    recomputes: int
    state: RunState
    error: bool  # holds a finding's victim
    open: bool  # at first
    width: float  # of its box while closed
    header_width: float  # of its header's words while open; no line crosses them
    left_width: float  # pennants and chips of a closed group: none so far, 0
    right_width: float
    cells: tuple[Cell, ...]
    rows: tuple[tuple[int, ...], ...]  # cell numbers, top to bottom, left to right
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneLine:
    """One line of source, for excerpts."""

    filename: str
    lineno: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFinding:
    """One finding, ready to show."""

    slug: str
    title: str
    confidence: str
    explanation: str
    fix: str
    culprit_file: str
    culprit_line: int  # 0 where unknown
    culprit_text: str
    victim_file: str
    victim_line: int
    victim_text: str
    nodes: tuple[int, ...]  # indices into nodes
    region: int  # index into regions, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRegion:
    """One checkpoint region."""

    index: int
    region_id: int
    parent: int
    module: str
    function: str
    reentrant: bool
    early_stop: bool
    filename: str
    lineno: int
    saved: int
    recomputes: int
    outcome: str  # of the last recomputation, "" before one
    options: str = ""  # other than checkpoint's defaults, "debug=True, GraphExecGroup 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneDiffRow:
    """One aligned row of a region's forward and one recomputation."""

    region: int  # index into regions
    status: str  # PairStatus
    forward_nr: int  # nth op from 1, 0 where absent
    forward_op: str
    forward_shape: str
    forward_line: int
    recompute_nr: int
    recompute_op: str
    recompute_shape: str
    recompute_line: int
    filename: str
    policy: str = ""  # of selective checkpointing, "must save"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSpan:
    """One bar of the timeline."""

    kind: str
    label: str
    start_ns: int
    end_ns: int
    depth: int
    thread: int
    ref: int = -1  # a node's index, a recomputation's region; -1 where neither is drawn
    filename: str = ""  # of the line that began it
    lineno: int = 0  # 0 where unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStorage:
    """One storage that backward kept: a row of the lifelines."""

    index: int
    storage_id: int
    name: str  # "softmax out", "h.0.weight", "input"
    slots: tuple[str, ...]  # who saved it as what, "SoftmaxBackward0.result"
    nbytes: int
    shape: str  # of the tensor saved first
    dtype: str
    module: str  # that saved it first
    node: int  # index into nodes of the first that saved it, -1
    filename: str
    lineno: int  # 0 where unknown
    state: StorageState
    version: int | None  # when first saved
    seen_version: int | None  # another one, where backward found that
    holds: tuple[int, ...]  # start and end of each time that it is kept; an end of -1 never came
    keepers: tuple[str, ...]  # what keeps it when the recording ends, one line each


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneMoment:
    """One thing that happened to a storage; a storage's follow each other, the oldest first."""

    storage: int  # index into storages
    time_ns: int
    kind: MomentKind
    version: int | None  # after it
    op: str
    ok: bool  # False: backward found another version, or taking back failed
    filename: str
    lineno: int
    nbytes: int = 0  # that a clone takes


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChange:
    """Something around a checkpointed region that was not the same when it ran again."""

    region: int  # index into regions
    name: str  # "self.calls", "python random"
    before: str  # when forward began
    after: str  # when the recomputation began
    by_forward: bool  # the region's own forward changed it
    filename: str  # of the line that changed it, where that was seen
    lineno: int  # 0 where unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSavedDiff:
    """A tensor that a region's recomputation saved otherwise than its forward."""

    region: int  # index into regions
    position: int  # among what the region saved, from 0
    slot: str  # "bmm.mat2"
    before: str  # "float32 32×24×64", or "not saved"
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneModule:
    """One module: what it took and keeps, and what checkpointing it frees and costs."""

    path: str
    type_name: str
    forward_ns: int
    backward_ns: int
    nbytes: int  # kept by its own nodes and by no others
    checkpointed: bool  # it is already: the next two are what that did, else what it would do
    frees_nbytes: int
    costs_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneMemory:
    """One point of the saved-memory curve."""

    time_ns: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSummary:
    """The header's figures."""

    title: str
    subtitle: str
    torch_version: str
    nodes: int
    edges: int
    ops: int
    events: int
    storages: int
    peak_nbytes: int
    end_ns: int
    backwards: int
    regions: int
    recomputations: int
    error_type: str  # "" where nothing was raised
    error_message: str
    notices: tuple[str, ...]  # what the recorder says about itself; torn file
    torn: bool = False  # the recording stops early: its file is cut off or damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything a renderer may draw."""

    summary: SceneSummary
    groups: tuple[SceneGroup, ...]
    nodes: tuple[SceneNode, ...]
    edges: tuple[SceneEdge, ...]
    chips: tuple[Chip, ...]
    pennants: tuple[Pennant, ...]
    findings: tuple[SceneFinding, ...]
    regions: tuple[SceneRegion, ...] = ()
    diffs: tuple[SceneDiffRow, ...] = ()
    spans: tuple[SceneSpan, ...] = ()
    memory: tuple[SceneMemory, ...] = ()
    lines: tuple[SceneLine, ...] = ()
    storages: tuple[SceneStorage, ...] = ()
    moments: tuple[SceneMoment, ...] = ()
    modules: tuple[SceneModule, ...] = ()
    changes: tuple[SceneChange, ...] = ()
    saved_diffs: tuple[SceneSavedDiff, ...] = ()
