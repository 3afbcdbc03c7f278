// The extension module: starts and stops the observer, decodes its events, and gives the recorder's
// Python code access to the tables of ids and versions.

#include "decode_events.h"
#include "gradient_norms.h"
#include "hooked_saves.h"
#include "node_runs.h"

#include <pthread.h>

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
  uint64_t generation;
};

std::vector<RecordingObject*>& objects() {
  static std::vector<RecordingObject*> found;
  return found;
}

Recording* recording_of(PyObject* self) {
  Recording* found = reinterpret_cast<RecordingObject*>(self)->recording;
  if (found == nullptr) PyErr_SetString(PyExc_RuntimeError, "the recording is not open");
  return found;
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

// --- life cycle ---------------------------------------------------------------------------------

// Recording(): one that is not open yet
PyObject* new_recording(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<RecordingObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->recording = new Recording();
  objects().push_back(self);
  return reinterpret_cast<PyObject*>(self);
}

// open(began_ns, with_ops, with_stacks, with_fingerprints, outermost, clone_code, subclass_codes)
PyObject* open(PyObject* self, PyObject* arguments) {
  long long began_ns;
  int with_ops, with_stacks, with_fingerprints;
  PyObject *outermost, *clone_code, *subclass_codes;
  if (!PyArg_ParseTuple(arguments, "LpppOOO!", &began_ns, &with_ops, &with_stacks, &with_fingerprints, &outermost,
                        &clone_code, &PyTuple_Type, &subclass_codes))
    return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  recording->began_ns = began_ns;
  recording->with_ops = with_ops != 0;
  recording->with_stacks = with_stacks != 0;
  recording->with_fingerprints = with_fingerprints != 0;
  recording->outermost = PyLong_Check(outermost) ? PyLong_AsVoidPtr(outermost) : nullptr;
  recording->clone_code = PyCode_Check(clone_code) ? reinterpret_cast<PyCodeObject*>(clone_code) : nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(subclass_codes); ++i) {
    PyObject* code = PyTuple_GET_ITEM(subclass_codes, i);
    if (PyCode_Check(code)) recording->subclass_codes.push_back(reinterpret_cast<PyCodeObject*>(code));
  }
  if (PyErr_Occurred()) return nullptr;
  recording->generation = ++generations;
  reinterpret_cast<RecordingObject*>(self)->generation = recording->generation;
  std::lock_guard<std::mutex> lock(freed_mutex());
  open_recordings().push_back(recording);
  Py_RETURN_NONE;
}

PyObject* is_open(PyObject* self, PyObject*) {
  Recording* recording = reinterpret_cast<RecordingObject*>(self)->recording;
  return PyBool_FromLong(recording != nullptr && recording->generation != 0);
}

// enter_hook() -> state: a pack hook is about to run inside an operator; its calls are recorded.
PyObject* enter_hook(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  PyObject* state = Py_BuildValue("iLN", thread.depth, static_cast<long long>(thread.sequence_nr),
                                  PyLong_FromVoidPtr(thread.call));
  thread.depth = 0;
  thread.call = nullptr;
  // The node of the operator exists already: the first call in the hook is not one in its forward.
  thread.sequence_nr = at::sequence_number::peek();
  return state;
}

