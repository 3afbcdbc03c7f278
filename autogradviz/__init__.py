"""Shows what PyTorch's autograd did, and names the line that made it fail."""

from autogradviz._version import __version__ as __version__

_NAMES_BY_MODULE = {
    "analysis": (
        "Analysis BudgetFit CompiledOp CompiledRegion DeviceTime MemoryByKind MemoryPoint "
        "MemoryPrediction PhaseTimes PolicyOp "
        "Recomputation Region SavedBytes SavedTensor SelectivePolicy SourceLocation TensorHistory "
        "Transfer"
    ),
    "breakpoints.objects_at_stop": "LiveSave Stop",
    "breakpoints.stop_condition": "StopCondition watch",
    "causes": "Audit AuditEntry Certificate Explanation ExplanationStep UnverifiedNode",
    "checking.result": "CheckEntry CheckItem CheckResult",
    "checking.record_step_and_prove": "prove",
    "checking.try_each_relation": "check",
    "comparison.compare_traces": "compare",
    "comparison.result": "Comparison Difference",
    "diagnose": "CulpritRun Finding",
    "diagnose.finding": "Change",
    "diagnose.evidence.gradient_facts_that_failed": "FailedFact",
    "diagnose.evidence.memory_holders": "MemoryHolder MemoryHolders",
    "diagnose.evidence.values_not_finite": "NotFiniteEntry NotFiniteLedger",
    "errors": (
        "AlreadyRecordingError AutogradvizError AutogradvizWarning GraphTooLargeError "
        "MemorySnapshotError MissingExtraError "
        "MissingProgramError NativeBuildError NotAGraphError NotATraceError "
        "NothingToReproduceError OpsNotRecordedError OutputExistsError ProgramNotFoundError "
        "RecordingStateError StepNeedsValuesError StepWithoutLossError "
        "UnknownFormatError UnknownRegionError UnknownSlugError UnknownTargetError "
        "UnsupportedTorchError"
    ),
    "experiments.proof": "Proof",
    "memory_snapshots": "MemoryReconciliation MemoryRow",
    "event_log": "Log RankSummary",
    "explanations.read_pages": "Page explain",
    "planning.plan_step": "plan",
    "recording.enable": "disable enable",
    "recording.record_context_manager": "record",
    "render.live_page_and_widget": "LiveWidget",
    "render.distributed_runs": "RunWidget",
    "render.widget": "TraceWidget",
    "reproduce.reproduction": "Reproduction",
    "distributed_runs": "FirstDifference OddRank RankFile Run RunFinding UnreadableFile load",
    "trace": "Trace",
    "trace_method_results.compiled_region_view": "CompiledRegionView",
    "trace_method_results.flame_graph_view": "FlameGraphView",
    "trace_method_results.fold_view": "FoldView",
    "trace_method_results.graph_view": "GraphView graph",
    "trace_method_results.owners_of_tensor_or_node": "OwnerPath Owners owners",
}
"""The names that are imported on first access, so that ``import autogradviz`` is fast.

``__init__.pyi`` lists them for type checkers.
"""

_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = sorted(("__version__", "events", *_MODULES))  # noqa: PLE0605


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: object) -> None:
    """Register the ``%%autogradviz`` magic; ``%load_ext autogradviz`` calls it."""
    from autogradviz.notebook.magics import register

    register(shell)


def __getattr__(name: str) -> object:
    """Import a public name on first access."""
    from importlib import import_module

    if name == "events":
        return import_module("autogradviz.events")
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        if not name.startswith("_") and hasattr(__getattr__("Trace"), name):
            message += f"; a recording has it: trace.{name} of the trace that record() returns"
        raise AttributeError(message)
    value = getattr(import_module(f"autogradviz.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
