// Recording while a function of the user's is about to be called, or was: a failure of the recorder
// is reported to Python and never reaches the user, and nothing is recorded while a compiler traces.
#pragma once

#include "recording_object.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <exception>

namespace agv {
namespace {

PyObject *name_attach = nullptr, *name_fail = nullptr;

// Turns off ``__torch_function__`` of subclasses.
class WithoutTorchFunction {
 public:
  WithoutTorchFunction() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    if (before_ == at::impl::ENABLED)
      at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::SUBCLASSES_DISABLED);
  }

  ~WithoutTorchFunction() {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(before_);
  }

 private:
  at::impl::TorchFunctionDisabledState before_;
};

// Report an exception of the recorder. False if it must reach the user: Ctrl-C, for instance.
bool report(RecordingObject& object) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  if (object.tracer == nullptr) {  // it has ended meanwhile
    PyErr_Clear();
    return true;
  }
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(error, traceback);
  PyObject* tracer = Py_NewRef(object.tracer);
  PyObject* done = PyObject_CallMethodObjArgs(tracer, name_fail, error, nullptr);
  Py_DECREF(tracer);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  Py_XDECREF(done);
  return done != nullptr;
}

// Run what records; false with an exception if one must reach the user.
template <class Work>
bool guarded(RecordingObject& object, const Work& work) {
  RecorderTime recorder_time;
  bool done = false;
  try {
    done = work();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return done || report(object);
}

// Call a method of the tracer; a new reference, or null with an exception.
PyObject* call_tracer(RecordingObject& object, PyObject* name, PyObject* argument) {
  if (object.tracer == nullptr) return PyErr_Format(PyExc_RuntimeError, "the recording is not open");
  PyObject* tracer = Py_NewRef(object.tracer);
  PyObject* found = PyObject_CallMethodObjArgs(tracer, name, argument, nullptr);
  Py_DECREF(tracer);
  return found;
}

// Return whether a dispatch mode for tracing is active on this thread.
bool is_under_tracing_mode() {
  using c10::impl::TorchDispatchModeKey;
  using c10::impl::TorchDispatchModeTLS;
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PreDispatch)) return true;
  if (!TorchDispatchModeTLS::any_modes_set()) return false;
  return TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::PROXY).has_value() ||
      TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FUNCTIONAL).has_value();
}

// Find out whether this thread is recorded; false with an exception on failure.
bool observes(RecordingObject& object, bool& found) {
  ThreadContext& thread = thread_context(*object.recording);
  if (thread.calls == nullptr) {  // Python has no state of this thread yet
    PyObject* attached = call_tracer(object, name_attach, nullptr);
    if (attached == nullptr) return false;
    Py_DECREF(attached);
  }
  found = object.recording != nullptr && !thread.suspended && !is_under_tracing_mode();
  return true;
}

}  // namespace
}  // namespace agv
