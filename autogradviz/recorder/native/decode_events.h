// Batches of events, and how their bytes become Python values.
#pragma once

#include "graph.h"
#include "op_observer.h"

#include <bit>
#include <cmath>

namespace agv {
namespace {

// Reads the numbers of one event, and appends Python values to the flat list of its kind.
class Decoder {
 public:
  Decoder(const uint8_t* event, PyObject* values) : numbers_(event), values_(values) {}

  bool number() {
    return push(PyLong_FromLongLong(numbers_.next()));
  }

  bool optional() {
    int64_t value = numbers_.next();
    if (value == NO_ID) return push(Py_NewRef(Py_None));
    return push(PyLong_FromLongLong(value));
  }

  bool tuple() {
    int64_t size = numbers_.next();
    PyObject* found = PyTuple_New(size);
    if (found == nullptr) return false;
    for (int64_t i = 0; i < size; ++i) {
      PyObject* value = PyLong_FromLongLong(numbers_.next());
      if (value == nullptr) {
        Py_DECREF(found);
        return false;
      }
      PyTuple_SET_ITEM(found, i, value);
    }
    return push(found);
  }

  bool text() {
    std::string found(static_cast<size_t>(numbers_.next()), ' ');
    for (char& each : found) each = static_cast<char>(numbers_.next());
    return push(PyUnicode_DecodeUTF8(found.data(), static_cast<Py_ssize_t>(found.size()), "replace"));
  }

  bool boolean() {
    return push(PyBool_FromLong(numbers_.next() != 0));
  }

  // A double, or none if it is not finite.
  bool real() {
    double value = std::bit_cast<double>(numbers_.next());
    return push(std::isfinite(value) ? PyFloat_FromDouble(value) : Py_NewRef(Py_None));
  }

