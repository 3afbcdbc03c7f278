// The extension module: starts and stops the observer, decodes its events, and gives the recorder's
// Python code access to the tables of ids and versions.

#include "op_observer.h"

#include <pybind11/detail/common.h>
#include <torch/csrc/Export.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <pthread.h>

TORCH_PYTHON_API PyObject* THPVariable_Wrap(const at::TensorBase& variable);

namespace agv {
namespace {

// The version at save is a private member. The language allows a template argument to name it.
using SavedVersion = uint32_t torch::autograd::SavedVariable::*;
SavedVersion version_member();
template <SavedVersion member>
struct Expose {
  friend SavedVersion version_member() {
    return member;
  }
};
template struct Expose<&torch::autograd::SavedVariable::saved_version_>;

std::unique_ptr<Recording> current;  // protected by the GIL
std::vector<PyCodeObject*> described;  // dropped code objects whose frames were taken last time
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
uint64_t generations = 0;
PyObject* recorder_prefix = nullptr;
PyObject* name_cdata = nullptr;

Recording* recording_or_error() {
  if (current == nullptr) PyErr_SetString(PyExc_RuntimeError, "the native observer is not open");
  return current.get();
}

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

// --- decoding -----------------------------------------------------------------------------------

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
    default:
      PyErr_SetString(PyExc_SystemError, "an event of an unknown kind");
      return false;
  }
}

// take() -> list of one flat list of values for each kind; the buffer is empty afterwards.
PyObject* take(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> words;
  for (PyCodeObject* code : described) Py_DECREF(code);
  described.clear();
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    words.swap(recording->words);
    described.swap(recording->retired);
  }
  PyObject* lists[static_cast<int>(Kind::count)];
  PyObject* found = PyList_New(static_cast<int>(Kind::count));
  if (found == nullptr) return nullptr;
  for (int i = 0; i < static_cast<int>(Kind::count); ++i) {
    lists[i] = PyList_New(0);
    if (lists[i] == nullptr) {
      Py_DECREF(found);
      return nullptr;
    }
    PyList_SET_ITEM(found, i, lists[i]);
  }
  for (size_t i = 0; i < words.size(); i += static_cast<size_t>(words[i] >> 8)) {
    if (!decode_event(*recording, &words[i], lists)) {
      Py_DECREF(found);
      return nullptr;
    }
  }
  return found;
}

// --- life cycle ---------------------------------------------------------------------------------

// open(began_ns, with_stacks, outermost, clone_code)
PyObject* open(PyObject*, PyObject* arguments) {
  long long began_ns;
  int with_stacks;
  PyObject *outermost, *clone_code;
  if (!PyArg_ParseTuple(arguments, "LpOO", &began_ns, &with_stacks, &outermost, &clone_code)) return nullptr;
  if (current != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "the native observer is open already");
    return nullptr;
  }
  current = std::make_unique<Recording>();
  current->began_ns = began_ns;
  current->with_stacks = with_stacks != 0;
  current->outermost = PyLong_Check(outermost) ? PyLong_AsVoidPtr(outermost) : nullptr;
  current->clone_code = PyCode_Check(clone_code) ? reinterpret_cast<PyCodeObject*>(clone_code) : nullptr;
  current->generation = ++generations;
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

// enter_hook() -> state: a pack hook is about to run inside an operator; its calls are recorded.
PyObject* enter_hook(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  PyObject* state = Py_BuildValue("iLN", thread.depth, static_cast<long long>(thread.sequence_nr),
                                  PyLong_FromVoidPtr(thread.call));
  thread.depth = 0;
  thread.call = nullptr;
  return state;
}