// leave_hook(state, raised): a pack hook has ended. ``raised`` is the tensor that it was to pack if
// it raised an exception, else -1.
PyObject* leave_hook(PyObject* self, PyObject* arguments) {
  int depth;
  long long sequence_nr, raised;
  PyObject* address;
  if (!PyArg_ParseTuple(arguments, "(iLO)L", &depth, &sequence_nr, &address, &raised)) return nullptr;
  Recording* recording = recording_of(self);
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

void remove_callback(at::CallbackHandle& handle) {
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

void stop_observing() {
  active().store(nullptr, std::memory_order_release);
  observed().store(nullptr, std::memory_order_release);
  remove_callback(observer);
  remove_callback(node_observer);
}

// start(): observe nodes that run, and operators.
PyObject* start(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  if (observed().load() != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "another recording is observed already");
    return nullptr;
  }
  observed().store(recording, std::memory_order_release);
  node_observer = at::addGlobalCallback(at::RecordFunctionCallback(on_node_start, on_node_end)
                                            .needsInputs(true)
                                            .scopes({at::RecordScope::BACKWARD_FUNCTION}));
  if (recording->with_ops) {
    active().store(recording, std::memory_order_release);
    observer = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                         .needsInputs(true)
                                         .needsOutputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
  }
  Py_RETURN_NONE;
}

// stop(): observe nothing more; the events stay.
PyObject* stop(PyObject* self, PyObject*) {
  Recording* recording = reinterpret_cast<RecordingObject*>(self)->recording;
  if (recording == nullptr || observed().load() == recording) stop_observing();
  Py_RETURN_NONE;
}

// close(): forget everything.
PyObject* close(PyObject* self, PyObject*) {
  auto* object = reinterpret_cast<RecordingObject*>(self);
  if (object->recording == nullptr) Py_RETURN_NONE;
  if (observed().load() == object->recording) stop_observing();
  Recording* closed = object->recording;
  object->recording = nullptr;
  objects().erase(std::remove(objects().begin(), objects().end(), object), objects().end());
  {
    std::lock_guard<std::mutex> lock(freed_mutex());
    auto& all = open_recordings();
    all.erase(std::remove(all.begin(), all.end(), closed), all.end());
  }
  std::vector<std::shared_ptr<ThreadContext>> threads;
  {
    // A callback on another thread may have read the pointer just before it was removed; it is
    // inside the lock then, or will find the recording empty.
    std::lock_guard<std::mutex> lock(closed->mutex);
    closed->clear();
    closed->drop_stacks();
    for (const auto& thread : closed->threads) thread->running.clear();
    threads.swap(closed->threads);
    // Its memory is a few hundred bytes now; freeing it could race with such a callback.
    closed->events.clear();
    closed->storage_of = {};
    closed->known = {};
    closed->known_leaves = {};
    closed->reached = {};
    closed->custom = {};
    closed->created = {};
    closed->contents = {};
    closed->reached_leaves = {};
    closed->released_hooked = {};
    closed->names = {};
    std::lock_guard<std::mutex> freed_lock(freed_mutex());
    closed->freed.clear();
    closed->freed_hooked = {};
  }
  for (PyCodeObject* code : closed->retired) Py_DECREF(code);
  for (PyObject* list : closed->lists) Py_DECREF(list);
  closed->lists.clear();
  Py_CLEAR(object->on_due);
  Py_RETURN_NONE;
}

void free_recording(PyObject* self) {
  Py_XDECREF(close(self, nullptr));
  Py_CLEAR(reinterpret_cast<RecordingObject*>(self)->on_due);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// --- tables -------------------------------------------------------------------------------------

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

PyObject* event_count(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  return recording == nullptr ? nullptr : PyLong_FromLongLong(recording->next_seq.load());
}

// attach(calls, modules, regions) -> number of this thread
PyObject* attach(PyObject* self, PyObject* arguments) {
  PyObject *calls, *modules, *regions;
  if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyList_Type, &calls, &PyList_Type, &modules, &PyList_Type, &regions))
    return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  for (PyObject* list : {calls, modules, regions}) recording->lists.push_back(Py_NewRef(list));
  thread.calls = calls;
  thread.modules = modules;
  thread.regions = regions;
  return PyLong_FromLongLong(thread.number);
}

// suspend(flag): record no operators of this thread from now on, or record them again.
PyObject* suspend(PyObject* self, PyObject* flag) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  thread.suspended = flag == Py_True;
  thread.sequence_nr = at::sequence_number::peek();
  Py_RETURN_NONE;
}

PyObject* intern(PyObject* self, PyObject* object) {
  Recording* recording = recording_of(self);
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

// fingerprint(tensor) -> hash of its content, or -1
PyObject* fingerprint(PyObject* self, PyObject* object) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  at::Tensor tensor = tensor_of(object);
  if (PyErr_Occurred()) return nullptr;
  if (!tensor.defined()) return PyLong_FromLongLong(NO_ID);
  int64_t thread = thread_context(*recording).number;
  Fingerprint content;
  Py_BEGIN_ALLOW_THREADS
  content = fingerprint_of(tensor);
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    recording->put_content(content, thread, now_ns());
  }
  Py_END_ALLOW_THREADS
  return PyLong_FromLongLong(content.hash);
}

PyObject* storage_id(PyObject* self, PyObject* tensor) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t id = PyLong_AsLongLong(tensor);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->storage_id(id));
}

