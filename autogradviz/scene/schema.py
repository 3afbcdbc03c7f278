"""The view model: all data that renderers draw.

The SVG, the report and the widget are rendered from one ``Scene``. It holds numbers, text and
ids. Text is unescaped; renderers escape it. Tables are indexed by id: ``scene.nodes[7].index`` is
7. Times are nanoseconds since the start of the recording, widths are pixels.

**Direction.** Inputs are on top, the loss is at the bottom. An edge goes from ``source`` (nearer
the loss, drawn lower) to ``target`` (nearer the inputs, drawn higher), as the gradient flows.

**Layout.** Each group is laid out once, independently of the others: ``SceneGroup.cells`` in
``rows`` (top to bottom, each left to right), and ``links`` from cell to cell. Opening a group
changes only coordinates: ``autogradviz.scene.layout.coordinates`` computes them from the rows for
any set of open groups, and the viewer's ``layout/coordinates.js`` does the same arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

GroupKind: TypeAlias = Literal[
    "root", "module", "region", "repeat", "iteration", "page", "step", "graph", "compiled"
]
CellKind: TypeAlias = Literal["node", "group", "bend", "top", "bottom"]
SavedTensorState: TypeAlias = Literal["held", "released", "freed", "recomputed", "broken", "stale"]
GradState: TypeAlias = Literal["ok", "none", "unknown", "zero", "nan"]
RunState: TypeAlias = Literal["not_run", "ran", "failed"]
StorageState: TypeAlias = Literal["held", "released", "broken", "stale"]
StorageEventKind: TypeAlias = Literal[
    "saved", "recomputed", "written", "unpacked", "cloned", "released"
]
RibbonState: TypeAlias = Literal["read", "kept", "unread", "waiting", "broken"]
FoldEdge: TypeAlias = Literal["forward", "backward"]
FoldBarKind: TypeAlias = Literal["block", "region", "between"]
CompiledDetail: TypeAlias = Literal["blocks", "lines"]
CompiledShape: TypeAlias = Literal["rect", "path", "text"]
CompiledStepKind: TypeAlias = Literal["region", "break", "recompile"]
CompiledSlotKind: TypeAlias = Literal["value", "input", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensorBadge:
    """One saved tensor, drawn on the right of its node.

    The badges of a node follow each other, ``BADGE_GAP`` apart. Badges of width 0 are not drawn
    but counted: "+2 saved" after the last one.
    """

    node: int  # index into nodes
    saved_id: int  # -1 for a tensor that a custom Function keeps on ctx
    slot: str  # "self"
    version: int | None
    seen_version: int | None  # different from version if it was written; of a stale one, now
    nbytes: int  # of the storage that it keeps alive
    shape: str  # "4×12×256×256"
    dtype: str
    state: SavedTensorState
    packed_by: str
    storage_id: int | None
    width: float
    saved_ns: int = -1  # when it was saved, -1 if unknown
    released_ns: int = -1  # when it was released, -1 if it was not


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterBadge:
    """One parameter, drawn on the left of the node that uses it.

    Parameters of one node whose gradients have the same state share a badge: the label of the
    first one names them all ("weight, bias"), and the others have width 0.
    """

    node: int  # index into nodes
    name: str  # "h.0.attn.c_attn.weight"
    label: str  # "weight"
    shape: str
    grad: GradState
    shared: int  # number of nodes that use it
    width: float
    norm: float | None = None  # L2 norm of the gradient; None if not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneUnusedParameter:
    """One parameter that no node of the graph uses."""

    name: str  # "aux.weight"
    module: str  # "aux"
    shape: str
    requires_grad: bool  # when the recording began
    called: bool  # its module was
    state: str  # "frozen", "no gradient", or "never called"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFact:
    """One sentence about the recording that is true whether or not anything is wrong."""

    text: str  # "78 of 78 parameters got a gradient, norms 0.0039 to 1.3"
    view: str  # the view with the evidence
    good: bool
    topic: str  # "gradients", "writes", "memory" or "checkpoints"
    lines: int = 0  # of the audit, that the sentence is about: neither good nor bad
    storage_id: int = -1  # of the row that shows it, -1 without one


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneEvidence:
    """One number of what was checked."""

    topic: str  # of the group of checks
    figure: str  # "78 of 78"
    caption: str  # "parameters have a gradient"
    view: str  # the view with the evidence
    share: float  # of the whole that is as it should be, from 0 to 1; -1 without a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCheckGroup:
    """Kinds of problems of one topic that were looked for."""

    topic: str  # of facts with what the recording shows, or one of its own
    title: str
    kinds: tuple[str, ...]  # "A gradient is counted twice"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneBudgetPlan:
    """Modules to checkpoint so that saved tensors hold less at the peak, and what that costs."""

    step: int  # index into steps; all numbers are of it
    peak_nbytes: int  # predicted
    recomputed_nbytes: int  # of saved tensors that backward computes again
    added_ns: int  # predicted for the recomputations of a step, the median; -1 if none was reached
    modules: tuple[str, ...]
    of: int  # number of modules of their kinds
    name: str  # of the modules: "h.*", "h.0–5" of more, or "down.* and up.*"
    filename: str  # of the line that calls them and no others, "" for code
    lineno: int  # 0 if unknown
    before: str  # that line
    after: str  # with ``checkpoint`` for these modules; code for the built model without a line


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneNode:
    """One box: the forward op on the left, the backward node on the right."""

    index: int
    node_id: int  # of the analysis
    group: int
    op: str  # "softmax"; "" if unknown
    name: str  # "SoftmaxBackward0"
    module: str  # "h.0.attn"
    sequence_nr: int | None
    filename: str
    lineno: int  # 0 if unknown
    state: RunState
    error: bool  # a finding's victim
    writes: bool  # the op is the culprit write of a finding (pencil)
    recomputes: int
    runs: int
    duration_ns: int
    shape: str  # of the forward op's output
    compact: bool  # drawn as a small circle ("+") with its name on the right
    op_width: float  # left part of the box
    name_width: float  # right part of the box
    left_width: float  # of its parameter badges, 0 without
    right_width: float  # of its saved-tensor badges or a compact node's name, 0 without
    hooks: tuple[str, ...] = ()  # one line for each: "tensor hook clip, train.py:31, ran 2×"
    notes: tuple[str, ...] = ()  # further tooltip lines: "a root of autograd.grad"
    born_ns: int = -1  # when its forward op ran, -1 if unknown
    runs_ns: tuple[int, ...] = ()  # start and end of each run; -1 for a missing end
    forward_ns: int = 0  # duration of its forward op
    region: int = -1  # index into regions: the checkpoint that it belongs to
    wrote: str = ""  # versions before and after its op's in-place write: "v0 → v1" (pencil)
    cloned: str = ""  # saved tensors that were cloned before a write: "self · 3.1 MB"
    not_finite: str = ""  # "forward gave 3 NaN"; only if fingerprints were recorded
    saved_nbytes: int = 0  # of the storages that it keeps alive, recomputed ones included
    call: int = -1  # index into call_frames: the line of its forward op; -1 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneEdge:
    """One gradient edge between drawn nodes. Chains of views are folded into it."""

    source: int  # index into nodes
    target: int
    views: int  # number of folded view ops
    on_path: bool  # on the path from a root to the failing node


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneDetach:
    """A detached value that a node reads: no gradient flows from there to what computed it."""

    reader: int  # index into nodes
    producer: int  # index into nodes, -1 if it is not drawn
    filename: str  # of the line that detached it
    lineno: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One position in a group's layout.

    ``ref`` is a node index ("node"), a group index ("group"), or -1. A long link crosses a row at
    a "bend". "top" and "bottom" are the ports through which links leave and enter the group; they
    fill the first and the last row.
    """

    kind: CellKind
    ref: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One line between cells of one group, which represents one or more edges.

    ``path`` lists cells from the source (lower) to the target (higher), with bends in between. If
    an end is an open group, ``source_port`` or ``target_port`` is the cell of *that* group at
    which the line continues ("top" of the source group, "bottom" of the target group), else -1.
    A link between rows more than one apart and without bends is drawn as a stub at both ends.
    """

    path: tuple[int, ...]
    edges: tuple[int, ...]
    source_port: int
    target_port: int
    reversed: bool  # against the direction of the rows: collapsing made a cycle
    views: int  # folded into its edges; counted in the group that contains both ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneGroup:
    """A module, a checkpoint region, a run of identical blocks or a page of a large group.

    A group of the kind "compiled" holds the one node of a compiled region. While it is open, the
    picture of the region is drawn in the place of the node.
    """

    index: int
    parent: int  # -1 for the root, which is group 0
    kind: GroupKind
    label: str  # "attn", "h.0–10"
    type_name: str  # "CausalSelfAttention"
    path: str  # "h.0.attn"
    depth: int
    node_count: int
    nbytes: int  # saved by the forward; groups that have no node in common add up to the total
    recomputed_nbytes: int  # saved only by recomputations
    shared_nbytes: int  # that its nodes keep too, counted for nodes outside of it
    peak_nbytes: int  # of both, held at the peak of the recording
    repeat: int  # number of identical blocks in a run, else 1
    checkpointed: bool  # the entire group is one checkpoint region
    recomputes: int
    state: RunState
    error: bool  # contains a finding's victim
    open: bool  # initially
    width: float  # of its box while closed
    header_width: float  # of its header text while open; no line crosses it
    left_width: float  # badges of a closed group: not drawn yet, 0
    right_width: float
    cells: tuple[Cell, ...]
    rows: tuple[tuple[int, ...], ...]  # cell indices, top to bottom, left to right
    links: tuple[Link, ...]
    contents: str = ""  # of a compiled region: "12 + 30 ops, 4 recomputed"
    picture_width: float = 0.0  # of the compiled region's picture, 0 without one
    picture_height: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneLine:
    """One source line, for excerpts."""

    filename: str
    lineno: int
    text: str
    docstring: bool = False  # it is a line of one


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStep:
    """One training step."""

    number: int  # from 0; the first one is larger if older steps were dropped
    start_ns: int
    end_ns: int
    end_seq: int  # of the first event after it, -1 in the last one
    loss: float | None = None  # None if not recorded, or not finite


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCallFrame:
    """One line in the tree of calls; parents come first."""

    parent: int  # index into call_frames: the line that called it, -1 for an outermost line
    filename: str
    lineno: int
    function: str  # "Attention.forward"
    installed: bool  # of an installed package


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCallTime:
    """Self times, added up, of what one line ran for one module in one step and one phase."""

    call: int  # index into call_frames; of a node, the line that called backward; -1 if unknown
    origin: int  # of a node with a forward op, the line of that; else the same
    module: str  # the innermost one, the class of the model for its own forward, "" for none
    phase: str  # "forward", "backward", "recompute", "optimizer" or "outside"
    step: int  # index into steps, -1 without one
    count: int  # of ops, node runs or recomputations
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFinding:
    """One finding with the indices of its nodes and region."""

    slug: str
    title: str
    confidence: str
    explanation: str
    fix: str
    culprit_file: str
    culprit_line: int  # 0 if unknown
    culprit_text: str
    victim_file: str
    victim_line: int
    victim_text: str
    nodes: tuple[int, ...] = ()  # indices into nodes: its own, else those of its events and lines
    region: int = -1  # index into regions, -1 without one
    mechanism: str = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCauseStep:
    """One step of an answer: an effect of one line. Steps of several answers are stored once."""

    text: str
    filename: str
    lineno: int  # 0 if unknown
    line: str  # "scale = x.detach().mean()"
    nodes: tuple[int, ...]  # indices into nodes: those of its events, else those of its line
    time_ns: int  # of its first event, -1 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneAnswer:
    """One answer to "why?". A widget asks Python for answers that are not stored."""

    subject: str  # "node 12", "storage 3", "finding 0": an index; "parameter down.weight", "error"
    target: str  # "encoder.weight"
    question: str  # "no gradient"
    ordinary: bool  # nothing is wrong
    steps: tuple[int, ...]  # indices into cause_steps: the symptom, …, the cause, alternatives
    alternatives: int  # number of alternatives among the steps
    to_record: str  # what to record to find out more, "" if nothing is missing
    fix: str = ""  # of the line at the last step that is no alternative


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneQuestion:
    """A question on the recording that the search answers."""

    pattern: str  # regular expression for what is asked, in lower case
    listed: str  # the question as it is proposed, "" if it is not
    sentence: str
    labels: tuple[str, ...]  # of the bars of the answer
    amounts: tuple[str, ...]  # of each bar, "12 MB"
    shares: tuple[int, ...]  # of each bar, in thousandths
    kinds: tuple[str, ...]  # of saved tensors, which give colors; "" without one
    asks: tuple[str, ...]  # questions on the tensors or parameters that may be meant
    filename: str  # "" without a line
    lineno: int
    line: str
    fix: str
    view: str  # what shows it
    storage: int = -1  # index into storages: the one that it is about


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStory:
    """The events of one finding, in the order they happened in."""

    finding: int  # index into findings
    steps: tuple[int, ...]  # indices into cause_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneAuditEntry:
    """One entry of the audit: the effect of one line by one mechanism."""

    mechanism: str  # "cut"
    word: str  # what a reader is shown for it, "no gradient"
    meaning: str  # of the mechanism, "discards gradients that no step has used"
    glyph: str  # lines on a 16×16 grid, as the data of an SVG path
    steps: tuple[int, ...]  # indices into cause_steps: line and effect, lines that are as good
    confidence: str
    explanation: str
    fix: str


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
    outcome: str  # of the last recomputation, "" without one
    options: str = ""  # non-default options of checkpoint, "debug=True, GraphExecGroup 0"
    freed_nbytes: int = 0  # of the storages that it does not hold until its recomputation
    held_nbytes: int = 0  # of the arguments that it holds for its recomputation
    recompute_ns: int = 0  # of all its recomputations, without idle time
    step: int = -1  # index into steps, -1 without one


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneDiffRow:
    """One aligned row of a region's forward and one recomputation."""

    region: int  # index into regions
    status: str  # PairStatus
    forward_nr: int  # number of the op from 1, 0 if there is none
    forward_op: str
    forward_shape: str
    forward_line: int
    recompute_nr: int
    recompute_op: str
    recompute_shape: str
    recompute_line: int
    filename: str
    recompute_file: str = ""  # of the recomputation's op, "" without one
    policy: str = ""  # decision of selective checkpointing, "must save"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSpan:
    """One interval or event of the timeline."""

    kind: str
    label: str
    start_ns: int
    end_ns: int
    depth: int
    thread: int
    ref: int = -1  # index of a node or of a recomputation's region, else -1
    filename: str = ""  # of the line that started it
    lineno: int = 0  # 0 if unknown
    lane: str = ""  # for the kind "device": the device and its stream


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStorage:
    """One storage held for backward: a row of the lifelines view."""

    index: int
    storage_id: int
    name: str  # "att" if it was assigned to a variable, "dropout mask", "h.0.weight", "input"
    slots: tuple[str, ...]  # the slots that saved it, "SoftmaxBackward0.result"
    nbytes: int
    shape: str  # of the tensor saved first
    dtype: str
    module: str  # the first module that saved it
    output_of: str  # path of the module that the name "c_fc out" is of, "" for other names
    node: int  # index of the first node that saved it, -1 if it is not drawn
    filename: str
    lineno: int  # 0 if unknown
    state: StorageState
    version: int | None  # when first saved
    seen_version: int | None  # a different version that backward found or would find, else None
    holds: tuple[int, ...]  # start and end of each interval in which it is held; -1 without an end
    keepers: tuple[str, ...]  # the saved tensors that hold it at the end of the recording
    call: int = -1  # index into call_frames: where it was created; -1 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSlotReason:
    """Why nodes of one class save a slot."""

    slot: str  # "SoftmaxBackward0.result"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCountedStorage:
    """One storage that saved tensors keep alive for backward, for sums.

    There is one for each such storage of the recording: nothing is left out.
    """

    storage_id: int
    nbytes: int
    node: int  # index of the node that sums count it for, -1 if it is not drawn
    module: str
    filename: str
    lineno: int  # 0 if unknown
    recomputed: bool  # only a recomputation saved it
    at_peak: bool  # held at the peak of the recording
    holds: tuple[int, ...]  # start and end of each interval in which it is held; -1 without an end
    call: int = -1  # index into call_frames: the line that sums count it for; -1 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSavedKind:
    """One kind of saved tensors, with its color in light and in dark pictures."""

    name: str  # "activation"
    title: str  # "inputs and outputs of nonlinearities"
    light: str
    dark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFold:
    """One turn of the fold: what one backward reads, from its forward on."""

    index: int
    label: str  # "backward 2", "" for the only one
    sentence: str  # what fills the memory
    step: int  # index into steps, -1 without one
    start_ns: int  # of the first save
    turn_ns: int  # when backward starts, -1 without one
    end_ns: int
    forward_ns: int  # of the forwards up to its backward, with Python and without idle time
    backward_ns: int  # with recomputations
    nbytes: int  # of all its ribbons
    shared_nbytes: int  # of storages that its backward reads too: ribbons of earlier folds
    shared: tuple[int, ...]  # indices of those into counted_storages
    peak_nbytes: int  # the most that its ribbons hold at once
    peak_ns: int  # when they do last, -1 if they hold nothing
    held_nbytes: int  # at the end of the recording
    kinds: tuple[str, ...]  # of what is held at its peak, the largest first
    kind_nbytes: tuple[int, ...]
    drawn: bool  # its ribbons are stored


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFoldBar:
    """One bar of an edge of the fold: ops of a forward, or nodes of a backward."""

    fold: int  # index into folds
    edge: FoldEdge
    kind: FoldBarKind
    block: str  # "h.0", "" for a line
    until: str  # the last block of a compiled region that is several, "" otherwise
    lineno: int  # of a line, 0 otherwise
    start: int  # positions, as those of ribbons
    end: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRibbon:
    """One ribbon of the fold: a storage, or storages of one kind and block.

    Edges are pairs of positions, from 0 on the left to 100,000 on the right.
    """

    fold: int  # index into folds
    kind: str  # "activation"; ``node_boxes_and_badges.py`` has them
    label: str  # "Gelu input"
    name: str  # of the variable, "" if unknown
    block: str  # "h.0"
    module: str  # "h.0.mlp", "" of several
    filename: str
    lineno: int  # 0 if unknown
    node: int  # index of the first node that saved it, -1 if it is not drawn
    nbytes: int
    members: tuple[int, ...]  # indices into counted_storages, none if it is kept elsewhere
    count: int  # of its storages
    top: tuple[int, ...]  # as wide as its ``forward_ns``
    waist: tuple[int, ...]  # its bytes
    bottom: tuple[int, ...]  # as its ``backward_ns``; empty if it was not read
    forward_ns: int  # of ops of its block, until its save
    backward_ns: int  # of nodes of its block and what they recompute, until its read
    state: RibbonState
    recomputed: bool  # only a recomputation saved it: it begins below the turn
    elsewhere: bool  # hooks copied it
    written: int  # where a write made it stale: 25,000 in the forward, 75,000 in backward, or -1
    written_by: str  # "mul_ train.py:12"
    saved_ns: int
    read_ns: int  # -1 if it was not
    freed_ns: int  # of one storage, -1 if it is held


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStorageEvent:
    """One event in the history of a storage. Events are sorted by storage and time."""

    storage: int  # index into storages
    time_ns: int
    kind: StorageEventKind
    version: int | None  # after the event
    op: str
    ok: bool  # False for an unpack that failed or found something else, and a harmful write
    filename: str
    lineno: int
    nbytes: int = 0  # size of a clone


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChange:
    """A state that differed between the start of a region's forward and its recomputation."""

    region: int  # index into regions
    name: str  # "self.calls", "python random"
    before: str  # at the start of the forward
    after: str  # at the start of the recomputation
    by_forward: bool  # the region's forward changed it
    filename: str  # of the line that changed it, or of the only one that updates it; "" if unknown
    lineno: int  # 0 if unknown
    # After that line in the forward and in the recomputation, if it adds a number; else "".
    before_next: str = ""
    after_next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSavedDiff:
    """A saved tensor whose metadata differ between a region's forward and its recomputation."""

    region: int  # index into regions
    position: int  # among the region's saves, from 0
    slot: str  # "bmm.mat2"
    before: str  # "float32 32×24×64", or "not saved"
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneModuleCall:
    """One call of a module in the forward, to predict the effect of checkpointing it."""

    parent: int  # index of the enclosing call, -1 for none
    module: str
    step: int
    recompute_ns: int
    entered_seq: int
    unpacked_seqs: tuple[int, ...]  # when each backward unpacked the first tensor that it saved
    released_seq: int  # when backward had released all of them, -1 if never
    inputs: tuple[int, ...]  # indices into storage_sizes: read, but not created in the call
    copied: int  # bytes that offloading it copies, without the calls inside it
    fixed: bool  # in a checkpoint region, with a compiled one, or of an unknown graph


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneHeldSave:
    """One storage that a module call saved and keeps alive."""

    storage: int  # index into storage_sizes
    call: int  # index into module_calls, -1 for none
    created_in: int  # index of the innermost call that created the storage, -1 for none
    start_seq: int
    end_seq: int  # -1 if it was not released
    used_seqs: tuple[int, ...]  # until when each backward would hold it, computed again


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStorageSize:
    """The size of a storage in ``held_saves``."""

    storage_id: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneComparisonRow:
    """One module or source line of two recordings. Each pair is (before, after)."""

    kind: str  # "total", "phase", "module" or "line"
    merged: bool  # of the rows in which numbered modules are added up; the others are separate
    depth: int
    label: str  # "attn", "att = att.softmax(-1)"
    module: str
    status: str  # "same", "changed", "added" or "removed"
    lines: tuple[int, ...]  # line numbers, 0 if unknown
    nodes: tuple[int, ...]  # numbers of drawn nodes
    other_nodes: str  # of a line in one recording only: "+ReluBackward0 ×2"
    saved: tuple[int, ...]  # bytes that the forward saved
    recomputed: tuple[int, ...]  # bytes that only recomputations saved
    at_peak: tuple[int, ...]  # bytes of both, held at the peak
    time_ns: tuple[int, ...]  # of a phase, or self time of all phases, in these steps:
    norm_before: float | None  # L2 norm of the gradients of the module's parameters
    norm_after: float | None
    first_nodes: tuple[int, ...]  # indices in the two scenes, -1 without one
    steps: tuple[int, ...] = ()  # number of steps whose times count, at least 1
    left_out: tuple[int, ...] = ()  # 1 if the first step, which is cold, does not count
    least_ns: tuple[int, ...] = ()  # of a phase: its time in the shortest step
    most_ns: tuple[int, ...] = ()  # and in the longest one


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneComparedText:
    """One difference as text, or one finding."""

    kind: str  # "finding" or "difference"
    aspect: str  # of a difference: "ops"; of a finding: "same", "added" or "removed"
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneLiveMemory:
    """The bytes of one kind of all memory, at the peak of all of it."""

    kind: str  # "optimizer state"; the name of a device without a counter, if they are unknown
    nbytes: int  # -1 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneLivePoint:
    """All memory after one event, by kind; the sum of the kinds is all of it."""

    time_ns: int
    parameters: int  # with buffers
    optimizer_state: int
    gradients: int
    saved: int  # saved tensors, and those that recomputations save
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneMemory:
    """One point of the saved-memory curve."""

    time_ns: int
    nbytes: int
    seq: int = -1  # the number of the event


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSummary:
    """Title and figures of a recording, for headers."""

    title: str
    subtitle: str
    root: str  # the class that begins the names of all modules, "" without one
    torch_version: str
    nodes: int
    edges: int
    ops: int
    events: int
    storages: int  # that saved tensors kept alive for backward
    storage_rows: int  # of the lifelines, before the smallest ones were left out
    spans: int  # and markers of the timeline, before some were left out
    peak_nbytes: int
    saved_nbytes: int
    recomputed_nbytes: int
    released_nbytes: int
    held_nbytes: int  # at the end of the recording
    offloaded_nbytes: int
    end_ns: int
    backwards: int
    regions: int
    recomputations: int
    error_type: str  # "" without an exception
    error_message: str
    notices: tuple[str, ...]  # failures and limits of the recorder, problems of the file
    compared_with: str = ""  # title of the other recording
    is_before: bool = False  # the earlier one of two recordings that are compared
    torn: bool = False  # the file is truncated or damaged
    idle_ns: tuple[int, ...] = ()  # start and end of each long interval in which nothing ran
    audited: bool = False  # audit entries and answers are stored
    older_nbytes: int = 0  # that steps hold which ``keep_steps`` has dropped, in no other sum
    older_steps: int = 0  # the number of these steps
    steps_text: str = ""  # "3 steps and one that did not end"
    without_checkpoints_nbytes: int = 0  # about the peak without checkpoints, 0 if unknown
    warm_up: float = 0.0  # how many times as long as each other step step 0 took, 0 if not longer
    folded_text: str = ""  # what the nodes are that are not drawn as boxes
    fold_first: bool = False  # the fold is displayed first, not the graph
    checkpoint_code: str = ""  # statements that checkpoint the modules "{names}" of the built model


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCompiledRegion:
    """One region that torch.compile made."""

    index: int
    region_id: int
    name: str  # "forward [0/1]"
    subtitle: str  # "aot_eager · 12 forward ops · 20 backward ops"
    planned: str  # why the pictures show a plan, "" if they show what runs
    notes: tuple[str, ...]  # the cache's decision, what could not be read
    saved: str  # bytes of its saved values, as in its picture: "4.3 MB + 607 kB inputs"
    filename: str  # of the line where its graph ended
    lineno: int  # 0 if unknown
    nodes: tuple[int, ...]  # indices of the nodes of its runs
    guards: tuple[str, ...]  # lines of the tree of compilations, none if it is the only one


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCompiledPicture:
    """One picture of a compiled region: a list of marks with coordinates."""

    index: int
    region: int  # index into compiled_regions
    detail: CompiledDetail  # one column for each block, or for each line
    width: float
    height: float
    legend: int  # index into compiled_marks of its first mark, which all that follow belong to
    hooks: bool  # has ribbons with two widths, before and after a hook
    initial: bool  # displayed first


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCompiledMark:
    """One shape of a picture, in the order of drawing.

    A rectangle has a position and a size. A path has its data in ``text`` and, if it is a line,
    its thickness in ``width``. A text has its start or its middle at ``x`` and its baseline at
    ``y``; its ``width`` is the available space, 0 if it is unlimited. The style determines
    colors and font.
    """

    picture: int  # index into compiled_pictures
    shape: CompiledShape
    style: str
    x: float
    y: float
    width: float
    height: float
    text: str
    item: int  # index into compiled_items, -1 without one


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCompiledItem:
    """A part of a picture that can be selected: a column, ops, or a ribbon."""

    title: str
    subtitle: str
    lines: tuple[str, ...]  # one for each op
    slots: tuple[int, ...]  # indices into compiled_slots
    filename: str
    lineno: int  # 0 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCompiledSlot:
    """A value that the forward of a compiled region saves for its backward."""

    region: int  # index into compiled_regions
    name: str
    kind: CompiledSlotKind
    description: str  # "float32 4×32×64"
    nbytes: int
    reason: str  # one sentence
    remedy: str  # what would make the backward compute it instead, "" if unknown
    hook: str  # the effect of its saved-tensor hooks, "" without them
    filename: str
    lineno: int  # 0 if unknown
    storage: int  # index into storages of its last run, -1 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCompiledStep:
    """One entry of the strip of compiled regions, in the order of compilation."""

    kind: CompiledStepKind
    title: str
    text: str
    hint: str
    filename: str
    lineno: int  # 0 if unknown
    region: int  # index into compiled_regions, -1 for a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All data that renderers draw."""

    summary: SceneSummary
    groups: tuple[SceneGroup, ...]
    nodes: tuple[SceneNode, ...]
    edges: tuple[SceneEdge, ...]
    saved_badges: tuple[SavedTensorBadge, ...]
    parameter_badges: tuple[ParameterBadge, ...]
    findings: tuple[SceneFinding, ...]
    detaches: tuple[SceneDetach, ...] = ()
    unused_parameters: tuple[SceneUnusedParameter, ...] = ()
    facts: tuple[SceneFact, ...] = ()
    checks: tuple[SceneCheckGroup, ...] = ()
    evidence: tuple[SceneEvidence, ...] = ()
    regions: tuple[SceneRegion, ...] = ()
    diffs: tuple[SceneDiffRow, ...] = ()
    spans: tuple[SceneSpan, ...] = ()
    memory: tuple[SceneMemory, ...] = ()
    memory_without_checkpoints: tuple[SceneMemory, ...] = ()
    live_memory: tuple[SceneLiveMemory, ...] = ()
    live_points: tuple[SceneLivePoint, ...] = ()
    lines: tuple[SceneLine, ...] = ()
    steps: tuple[SceneStep, ...] = ()
    call_frames: tuple[SceneCallFrame, ...] = ()
    call_times: tuple[SceneCallTime, ...] = ()
    storages: tuple[SceneStorage, ...] = ()
    counted_storages: tuple[SceneCountedStorage, ...] = ()
    saved_kinds: tuple[SceneSavedKind, ...] = ()
    folds: tuple[SceneFold, ...] = ()
    ribbons: tuple[SceneRibbon, ...] = ()
    fold_bars: tuple[SceneFoldBar, ...] = ()
    storage_events: tuple[SceneStorageEvent, ...] = ()
    slot_reasons: tuple[SceneSlotReason, ...] = ()
    module_calls: tuple[SceneModuleCall, ...] = ()
    budget_plans: tuple[SceneBudgetPlan, ...] = ()
    held_saves: tuple[SceneHeldSave, ...] = ()
    storage_sizes: tuple[SceneStorageSize, ...] = ()
    comparison_rows: tuple[SceneComparisonRow, ...] = ()
    compared_texts: tuple[SceneComparedText, ...] = ()
    changes: tuple[SceneChange, ...] = ()
    saved_diffs: tuple[SceneSavedDiff, ...] = ()
    compiled_regions: tuple[SceneCompiledRegion, ...] = ()
    compiled_pictures: tuple[SceneCompiledPicture, ...] = ()
    compiled_marks: tuple[SceneCompiledMark, ...] = ()
    compiled_items: tuple[SceneCompiledItem, ...] = ()
    compiled_slots: tuple[SceneCompiledSlot, ...] = ()
    compiled_steps: tuple[SceneCompiledStep, ...] = ()
    cause_steps: tuple[SceneCauseStep, ...] = ()
    audit_entries: tuple[SceneAuditEntry, ...] = ()
    answers: tuple[SceneAnswer, ...] = ()
    questions: tuple[SceneQuestion, ...] = ()
    stories: tuple[SceneStory, ...] = ()