// leave_hook(state, raised): a pack hook has ended. ``raised`` is the tensor that it was to pack if
// it raised an exception, else -1.
PyObject* leave_hook(PyObject*, PyObject* arguments) {
  int depth;
  long long sequence_nr, raised;
  PyObject* address;
  if (!PyArg_ParseTuple(arguments, "(iLO)L", &depth, &sequence_nr, &address, &raised)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  thread.depth = depth;
  thread.sequence_nr = static_cast<uint64_t>(sequence_nr);
  thread.call = static_cast<OpContext*>(PyLong_AsVoidPtr(address));
  if (raised != NO_ID && thread.call != nullptr) {
    const auto& inputs = thread.call->inputs;
    bool input = std::find(inputs.begin(), inputs.end(), raised) != inputs.end();
    thread.call->skipped = input;
    if (!input) thread.call->result = raised;
  }
  Py_RETURN_NONE;
}

PyObject* is_open(PyObject*, PyObject*) {
  return PyBool_FromLong(current != nullptr);
}

// live_stacks() -> ids of the stacks that may be captured again
PyObject* live_stacks(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids = recording->live_stacks();
  }
  return set_of(ids);
}

// drop_stacks(): forget all stacks.
PyObject* drop_stacks(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->drop_stacks();
  Py_RETURN_NONE;
}

// start(): observe operators.
PyObject* start(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  active().store(recording, std::memory_order_release);
  handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
  Py_RETURN_NONE;
}

// stop(): observe nothing more; the events stay.
PyObject* stop(PyObject*, PyObject*) {
  active().store(nullptr, std::memory_order_release);
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
  Py_RETURN_NONE;
}

// close(): forget everything.
PyObject* close(PyObject* self, PyObject* nothing) {
  Py_XDECREF(stop(self, nothing));
  if (current != nullptr) {
    // A callback on another thread may have read the pointer just before it was removed; it is
    // inside the lock then, or will find no recording.
    std::unique_ptr<Recording> closed = std::move(current);
    std::lock_guard<std::mutex> lock(closed->mutex);
    closed->clear();
    closed->drop_stacks();
    for (PyCodeObject* code : closed->retired) Py_DECREF(code);
    for (PyCodeObject* code : described) Py_DECREF(code);
    described.clear();
    for (PyObject* list : closed->lists) Py_DECREF(list);
    closed->lists.clear();
    // Its memory is a few hundred bytes now; freeing it could race with such a callback.
    closed->words = {};
    closed->storage_of.clear();
    closed.release();
  }
  Py_RETURN_NONE;
}

// --- tables -------------------------------------------------------------------------------------

PyObject* next_seq(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  return recording == nullptr ? nullptr : PyLong_FromLongLong(recording->seq());
}

PyObject* event_count(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  return recording == nullptr ? nullptr : PyLong_FromLongLong(recording->next_seq.load());
}

// attach(calls, regions, running) -> number of this thread
PyObject* attach(PyObject*, PyObject* arguments) {
  PyObject *calls, *regions, *running;
  if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyList_Type, &calls, &PyList_Type, &regions, &PyList_Type, &running))
    return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  for (PyObject* list : {calls, regions, running}) recording->lists.push_back(Py_NewRef(list));
  thread.calls = calls;
  thread.regions = regions;
  thread.running = running;
  return PyLong_FromLongLong(thread.number);
}

PyObject* intern(PyObject*, PyObject* object) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  at::Tensor tensor = tensor_of(object);
  if (PyErr_Occurred()) return nullptr;
  if (!tensor.defined()) return PyLong_FromLongLong(NO_ID);
  int64_t thread = thread_context(*recording).number;
  int64_t id;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    id = recording->intern(tensor, thread, now_ns());
  }
  return PyLong_FromLongLong(id);
}

PyObject* storage_id(PyObject*, PyObject* tensor) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  int64_t id = PyLong_AsLongLong(tensor);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->storage_id(id));
}

// seen(tensor, version): record a counter that was raised by an unobserved write.
PyObject* seen(PyObject*, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->seen(tensor, version, thread, now_ns());
  Py_RETURN_NONE;
}

// bumped(tensor, version): remember that a counter has reached a version.
PyObject* bumped(PyObject*, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->bumped(tensor, version);
  Py_RETURN_NONE;
}

