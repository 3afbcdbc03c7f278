"""The events of a recording: the only schema of recordings and of trace files.

Events are facts in the past tense. They hold numbers and text but no tensors, so a trace keeps
nothing alive and opens without torch. A definition (``FrameSeen``, ``TensorSeen``, ``ModuleSeen``
…) comes before the first event that refers to it, so the readable part of a torn file can be
understood by itself.

Ids are small integers counted by the recorder, one counter for each kind of id, and never
``id()``. The type of a field says what it refers to (``TensorId``) and whether it quotes what
belongs to the user (``SourceText``); retention, the module filter and redaction derive from that.

Two fields of the same name have the same type in every event, because the file format has one
column for each name. To add an event, define it in the file of its subject, where the decorator
registers it, and import it here.

Example:
    >>> [event] = trace.log.of(autogradviz.events.BackwardStarted)
    >>> event.create_graph
    False
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from autogradviz.events.backward import BackwardEnded as BackwardEnded
from autogradviz.events.backward import BackwardRaised as BackwardRaised
from autogradviz.events.backward import BackwardStarted as BackwardStarted
from autogradviz.events.backward import FrozenTensorsFound as FrozenTensorsFound
from autogradviz.events.backward import GradAccumulated as GradAccumulated
from autogradviz.events.backward import GradientBuffersOffered as GradientBuffersOffered
from autogradviz.events.backward import NodeFinished as NodeFinished
from autogradviz.events.backward import NodeSeen as NodeSeen
from autogradviz.events.backward import NodeStarted as NodeStarted
from autogradviz.events.backward import NoOptimizerFound as NoOptimizerFound
from autogradviz.events.backward import OptimizerStepped as OptimizerStepped
from autogradviz.events.base import NO_ID as NO_ID
from autogradviz.events.base import Event as Event
from autogradviz.events.base import PackedBy as PackedBy
from autogradviz.events.checkpoint import CutOff as CutOff
from autogradviz.events.checkpoint import OpServed as OpServed
from autogradviz.events.checkpoint import Outcome as Outcome
from autogradviz.events.checkpoint import PolicyDecided as PolicyDecided
from autogradviz.events.checkpoint import PolicyRead as PolicyRead
from autogradviz.events.checkpoint import RecomputeStarted as RecomputeStarted
from autogradviz.events.checkpoint import RecomputeStopped as RecomputeStopped
from autogradviz.events.checkpoint import RegionCutOff as RegionCutOff
from autogradviz.events.checkpoint import RegionEntered as RegionEntered
from autogradviz.events.checkpoint import RegionExited as RegionExited
from autogradviz.events.compiled import BackwardCaptured as BackwardCaptured
from autogradviz.events.compiled import CacheDecided as CacheDecided
from autogradviz.events.compiled import CacheDecision as CacheDecision
from autogradviz.events.compiled import CompiledGraph as CompiledGraph
from autogradviz.events.compiled import CompiledGraphCaptured as CompiledGraphCaptured
from autogradviz.events.compiled import CompileEnded as CompileEnded
from autogradviz.events.compiled import CompileStarted as CompileStarted
from autogradviz.events.compiled import CompileTrigger as CompileTrigger
from autogradviz.events.compiled import HookInlined as HookInlined
from autogradviz.events.compiled import MemoryBudgetChanged as MemoryBudgetChanged
from autogradviz.events.compiled import OpCompiled as OpCompiled
from autogradviz.events.compiled import Recompiled as Recompiled
from autogradviz.events.compiled import RecomputeCause as RecomputeCause
from autogradviz.events.compiled import RecomputePlanned as RecomputePlanned
from autogradviz.events.compiled import RegionCompiled as RegionCompiled
from autogradviz.events.compiled import RegionRan as RegionRan
from autogradviz.events.compiled import RegionSource as RegionSource
from autogradviz.events.compiled import SlotKind as SlotKind
from autogradviz.events.compiled import SlotPlanned as SlotPlanned
from autogradviz.events.definitions_of_frames_and_tensors import CellSeen as CellSeen
from autogradviz.events.definitions_of_frames_and_tensors import (
    DistributedTensorSeen as DistributedTensorSeen,
)
from autogradviz.events.definitions_of_frames_and_tensors import FrameSeen as FrameSeen
from autogradviz.events.definitions_of_frames_and_tensors import ModuleSeen as ModuleSeen
from autogradviz.events.definitions_of_frames_and_tensors import ParameterSeen as ParameterSeen
from autogradviz.events.definitions_of_frames_and_tensors import SourceLineRead as SourceLineRead
from autogradviz.events.definitions_of_frames_and_tensors import StackSeen as StackSeen
from autogradviz.events.definitions_of_frames_and_tensors import (
    StorageAddressSeen as StorageAddressSeen,
)
from autogradviz.events.definitions_of_frames_and_tensors import StridesSeen as StridesSeen
from autogradviz.events.definitions_of_frames_and_tensors import TensorSeen as TensorSeen
from autogradviz.events.devices import DeviceCopied as DeviceCopied
from autogradviz.events.devices import DeviceTimeRead as DeviceTimeRead
from autogradviz.events.devices import StreamAction as StreamAction
from autogradviz.events.devices import StreamsOrdered as StreamsOrdered
from autogradviz.events.devices import StreamUsed as StreamUsed
from autogradviz.events.failed_allocations import OptimizerAlive as OptimizerAlive
from autogradviz.events.failed_allocations import OutOfMemory as OutOfMemory
from autogradviz.events.failed_allocations import OutOfMemoryLeft as OutOfMemoryLeft
from autogradviz.events.field_types import registered
from autogradviz.events.gradient_facts_of_verify import ChangedBy as ChangedBy
from autogradviz.events.gradient_facts_of_verify import FactKind as FactKind
from autogradviz.events.gradient_facts_of_verify import GradientFactFailed as GradientFactFailed
from autogradviz.events.gradient_facts_of_verify import GradientFactsChecked as GradientFactsChecked
from autogradviz.events.gradient_facts_of_verify import (
    GradientFactsNotChecked as GradientFactsNotChecked,
)
from autogradviz.events.hooks import ForwardHookRegistered as ForwardHookRegistered
from autogradviz.events.hooks import HookKind as HookKind
from autogradviz.events.hooks import HookRan as HookRan
from autogradviz.events.hooks import HookRegistered as HookRegistered
from autogradviz.events.losses_and_norms import GradientFound as GradientFound
from autogradviz.events.losses_and_norms import LeafGradientRead as LeafGradientRead
from autogradviz.events.losses_and_norms import LocalGradientNormRead as LocalGradientNormRead
from autogradviz.events.losses_and_norms import LossDivisorRead as LossDivisorRead
from autogradviz.events.losses_and_norms import LossRead as LossRead
from autogradviz.events.losses_and_norms import NormRead as NormRead
from autogradviz.events.losses_and_norms import NotFiniteSeen as NotFiniteSeen
from autogradviz.events.losses_and_norms import OutputNormRead as OutputNormRead
from autogradviz.events.losses_and_norms import ParameterNormRead as ParameterNormRead
from autogradviz.events.losses_and_norms import Place as Place
from autogradviz.events.losses_and_norms import SingularOperandRead as SingularOperandRead
from autogradviz.events.losses_and_norms import StepNormRead as StepNormRead
from autogradviz.events.memory_holders import HeldAs as HeldAs
from autogradviz.events.memory_holders import MemoryHeld as MemoryHeld
from autogradviz.events.memory_holders import MemoryHolderFound as MemoryHolderFound
from autogradviz.events.memory_holders import MemoryHoldersRead as MemoryHoldersRead
from autogradviz.events.module_calls_state_and_modes import ChangeKind as ChangeKind
from autogradviz.events.module_calls_state_and_modes import ContextTensorKept as ContextTensorKept
from autogradviz.events.module_calls_state_and_modes import EffectRepeated as EffectRepeated
from autogradviz.events.module_calls_state_and_modes import FunctionMarked as FunctionMarked
from autogradviz.events.module_calls_state_and_modes import Mode as Mode
from autogradviz.events.module_calls_state_and_modes import ModeChanged as ModeChanged
from autogradviz.events.module_calls_state_and_modes import ModuleEntered as ModuleEntered
from autogradviz.events.module_calls_state_and_modes import ModuleExited as ModuleExited
from autogradviz.events.module_calls_state_and_modes import (
    RequiresGradChanged as RequiresGradChanged,
)
from autogradviz.events.module_calls_state_and_modes import StateChange as StateChange
from autogradviz.events.module_calls_state_and_modes import StateChanged as StateChanged
from autogradviz.events.module_calls_state_and_modes import StateKind as StateKind
from autogradviz.events.module_calls_state_and_modes import ValueKind as ValueKind
from autogradviz.events.module_calls_state_and_modes import path_text as path_text
from autogradviz.events.operators_and_collectives import ArgumentsSeen as ArgumentsSeen
from autogradviz.events.operators_and_collectives import CollectiveCalled as CollectiveCalled
from autogradviz.events.operators_and_collectives import CollectiveWaited as CollectiveWaited
from autogradviz.events.operators_and_collectives import OpCalled as OpCalled
from autogradviz.events.operators_and_collectives import Phase as Phase
from autogradviz.events.operators_and_collectives import RandomDrawn as RandomDrawn
from autogradviz.events.placements_and_sharding import Conversion as Conversion
from autogradviz.events.placements_and_sharding import (
    GradientPlacementsChanged as GradientPlacementsChanged,
)
from autogradviz.events.placements_and_sharding import ParametersResharded as ParametersResharded
from autogradviz.events.placements_and_sharding import ParametersUnsharded as ParametersUnsharded
from autogradviz.events.placements_and_sharding import PlacementsChanged as PlacementsChanged
from autogradviz.events.placements_and_sharding import WholeParameterSeen as WholeParameterSeen
from autogradviz.events.ranks_and_process_groups import DataParallelSeen as DataParallelSeen
from autogradviz.events.ranks_and_process_groups import GradientBucketSeen as GradientBucketSeen
from autogradviz.events.ranks_and_process_groups import MeshSeen as MeshSeen
from autogradviz.events.ranks_and_process_groups import ProcessGroupSeen as ProcessGroupSeen
from autogradviz.events.ranks_and_process_groups import RankSeen as RankSeen
from autogradviz.events.recording import ErrorRaised as ErrorRaised
from autogradviz.events.recording import OlderSavesHeld as OlderSavesHeld
from autogradviz.events.recording import OldGraphHeld as OldGraphHeld
from autogradviz.events.recording import RecorderFailed as RecorderFailed
from autogradviz.events.recording import RecorderLimited as RecorderLimited
from autogradviz.events.recording import RecordingEnded as RecordingEnded
from autogradviz.events.recording import RecordingInterrupted as RecordingInterrupted
from autogradviz.events.recording import RecordingStarted as RecordingStarted
from autogradviz.events.recording import StepEnded as StepEnded
from autogradviz.events.recording import StepUnfinished as StepUnfinished
from autogradviz.events.recording import TensorsAlive as TensorsAlive
from autogradviz.events.recording import TensorsFreedAfterSteps as TensorsFreedAfterSteps
from autogradviz.events.saved_tensor_hooks import HooksDisabled as HooksDisabled
from autogradviz.events.saved_tensor_hooks import HooksEntered as HooksEntered
from autogradviz.events.saved_tensor_hooks import HooksLeft as HooksLeft
from autogradviz.events.saved_tensors import MutationCloned as MutationCloned
from autogradviz.events.saved_tensors import PackedWritten as PackedWritten
from autogradviz.events.saved_tensors import SavedStorageFreed as SavedStorageFreed
from autogradviz.events.saved_tensors import SlotSeen as SlotSeen
from autogradviz.events.saved_tensors import TensorMoved as TensorMoved
from autogradviz.events.saved_tensors import TensorReleased as TensorReleased
from autogradviz.events.saved_tensors import TensorSaved as TensorSaved
from autogradviz.events.saved_tensors import TensorUnpacked as TensorUnpacked
from autogradviz.events.saved_tensors import VersionBumped as VersionBumped
from autogradviz.events.saved_tensors import VersionRestored as VersionRestored
from autogradviz.events.storages_and_allocator import AllocatorRead as AllocatorRead
from autogradviz.events.storages_and_allocator import StorageResized as StorageResized
from autogradviz.events.storages_and_allocator import StoragesFreed as StoragesFreed

EVENT_TYPES: Final[tuple[type[Event], ...]] = registered()


_FIELD_NAMES: Final[dict[type[Event], tuple[str, ...]]] = {
    Event: tuple(field.name for field in fields(Event)),
    StateChange: tuple(field.name for field in fields(StateChange)),
    **{kind: tuple(field.name for field in fields(kind)) for kind in EVENT_TYPES},
}


def field_names(kind: type[Event]) -> tuple[str, ...]:
    """Return the names of an event's fields, in the order of its rows."""
    return _FIELD_NAMES[kind]