// seen(tensor, version): record a counter that was raised by an unobserved write.
PyObject* seen(PyObject* self, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->seen(tensor, version, thread, now_ns());
  Py_RETURN_NONE;
}

// bumped(tensor, version): remember that a counter has reached a version.
PyObject* bumped(PyObject* self, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->bumped(tensor, version);
  Py_RETURN_NONE;
}

// version_at(tensor, seq) -> version, or None
PyObject* version_at(PyObject* self, PyObject* arguments) {
  long long tensor, seq;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &seq)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t found;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    found = recording->version_at(tensor, seq);
  }
  if (found == NO_ID) Py_RETURN_NONE;
  return PyLong_FromLongLong(found);
}

// live_tensors() -> ids of the tensors that may be seen again
PyObject* live_tensors(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids = recording->live_tensors();
  }
  return set_of(ids);
}

// prune(used_tensors, max_windows)
PyObject* prune(PyObject* self, PyObject* arguments) {
  PyObject* used;
  long long max_windows;
  if (!PyArg_ParseTuple(arguments, "O!L", &PySet_Type, &used, &max_windows)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ska::flat_hash_map<int64_t, bool> kept;
  PyObject* items = PySequence_List(used);
  if (items == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); ++i) kept[PyLong_AsLongLong(PyList_GET_ITEM(items, i))] = true;
  Py_DECREF(items);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->prune([&](int64_t id) { return kept.find(id) != kept.end(); },
                   static_cast<size_t>(max_windows));
  Py_RETURN_NONE;
}

// prune_history(first_seq)
PyObject* prune_history(PyObject* self, PyObject* number) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t first_seq = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->prune_history(first_seq);
  Py_RETURN_NONE;
}

// restored(tensor, version): record a counter that was set back.
PyObject* restored(PyObject* self, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  int64_t storage = recording->storage_id(tensor);
  if (storage == NO_ID || version >= recording->known.get(storage)) Py_RETURN_NONE;
  int64_t before = recording->known.get(storage);
  recording->changed(storage, version);
  size_t begin = recording->begin_event(Kind::version_restored, recording->seq(), now_ns(), thread, NO_ID);
  for (int64_t value : {static_cast<int64_t>(tensor), storage, before, static_cast<int64_t>(version)})
    recording->put(value);
  recording->end_event(begin);
  Py_RETURN_NONE;
}

