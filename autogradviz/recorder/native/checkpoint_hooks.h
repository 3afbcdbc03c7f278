// Wrappers around the hooks of checkpoint, which call the original and record it.
//
// NOTE [ Hooks without a frame ]
// A wrapper is a callable object of C. It adds no frame to the stack, so warnings and tracebacks
// are as without it, and Dynamo only sees the original. An unpack hook lives as long as the graph:
// it holds nothing but the original and a ``SessionRef``, which is cleared when the recording ends.
#pragma once

#include "guarded_calls.h"
#include "hooked_saves.h"

#include <structmember.h>

namespace agv {
namespace {

PyTypeObject* hook_type = nullptr;
PyObject* tensor_class = nullptr;
PyObject *name_target = nullptr, *name_hash_of = nullptr, *name_discard_dead = nullptr;

struct HookObject {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* hook;  // the original
  PyObject* recording;  // a ``SessionRef`` to the recording
  PackedIn where;  // of the next save
  bool counts;  // the position of a save is known
  bool is_recomputed;
};

// Compute the fingerprint of a tensor; false with an exception on failure.
bool hash_of(RecordingObject& object, PyObject* tensor, int64_t& hash) {
  PyObject* found = call_tracer(object, name_hash_of, tensor);
  if (found == nullptr) return false;
  hash = found == Py_None ? NO_ID : PyLong_AsLongLong(found);
  Py_DECREF(found);
  return !PyErr_Occurred();
}

// Record a save that is about to be packed; false with an exception on failure.
bool record_pack(HookObject& hook, RecordingObject& object, PyObject* packed, std::optional<PackedSave>& save) {
  bool is_observed = false;
  if (!observes(object, is_observed)) return false;
  if (!is_observed) return true;
  PackedIn where = hook.where;
  if (hook.counts) ++hook.where.position;
  WithoutTorchFunction disabled;
  at::Tensor tensor = tensor_of(packed);
  if (PyErr_Occurred()) return false;
  HookedSave found = record_packing(*object.recording, tensor, where, outer_frame());
  int64_t hash = NO_ID;
  if (object.recording->with_fingerprints && !hash_of(object, packed, hash)) return false;
  save = PackedSave{found.saved_id, found.version, found.sequence_nr, hash, hook.is_recomputed};
  return true;
}

// Return the id of the tensor that a hook failed to pack, NO_ID if this thread is not recorded.
int64_t id_of_failed(RecordingObject& object, PyObject* packed) {
  int64_t id = NO_ID;
  bool done = guarded(object, [&] {
    bool is_observed = false;
    if (!observes(object, is_observed)) return false;
    if (!is_observed) return true;
    WithoutTorchFunction disabled;
    at::Tensor tensor = tensor_of(packed);
    if (PyErr_Occurred()) return false;
    if (!tensor.defined()) return true;
    int64_t thread = thread_context(*object.recording).number;
    std::lock_guard<std::mutex> lock(object.recording->mutex);
    id = object.recording->intern(tensor, thread, now_ns());
    return true;
  });
  if (!done) PyErr_Clear();  // the hook's own exception counts
  return id;
}

// Remember what a hook returned; false with an exception on failure.
bool remember(RecordingObject& object, const PackedSave& save, PyObject* result) {
  if (object.python_packed != nullptr && PyDict_GET_SIZE(object.python_packed) > 0) {
    PyObject* done = call_tracer(object, name_discard_dead, result);
    if (done == nullptr) return false;
    Py_DECREF(done);
    if (object.recording == nullptr) return true;
  }
  object.packed->add(*object.recording, save, result, thread_context(*object.recording).number);
  return true;
}

PyObject* pack(HookObject& hook, RecordingObject& object, PyObject* tensor) {
  std::optional<PackedSave> save;
  if (!guarded(object, [&] { return record_pack(hook, object, tensor, save); })) return nullptr;
  Recording* recording = object.recording;
  if (recording == nullptr) return PyObject_CallOneArg(hook.hook, tensor);
  BeforeHook before = begin_hook(thread_context(*recording));
  PyObject* result = PyObject_CallOneArg(hook.hook, tensor);
  if (object.recording != recording) return result;  // it has ended
  int64_t raised = NO_ID;
  if (result == nullptr) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    raised = id_of_failed(object, tensor);
    PyErr_Restore(type, error, traceback);
  }
  if (object.recording == recording) end_hook(thread_context(*recording), before, raised);
  if (result != nullptr && save && object.recording == recording &&
      !guarded(object, [&] { return remember(object, *save, result); }))
    Py_CLEAR(result);
  return result;
}

// Find the save that is about to be unpacked; false with an exception on failure.
bool find_packed(RecordingObject& object, PyObject* packed, std::optional<PackedSave>& save, int64_t& node_id) {
  bool is_observed = false;
  if (!observes(object, is_observed)) return false;
  if (!is_observed) return true;
  ThreadContext& thread = thread_context(*object.recording);
  {
    std::lock_guard<std::mutex> lock(object.recording->mutex);
    if (!thread.running.empty()) node_id = thread.running.back().node_id;
  }
  object.packed->forget_released(*object.recording);
  PackedSave* found = object.packed->find(packed, node_id);
  if (found != nullptr) save = *found;
  return true;
}

// Record an unpack; ``result`` is null if it failed. False with an exception on failure.
bool record_unpack(RecordingObject& object, const PackedSave& save, int64_t node_id, PyObject* result) {
  bool is_observed = false;
  if (!observes(object, is_observed)) return false;
  if (!is_observed) return true;
  int is_tensor = result == nullptr ? 0 : PyObject_IsInstance(result, tensor_class);
  if (is_tensor < 0) return false;
  int64_t hash = NO_ID;
  if (object.recording->with_fingerprints && is_tensor) {
    WithoutTorchFunction disabled;
    if (!hash_of(object, result, hash)) return false;
    if (object.recording == nullptr) return true;
  }
  object.packed->count_unpack(save.saved_id);
  Recording& recording = *object.recording;
  std::vector<Place> places;
  std::vector<PyCodeObject*> new_codes;
  size_t count = recording.with_stacks ? read_stack(recording, places, outer_frame()) : 0;
  int64_t thread = thread_context(recording).number, time_ns = now_ns(), stack = NO_ID;
  {
    std::lock_guard<std::mutex> lock(recording.mutex);
    if (recording.with_stacks) stack = recording.intern_stack(places.data(), count, thread, time_ns, new_codes);
    size_t start = recording.begin_event(Kind::tensor_unpacked, recording.seq(), time_ns, thread, stack);
    int64_t failed = is_tensor ? 0 : 1;
    for (int64_t value : {save.saved_id, node_id, save.version, NO_ID, failed, save.hash, hash}) recording.put(value);
    recording.end_event(start);
  }
  keep_codes(new_codes);
  check_due(recording);
  return true;
}

PyObject* unpack(HookObject& hook, RecordingObject& object, PyObject* packed) {
  std::optional<PackedSave> save;
  int64_t node_id = NO_ID;
  if (!guarded(object, [&] { return find_packed(object, packed, save, node_id); })) return nullptr;
  Recording* recording = object.recording;
  PyObject* result = PyObject_CallOneArg(hook.hook, packed);
  if (!save || recording == nullptr || object.recording != recording) return result;
  PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
  if (result == nullptr) PyErr_Fetch(&type, &error, &traceback);
  bool done = guarded(object, [&] { return record_unpack(object, *save, node_id, result); });
  if (!done) {
    Py_CLEAR(result);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  } else if (type != nullptr) {
    PyErr_Restore(type, error, traceback);
  }
  return result;
}

// Return the open recording of a hook, a new reference; null without an exception if it has ended.
PyObject* open_recording(HookObject& hook) {
  PyObject* target = hook.recording == nullptr ? nullptr : PyObject_GetAttr(hook.recording, name_target);
  if (target == nullptr) PyErr_Clear();
  auto* object = reinterpret_cast<RecordingObject*>(target);
  if (target != nullptr && target != Py_None && object->recording != nullptr) return target;
  Py_XDECREF(target);
  return nullptr;
}

template <PyObject* (*work)(HookObject&, RecordingObject&, PyObject*)>
PyObject* call_hook(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  auto& hook = *reinterpret_cast<HookObject*>(self);
  if (hook.hook == nullptr) return PyErr_Format(PyExc_RuntimeError, "the hook was collected as garbage");
  Py_INCREF(self);  // the graph that holds it may be freed meanwhile
  bool one = PyVectorcall_NARGS(flags) == 1 && names == nullptr;
  PyObject* object = one ? open_recording(hook) : nullptr;
  PyObject* result = object == nullptr
      ? PyObject_Vectorcall(hook.hook, arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names)
      : work(hook, *reinterpret_cast<RecordingObject*>(object), arguments[0]);
  Py_XDECREF(object);
  Py_DECREF(self);
  return result;
}

PyObject* new_hook(PyObject* recording, PyObject* original, vectorcallfunc call) {
  auto* hook = reinterpret_cast<HookObject*>(hook_type->tp_alloc(hook_type, 0));
  if (hook == nullptr) return nullptr;
  hook->call = call;
  hook->hook = Py_NewRef(original);
  hook->recording = Py_NewRef(recording);
  return reinterpret_cast<PyObject*>(hook);
}

// wrap_hooks(reference to this recording, pack hook, unpack hook, kind of hooks, region, recompute)
//   -> wrapped pack hook, wrapped unpack hook
PyObject* wrap_hooks(PyObject* self, PyObject* arguments) {
  PyObject *reference, *pack_hook, *unpack_hook, *region, *recompute;
  const char* kind;
  if (!PyArg_ParseTuple(arguments, "OOOsOO", &reference, &pack_hook, &unpack_hook, &kind, &region, &recompute))
    return nullptr;
  auto number = [](PyObject* value) { return value == Py_None ? NO_ID : PyLong_AsLongLong(value); };
  PackedIn where{strings().add(kind), number(region), number(recompute), 0};
  if (PyErr_Occurred()) return nullptr;
  PyObject* packing = new_hook(reference, pack_hook, call_hook<pack>);
  PyObject* unpacking = new_hook(reference, unpack_hook, call_hook<unpack>);
  if (packing != nullptr) {
    auto* hook = reinterpret_cast<HookObject*>(packing);
    hook->where = where;
    hook->counts = true;
    hook->is_recomputed = std::strcmp(kind, "recompute") == 0;
  }
  if (packing != nullptr && unpacking != nullptr) return Py_BuildValue("NN", packing, unpacking);
  Py_XDECREF(packing);
  Py_XDECREF(unpacking);
  return nullptr;
}

// set_tracer(tracer, packed): how hooks report to Python, and the packed objects that Python
// remembers, by address.
PyObject* set_tracer(PyObject* self, PyObject* arguments) {
  PyObject *tracer, *packed;
  if (!PyArg_ParseTuple(arguments, "OO!", &tracer, &PyDict_Type, &packed)) return nullptr;
  auto* object = reinterpret_cast<RecordingObject*>(self);
  Py_XSETREF(object->tracer, Py_NewRef(tracer));
  Py_XSETREF(object->python_packed, Py_NewRef(packed));
  Py_RETURN_NONE;
}

// discard_dead_packed(result): forget the saves of dead objects that had the address of an object.
PyObject* discard_dead_packed(PyObject* self, PyObject* result) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  packed_of(self).discard_dead(*recording, result, thread_context(*recording).number);
  Py_RETURN_NONE;
}

