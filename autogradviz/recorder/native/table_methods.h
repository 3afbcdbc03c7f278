// Methods that read and change the tables of tensors, storages and versions.
#pragma once

#include "gradient_norms.h"
#include "recording_object.h"


namespace agv {
namespace {

PyObject* intern(PyObject* self, PyObject* object) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  at::Tensor tensor = tensor_of(object);
  if (PyErr_Occurred()) return nullptr;
  if (!tensor.defined()) return PyLong_FromLongLong(NO_ID);
  int64_t thread = thread_context(*recording).number;
  WrapperScope wrappers;
  wrappers.read(tensor);
  int64_t id;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    id = recording->intern(tensor, thread, now_ns());
  }
  return PyLong_FromLongLong(id);
}

// intern_all(tensors) -> a tuple of ids, and one of versions
PyObject* intern_all(PyObject* self, PyObject* list) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "a list of tensors is expected");
  int64_t thread = thread_context(*recording).number, time_ns = now_ns();
  Py_ssize_t count = PyList_GET_SIZE(list);
  PyObject *ids = PyTuple_New(count), *versions = PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count && ids != nullptr && versions != nullptr; ++i) {
    at::Tensor tensor = tensor_of(PyList_GET_ITEM(list, i));
    int64_t id = NO_ID, version = NO_ID;
    if (!PyErr_Occurred() && tensor.defined()) {
      WrapperScope wrappers;
      wrappers.read(tensor);
      std::lock_guard<std::mutex> lock(recording->mutex);
      id = recording->intern(tensor, thread, time_ns);
      version = Recording::version_of(*tensor.unsafeGetTensorImpl());
    }
    if (PyErr_Occurred()) break;
    PyTuple_SET_ITEM(ids, i, PyLong_FromLongLong(id));
    PyTuple_SET_ITEM(versions, i, PyLong_FromLongLong(version));
  }
  if (ids == nullptr || versions == nullptr || PyErr_Occurred()) {
    Py_XDECREF(ids);
    Py_XDECREF(versions);
    return nullptr;
  }
  return Py_BuildValue("NN", ids, versions);
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
  content = recording->read_fingerprint(tensor);
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

// id_of_storage(address) -> id of a storage that is alive, NO_ID if no tensor of it was seen
PyObject* id_of_storage(PyObject* self, PyObject* address) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  void* pointer = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  return PyLong_FromLongLong(recording->id_of_storage(static_cast<c10::StorageImpl*>(pointer)));
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

// live_tensor_ids() -> ids of the tensors that may be seen again
PyObject* live_tensor_ids(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids = recording->live_tensors();
  }
  return set_of(ids);
}

PyObject* list_of(const std::vector<int64_t>& ids) {
  PyObject* found = PyList_New(static_cast<Py_ssize_t>(ids.size()));
  for (size_t i = 0; i < ids.size() && found != nullptr; ++i)
    PyList_SET_ITEM(found, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(ids[i]));
  return found;
}

// live_storages() -> one tensor of each storage that is alive
PyObject* live_storages(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    ids = recording->live_storages();
  }
  return list_of(ids);
}

// live_nbytes() -> the bytes of each storage that is alive, by its id; empty unless memory is recorded
PyObject* live_nbytes(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  std::vector<std::pair<int64_t, int64_t>> alive;
  if (recording->with_memory) {
    std::lock_guard<std::mutex> lock(recording->mutex);
    alive = recording->live_nbytes();
  }
  PyObject* found = PyDict_New();
  for (auto [id, nbytes] : alive) {
    PyObject* key = found == nullptr ? nullptr : PyLong_FromLongLong(id);
    PyObject* value = key == nullptr ? nullptr : PyLong_FromLongLong(nbytes);
    if (value == nullptr || PyDict_SetItem(found, key, value) < 0) Py_CLEAR(found);
    Py_XDECREF(key);
    Py_XDECREF(value);
  }
  return found;
}

// emit_freed(): record the storages that were freed since the last operator, if memory is recorded.
PyObject* emit_freed(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->put_freed_storages(thread, now_ns());
  Py_RETURN_NONE;
}