// version_at(tensor, seq) -> version, or None
PyObject* version_at(PyObject*, PyObject* arguments) {
  long long tensor, seq;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &seq)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  int64_t found;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    found = recording->version_at(tensor, seq);
  }
  if (found == NO_ID) Py_RETURN_NONE;
  return PyLong_FromLongLong(found);
}

// saved_version(slot) -> the version at which autograd saved a tensor
PyObject* saved_version(PyObject*, PyObject* slot) {
  auto* instance = reinterpret_cast<pybind11::detail::instance*>(slot);
  void* value = instance->simple_layout ? instance->simple_value_holder[0]
                                        : instance->nonsimple.values_and_holders[0];
  if (value == nullptr) Py_RETURN_NONE;
  return PyLong_FromUnsignedLong(static_cast<torch::autograd::SavedVariable*>(value)->*version_member());
}

// live_tensors() -> ids of the tensors that may be seen again
PyObject* live_tensors(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids = recording->live_tensors();
  }
  return set_of(ids);
}

// prune(used_tensors, max_windows, first_seq)
PyObject* prune(PyObject*, PyObject* arguments) {
  PyObject* used;
  long long max_windows, first_seq;
  if (!PyArg_ParseTuple(arguments, "O!LL", &PySet_Type, &used, &max_windows, &first_seq)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  ska::flat_hash_map<int64_t, bool> kept;
  PyObject* items = PySequence_List(used);
  if (items == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); ++i) kept[PyLong_AsLongLong(PyList_GET_ITEM(items, i))] = true;
  Py_DECREF(items);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->prune([&](int64_t id) { return kept.find(id) != kept.end(); },
                   static_cast<size_t>(max_windows), first_seq);
  Py_RETURN_NONE;
}

// prune_history(first_seq)
PyObject* prune_history(PyObject*, PyObject* number) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  int64_t first_seq = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->prune_history(first_seq);
  Py_RETURN_NONE;
}

// restored(tensor, version): record a counter that was set back.
PyObject* restored(PyObject*, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  int64_t storage = recording->storage_id(tensor);
  if (storage == NO_ID || version >= recording->known[storage]) Py_RETURN_NONE;
  int64_t before = recording->known[storage];
  recording->changed(storage, version);
  size_t begin = recording->begin_event(Kind::version_restored, recording->seq(), now_ns(), thread, NO_ID);
  for (int64_t value : {static_cast<int64_t>(tensor), storage, before, static_cast<int64_t>(version)})
    recording->put(value);
  recording->end_event(begin);
  Py_RETURN_NONE;
}

// capture(own): return the id of this thread's stack, without the innermost frames of the recorder.
PyObject* capture(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  Frame* frame = innermost_frame();
  for (; frame != nullptr; frame = caller_of(frame)) {
    if (!is_visible(frame)) continue;
    PyCodeObject* code = place_of(frame).code;
    Py_ssize_t size = recorder_prefix == nullptr ? 0 : PyUnicode_GET_LENGTH(recorder_prefix);
    if (size == 0 || PyUnicode_Tailmatch(code->co_filename, recorder_prefix, 0, PY_SSIZE_T_MAX, -1) != 1) break;
  }
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
PyObject* intern_stack(PyObject*, PyObject* listed) {
  Recording* recording = recording_or_error();
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

// code(address) -> the code object of a frame of this recording
PyObject* code(PyObject*, PyObject* address) {
  void* pointer = PyLong_AsVoidPtr(address);
  if (pointer == nullptr) return nullptr;
  return Py_NewRef(static_cast<PyObject*>(pointer));
}

// custom_stack(sequence_nr) -> stack of the first op of a custom Function, or None
PyObject* custom_stack(PyObject*, PyObject* number) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  int64_t sequence_nr = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  auto found = recording->custom.find(sequence_nr);
  if (found == recording->custom.end() || found->second == NO_ID) Py_RETURN_NONE;
  return PyLong_FromLongLong(found->second);
}

// set_custom_stack(sequence_nr, stack)
PyObject* set_custom_stack(PyObject*, PyObject* arguments) {
  long long number, stack;
  if (!PyArg_ParseTuple(arguments, "LL", &number, &stack)) return nullptr;
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->custom[number] = stack;
  Py_RETURN_NONE;
}

// wide() -> sequence numbers of the nodes of ops with very many inputs
PyObject* wide(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> numbers;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    for (const auto& each : recording->wide) numbers.push_back(each.first);
  }
  return set_of(numbers);
}

