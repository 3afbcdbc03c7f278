// The nodes that the engine runs: start, end, incoming gradients, and the engine call of each.
//
// The engine reports each run in the ``BACKWARD_FUNCTION`` scope, between the hooks before the node
// and those after it. A run is recorded as finished when its thread starts the next node, when a hook
// of another node runs, or when the backward has ended without an error; the time of that event is the
// time at which the node returned.
#pragma once

#include "current_streams.h"
#include "device_spans.h"
#include "graph.h"
#include "op_observer.h"

namespace torch::autograd {
TORCH_API int get_current_graph_task_id();
}

namespace agv {
namespace {

struct RunContext : at::ObserverContext {
  QuietScope scope;
  uint64_t generation;  // of the recording; a hook may end it and begin another one
  int64_t backward_id;
  int64_t node_id;
  int exceptions;
  bool is_timed = false;  // on its device
};

// Record that a run has finished. ``Recording::mutex`` is held.
void finish_run(Recording& recording, const Run& run, bool keep_graph) {
  int64_t time_ns = run.ended_ns == 0 ? now_ns() : run.ended_ns;
  auto emit = [&](Kind kind, int64_t tensor) {
    size_t start = recording.begin_event(kind, recording.seq(), time_ns, run.thread, NO_ID);
    recording.put(run.backward_id);
    recording.put(run.node_id);
    if (tensor != NO_ID) recording.put(tensor);
    recording.end_event(start);
  };
  NodeRecord& record = *static_cast<NodeRecord*>(run.record.get());
  emit(Kind::node_finished, NO_ID);
  if (record.leaf != NO_ID && run.has_gradient) {
    recording.reached_leaves.emplace_back(record.leaf, run.backward_id);
    emit(Kind::grad_accumulated, record.leaf);
  }
  if (!keep_graph) release_slots(recording, record, run.thread);
}

// Record that the nodes have finished that ran on this thread before the one that starts; see
// NOTE [ Threads of devices ]. ``Recording::mutex`` is held.
void finish_last(Recording& recording, ThreadContext& thread) {
  size_t open = recording.runs_before(thread.number);
  while (thread.running.size() > open) {
    Run run = std::move(thread.running.back());
    thread.running.pop_back();
    const EngineCall* call = recording.call_with_id(run.backward_id);
    if (call != nullptr && !run.failed) finish_run(recording, run, call->keep_graph);
  }
}

// Record the saved tensors that a node is about to unpack, before PyTorch checks their versions.
void read_versions(Recording& recording, Node& node, NodeRecord& record, int64_t thread, int64_t time_ns) {
  if (record.kind == nullptr) return;
  SavedSlots slots;
  {
    std::lock_guard<std::mutex> lock(freed_mutex());
    slots = record.slots;
  }
  if (slots.empty()) return;
  Memory memory = memory_of(node, *record.kind);
  for (const SavedSlot& slot : slots) {
    if (slot.place < 0) continue;
    const SavedVariable* saved = find_saved(memory, record.kind->slots[slot.place], slot.index);
    if (saved == nullptr || saved->has_hooks()) continue;
    const at::Tensor& data = saved->*member_of(SavedData{});
    if (!data.defined()) continue;
    Fingerprint content;
    if (slot.hash != NO_ID) content = recording.read_fingerprint(data);
    recording.put_content(content, thread, time_ns);
    size_t start = recording.begin_event(Kind::tensor_unpacked, recording.seq(), time_ns, thread, NO_ID);
    for (int64_t value : {slot.saved_id, record.node_id, slot.version,
                          Recording::version_of(*data.unsafeGetTensorImpl()), int64_t{0}, slot.hash, content.hash})
      recording.put(value);
    recording.end_event(start);
  }
}

// Return the device whose time a node takes, NO_ID if it is none: that of its gradients, or of the
// thread that the engine has for a device.
int64_t device_of_run(DeviceSpans& spans, const at::RecordFunction& call, bool on_device_thread) {
  for (const c10::IValue& value : call.inputs()) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const c10::TensorImpl& impl = *value.toTensor().unsafeGetTensorImpl();
    if (!impl.is_python_dispatch() && impl.device().type() == spans.type) return impl.device().index();
  }
  return on_device_thread ? c10::impl::VirtualGuardImpl(spans.type).getDevice().index() : NO_ID;
}

std::unique_ptr<at::ObserverContext> on_node_start(const at::RecordFunction& call) {
  Recording* recording = observed().load(std::memory_order_acquire);
  if (recording == nullptr) return nullptr;
  auto node = torch::autograd::get_current_node();
  // A node that calls another one, or that user code calls, is not run by the engine.
  if (!node || static_cast<int64_t>(node->sequence_nr()) != call.seqNr()) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  RecorderTime recorder_time;
  WrapperScope wrappers;
  c10::Device device = c10::kCPU;
  for (const c10::IValue& value : call.inputs()) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    wrappers.read(value.toTensor());
    if (device.is_cpu() && is_on_accelerator(value.toTensor())) device = value.toTensor().device();
  }
  UsedStream stream = current_stream_of(device);
  std::unique_lock<std::mutex> lock(recording->mutex);
  RecordPtr record = find_record(*recording, *node);
  if (record == nullptr) return nullptr;
  EngineCall* engine_call = recording->call_of(torch::autograd::get_current_graph_task_id(), thread.number);
  if (engine_call == nullptr) return nullptr;
  if (!thread.running.empty() && thread.running.back().record == record &&
      thread.running.back().ended_ns == 0)
    return nullptr;
  bool on_other_thread = engine_call->thread != thread.number;
  if (on_other_thread) agree_with_other_threads();
  int64_t time_ns = now_ns();
  finish_last(*recording, thread);
  Run run{engine_call->backward_id, record->node_id, thread.number, record, false, 0};
  c10::SmallVector<int64_t, 4> incoming;
  for (const c10::IValue& value : call.inputs()) {
    bool given = value.isTensor() && value.toTensor().defined();
    run.has_gradient = run.has_gradient || given;
    if (!given)
      incoming.push_back(NO_ID);
    else if (recording->with_ops || recording->with_fingerprints)
      incoming.push_back(recording->intern(value.toTensor(), thread.number, time_ns));
    else  // no writes to gradients are recorded, so their identity has no use
      incoming.push_back(recording->intern_by_shape(value.toTensor(), thread.number, time_ns));
  }
  size_t start = recording->begin_event(Kind::node_started, recording->seq(), time_ns, thread.number, NO_ID);
  recording->put(run.backward_id);
  recording->put(run.node_id);
  recording->put_all(incoming);
  recording->end_event(start);
  put_stream(*recording, stream, NO_ID, run.backward_id, run.node_id, thread.number, NO_ID, time_ns);
  read_versions(*recording, *node, *record, thread.number, time_ns);
  auto context = std::make_unique<RunContext>();
  context->generation = recording->generation;
  context->backward_id = run.backward_id;
  context->node_id = run.node_id;
  thread.running.push_back(std::move(run));
  context->exceptions = std::uncaught_exceptions();
  lock.unlock();
  if (auto spans = recording->device_spans) {
    int64_t device = device_of_run(*spans, call, on_other_thread);
    context->is_timed = device != NO_ID;
    if (context->is_timed)
      spans->begin({NO_ID, context->backward_id, context->node_id}, thread.number, static_cast<c10::DeviceIndex>(device));
  }
  return context;
}

void on_node_end(const at::RecordFunction&, at::ObserverContext* base) {
  Recording* recording = observed().load(std::memory_order_acquire);
  if (recording == nullptr || base == nullptr) return;
  const RunContext& context = *static_cast<RunContext*>(base);
  if (context.generation != recording->generation) return;
  bool failed = std::uncaught_exceptions() > context.exceptions;
  ThreadContext& thread = thread_context(*recording);
  RecorderTime recorder_time;
  if (auto spans = context.is_timed ? recording->device_spans : nullptr)
    spans->end({NO_ID, context.backward_id, context.node_id}, thread.number);
  std::unique_lock<std::mutex> lock(recording->mutex);
  auto is_this = [&](const Run& run) {
    return run.backward_id == context.backward_id && run.node_id == context.node_id;
  };
  auto found = std::find_if(thread.running.rbegin(), thread.running.rend(), is_this);
  if (found != thread.running.rend()) {
    found->ended_ns = now_ns();
    found->failed = failed;
  }
  lock.unlock();
  check_due(*recording);
}

}  // namespace
}  // namespace agv
