// Batches of events, and how their bytes become Python values.
#pragma once

#include "graph.h"
#include "op_observer.h"
#include "recording_object.h"

#include <array>
#include <bit>
#include <cmath>

namespace agv {
namespace {

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

// Reads the fields of one event, and appends Python values to the flat list of its kind.
class Decoder {
 public:
  Decoder(const std::vector<std::string>& names, const uint8_t* event, PyObject* values)
      : numbers_(event), names_(names), values_(values) {}

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

  bool op() {
    return push(op_name(numbers_.next()));
  }

  bool device() {
    return push(device_name(numbers_.next()));
  }

  // A dtype, or the name of a class or of a process group.
  bool dtype() {
    return push(dtype_name(names_, numbers_.next()));
  }

  bool phase() {
    return push(phase_name(numbers_.next()));
  }

  bool string() {
    return push(strings().get(numbers_.next()));
  }

  bool generator() {
    return push(PyUnicode_InternFromString(numbers_.next() == 1 ? "given" : "default"));
  }

 private:
  bool push(PyObject* value) {
    if (value == nullptr) return false;
    int failed = PyList_Append(values_, value);
    Py_DECREF(value);
    return failed == 0;
  }

  EventReader numbers_;
  const std::vector<std::string>& names_;
  PyObject* values_;
};

// Fields that are one number, for readers to which it does not matter what it means.
template <class Reader>
class OneNumber {
 public:
  // clang-format off
  bool optional() { return number(); }
  bool boolean() { return number(); }
  bool optional_boolean() { return number(); }
  bool real() { return number(); }
  bool op() { return number(); }
  bool device() { return number(); }
  bool dtype() { return number(); }
  bool phase() { return number(); }
  bool string() { return number(); }
  bool generator() { return number(); }
  // clang-format on

 private:
  bool number() { return static_cast<Reader*>(this)->number(); }
};

// Reads the fields of one event, and collects the ids in some of them.
class References : public OneNumber<References> {
 public:
  // For each field of an event, where its ids go, or null.
  using Targets = std::array<Ids*, 32>;

  References(const uint8_t* event, const Targets& targets) : numbers_(event), target_(targets.begin()) {}

  bool number() {
    Ids* ids = *target_++;
    int64_t value = numbers_.next();
    if (ids != nullptr && value != NO_ID) (*ids)[value] = true;
    return true;
  }

  bool tuple() {
    Ids* ids = *target_++;
    for (int64_t size = numbers_.next(); size > 0; --size) {
      int64_t value = numbers_.next();
      if (ids != nullptr) (*ids)[value] = true;
    }
    return true;
  }

  bool text() {
    ++target_;
    for (int64_t size = numbers_.next(); size > 0; --size) numbers_.next();
    return true;
  }

  bool layout() { return number(); }  // the last fields of its kind

 private:
  EventReader numbers_;
  Targets::const_iterator target_;
};

// Counts the fields of a kind of event, and reads nothing.
class FieldCount : public OneNumber<FieldCount> {
 public:
  int64_t count = 0;