// recent() -> the newest results that are alive, newest first
PyObject* recent(PyObject*, PyObject*) {
  Recording* recording = recording_or_error();
  if (recording == nullptr) return nullptr;
  std::vector<at::Tensor> alive;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    size_t count = recording->recent.size();
    for (size_t i = 0; i < count; ++i) {
      size_t place = (recording->recent_next + count - 1 - i) % count;
      auto strong = recording->recent[place].lock();
      if (strong) alive.emplace_back(at::Tensor(c10::intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>::reclaim(strong.release())));
    }
  }
  PyObject* found = PyList_New(0);
  for (const at::Tensor& tensor : alive) {
    PyObject* object = THPVariable_Wrap(tensor);
    if (object == nullptr || PyList_Append(found, object) < 0) {
      Py_XDECREF(object);
      Py_DECREF(found);
      return nullptr;
    }
    Py_DECREF(object);
  }
  return found;
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

void in_child() {
  // The recording is the parent's. Another thread may have held the lock.
  active().store(nullptr);
  (void)current.release();
}

PyMethodDef methods[] = {
    {"open", open, METH_VARARGS, nullptr},
    {"enter_hook", enter_hook, METH_NOARGS, nullptr},
    {"leave_hook", leave_hook, METH_VARARGS, nullptr},
    {"is_open", is_open, METH_NOARGS, nullptr},
    {"live_stacks", live_stacks, METH_NOARGS, nullptr},
    {"drop_stacks", drop_stacks, METH_NOARGS, nullptr},
    {"start", start, METH_NOARGS, nullptr},
    {"stop", stop, METH_NOARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {"take", take, METH_NOARGS, nullptr},
    {"next_seq", next_seq, METH_NOARGS, nullptr},
    {"event_count", event_count, METH_NOARGS, nullptr},
    {"attach", attach, METH_VARARGS, nullptr},
    {"intern", intern, METH_O, nullptr},
    {"storage_id", storage_id, METH_O, nullptr},
    {"seen", seen, METH_VARARGS, nullptr},
    {"bumped", bumped, METH_VARARGS, nullptr},
    {"version_at", version_at, METH_VARARGS, nullptr},
    {"saved_version", saved_version, METH_O, nullptr},
    {"live_tensors", live_tensors, METH_NOARGS, nullptr},
    {"prune", prune, METH_VARARGS, nullptr},
    {"prune_history", prune_history, METH_O, nullptr},
    {"restored", restored, METH_VARARGS, nullptr},
    {"capture", capture, METH_NOARGS, nullptr},
    {"intern_stack", intern_stack, METH_O, nullptr},
    {"code", code, METH_O, nullptr},
    {"custom_stack", custom_stack, METH_O, nullptr},
    {"set_custom_stack", set_custom_stack, METH_VARARGS, nullptr},
    {"wide", wide, METH_NOARGS, nullptr},
    {"recent", recent, METH_NOARGS, nullptr},
    {"set_recorder_folder", set_recorder_folder, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "autogradviz_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace agv

PyMODINIT_FUNC PyInit_autogradviz_native() {
  agv::name_cdata = PyUnicode_InternFromString("_cdata");
  pthread_atfork(nullptr, nullptr, agv::in_child);
  return PyModule_Create(&agv::definition);
}