// Return the innermost frame outside the recorder.
Frame* outer_frame() {
  Frame* frame = innermost_frame();
  for (; frame != nullptr; frame = caller_of(frame)) {
    if (!is_visible(frame)) continue;
    PyCodeObject* code = place_of(frame).code;
    Py_ssize_t size = recorder_prefix == nullptr ? 0 : PyUnicode_GET_LENGTH(recorder_prefix);
    if (size == 0 || PyUnicode_Tailmatch(code->co_filename, recorder_prefix, 0, PY_SSIZE_T_MAX, -1) != 1) break;
  }
  return frame;
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

// record_packing(tensor, kind of hooks, region, recompute, position)
//   -> save, version and sequence number; numbers may be None
PyObject* record_packing(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  if (count != 5) return PyErr_Format(PyExc_TypeError, "record_packing takes 5 arguments");
  auto number = [](PyObject* value) { return value == Py_None ? NO_ID : PyLong_AsLongLong(value); };
  at::Tensor tensor = tensor_of(arguments[0]);
  const char* kind = PyUnicode_AsUTF8(arguments[1]);
  if (kind == nullptr) return nullptr;
  PackedIn where{kind, number(arguments[2]), number(arguments[3]), number(arguments[4])};
  if (PyErr_Occurred()) return nullptr;
  HookedSave save = record_packing(*recording, tensor, where, outer_frame());
  PyObject* version = save.version == NO_ID ? Py_NewRef(Py_None) : PyLong_FromLongLong(save.version);
  return Py_BuildValue("LNL", static_cast<long long>(save.saved_id), version,
                       static_cast<long long>(save.sequence_nr));
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

// recent() -> the newest results that are alive, newest first
PyObject* recent(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
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

// ordinary_nbytes(tensor) -> bytes of a real contiguous tensor on the host, 0 for any other one
PyObject* ordinary_nbytes(PyObject*, PyObject* object) {
  at::Tensor tensor = tensor_of(object);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(is_ordinary(tensor) ? static_cast<int64_t>(tensor.nbytes()) : 0);
}

// norm(tensor) -> the Euclidean norm of an ordinary tensor of float or double, or None
PyObject* norm(PyObject*, PyObject* object) {
  at::Tensor tensor = tensor_of(object);
  if (PyErr_Occurred()) return nullptr;
  if (!is_ordinary(tensor)) Py_RETURN_NONE;
  if (tensor.scalar_type() == c10::kFloat)
    return PyFloat_FromDouble(norm_of(static_cast<const float*>(tensor.const_data_ptr()), tensor.numel()));
  if (tensor.scalar_type() == c10::kDouble)
    return PyFloat_FromDouble(norm_of(static_cast<const double*>(tensor.const_data_ptr()), tensor.numel()));
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

// --- module calls -------------------------------------------------------------------------------

// enter_module(module) -> the number of open calls before this one
PyObject* enter_module(PyObject* self, PyObject* module) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t module_id = PyLong_AsLongLong(module);
  ThreadContext& thread = thread_context(*recording);
  if (PyErr_Occurred() || thread.calls == nullptr) return nullptr;
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

// record_detach(tensor, result): record a read of ``tensor.data``.
PyObject* record_detach(PyObject* self, PyObject* arguments) {
  PyObject *source, *result;
  if (!PyArg_ParseTuple(arguments, "OO", &source, &result)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  at::Tensor input = tensor_of(source), output = tensor_of(result);
  if (PyErr_Occurred() || !input.defined() || !output.defined()) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  if (thread.depth > 0) Py_RETURN_NONE;
  OpContext context;
  context.op = &registry().detach();
  context.started_ns = now_ns();
  context.exceptions = std::uncaught_exceptions();
  context.sequence_nr = at::sequence_number::peek();
  std::vector<Place> places;
  std::vector<PyCodeObject*> new_codes;
  size_t count = recording->with_stacks ? read_stack(*recording, places, outer_frame()) : 0;
  std::vector<Fingerprint> contents;
  if (recording->with_fingerprints) contents.push_back(fingerprint_of(input));  // the result is the same
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    for (const Fingerprint& content : contents) context.hashes.push_back(content.hash);
    int64_t id = recording->intern(input, thread.number, context.started_ns);
    int64_t version = Recording::version_of(*input.unsafeGetTensorImpl());
    context.inputs.push_back(id);
    context.versions.push_back(version);
    recording->seen(id, version, thread.number, context.started_ns);
    int64_t stack = recording->with_stacks
        ? recording->intern_stack(places.data(), count, thread.number, context.started_ns, new_codes)
        : NO_ID;
    put_call(*recording, thread, context, {c10::IValue(output)}, contents, now_ns(), stack, false);
  }
  keep_codes(new_codes);
  Py_RETURN_NONE;
}

// --- graph --------------------------------------------------------------------------------------

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

// Append (number, object) to a list; ``object`` is a new reference, or null with an exception.
bool append_pair(PyObject* list, int64_t number, PyObject* object) {
  if (object == nullptr) return false;
  PyObject* pair = Py_BuildValue("LN", static_cast<long long>(number), object);
  bool done = pair != nullptr && PyList_Append(list, pair) == 0;
  Py_XDECREF(pair);
  return done;
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
  Walk walk(*recording, thread_context(*recording).number, oldest, on_hooked);
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

// next_saved_id() -> the id of a new save
PyObject* next_saved_id(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->saved_count++);
}

PyObject* saved_count(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->saved_count);
}

// take_released() -> ids of saves through hooks that were released since the last call
PyObject* take_released(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids.swap(recording->released_hooked);
    std::lock_guard<std::mutex> freed_lock(freed_mutex());
    ids.insert(ids.end(), recording->freed_hooked.begin(), recording->freed_hooked.end());
    recording->freed_hooked.clear();
  }
  if (ids.empty()) return PyTuple_New(0);
  return set_of(ids);
}

// --- nodes that run -----------------------------------------------------------------------------

// begin_backward(backward, keep_graph): this thread is about to enter the engine.
PyObject* begin_backward(PyObject* self, PyObject* arguments) {
  long long backward_id;
  int keep_graph;
  if (!PyArg_ParseTuple(arguments, "Lp", &backward_id, &keep_graph)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->engine_calls.push_back({backward_id, thread, keep_graph != 0, NO_ID});
  Py_RETURN_NONE;
}

// end_backward(backward, failed) -> [(leaf, backward), ...] that gradients have reached
PyObject* end_backward(PyObject* self, PyObject* arguments) {
  long long backward_id;
  int failed;
  if (!PyArg_ParseTuple(arguments, "Lp", &backward_id, &failed)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<std::pair<int64_t, int64_t>> reached;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    auto& calls = recording->engine_calls;
    auto call = std::find_if(calls.begin(), calls.end(),
                             [&](const EngineCall& each) { return each.backward_id == backward_id; });
    if (call != calls.end()) {
      for (const auto& thread : recording->threads) {
        if (!failed) finish_last(*recording, *thread, *call);
        auto& running = thread->running;
        running.erase(std::remove_if(running.begin(), running.end(),
                                     [&](const Run& run) { return run.backward_id == backward_id; }),
                      running.end());
      }
      calls.erase(call);
    }
    reached.swap(recording->reached_leaves);
  }
  PyObject* found = PyList_New(0);
  bool done = found != nullptr;
  for (auto [leaf, backward] : reached) done = done && append_pair(found, leaf, PyLong_FromLongLong(backward));
  if (done) return found;
  Py_XDECREF(found);
  return nullptr;
}

// hook_runs(): the last node has finished, if this is the first hook of another one.
PyObject* hook_runs(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  auto node = torch::autograd::get_current_node();
  int task = torch::autograd::get_current_graph_task_id();
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (thread.running.empty()) Py_RETURN_NONE;
  RecordPtr record = node ? find_record(*recording, *node) : nullptr;
  if (record != nullptr && thread.running.back().node_id == record->node_id) Py_RETURN_NONE;
  EngineCall* call = recording->call_of(task, thread.number);
  if (call != nullptr) finish_last(*recording, thread, *call);
  Py_RETURN_NONE;
}

PyObject* number_or_none(int64_t value) {
  return value == NO_ID ? Py_NewRef(Py_None) : PyLong_FromLongLong(value);
}

// current_node() -> the backward and the node that run on this thread, or None for each
PyObject* current_node(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  auto node = torch::autograd::get_current_node();
  int task = torch::autograd::get_current_graph_task_id();
  int64_t thread = thread_context(*recording).number, backward_id = NO_ID, found = NO_ID;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    RecordPtr record = node ? find_record(*recording, *node) : nullptr;
    if (record != nullptr) found = record->node_id;
    EngineCall* call = recording->call_of(task, thread);
    if (call != nullptr) backward_id = call->backward_id;
  }
  return Py_BuildValue("NN", number_or_none(backward_id), number_or_none(found));
}

// last_run() -> (backward, node) of the innermost run on this thread, or None
PyObject* last_run(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (thread.running.empty()) Py_RETURN_NONE;
  const Run& run = thread.running.back();
  return Py_BuildValue("LL", static_cast<long long>(run.backward_id), static_cast<long long>(run.node_id));
}

PyObject* run_count(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromSize_t(thread.running.size());
}

// drop_runs(count): forget the runs on this thread after the first ones.
PyObject* drop_runs(PyObject* self, PyObject* number) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  size_t count = PyLong_AsSize_t(number);
  if (PyErr_Occurred()) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  std::lock_guard<std::mutex> lock(recording->mutex);
  if (count < thread.running.size()) thread.running.resize(count);
  Py_RETURN_NONE;
}

void in_child() {
  // The recordings are the parent's. Another thread may have held a lock.
  active().store(nullptr);
  observed().store(nullptr);
  new (&freed_mutex()) std::mutex;
  open_recordings().clear();
  for (RecordingObject* each : objects()) each->recording = nullptr;
  objects().clear();
}

PyMethodDef methods[] = {
    {"take", take, METH_NOARGS, nullptr},
    {"buffered", buffered, METH_NOARGS, nullptr},
    {"open", open, METH_VARARGS, nullptr},
    {"is_open", is_open, METH_NOARGS, nullptr},
    {"enter_hook", enter_hook, METH_NOARGS, nullptr},
    {"leave_hook", leave_hook, METH_VARARGS, nullptr},
    {"live_stacks", live_stacks, METH_NOARGS, nullptr},
    {"drop_stacks", drop_stacks, METH_NOARGS, nullptr},
    {"start", start, METH_NOARGS, nullptr},
    {"stop", stop, METH_NOARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {"next_seq", next_seq, METH_NOARGS, nullptr},
    {"event_count", event_count, METH_NOARGS, nullptr},
    {"attach", attach, METH_VARARGS, nullptr},
    {"suspend", suspend, METH_O, nullptr},
    {"intern", intern, METH_O, nullptr},
    {"fingerprint", fingerprint, METH_O, nullptr},
    {"storage_id", storage_id, METH_O, nullptr},
    {"seen", seen, METH_VARARGS, nullptr},
    {"bumped", bumped, METH_VARARGS, nullptr},
    {"version_at", version_at, METH_VARARGS, nullptr},
    {"live_tensors", live_tensors, METH_NOARGS, nullptr},
    {"prune", prune, METH_VARARGS, nullptr},
    {"prune_history", prune_history, METH_O, nullptr},
    {"restored", restored, METH_VARARGS, nullptr},
    {"capture", capture, METH_NOARGS, nullptr},
    {"intern_stack", intern_stack, METH_O, nullptr},
    {"record_packing", reinterpret_cast<PyCFunction>(static_cast<_PyCFunctionFast>(record_packing)), METH_FASTCALL,
     nullptr},
    {"custom_stack", custom_stack, METH_O, nullptr},
    {"set_custom_stack", set_custom_stack, METH_VARARGS, nullptr},
    {"recent", recent, METH_NOARGS, nullptr},
    {"walk", walk, METH_VARARGS, nullptr},
    {"enter_module", enter_module, METH_O, nullptr},
    {"exit_module", exit_module, METH_VARARGS, nullptr},
    {"record_detach", record_detach, METH_VARARGS, nullptr},
    {"set_due", set_due, METH_VARARGS, nullptr},
    {"node_id", node_id, METH_O, nullptr},
    {"is_new", is_new, METH_O, nullptr},
    {"forget", forget, METH_O, nullptr},
    {"forget_leaf", forget_leaf, METH_O, nullptr},
    {"next_saved_id", next_saved_id, METH_NOARGS, nullptr},
    {"saved_count", saved_count, METH_NOARGS, nullptr},
    {"take_released", take_released, METH_NOARGS, nullptr},
    {"begin_backward", begin_backward, METH_VARARGS, nullptr},
    {"end_backward", end_backward, METH_VARARGS, nullptr},
    {"hook_runs", hook_runs, METH_NOARGS, nullptr},
    {"current_node", current_node, METH_NOARGS, nullptr},
    {"last_run", last_run, METH_NOARGS, nullptr},
    {"run_count", run_count, METH_NOARGS, nullptr},
    {"drop_runs", drop_runs, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_recording)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_recording)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"autogradviz_native.Recording", sizeof(RecordingObject), 0, Py_TPFLAGS_DEFAULT, slots};

PyMethodDef functions[] = {
    {"code", code, METH_O, nullptr},
    {"norm", norm, METH_O, nullptr},
    {"ordinary_nbytes", ordinary_nbytes, METH_O, nullptr},
    {"set_recorder_folder", set_recorder_folder, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "autogradviz_native", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

int act_on_events(void*) {
  for (RecordingObject* each : objects()) {
    if (each->recording == nullptr || each->recording != observed().load() || each->on_due == nullptr || each->on_due == Py_None)
      continue;
    PyObject* call = Py_NewRef(each->on_due);
    PyObject* done = PyObject_CallFunction(call, "L", static_cast<long long>(each->recording->next_seq.load()));
    if (done == nullptr) PyErr_WriteUnraisable(call);
    Py_XDECREF(done);
    Py_DECREF(call);
    break;
  }
  return 0;
}

}  // namespace agv

PyMODINIT_FUNC PyInit_autogradviz_native() {
  agv::name_cdata = PyUnicode_InternFromString("_cdata");
  pthread_atfork(nullptr, nullptr, agv::in_child);
  PyObject* module = PyModule_Create(&agv::definition);
  if (module == nullptr) return nullptr;
  agv::batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&agv::batch_spec));
  PyObject* type = PyType_FromSpec(&agv::spec);
  if (agv::batch_type == nullptr || type == nullptr || PyModule_AddObject(module, "Recording", type) < 0) {
    Py_XDECREF(type);
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
