// Methods that take the events of a recording, stop and read its clock, and read its counters.
#pragma once

#include "decode_events.h"
#include "recording_object.h"

#include <mutex>

namespace agv {
namespace {

// take() -> a batch of the events so far; the buffers are empty afterwards.
PyObject* take(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  auto* batch = reinterpret_cast<BatchObject*>(batch_type->tp_alloc(batch_type, 0));
  if (batch == nullptr) return nullptr;
  batch->content = new Batch();
  std::vector<PyCodeObject*> retired;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    batch->content->parts[0].swap(recording->events);
    retired.swap(recording->retired);
    batch->content->names = recording->names;
    std::lock_guard<std::mutex> freed_lock(freed_mutex());
    batch->content->parts[1].swap(recording->freed);
  }
  batch->content->prepare();
  for (PyCodeObject* code : retired) Py_DECREF(code);
  return reinterpret_cast<PyObject*>(batch);
}

// buffered() -> bytes of the events that were not taken
PyObject* buffered(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromSize_t(recording->events.size());
}

// take_limits() -> what is not observed since the last call: part of the recorder, and kind of tensor
PyObject* take_limits(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  PyObject* found = PyList_New(0);
  for (const auto& [hook_point, kind] : recording->limits.take()) {
    PyObject* pair = found == nullptr ? nullptr : Py_BuildValue("ss", hook_point.c_str(), kind.c_str());
    if (pair == nullptr || PyList_Append(found, pair) < 0) Py_CLEAR(found);
    Py_XDECREF(pair);
  }
  return found;
}

// begin_recorder_time(): the clock of this thread stands still until ``end_recorder_time``.
PyObject* begin_recorder_time(PyObject*, PyObject*) {
  agv::begin_recorder_time();
  Py_RETURN_NONE;
}

PyObject* end_recorder_time(PyObject*, PyObject*) {
  agv::end_recorder_time();
  Py_RETURN_NONE;
}

// program_time_ns(thread) -> the time of an event on this thread
PyObject* program_time_ns(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(now_ns() - reinterpret_cast<RecordingObject*>(self)->began_ns);
}

// recorder_time_ns() -> what the recorder has taken from all threads
PyObject* recorder_time_ns(PyObject*, PyObject*) {
  return PyLong_FromLongLong(total_taken_ns().load(std::memory_order_relaxed));
}

// set_due(seq, on_due): call a function with the number of events once there are so many.
PyObject* set_due(PyObject* self, PyObject* arguments) {
  long long seq;
  PyObject* on_due;
  if (!PyArg_ParseTuple(arguments, "LO", &seq, &on_due)) return nullptr;
  auto* object = reinterpret_cast<RecordingObject*>(self);
  Py_XSETREF(object->on_due, Py_NewRef(on_due));
  if (object->recording != nullptr) object->recording->due.store(seq);
  Py_RETURN_NONE;
}

PyObject* next_seq(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  return recording == nullptr ? nullptr : PyLong_FromLongLong(recording->seq());
}

// take_step() -> number and digest of the operators since the last call
PyObject* take_step(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  PyObject* found = Py_BuildValue("LL", static_cast<long long>(recording->step_ops),
                                  static_cast<long long>(recording->step_digest));
  recording->step_ops = 0;
  recording->step_digest = 0;
  ++recording->step;
  return found;
}

// collective_count(group) -> number of collectives that the process group of a name has called
PyObject* collective_count(PyObject* self, PyObject* name) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  auto found = recording->groups.find(text);
  return PyLong_FromLongLong(found == recording->groups.end() ? 0 : found->second.second);
}

// last_op() -> (event, name) of the operator that ended last on this thread, or None
PyObject* last_op(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  const ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (thread.last_op == NO_ID) Py_RETURN_NONE;
  return Py_BuildValue("Ls", static_cast<long long>(thread.last_op_seq), registry().at(thread.last_op).name.c_str());
}

PyObject* event_count(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  return recording == nullptr ? nullptr : PyLong_FromLongLong(recording->next_seq.load());
}

}  // namespace
}  // namespace agv
