"""Analysis of a recorded log: graph, saved tensors, regions, timeline and memory."""

from autogradviz.analysis.analysis import Analysis
from autogradviz.analysis.compiled_region_types import (
    CompiledHook,
    CompiledOp,
    CompiledRegion,
    CompiledSlot,
    GraphBreak,
    Recompile,
    RegionRun,
    SlotRun,
)
from autogradviz.analysis.device_copies_and_waits import DeviceWait, Transfer
from autogradviz.analysis.device_times import DeviceTime
from autogradviz.analysis.fit_memory_budget import BudgetFit
from autogradviz.analysis.memory_by_kind import MemoryByKind, MemoryPoint
from autogradviz.analysis.module_names import ModuleNames
from autogradviz.analysis.phase_times import PhaseTimes
from autogradviz.analysis.places_and_reasons_of_compiled_saves import SavedAt
from autogradviz.analysis.predict_memory import MemoryPrediction
from autogradviz.analysis.saved_memory import CountedStorage, SavedBytes, SavedMemory
from autogradviz.analysis.selective_checkpoints import PolicyOp, SelectivePolicy
from autogradviz.analysis.types import (
    Edge,
    Graph,
    HistoryEntry,
    HistoryKind,
    Hold,
    Hook,
    MemoryCurve,
    Module,
    Node,
    Notice,
    Op,
    OpPair,
    PairStatus,
    Parameter,
    RaisedError,
    Recomputation,
    Region,
    RunState,
    SavedTensor,
    SourceLocation,
    Span,
    SpanKind,
    Tensor,
    TensorHistory,
    Timeline,
    Unpack,
)
from autogradviz.event_log.training_steps import TrainingSteps

__all__ = [
    "Analysis",
    "BudgetFit",
    "CompiledHook",
    "CompiledOp",
    "CompiledRegion",
    "CompiledSlot",
    "CountedStorage",
    "DeviceTime",
    "DeviceWait",
    "Edge",
    "Graph",
    "GraphBreak",
    "HistoryEntry",
    "HistoryKind",
    "Hold",
    "Hook",
    "MemoryByKind",
    "MemoryCurve",
    "MemoryPoint",
    "MemoryPrediction",
    "Module",
    "ModuleNames",
    "Node",
    "Notice",
    "Op",
    "OpPair",
    "PairStatus",
    "Parameter",
    "PhaseTimes",
    "PolicyOp",
    "RaisedError",
    "Recompile",
    "Recomputation",
    "Region",
    "RegionRun",
    "RunState",
    "SavedAt",
    "SavedBytes",
    "SavedMemory",
    "SavedTensor",
    "SelectivePolicy",
    "SlotRun",
    "SourceLocation",
    "Span",
    "SpanKind",
    "Tensor",
    "TensorHistory",
    "Timeline",
    "TrainingSteps",
    "Transfer",
    "Unpack",
]
