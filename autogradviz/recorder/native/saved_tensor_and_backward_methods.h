// Methods for saved tensors, calls of backward, and the nodes that run.
#pragma once

#include "guarded_calls.h"
#include "hooked_saves.h"

namespace agv {
namespace {

// record_packing(tensor, kind of hooks, region, recompute, position)
//   -> save, version and sequence number; numbers may be None
PyObject* record_packing(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  if (count != 5) return PyErr_Format(PyExc_TypeError, "record_packing takes 5 arguments");
  auto number = [](PyObject* value) { return value == Py_None ? NO_ID : PyLong_AsLongLong(value); };
  at::Tensor tensor = tensor_of(arguments[0]);
  const char* kind = PyUnicode_AsUTF8(arguments[1]);
  if (kind == nullptr) return nullptr;
  PackedIn where{strings().add(kind), number(arguments[2]), number(arguments[3]), number(arguments[4])};
  if (PyErr_Occurred()) return nullptr;
  HookedSave save = record_packing(*recording, tensor, where, outer_frame());
  PyObject* version = save.version == NO_ID ? Py_NewRef(Py_None) : PyLong_FromLongLong(save.version);
  return Py_BuildValue("LNL", static_cast<long long>(save.saved_id), version,
                       static_cast<long long>(save.sequence_nr));
}

// next_saved_id() -> the id of a new save
PyObject* next_saved_id(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->saved_count++);
}

PyObject* saved_count(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->saved_count);
}

// held_saves() -> saves without hooks that nodes hold, each with its tensor
PyObject* held_saves(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<std::pair<int64_t, int64_t>> held;
  {
    std::lock_guard<std::mutex> lock(freed_mutex());
    for (void* record : recording->holding)
      for (const SavedSlot& slot : static_cast<NodeRecord*>(record)->slots)
        if (slot.tensor != NO_ID) held.emplace_back(slot.saved_id, slot.tensor);
  }
  PyObject* found = PyDict_New();
  for (const auto& [saved_id, tensor] : held) {
    PyObject* key = found == nullptr ? nullptr : PyLong_FromLongLong(saved_id);
    PyObject* value = PyLong_FromLongLong(tensor);
    if (key == nullptr || value == nullptr || PyDict_SetItem(found, key, value) < 0) Py_CLEAR(found);
    Py_XDECREF(key);
    Py_XDECREF(value);
  }
  return found;
}

// take_released() -> ids of saves through hooks that were released since the last call, but those of
// checkpoint's hooks
PyObject* take_released(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  PackedObjects& packed = packed_of(self);
  packed.forget_released(*recording);
  std::vector<int64_t> ids = packed.take_others();
  if (ids.empty()) return PyTuple_New(0);
  return set_of(ids);
}