  // clang-format off
  bool number() { ++count; return true; }
  bool tuple() { return number(); }
  bool text() { return number(); }
  bool layout() { count += 4; return true; }
  // clang-format on
};

// Read the fields of an event of a kind, in the order of its dataclass.
template <class Fields>
bool read_fields(Kind kind, Fields& each) {
  if (!each.number() || !each.number() || !each.number() || !each.optional()) return false;
  switch (kind) {
    case Kind::tensor_seen:
      return each.number() && each.optional() && each.tuple() &&
          each.dtype() && each.device() &&
          each.number() && each.number();
    case Kind::op_called:
      return each.op() && each.phase() && each.tuple() &&
          each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.tuple() && each.number() && each.optional() && each.optional() &&
          each.optional() && each.optional() && each.optional() && each.boolean() && each.optional();
    case Kind::version_bumped:
      return each.number() && each.optional() && each.number() && each.number() &&
          each.op() && each.optional();
    case Kind::version_restored:
      return each.number() && each.optional() && each.number() && each.number();
    case Kind::stack_seen:
      return each.tuple();
    case Kind::frame_seen:
      return each.number() && each.number() && each.number();
    case Kind::random_drawn:
      return each.op() && each.optional() &&
          each.generator() &&
          each.device();
    case Kind::mutation_cloned:
      return each.number() && each.optional() && each.number() && each.optional();
    case Kind::node_seen:
      return each.number() && each.string() && each.optional() && each.tuple() &&
          each.tuple() && each.optional();
    case Kind::tensor_saved:
      return each.number() && each.optional() && each.optional() && each.string() &&
          each.number() && each.optional() && each.string() && each.optional() &&
          each.optional() && each.optional();
    case Kind::tensor_unpacked:
      return each.number() && each.optional() && each.optional() && each.optional() && each.boolean() &&
          each.optional() && each.optional();
    case Kind::tensor_released:
      return each.number();
    case Kind::slot_seen:
      return each.number() && each.number() && each.string();
    case Kind::node_started:
      return each.number() && each.number() && each.tuple();
    case Kind::node_finished:
      return each.number() && each.number();
    case Kind::module_entered:
      return each.number() && each.optional() && each.number() && each.number();
    case Kind::module_exited:
      return each.number() && each.number() && each.boolean();
    case Kind::collective_called:
      return each.op() && each.dtype() && each.optional() &&
          each.tuple() && each.optional_boolean();
    case Kind::distributed_tensor_seen:
      return each.number() && each.number() && each.layout();
    case Kind::output_norm_read:
      return each.optional() && each.number() && each.real() && each.real();
    case Kind::arguments_seen:
      return each.number() && each.text();
    case Kind::strides_seen:
      return each.number() && each.tuple() && each.number();
    case Kind::device_copied:
      return each.optional() && each.device() && each.device() && each.number() && each.optional_boolean() &&
          each.boolean();
    case Kind::stream_used:
      return each.device() && each.number() && each.optional() && each.optional() && each.optional();
    case Kind::storages_freed:
      return each.tuple();
    case Kind::grad_accumulated:
    case Kind::not_finite_seen:
      return each.number() && each.number() && each.number();
    default:
      PyErr_SetString(PyExc_SystemError, "an event of an unknown kind");
      return false;
  }
}

// Append the values of one event to the list of its kind; skip a kind without a list.
bool decode_event(const std::vector<std::string>& names, const uint8_t* event, PyObject* const* lists) {
  int kind = EventReader::kind(event);
  if (lists[kind] == nullptr) return true;
  Decoder each(names, event, lists[kind]);
  return read_fields(static_cast<Kind>(kind), each);
}

constexpr int KINDS = static_cast<int>(Kind::count);
constexpr int COMMON_FIELDS = 4;  // number, time, thread, stack

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

  // Copy the events of a kind.
  void add(const Batch& other, int kind) {
    names = other.names;
    other.each_event([&](const uint8_t* event) {
      if (EventReader::kind(event) == kind) parts[0].append(event, EventReader::size(event));
    });
    counts[kind] = other.counts[kind];
  }

