// Methods for module calls, and for the graph: walks, ids of nodes, and what is forgotten.
#pragma once

#include "guarded_calls.h"
#include "hooked_saves.h"

namespace agv {
namespace {

// enter_module(module) -> the number of open calls before this one; None if this thread only traces
PyObject* enter_module(PyObject* self, PyObject* module) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t module_id = PyLong_AsLongLong(module);
  ThreadContext& thread = thread_context(*recording);
  if (PyErr_Occurred() || thread.calls == nullptr) return nullptr;
  RecorderTime recorder_time;
  if (thread.suspended || is_under_tracing_mode()) Py_RETURN_NONE;
  Py_ssize_t depth = PyList_GET_SIZE(thread.calls);
  int64_t parent = last_number(thread.calls), call_id = recording->call_count++;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    size_t start = recording->begin_event(Kind::module_entered, recording->seq(), now_ns(), thread.number, NO_ID);
    int64_t sequence_nr = static_cast<int64_t>(at::sequence_number::peek());
    for (int64_t value : {call_id, parent, module_id, sequence_nr}) recording->put(value);
    recording->end_event(start);
  }
  PyObject* number = PyLong_FromLongLong(call_id);
  bool done = number != nullptr && PyList_Append(thread.modules, module) == 0 && PyList_Append(thread.calls, number) == 0;
  Py_XDECREF(number);
  return done ? PyLong_FromSsize_t(depth) : nullptr;
}

// exit_module(depth, failed) -> whether no call is open any more; all after the first ones end.
PyObject* exit_module(PyObject* self, PyObject* arguments) {
  Py_ssize_t depth;
  int failed;
  if (!PyArg_ParseTuple(arguments, "np", &depth, &failed)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  if (thread.calls == nullptr) Py_RETURN_FALSE;
  RecorderTime recorder_time;
  Py_ssize_t size = PyList_GET_SIZE(thread.calls);
  if (size > depth) {
    std::lock_guard<std::mutex> lock(recording->mutex);
    int64_t time_ns = now_ns();
    for (Py_ssize_t i = size - 1; i >= depth; --i) {
      size_t start = recording->begin_event(Kind::module_exited, recording->seq(), time_ns, thread.number, NO_ID);
      recording->put(PyLong_AsLongLong(PyList_GET_ITEM(thread.calls, i)));
      recording->put(static_cast<int64_t>(at::sequence_number::peek()));
      recording->put(failed);
      recording->end_event(start);
    }
  }
  if (PyList_SetSlice(thread.calls, depth, size, nullptr) < 0 ||
      PyList_SetSlice(thread.modules, depth, PyList_GET_SIZE(thread.modules), nullptr) < 0)
    return nullptr;
  return PyBool_FromLong(PyList_GET_SIZE(thread.calls) == 0);
}

bool nodes_of(PyObject* listed, std::vector<Node*>& nodes) {
  PyObject* items = PySequence_Fast(listed, "a sequence of nodes");
  if (items == nullptr) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
    Node* node = node_of(PySequence_Fast_GET_ITEM(items, i));
    if (node == nullptr) {
      Py_DECREF(items);
      return false;
    }
    nodes.push_back(node);
  }
  Py_DECREF(items);
  return true;
}

// walk(roots, oldest, on_hooked) -> (leaves, functions, unlocated)
//
// Leaves are new or have hooks: (tensor id, tensor). Functions are new: (node id, node). The last
// list names the slots whose saved tensors were not found.
PyObject* walk(PyObject* self, PyObject* arguments) {
  PyObject *listed, *on_hooked;
  long long oldest;
  if (!PyArg_ParseTuple(arguments, "OLO", &listed, &oldest, &on_hooked)) return nullptr;
  Recording* recording = recording_of(self);
  std::vector<Node*> roots;
  if (recording == nullptr || !nodes_of(listed, roots)) return nullptr;
  Walk walk(*recording, packed_of(self), thread_context(*recording).number, oldest, on_hooked);
  if (!walk.run(roots)) return nullptr;
  PyObject* leaves = PyList_New(0);
  PyObject* functions = PyList_New(0);
  bool done = leaves != nullptr && functions != nullptr;
  for (auto [id, node] : walk.leaves)
    done = done && append_pair(leaves, id, THPVariable_Wrap(*leaf_of(*node, kinds().find(*node).kind)));
  for (auto [id, node] : walk.functions)
    done = done && append_pair(functions, id, torch::autograd::functionToPyObject(node->getptr()));
  PyObject* unlocated = PyList_New(0);
  done = done && unlocated != nullptr;
  for (const std::string& name : walk.unlocated) {
    PyObject* text = PyUnicode_FromString(name.c_str());
    done = done && text != nullptr && PyList_Append(unlocated, text) == 0;
    Py_XDECREF(text);
  }
  if (done) return Py_BuildValue("NNN", leaves, functions, unlocated);
  Py_XDECREF(leaves);
  Py_XDECREF(functions);
  Py_XDECREF(unlocated);
  return nullptr;
}

// node_id(node) -> id
PyObject* node_id(PyObject* self, PyObject* object) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  Node* node = node_of(object);
  return node == nullptr ? nullptr : PyLong_FromLongLong(record_of(*recording, *node)->node_id);
}

// is_new(node) -> whether no walk has reached a node yet
PyObject* is_new(PyObject* self, PyObject* object) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  Node* node = node_of(object);
  if (node == nullptr) return nullptr;
  RecordPtr record = find_record(*recording, *node);
  return PyBool_FromLong(record == nullptr || record->seen < 0);
}

// forget(roots): forget the nodes that some nodes reach; also after the end of the recording.
PyObject* forget(PyObject* self, PyObject* listed) {
  std::vector<Node*> roots;
  if (!nodes_of(listed, roots)) return nullptr;
  forget_nodes(reinterpret_cast<RecordingObject*>(self)->generation, std::move(roots));
  Py_RETURN_NONE;
}

// forget_leaf(tensor): return a leaf to Python again when a walk reaches it.
PyObject* forget_leaf(PyObject* self, PyObject* tensor) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t id = PyLong_AsLongLong(tensor);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->known_leaves.erase(id);
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace agv