// begin_backward(backward, keep_graph): this thread is about to enter the engine.
PyObject* begin_backward(PyObject* self, PyObject* arguments) {
  long long backward_id;
  int keep_graph;
  if (!PyArg_ParseTuple(arguments, "Lp", &backward_id, &keep_graph)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  auto callers = std::make_shared<std::vector<Place>>();
  if (recording->with_stacks) read_stack(*recording, *callers, outer_frame());
  std::string mark = "autogradviz." + std::to_string(recording->generation) + "." + std::to_string(backward_id);
  at::impl::ThreadLocalPythonObjects::set(mark, nullptr);
  int task = torch::autograd::get_current_graph_task_id();
  std::lock_guard<std::mutex> lock(recording->mutex);
  EngineCall* outer = task == -1 ? nullptr : recording->call_of(task, thread.number);
  int64_t outer_id = outer == nullptr ? NO_ID : outer->backward_id;
  recording->engine_calls.push_back({backward_id, thread.number, keep_graph != 0, NO_ID, outer_id,
                                     thread.running.size(), std::move(callers), std::move(mark)});
  Py_RETURN_NONE;
}

// end_backward(backward, failed) -> [(leaf, backward), ...] that gradients have reached
PyObject* end_backward(PyObject* self, PyObject* arguments) {
  long long backward_id;
  int failed;
  if (!PyArg_ParseTuple(arguments, "Lp", &backward_id, &failed)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<std::pair<int64_t, int64_t>> reached;
  agree_with_other_threads();
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    auto& calls = recording->engine_calls;
    auto call = std::find_if(calls.begin(), calls.end(),
                             [&](const EngineCall& each) { return each.backward_id == backward_id; });
    if (call != calls.end()) {
      auto is_of_call = [&](const Run& run) { return run.backward_id == backward_id; };
      for (const auto& thread : recording->threads) {
        auto& running = thread->running;
        if (!failed)
          for (const Run& run : running)
            if (is_of_call(run)) finish_run(*recording, run, call->keep_graph);
        running.erase(std::remove_if(running.begin(), running.end(), is_of_call), running.end());
      }
      at::impl::ThreadLocalPythonObjects::erase(call->mark);
      calls.erase(call);
    }
    reached.swap(recording->reached_leaves);
  }
  PyObject* found = PyList_New(0);
  bool done = found != nullptr;
  for (auto [leaf, backward] : reached) done = done && append_pair(found, leaf, PyLong_FromLongLong(backward));
  if (done) return found;
  Py_XDECREF(found);
  return nullptr;
}

// hook_runs(): the last node has finished, if this is the first hook of another one.
PyObject* hook_runs(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  auto node = torch::autograd::get_current_node();
  int task = torch::autograd::get_current_graph_task_id();
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (thread.running.empty()) Py_RETURN_NONE;
  RecordPtr record = node ? find_record(*recording, *node) : nullptr;
  if (record != nullptr && thread.running.back().node_id == record->node_id) Py_RETURN_NONE;
  if (recording->call_of(task, thread.number) != nullptr) finish_last(*recording, thread);
  Py_RETURN_NONE;
}

// current_node() -> the backward and the node that run on this thread, or None for each
PyObject* current_node(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  auto node = torch::autograd::get_current_node();
  int task = torch::autograd::get_current_graph_task_id();
  int64_t thread = thread_context(*recording).number, backward_id = NO_ID, found = NO_ID;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    RecordPtr record = node ? find_record(*recording, *node) : nullptr;
    if (record != nullptr) found = record->node_id;
    EngineCall* call = recording->call_of(task, thread);
    if (call != nullptr) backward_id = call->backward_id;
  }
  return Py_BuildValue("NN", number_or_none(backward_id), number_or_none(found));
}

// innermost_run() -> (backward, node) of the innermost run on this thread, or None
PyObject* innermost_run(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (thread.running.empty()) Py_RETURN_NONE;
  const Run& run = thread.running.back();
  return Py_BuildValue("LL", static_cast<long long>(run.backward_id), static_cast<long long>(run.node_id));
}

// failed_run(backward) -> the node of that backward that raised, on whichever thread, or None
//
// If no node raised, it is the one that returned last: the engine may refuse what it returned.
PyObject* failed_run(PyObject* self, PyObject* number) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t backward_id = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  const Run* found = nullptr;
  for (const auto& thread : recording->threads)
    for (const Run& run : thread->running) {
      if (run.backward_id != backward_id) continue;
      bool is_later = found == nullptr || run.ended_ns > found->ended_ns;
      if (found == nullptr || (run.failed != found->failed ? run.failed : is_later)) found = &run;
    }
  return number_or_none(found == nullptr ? NO_ID : found->node_id);
}

PyObject* run_count(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromSize_t(thread.running.size());
}

// drop_runs(count): forget the runs on this thread after the first ones.
PyObject* drop_runs(PyObject* self, PyObject* number) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  size_t count = PyLong_AsSize_t(number);
  if (PyErr_Occurred()) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (count < thread.running.size()) thread.running.resize(count);
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace agv