// release_packed(tensor): drop the weak references to a tensor.
PyObject* release_packed(PyObject* self, PyObject* tensor) {
  packed_of(self).release(tensor);
  Py_RETURN_NONE;
}

// prune_packed(first_saved_id): forget the saves through hooks with smaller ids.
PyObject* prune_packed(PyObject* self, PyObject* number) {
  int64_t first_saved_id = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  packed_of(self).prune(first_saved_id);
  Py_RETURN_NONE;
}

int traverse_hook(PyObject* self, visitproc visit, void* arg) {
  auto* hook = reinterpret_cast<HookObject*>(self);
  Py_VISIT(hook->hook);
  Py_VISIT(hook->recording);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear_hook(PyObject* self) {
  auto* hook = reinterpret_cast<HookObject*>(self);
  Py_CLEAR(hook->hook);
  Py_CLEAR(hook->recording);
  return 0;
}

void free_hook(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_TRASHCAN_BEGIN(self, free_hook)
  clear_hook(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
  Py_TRASHCAN_END
}

PyMemberDef hook_members[] = {
    {"hook", T_OBJECT_EX, offsetof(HookObject, hook), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(HookObject, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_hook)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_hook)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_hook)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, hook_members},
    {0, nullptr},
};

PyType_Spec hook_spec = {"autogradviz.recorder.native.TracingHook", sizeof(HookObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                             Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                         hook_slots};

// Create the type of hooks; false with an exception on failure.
bool prepare_hooks() {
  name_target = PyUnicode_InternFromString("target");
  name_attach = PyUnicode_InternFromString("attach");
  name_hash_of = PyUnicode_InternFromString("hash_of");
  name_fail = PyUnicode_InternFromString("fail");
  name_discard_dead = PyUnicode_InternFromString("discard_dead");
  PyObject* torch = PyImport_ImportModule("torch");
  tensor_class = torch == nullptr ? nullptr : PyObject_GetAttrString(torch, "Tensor");
  Py_XDECREF(torch);
  hook_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&hook_spec));
  return tensor_class != nullptr && hook_type != nullptr;
}

}  // namespace
}  // namespace agv