  // The layout of a DTensor, by its number: a tuple of values.
  bool layout() {
    PyObject* number = PyLong_FromLongLong(numbers_.next());
    PyObject* found = number == nullptr ? nullptr : call_wrapper_tensors("layout_of", number);
    Py_XDECREF(number);
    bool done = found != nullptr && PyTuple_Check(found);
    for (Py_ssize_t i = 0; done && i < PyTuple_GET_SIZE(found); ++i) done = push(Py_NewRef(PyTuple_GET_ITEM(found, i)));
    Py_XDECREF(found);
    if (!done && !PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the layout of a DTensor is not known");
    return done;
  }

  bool optional_boolean() {
    int64_t value = numbers_.next();
    return push(value == NO_ID ? Py_NewRef(Py_None) : PyBool_FromLong(value != 0));
  }

  int64_t next() {
    return numbers_.next();
  }

  bool push(PyObject* value) {
    if (value == nullptr) return false;
    int failed = PyList_Append(values_, value);
    Py_DECREF(value);
    return failed == 0;
  }

 private:
  EventReader numbers_;
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

PyObject* dtype_name(const std::vector<std::string>& names, int64_t word) {
  if (word <= -2) return PyUnicode_FromString(names[-2 - word].c_str());
  std::string_view name = c10::getDtypeNames(static_cast<c10::ScalarType>(word)).first;
  return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
}

PyObject* phase_name(int64_t phase) {
  static const char* const names[] = {"forward", "backward", "recompute"};
  return PyUnicode_InternFromString(names[phase]);
}

// Append the values of one event to the list of its kind; skip a kind without a list.
bool decode_event(const std::vector<std::string>& names, const uint8_t* event, PyObject* const* lists) {
  auto none = [] { return Py_NewRef(Py_None); };
  Kind kind = static_cast<Kind>(EventReader::kind(event));
  if (lists[static_cast<int>(kind)] == nullptr) return true;
  Decoder each(event, lists[static_cast<int>(kind)]);
  if (!each.number() || !each.number() || !each.number() || !each.optional()) return false;
  switch (kind) {
    case Kind::tensor_seen:
      return each.number() && each.optional() && each.tuple() &&
          each.push(dtype_name(names, each.next())) && each.push(device_name(each.next())) &&
          each.number() && each.number();
    case Kind::op_called:
      return each.push(op_name(each.next())) && each.push(phase_name(each.next())) && each.tuple() &&
          each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.number() && each.optional() && each.optional() &&
          each.optional() && each.optional() && each.optional() && each.boolean() && each.optional();
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
      return each.number() && each.optional() && each.optional() && each.push(strings().get(each.next())) &&
          each.number() && each.optional() && each.push(strings().get(each.next())) && each.optional() &&
          each.optional() && each.optional();
    case Kind::tensor_unpacked:
      return each.number() && each.optional() && each.optional() && each.optional() && each.boolean() &&
          each.optional() && each.optional();
    case Kind::tensor_released:
      return each.number();
    case Kind::slot_seen:
      return each.number() && each.number() && each.push(strings().get(each.next()));
    case Kind::node_started:
      return each.number() && each.number() && each.tuple();
    case Kind::node_finished:
      return each.number() && each.number();
    case Kind::module_entered:
      return each.number() && each.optional() && each.number() && each.number();
    case Kind::module_exited:
      return each.number() && each.number() && each.boolean();
    case Kind::collective_called:
      return each.push(op_name(each.next())) && each.push(dtype_name(names, each.next())) && each.optional() &&
          each.tuple() && each.optional_boolean();
    case Kind::distributed_tensor_seen:
      return each.number() && each.number() && each.layout();
    case Kind::output_norm_read:
      return each.optional() && each.number() && each.real() && each.real();
    case Kind::arguments_seen:
      return each.number() && each.text();
    case Kind::strides_seen:
      return each.number() && each.tuple() && each.number();
    case Kind::grad_accumulated:
    case Kind::not_finite_seen:
      return each.number() && each.number() && each.number();
    default:
      PyErr_SetString(PyExc_SystemError, "an event of an unknown kind");
      return false;
  }
}

constexpr int KINDS = static_cast<int>(Kind::count);

// Events that are decoded when somebody reads them.
struct Batch {
  EventBuffer parts[2];  // those of the recording, and those of nodes that died
  std::vector<std::string> names;
  std::vector<PyCodeObject*> codes;  // of the frames, kept alive until they are described
  int64_t counts[KINDS] = {};

  template <class Visit>
  void each_event(const Visit& visit) const {
    for (const EventBuffer& part : parts)
      for (const uint8_t* event = part.begin(); event < part.end(); event += EventReader::size(event)) visit(event);
  }

  // Count the events, and keep the code objects of frames. The GIL is held.
  void prepare() {
    each_event([&](const uint8_t* event) {
      ++counts[EventReader::kind(event)];
      if (static_cast<Kind>(EventReader::kind(event)) != Kind::frame_seen) return;
      EventReader numbers(event);
      constexpr int BEFORE = 5;  // number, time, thread, stack, frame
      for (int i = 0; i < BEFORE; ++i) numbers.next();
      codes.push_back(reinterpret_cast<PyCodeObject*>(numbers.next()));
      Py_INCREF(codes.back());
    });
  }

  void drop_codes() {
    std::vector<PyCodeObject*> dropped;
    dropped.swap(codes);
    for (PyCodeObject* code : dropped) Py_DECREF(code);
  }

  ~Batch() {
    drop_codes();
  }
};

struct BatchObject {
  PyObject_HEAD
  Batch* content;
};

PyTypeObject* batch_type = nullptr;

void free_batch(PyObject* self) {
  delete reinterpret_cast<BatchObject*>(self)->content;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// counts() -> number of events of each kind
PyObject* batch_counts(PyObject* self, PyObject*) {
  const Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  PyObject* found = PyTuple_New(KINDS);
  for (int i = 0; found != nullptr && i < KINDS; ++i) PyTuple_SET_ITEM(found, i, PyLong_FromLongLong(batch.counts[i]));
  return found;
}

// decode(kinds) -> for each of these kinds, the values of its events in one flat list
PyObject* batch_decode(PyObject* self, PyObject* kinds) {
  const Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  PyObject* lists[KINDS] = {};
  PyObject* items = PySequence_Fast(kinds, "a sequence of kinds");
  if (items == nullptr) return nullptr;
  PyObject* found = PyList_New(0);
  bool done = found != nullptr;
  for (Py_ssize_t i = 0; done && i < PySequence_Fast_GET_SIZE(items); ++i) {
    int64_t kind = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i));
    PyObject* list = kind < 0 || kind >= KINDS ? nullptr : PyList_New(0);
    done = list != nullptr && PyList_Append(found, list) == 0;
    if (done) lists[kind] = list;
    Py_XDECREF(list);
  }
  Py_DECREF(items);
  batch.each_event([&](const uint8_t* event) { done = done && decode_event(batch.names, event, lists); });
  if (done) return found;
  Py_XDECREF(found);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a kind that does not exist");
  return nullptr;
}

// drop_codes(): let go of the code objects; the frames were decoded.
PyObject* batch_drop_codes(PyObject* self, PyObject*) {
  reinterpret_cast<BatchObject*>(self)->content->drop_codes();
  Py_RETURN_NONE;
}

// nbytes() -> bytes of the events
PyObject* batch_nbytes(PyObject* self, PyObject*) {
  const Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  return PyLong_FromSize_t(batch.parts[0].size() + batch.parts[1].size());
}

// pack() -> the events as bytes; the batch has none then, until they are unpacked
PyObject* batch_pack(PyObject* self, PyObject*) {
  Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  batch.parts[0].append(batch.parts[1].begin(), batch.parts[1].size());
  PyObject* found = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(batch.parts[0].begin()),
                                              static_cast<Py_ssize_t>(batch.parts[0].size()));
  for (EventBuffer& part : batch.parts) part.clear();
  return found;
}

// unpack(bytes): restore the events.
PyObject* batch_unpack(PyObject* self, PyObject* bytes) {
  if (!PyBytes_Check(bytes)) {
    PyErr_SetString(PyExc_TypeError, "bytes are needed");
    return nullptr;
  }
  Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  batch.parts[0].clear();
  batch.parts[0].append(reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes)),
                        static_cast<size_t>(PyBytes_GET_SIZE(bytes)));
  Py_RETURN_NONE;
}

PyMethodDef batch_methods[] = {
    {"nbytes", batch_nbytes, METH_NOARGS, nullptr},
    {"pack", batch_pack, METH_NOARGS, nullptr},
    {"unpack", batch_unpack, METH_O, nullptr},
    {"counts", batch_counts, METH_NOARGS, nullptr},
    {"decode", batch_decode, METH_O, nullptr},
    {"drop_codes", batch_drop_codes, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_batch)},
    {Py_tp_methods, batch_methods},
    {0, nullptr},
};

PyType_Spec batch_spec = {"autogradviz_native.Batch", sizeof(BatchObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, batch_slots};

}  // namespace
}  // namespace agv