  // Count the events, and keep the code objects of frames. The GIL is held.
  void prepare() {
    each_event([&](const uint8_t* event) {
      ++counts[EventReader::kind(event)];
      if (static_cast<Kind>(EventReader::kind(event)) != Kind::frame_seen) return;
      EventReader numbers(event);
      for (int i = 0; i < COMMON_FIELDS + 1; ++i) numbers.next();  // the frame too
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

// decode_defined(kind, ids) -> the values of those definitions of a kind that define one of some ids
PyObject* batch_decode_defined(PyObject* self, PyObject* arguments) {
  const Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  int kind;
  PyObject* ids;
  if (!PyArg_ParseTuple(arguments, "iO", &kind, &ids)) return nullptr;
  PyObject* lists[KINDS] = {};
  if (kind < 0 || kind >= KINDS) return PyErr_Format(PyExc_ValueError, "a kind that does not exist");
  PyObject* found = lists[kind] = PyList_New(0);
  bool done = found != nullptr;
  batch.each_event([&](const uint8_t* event) {
    if (!done || EventReader::kind(event) != kind) return;
    EventReader numbers(event);
    for (int i = 0; i < COMMON_FIELDS; ++i) numbers.next();
    PyObject* id = PyLong_FromLongLong(numbers.next());
    int is_used = id == nullptr ? -1 : PySequence_Contains(ids, id);
    Py_XDECREF(id);
    done = is_used == 0 || (is_used == 1 && decode_event(batch.names, event, lists));
  });
  if (!done) Py_CLEAR(found);
  return found;
}

// references(fields, count) -> the ids in some fields, as ``count`` sets. Each field is a tuple: the
// kind of event, the place of the field and the set.
PyObject* batch_references(PyObject* self, PyObject* arguments) {
  const Batch& batch = *reinterpret_cast<BatchObject*>(self)->content;
  PyObject* fields;
  int count;
  if (!PyArg_ParseTuple(arguments, "O!i", &PyTuple_Type, &fields, &count)) return nullptr;
  std::vector<Ids> ids(static_cast<size_t>(count));
  std::vector<References::Targets> targets(KINDS);
  bool is_read[KINDS] = {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); ++i) {
    int kind, place, set;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(fields, i), "iii", &kind, &place, &set)) return nullptr;
    if (kind < 0 || kind >= KINDS) return PyErr_Format(PyExc_ValueError, "a kind that does not exist");
    targets.at(kind).at(place) = &ids.at(set);
    is_read[kind] = true;
  }
  batch.each_event([&](const uint8_t* event) {
    int kind = EventReader::kind(event);
    if (!is_read[kind]) return;
    References each(event, targets[kind]);
    read_fields(static_cast<Kind>(kind), each);
  });
  PyObject* found = PyTuple_New(count);
  for (int i = 0; found != nullptr && i < count; ++i) {
    std::vector<int64_t> unique;
    for (const auto& each : ids[i]) unique.push_back(each.first);
    PyObject* set = set_of(unique);
    if (set == nullptr) Py_CLEAR(found);
    else PyTuple_SET_ITEM(found, i, set);
  }
  return found;
}

// only(kind) -> a batch of the events of a kind
PyObject* batch_only(PyObject* self, PyObject* number) {
  int64_t kind = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  if (kind < 0 || kind >= KINDS) return PyErr_Format(PyExc_ValueError, "a kind that does not exist");
  auto* found = reinterpret_cast<BatchObject*>(batch_type->tp_alloc(batch_type, 0));
  if (found == nullptr) return nullptr;
  found->content = new Batch();
  found->content->add(*reinterpret_cast<BatchObject*>(self)->content, static_cast<int>(kind));
  return reinterpret_cast<PyObject*>(found);
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

// field_counts() -> the number of fields of each kind of event, in the order of the enumeration.
PyObject* field_counts(PyObject*, PyObject*) {
  constexpr auto kinds = static_cast<Py_ssize_t>(Kind::count);
  PyObject* found = PyTuple_New(kinds);
  for (Py_ssize_t i = 0; found != nullptr && i < kinds; ++i) {
    FieldCount fields;
    read_fields(static_cast<Kind>(i), fields);
    PyTuple_SET_ITEM(found, i, PyLong_FromLongLong(fields.count));
  }
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
    {"decode_defined", batch_decode_defined, METH_VARARGS, nullptr},
    {"references", batch_references, METH_VARARGS, nullptr},
    {"only", batch_only, METH_O, nullptr},
    {"drop_codes", batch_drop_codes, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_batch)},
    {Py_tp_methods, batch_methods},
    {0, nullptr},
};

PyType_Spec batch_spec = {"autogradviz.recorder.native.Batch", sizeof(BatchObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, batch_slots};

}  // namespace
}  // namespace agv
