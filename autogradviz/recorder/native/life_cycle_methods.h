// Methods that open, start, stop and close a recording, and suspend it around hooks or on a thread.
#pragma once

#include "decode_events.h"
#include "hooked_saves.h"
#include "recording_object.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace agv {
namespace {

// Recording(): one that is not open yet
PyObject* new_recording(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<RecordingObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->recording = new Recording();
  self->began_ns = self->recording->began_ns = clock_ns();
  self->packed = new PackedObjects();
  objects().push_back(self);
  return reinterpret_cast<PyObject*>(self);
}

// open(with_ops, with_stacks, with_fingerprints, with_norms, with_memory, outermost, clone_code, subclass_codes,
//      fake_class)
PyObject* open(PyObject* self, PyObject* arguments) {
  int with_ops, with_stacks, with_fingerprints, with_norms, with_memory;
  PyObject *outermost, *clone_code, *subclass_codes, *fake;
  if (!PyArg_ParseTuple(arguments, "pppppOOO!O!", &with_ops, &with_stacks, &with_fingerprints, &with_norms, &with_memory,
                        &outermost, &clone_code, &PyTuple_Type, &subclass_codes, &PyType_Type, &fake))
    return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  recording->with_ops = with_ops != 0;
  recording->with_stacks = with_stacks != 0;
  recording->with_fingerprints = with_fingerprints != 0;
  recording->with_norms = with_norms != 0;
  recording->with_memory = with_memory != 0;
  recording->outermost = PyLong_Check(outermost) ? PyLong_AsVoidPtr(outermost) : nullptr;
  recording->clone_code = PyCode_Check(clone_code) ? reinterpret_cast<PyCodeObject*>(clone_code) : nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(subclass_codes); ++i) {
    PyObject* code = PyTuple_GET_ITEM(subclass_codes, i);
    if (PyCode_Check(code)) recording->subclass_codes.push_back(reinterpret_cast<PyCodeObject*>(code));
  }
  if (PyErr_Occurred()) return nullptr;
  fake_class() = reinterpret_cast<PyTypeObject*>(fake);  // kept alive by PyTorch
  recording->generation = ++generations;
  most_taken_ns() = 0;
  total_taken_ns() = 0;
  program_time().depth = 0;  // a signal may have ended work for an earlier recording
  begin_program_time();
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
  BeforeHook before = begin_hook(thread_context(*recording));
  return Py_BuildValue("iLN", before.depth, static_cast<long long>(before.sequence_nr),
                       PyLong_FromVoidPtr(before.call));
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
  BeforeHook before{depth, static_cast<uint64_t>(sequence_nr), static_cast<OpContext*>(PyLong_AsVoidPtr(address))};
  end_hook(thread_context(*recording), before, raised);
  Py_RETURN_NONE;
}