// failed_op() -> the operator that raised last if its thread has called none since, and one tensor of
// each storage that was alive then; or None
PyObject* failed_op(PyObject* self, PyObject*) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t seq = NO_ID;
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    for (const auto& thread : recording->threads)
      if (thread->number == recording->failed_thread && thread->last_op_seq == recording->failed_op)
        seq = recording->failed_op;
    if (seq != NO_ID) ids = recording->alive_at_failure;
  }
  if (seq == NO_ID) Py_RETURN_NONE;
  return Py_BuildValue("LN", static_cast<long long>(seq), list_of(ids));
}

// Read a set of ids. Return whether it succeeded.
bool read_ids(PyObject* set, Ids& ids) {
  PyObject* items = PySequence_List(set);
  if (items == nullptr) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); ++i) ids[PyLong_AsLongLong(PyList_GET_ITEM(items, i))] = true;
  Py_DECREF(items);
  return !PyErr_Occurred();
}

// prune(used_tensors, max_windows)
PyObject* prune(PyObject* self, PyObject* arguments) {
  PyObject* used;
  long long max_windows;
  if (!PyArg_ParseTuple(arguments, "O!L", &PySet_Type, &used, &max_windows)) return nullptr;
  Recording* recording = recording_of(self);
  Ids kept;
  if (recording == nullptr || !read_ids(used, kept)) return nullptr;
  std::lock_guard<std::mutex> lock(recording->mutex);
  recording->prune([&](int64_t id) { return kept.find(id) != kept.end(); },
                   static_cast<size_t>(max_windows));
  Py_RETURN_NONE;
}

// prune_arguments(used) -> the ids of all arguments that were known
PyObject* prune_arguments(PyObject* self, PyObject* used) {
  Recording* recording = recording_of(self);
  Ids kept;
  if (recording == nullptr || !read_ids(used, kept)) return nullptr;
  std::vector<int64_t> known;
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    known = recording->prune_arguments([&](int64_t id) { return kept.find(id) != kept.end(); });
  }
  return set_of(known);
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

// restored(tensor, version): record that PyTorch restored a counter, whether a write moved it or not.
PyObject* restored(PyObject* self, PyObject* arguments) {
  long long tensor, version;
  if (!PyArg_ParseTuple(arguments, "LL", &tensor, &version)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  int64_t thread = thread_context(*recording).number;
  std::lock_guard<std::mutex> lock(recording->mutex);
  int64_t storage = recording->storage_id(tensor);
  if (storage == NO_ID) Py_RETURN_NONE;
  int64_t before = std::max<int64_t>(recording->known.get(storage), version);
  if (version < before) recording->changed(storage, version);
  size_t begin = recording->begin_event(Kind::version_restored, recording->seq(), now_ns(), thread, NO_ID);
  for (int64_t value : {static_cast<int64_t>(tensor), storage, before, static_cast<int64_t>(version)})
    recording->put(value);
  recording->end_event(begin);
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

// read_number(tensor) -> the value of an ordinary tensor with one entry, None for any other.
//
// It is read without an operator, which a profiler of the user's would show.
PyObject* read_number(PyObject*, PyObject* object) {
  at::Tensor tensor = tensor_of(object);
  if (PyErr_Occurred()) return nullptr;
  if (!is_ordinary(tensor) || tensor.numel() != 1) Py_RETURN_NONE;
  return PyFloat_FromDouble(first_value(tensor));
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
  OpContext context(recording->generation);
  context.op = &registry().detach();
  context.started_ns = now_ns();
  context.exceptions = std::uncaught_exceptions();
  context.sequence_nr = at::sequence_number::peek();
  std::vector<Place> places;
  std::vector<PyCodeObject*> new_codes;
  size_t count = recording->with_stacks ? read_stack(*recording, places, outer_frame()) : 0;
  WrapperScope wrappers;
  wrappers.read(input);
  wrappers.read(output);
  std::vector<Fingerprint> contents;
  if (recording->with_fingerprints) contents.push_back(recording->read_fingerprint(input));  // the result is the same
  std::vector<OutputNorm> norms;
  if (recording->with_norms) norms.push_back(read_norm(*recording, input));
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
    int64_t ended_ns = now_ns();
    recording->put_freed_storages(thread.number, ended_ns);
    put_call(*recording, thread, context, {c10::IValue(output)}, contents, norms, ended_ns, stack, false);
  }
  keep_codes(new_codes);
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace agv
