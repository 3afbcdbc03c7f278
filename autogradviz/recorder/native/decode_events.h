// Decodes the words of events to Python values: one flat list for each kind of event.
#pragma once

#include "graph.h"
#include "op_observer.h"

namespace agv {
namespace {

// Reads the words of one event, and appends Python values to the flat list of its kind.
class Decoder {
 public:
  Decoder(const int64_t* words, PyObject* values) : at_(words), values_(values) {}

  bool number() {
    return push(PyLong_FromLongLong(*at_++));
  }

  bool optional() {
    int64_t value = *at_++;
    if (value == NO_ID) return push(Py_NewRef(Py_None));
    return push(PyLong_FromLongLong(value));
  }

  bool tuple() {
    int64_t size = *at_++;
    PyObject* found = PyTuple_New(size);
    if (found == nullptr) return false;
    for (int64_t i = 0; i < size; ++i) {
      PyObject* value = PyLong_FromLongLong(*at_++);
      if (value == nullptr) {
        Py_DECREF(found);
        return false;
      }
      PyTuple_SET_ITEM(found, i, value);
    }
    return push(found);
  }

  bool boolean() {
    return push(PyBool_FromLong(*at_++ != 0));
  }

  int64_t next() {
    return *at_++;
  }

  bool push(PyObject* value) {
    if (value == nullptr) return false;
    int failed = PyList_Append(values_, value);
    Py_DECREF(value);
    return failed == 0;
  }

 private:
  const int64_t* at_;
  PyObject* values_;
};

PyObject* op_name(int64_t index) {
  static std::vector<PyObject*> names;
  if (index == Recording::NO_OP) return PyUnicode_InternFromString("");
  if (index == Recording::INCREMENT_VERSION) return PyUnicode_InternFromString("increment_version");
  if (static_cast<size_t>(index) >= names.size()) names.resize(index + 1, nullptr);
  if (names[index] == nullptr) names[index] = PyUnicode_InternFromString(registry().at(index).name.c_str());
  return Py_XNewRef(names[index]);
}

PyObject* device_name(int64_t word) {
  if (word == Recording::NO_DEVICE) return PyUnicode_InternFromString("");
  auto type = static_cast<c10::DeviceType>(word >> 8);
  auto index = static_cast<c10::DeviceIndex>(static_cast<int8_t>(word & 0xFF));
  return PyUnicode_InternFromString(c10::Device(type, index).str().c_str());
}

PyObject* dtype_name(const Recording& recording, int64_t word) {
  if (word <= -2) return PyUnicode_FromString(recording.names[-2 - word].c_str());
  std::string_view name = c10::getDtypeNames(static_cast<c10::ScalarType>(word)).first;
  return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
}

PyObject* phase_name(int64_t phase) {
  static const char* const names[] = {"forward", "backward", "recompute"};
  return PyUnicode_InternFromString(names[phase]);
}

bool decode_event(const Recording& recording, const int64_t* words, PyObject* const* lists) {
  auto none = [] { return Py_NewRef(Py_None); };
  Kind kind = static_cast<Kind>(words[0] & 0xFF);
  Decoder each(words + 1, lists[static_cast<int>(kind)]);
  if (!each.number() || !each.number() || !each.number() || !each.optional()) return false;
  switch (kind) {
    case Kind::tensor_seen:
      return each.number() && each.optional() && each.tuple() &&
          each.push(dtype_name(recording, each.next())) && each.push(device_name(each.next())) &&
          each.number() && each.number();
    case Kind::op_called:
      return each.push(op_name(each.next())) && each.push(phase_name(each.next())) && each.tuple() &&
          each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.push(PyTuple_New(0)) &&
          each.push(PyTuple_New(0)) && each.number() && each.optional() && each.optional() &&
          each.optional() && each.optional() && each.optional() && each.boolean();
    case Kind::version_bumped:
      return each.number() && each.optional() && each.number() && each.number() &&
          each.push(op_name(each.next())) && each.optional();
    case Kind::version_restored:
      return each.number() && each.optional() && each.number() && each.number();
    case Kind::stack_seen:
      return each.tuple();
    case Kind::frame_seen:
      return each.number() && each.number() && each.number();
    case Kind::random_drawn:
      return each.push(op_name(each.next())) && each.optional() &&
          each.push(PyUnicode_InternFromString(each.next() == 1 ? "given" : "default")) &&
          each.push(device_name(each.next()));
    case Kind::mutation_cloned:
      return each.number() && each.optional() && each.number() && each.optional();
    case Kind::node_seen:
      return each.number() && each.push(strings().get(each.next())) && each.optional() && each.tuple() &&
          each.tuple() && each.optional();
    case Kind::tensor_saved:
      return each.number() && each.number() && each.optional() && each.push(strings().get(each.next())) &&
          each.number() && each.optional() && each.push(PyUnicode_InternFromString("pytorch")) &&
          each.push(none()) && each.push(none()) && each.push(none());
    case Kind::tensor_unpacked:
      return each.number() && each.number() && each.optional() && each.optional() &&
          each.push(Py_NewRef(Py_False)) && each.push(none()) && each.push(none());
    case Kind::tensor_released:
      return each.number();
    case Kind::node_started:
      return each.number() && each.number() && each.tuple();
    case Kind::node_finished:
      return each.number() && each.number();
    case Kind::grad_accumulated:
      return each.number() && each.number() && each.number();
    default:
      PyErr_SetString(PyExc_SystemError, "an event of an unknown kind");
      return false;
  }
}

}  // namespace
}  // namespace agv
