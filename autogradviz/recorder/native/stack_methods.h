// Methods that read Python stacks, and those of custom Functions.
#pragma once

#include "recording_object.h"

namespace agv {
namespace {

// live_stacks() -> ids of the stacks that may be captured again
PyObject* live_stacks(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids = recording->live_stacks();
  }
  return set_of(ids);
}

// drop_stacks(): forget all stacks.
PyObject* drop_stacks(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->drop_stacks();
  Py_RETURN_NONE;
}

// capture(): return the id of this thread's stack, without the innermost frames of the recorder.
PyObject* capture(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  Frame* frame = outer_frame();
  std::vector<Place> places;
  std::vector<PyCodeObject*> new_codes;
  size_t count = read_stack(*recording, places, frame);
  ThreadContext& thread = thread_context(*recording);
  int64_t id;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    id = recording->intern_stack(places.data(), count, thread.number, now_ns(), new_codes);
  }
  keep_codes(new_codes);
  return PyLong_FromLongLong(id);
}

// intern_stack([(code, offset), ...]) -> id; innermost first
PyObject* intern_stack(PyObject* self, PyObject* listed) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  PyObject* items = PySequence_Fast(listed, "a sequence of places");
  if (items == nullptr) return nullptr;
  std::vector<Place> places;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
    PyObject* code;
    int offset;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, i), "O!i", &PyCode_Type, &code, &offset)) {
      Py_DECREF(items);
      return nullptr;
    }
    places.push_back({reinterpret_cast<PyCodeObject*>(code), offset});
  }
  std::vector<PyCodeObject*> new_codes;
  ThreadContext& thread = thread_context(*recording);
  int64_t id;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    id = recording->intern_stack(places.data(), places.size(), thread.number, now_ns(), new_codes);
  }
  keep_codes(new_codes);
  Py_DECREF(items);
  return PyLong_FromLongLong(id);
}

// code(address) -> the code object of a frame in a batch
PyObject* code(PyObject*, PyObject* address) {
  void* pointer = PyLong_AsVoidPtr(address);
  if (pointer == nullptr) return nullptr;
  return Py_NewRef(static_cast<PyObject*>(pointer));
}

// line_of(code, offset) -> the line of an instruction, or None if it has none
PyObject* line_of(PyObject*, PyObject* arguments) {
  PyObject* code;
  int offset;
  if (!PyArg_ParseTuple(arguments, "O!i", &PyCode_Type, &code, &offset)) return nullptr;
  int line = PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(code), offset);
  if (line < 0) Py_RETURN_NONE;
  return PyLong_FromLong(line);
}

// custom_stack(sequence_nr) -> stack of the first op of a custom Function, or None
PyObject* custom_stack(PyObject* self, PyObject* number) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t sequence_nr = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  auto found = recording->custom.find(sequence_nr);
  if (found == recording->custom.end() || found->second == NO_ID) Py_RETURN_NONE;
  return PyLong_FromLongLong(found->second);
}

// set_custom_stack(sequence_nr, stack)
PyObject* set_custom_stack(PyObject* self, PyObject* arguments) {
  long long number, stack;
  if (!PyArg_ParseTuple(arguments, "LL", &number, &stack)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->custom[number] = stack;
  Py_RETURN_NONE;
}

// set_recorder_folder(prefix): frames of files there are the recorder's own.
PyObject* set_recorder_folder(PyObject*, PyObject* prefix) {
  if (!PyUnicode_Check(prefix)) {
    PyErr_SetString(PyExc_TypeError, "the folder must be a str");
    return nullptr;
  }
  Py_XSETREF(recorder_prefix, Py_NewRef(prefix));
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace agv
