// The Python object of a recording, and what its methods share.
#pragma once

#include "node_runs.h"

namespace agv {
namespace {

at::CallbackHandle observer = at::INVALID_CALLBACK_HANDLE;  // of the recording that is observed
at::CallbackHandle node_observer = at::INVALID_CALLBACK_HANDLE;
uint64_t generations = 0;
PyObject* recorder_prefix = nullptr;
PyObject* name_cdata = nullptr;

// The Python object of a recording. Its members are protected by the GIL.
struct RecordingObject {
  PyObject_HEAD
  Recording* recording;  // null once it is closed, or in a forked child
  PyObject* on_due;  // called with the number of events when enough were recorded, or null
  int64_t began_ns;
  uint64_t generation;
  PackedObjects* packed;
  PyObject* tracer;  // a ``CheckpointHooks``, or null
  PyObject* ask_origin;  // the owner of ``Recording::ask_origin``, or null
  PyObject* python_packed;  // the dict of the packed objects that Python remembers, or null
};

std::vector<RecordingObject*>& objects() {
  static std::vector<RecordingObject*>& found = *new std::vector<RecordingObject*>;  // see NOTE [ End of the process ]
  return found;
}

Recording* recording_of(PyObject* self) {
  Recording* found = reinterpret_cast<RecordingObject*>(self)->recording;
  if (found == nullptr) PyErr_SetString(PyExc_RuntimeError, "the recording is not open");
  return found;
}

PackedObjects& packed_of(PyObject* self) {
  return *reinterpret_cast<RecordingObject*>(self)->packed;
}

using Ids = ska::flat_hash_map<int64_t, bool>;

PyObject* set_of(const std::vector<int64_t>& ids) {
  PyObject* found = PySet_New(nullptr);
  if (found == nullptr) return nullptr;
  for (int64_t id : ids) {
    PyObject* number = PyLong_FromLongLong(id);
    if (number == nullptr || PySet_Add(found, number) < 0) {
      Py_XDECREF(number);
      Py_DECREF(found);
      return nullptr;
    }
    Py_DECREF(number);
  }
  return found;
}

// Return the tensor of a Python object. ``_cdata`` is the address of its implementation.
at::Tensor tensor_of(PyObject* object) {
  PyObject* address = PyObject_GetAttr(object, name_cdata);
  if (address == nullptr) return {};
  void* pointer = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  if (pointer == nullptr) return {};
  auto implementation = c10::intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(
      static_cast<c10::TensorImpl*>(pointer));
  return at::Tensor(std::move(implementation));
}

PyObject* number_or_none(int64_t value) {
  return value == NO_ID ? Py_NewRef(Py_None) : PyLong_FromLongLong(value);
}

// Append (number, object) to a list; ``object`` is a new reference, or null with an exception.
bool append_pair(PyObject* list, int64_t number, PyObject* object) {
  if (object == nullptr) return false;
  PyObject* pair = Py_BuildValue("LN", static_cast<long long>(number), object);
  bool done = pair != nullptr && PyList_Append(list, pair) == 0;
  Py_XDECREF(pair);
  return done;
}

// Return the innermost frame outside the recorder.
Frame* outer_frame() {
  FrameAccess access;
  Frame* frame = innermost_frame();
  for (; frame != nullptr; frame = caller_of(frame)) {
    if (!is_visible(frame)) continue;
    PyCodeObject* code = place_of(frame).code;
    Py_ssize_t size = recorder_prefix == nullptr ? 0 : PyUnicode_GET_LENGTH(recorder_prefix);
    if (size == 0 || PyUnicode_Tailmatch(code->co_filename, recorder_prefix, 0, PY_SSIZE_T_MAX, -1) != 1) break;
  }
  return frame;
}

}  // namespace
}  // namespace agv
