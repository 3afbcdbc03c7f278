// Saved tensors that go through saved-tensor hooks.
#pragma once

#include "node_runs.h"

namespace agv {
namespace {

struct HookedSave {
  int64_t saved_id;
  int64_t version;
  int64_t sequence_nr;  // of the node that saves the tensor
};

// What the pair of hooks says about a save.
struct PackedIn {
  int64_t packed_by;  // the kind of the pair, by its number in the table of strings
  int64_t region;
  int64_t recompute;
  int64_t position;
};

// Record a tensor that a hook is about to pack. The GIL is held.
//
// ``frame`` is the innermost one outside the recorder. A custom Function saves after its forward, so
// its stack was captured before.
HookedSave record_packing(Recording& recording, const at::Tensor& tensor, const PackedIn& where, Frame* frame) {
  std::vector<Place> places;
  std::vector<PyCodeObject*> new_codes;
  size_t count = recording.with_stacks ? read_stack(recording, places, frame) : 0;
  int64_t thread = thread_context(recording).number;
  int64_t time_ns = now_ns();
  WrapperScope wrappers;
  if (tensor.defined()) wrappers.read(tensor);
  HookedSave save;
  save.sequence_nr = static_cast<int64_t>(at::sequence_number::peek()) - 1;
  save.version = tensor.defined() ? Recording::version_of(*tensor.unsafeGetTensorImpl()) : NO_ID;
  {
    std::lock_guard<std::mutex> lock(recording.mutex);
    auto custom = recording.custom.find(save.sequence_nr);
    int64_t stack = custom == recording.custom.end() ? NO_ID : custom->second;
    if (stack == NO_ID && recording.with_stacks)
      stack = recording.intern_stack(places.data(), count, thread, time_ns, new_codes);
    int64_t id = tensor.defined() ? recording.intern(tensor, thread, time_ns) : NO_ID;
    save.saved_id = recording.saved_count++;
    size_t start = recording.begin_event(Kind::tensor_saved, recording.seq(), time_ns, thread, stack);
    for (int64_t value : {save.saved_id, NO_ID, save.sequence_nr, NO_ID, id, save.version, where.packed_by, where.region,
                          where.recompute, where.position})
      recording.put(value);
    recording.end_event(start);
  }
  keep_codes(new_codes);
  return save;
}

// The state of a thread before a pack hook that runs inside an operator.
struct BeforeHook {
  int depth;
  uint64_t sequence_nr;
  OpContext* call;
};

// Prepare for a pack hook: its calls are recorded.
BeforeHook begin_hook(ThreadContext& thread) {
  BeforeHook before{thread.depth, thread.sequence_nr, thread.call};
  if (thread.call != nullptr) thread.call->quiet.pause();
  thread.depth = 0;
  thread.call = nullptr;
  // The node of the operator exists already: the first call in the hook is not one in its forward.
  thread.sequence_nr = at::sequence_number::peek();
  return before;
}

// Continue with the operator. ``raised`` is the tensor that the hook was to pack if it raised an
// exception, else NO_ID.
void end_hook(ThreadContext& thread, const BeforeHook& before, int64_t raised) {
  thread.depth = before.depth;
  thread.sequence_nr = before.sequence_nr;
  thread.call = before.call;
  if (thread.call == nullptr) return;
  thread.call->quiet.resume();
  if (raised == NO_ID) return;
  const auto& inputs = thread.call->inputs;
  bool input = std::find(inputs.begin(), inputs.end(), raised) != inputs.end();
  thread.call->skipped = input;
  if (!input) thread.call->result = raised;
}

}  // namespace
}  // namespace agv
