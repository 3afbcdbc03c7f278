// Methods that time module calls on the device, and read all times there; see device_spans.h.
#pragma once

#include "device_spans.h"
#include "recording_object.h"

namespace agv {
namespace {

std::shared_ptr<DeviceSpans> spans_of(PyObject* self) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  if (recording->device_spans == nullptr) PyErr_SetString(PyExc_RuntimeError, "no device is timed");
  return recording->device_spans;
}

// time_device(type): record the time of nodes on devices of a type, "cuda".
PyObject* time_device(PyObject* self, PyObject* type) {
  Recording* recording = recording_of(self);
  const char* name = PyUnicode_AsUTF8(type);
  if (recording == nullptr || name == nullptr) return nullptr;
  try {
    recording->device_spans = std::make_shared<DeviceSpans>(c10::Device(name).type(), recording->began_ns);
  } catch (const std::exception& error) {
    return PyErr_Format(PyExc_RuntimeError, "%s", error.what());
  }
  Py_RETURN_NONE;
}

// begin_span(call, index): a module call begins on a device.
PyObject* begin_span(PyObject* self, PyObject* arguments) {
  long long call_id;
  int index;
  if (!PyArg_ParseTuple(arguments, "Li", &call_id, &index)) return nullptr;
  auto spans = spans_of(self);
  if (spans == nullptr) return nullptr;
  int64_t thread = thread_context(*recording_of(self)).number;
  spans->begin({call_id, NO_ID, NO_ID}, thread, static_cast<c10::DeviceIndex>(index));
  Py_RETURN_NONE;
}

// end_span(call): it ends.
PyObject* end_span(PyObject* self, PyObject* number) {
  int64_t call_id = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  auto spans = spans_of(self);
  if (spans == nullptr) return nullptr;
  spans->end({call_id, NO_ID, NO_ID}, thread_context(*recording_of(self)).number);
  Py_RETURN_NONE;
}

// waiting_spans() -> how many spans have ended whose times were not read
PyObject* waiting_spans(PyObject* self, PyObject*) {
  auto spans = spans_of(self);
  return spans == nullptr ? nullptr : PyLong_FromSize_t(spans->waiting());
}

// take_spans(wait) -> (rows, problem): the spans that the device has passed, in the order of the
// fields of ``DeviceTimeRead``; all of them if ``wait``. ``problem`` is "" if nothing failed.
PyObject* take_spans(PyObject* self, PyObject* wait) {
  auto spans = spans_of(self);
  if (spans == nullptr) return nullptr;
  bool waits = wait == Py_True;
  std::vector<DeviceSpan> taken;
  Py_BEGIN_ALLOW_THREADS;
  taken = spans->take(waits);
  Py_END_ALLOW_THREADS;
  PyObject* rows = PyList_New(0);
  for (const DeviceSpan& each : taken) {
    if (rows == nullptr) return nullptr;
    PyObject* row = Py_BuildValue(
        "sLNNNLLLLLL", each.stream.device().str().c_str(), static_cast<long long>(each.stream.id()),
        number_or_none(each.owner.call_id), number_or_none(each.owner.backward_id), number_or_none(each.owner.node_id),
        static_cast<long long>(each.device_start_ns), static_cast<long long>(each.device_end_ns),
        static_cast<long long>(each.start_time_ns), static_cast<long long>(each.end_time_ns),
        static_cast<long long>(each.start_clock_ns), static_cast<long long>(each.end_clock_ns));
    if (row == nullptr || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
    Py_XDECREF(row);
  }
  if (rows == nullptr) return nullptr;
  return Py_BuildValue("Ns", rows, spans->take_problem().c_str());
}

}  // namespace
}  // namespace agv