// set_fingerprints(flag): read the contents of tensors from now on, or no longer.
PyObject* set_fingerprints(PyObject* self, PyObject* flag) {
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  recording->with_fingerprints = flag == Py_True;
  Py_RETURN_NONE;
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

// set_origins(ask, overload_code): ask a function of Python where operators come from.
PyObject* set_origins(PyObject* self, PyObject* arguments) {
  PyObject *ask, *code;
  if (!PyArg_ParseTuple(arguments, "OO!", &ask, &PyCode_Type, &code)) return nullptr;
  Recording* recording = recording_of(self);
  if (recording == nullptr) return nullptr;
  auto* object = reinterpret_cast<RecordingObject*>(self);
  Py_XSETREF(object->ask_origin, Py_NewRef(ask));
  recording->overload_code = reinterpret_cast<PyCodeObject*>(code);
  recording->ask_origin = ask;
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

// Whether PyTorch still has the callbacks of the parent, in a forked child.
inline bool inherited = false;

// NOTE [ PyTorch's lock of callbacks in a forked child ]
// PyTorch copies the list of global callbacks, under a lock, at the first operator of a thread and
// twice for each node that runs. If another thread holds the lock at a fork, nobody releases it in the
// child, which hangs at its first backward, with or without a recording; the callbacks of a recording
// make the list longer to copy. So another thread removes the callbacks in the child. If it waits for
// a lock of PyTorch, the owner of the lock does not exist: the child has only the thread that forked,
// which is here. The lock is released in place of its owner, which only read what it protects: a
// thread that changes the callbacks holds the GIL, as does one that forks.

// The removal of the callbacks on a thread of its own.
struct Removal {
  std::array<at::CallbackHandle, 2> handles;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::atomic<long> thread{0};  // its number in the system

  void run() {
#ifdef __linux__
    thread.store(syscall(SYS_gettid));
#endif
    for (at::CallbackHandle& handle : handles) remove_callback(handle);
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    ended.notify_one();
  }

  // Return the lock of PyTorch that the thread waits for, null if there is none or it is unknown.
  pthread_mutex_t* awaited() const {
#ifdef __linux__
    std::string path = "/proc/self/task/" + std::to_string(thread.load()) + "/syscall";
    char line[256] = {};
    int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return nullptr;
    ssize_t size = ::read(file, line, sizeof(line) - 1);
    ::close(file);
    long call = -1;
    unsigned long address = 0;
    if (size <= 0 || std::sscanf(line, "%ld %lx", &call, &address) != 2 || call != SYS_futex) return nullptr;
    auto* word = reinterpret_cast<void*>(address);  // the first member of a lock
    Dl_info library, of_torch;
    void* known = reinterpret_cast<void*>(&at::removeCallback);
    bool is_of_torch = dladdr(word, &library) != 0 && dladdr(known, &of_torch) != 0 && library.dli_fbase == of_torch.dli_fbase;
    return is_of_torch ? static_cast<pthread_mutex_t*>(word) : nullptr;
#else
    return nullptr;
#endif
  }
};

// Remove the callbacks in a forked child. Without a recording they do nothing.
void stop_in_child() {
  std::array<at::CallbackHandle, 2> handles{observer, node_observer};
  observer = node_observer = at::INVALID_CALLBACK_HANDLE;
  if (handles[1] == at::INVALID_CALLBACK_HANDLE) return;
  auto removal = std::make_shared<Removal>();
  removal->handles = handles;
  std::thread([removal] { removal->run(); }).detach();
  std::unique_lock<std::mutex> lock(removal->mutex);
  constexpr int MOST_LOOKS = 400;
  pthread_mutex_t* before = nullptr;
  for (int look = 0; look < MOST_LOOKS; ++look) {
    if (removal->ended.wait_for(lock, std::chrono::milliseconds(5), [&] { return removal->done; })) return;
    pthread_mutex_t* awaited = removal->awaited();
    if (awaited != nullptr && awaited == before) {
      pthread_mutex_unlock(awaited);
      awaited = nullptr;
    }
    before = awaited;
  }
  inherited = true;
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
  if (inherited) {
    if (recording->with_ops) active().store(recording, std::memory_order_release);
    Py_RETURN_NONE;
  }
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
  if (recording == nullptr)
    stop_in_child();
  else if (observed().load() == recording)
    stop_observing();
  Py_RETURN_NONE;
}

// Drop the references to Python objects.
int clear_recording(PyObject* self) {
  auto* object = reinterpret_cast<RecordingObject*>(self);
  object->packed->clear();
  Py_CLEAR(object->on_due);
  Py_CLEAR(object->tracer);
  Py_CLEAR(object->ask_origin);
  Py_CLEAR(object->python_packed);
  return 0;
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
    closed->ask_origin = nullptr;
    closed->origins = {};
    closed->created = {};
    closed->contents = {};
    closed->reached_leaves = {};
    closed->released_hooked = {};
    closed->names = {};
    closed->device_spans = nullptr;
    std::lock_guard<std::mutex> freed_lock(freed_mutex());
    closed->freed.clear();
    closed->freed_hooked = {};
    closed->holding = {};
  }
  if (!is_interpreter_ending())  // else some are not kept alive; see ``keep_codes``
    for (PyCodeObject* code : closed->retired) Py_DECREF(code);
  for (PyObject* list : closed->lists) Py_DECREF(list);
  closed->lists.clear();
  clear_recording(self);
  Py_RETURN_NONE;
}

int traverse_recording(PyObject* self, visitproc visit, void* arg) {
  auto* object = reinterpret_cast<RecordingObject*>(self);
  Py_VISIT(object->on_due);
  Py_VISIT(object->tracer);
  Py_VISIT(object->ask_origin);
  Py_VISIT(object->python_packed);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

void free_recording(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_XDECREF(close(self, nullptr));
  clear_recording(self);
  delete reinterpret_cast<RecordingObject*>(self)->packed;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
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

void in_child() {
  // The recordings are the parent's. Another thread may have held a lock.
  active().store(nullptr);
  observed().store(nullptr);
  new (&freed_mutex()) std::mutex;
  open_recordings().clear();
  for (RecordingObject* each : objects()) each->recording = nullptr;
  objects().clear();
}

}  // namespace
}  // namespace agv
