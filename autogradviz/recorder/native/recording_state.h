// Ids of tensors, storages and stacks, version counters, and the buffer of events.
//
// Everything here is protected by ``Recording::mutex``. No function takes the GIL or runs Python
// code while it is held.
#pragma once

#include "event_buffer.h"
#include "fingerprints.h"
#include "program_time.h"
#include "python_frames.h"
#include "unreadable_tensors.h"
#include "wrapper_tensors.h"

#include <ATen/SequenceNumber.h>
#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace agv {

constexpr int64_t NO_ID = -1;
constexpr int MAX_FRAMES = 150;

// The kinds of events in the buffer; ``decode_event`` has the layout of each.
enum class Kind : int64_t {
  tensor_seen,
  op_called,
  version_bumped,
  version_restored,
  stack_seen,
  frame_seen,
  random_drawn,
  mutation_cloned,
  node_seen,
  tensor_saved,
  tensor_unpacked,
  tensor_released,
  slot_seen,
  node_started,
  node_finished,
  grad_accumulated,
  module_entered,
  module_exited,
  not_finite_seen,
  collective_called,
  distributed_tensor_seen,
  output_norm_read,
  arguments_seen,
  strides_seen,
  device_copied,
  stream_used,
  storages_freed,
  count,
};

// Numbers by id. Ids count up; most lookups are of new ones.
class IdMap {
 public:
  using Old = ska::flat_hash_map<int64_t, int64_t>;

  int64_t get(int64_t id) const {
    if (id >= first_) return id - first_ < static_cast<int64_t>(recent_.size()) ? recent_[id - first_] : NO_ID;
    auto found = old_.find(id);
    return found == old_.end() ? NO_ID : found->second;
  }

  bool has(int64_t id) const {
    return id >= first_ ? id - first_ < static_cast<int64_t>(recent_.size()) : old_.count(id) > 0;
  }

  void set(int64_t id, int64_t value) {
    if (id < first_) {
      old_[id] = value;
      return;
    }
    if (id - first_ >= static_cast<int64_t>(recent_.size())) recent_.resize(id - first_ + 1, NO_ID);
    recent_[id - first_] = value;
  }

  template <class Visit>
  void each(const Visit& visit) const {
    for (const auto& each : old_) visit(each.first, each.second);
    for (size_t i = 0; i < recent_.size(); ++i) visit(first_ + static_cast<int64_t>(i), recent_[i]);
  }

  // Keep some ids; new ones begin at ``first``.
  void replace(Old kept, int64_t first) {
    old_ = std::move(kept);
    recent_ = {};
    first_ = first;
  }

 private:
  int64_t first_ = 0;
  std::vector<int64_t> recent_;
  Old old_;
};

// Hashes addresses; the default of the table divides by a prime.
struct AddressHash {
  using hash_policy = ska::fibonacci_hash_policy;

  size_t operator()(const void* address) const {
    return reinterpret_cast<size_t>(address) >> 4;
  }
};

using Sizes = c10::SmallVector<int64_t, 5>;

// A tensor is a window on a storage: offset, shape and dtype.
struct Window {
  int64_t offset;
  c10::ScalarType dtype;
  Sizes sizes;
};

inline bool matches(const Window& window, const c10::TensorImpl& tensor) {
  if (window.offset != tensor.storage_offset()) return false;
  if (window.dtype != c10::typeMetaToScalarType(tensor.dtype())) return false;
  c10::IntArrayRef sizes = tensor.sizes();
  return sizes.size() == window.sizes.size() &&
      std::equal(sizes.begin(), sizes.end(), window.sizes.begin());
}

struct TensorId {
  Window window;
  int64_t id;
  // Of a tensor on the meta device: a fake tensor of another device has the same storage.
  int64_t device = 0;
};

// A weak reference to a storage keeps its C++ header, and thus its address, but not its memory.
struct Storage {
  c10::weak_intrusive_ptr<c10::StorageImpl> reference;
  int64_t id;
  c10::SmallVector<TensorId, 1> tensors;
};

// One call into the autograd engine.
//
// NOTE [ Threads of devices ]
// PyTorch's engine runs the nodes of a device on a thread of that device, which it creates once and
// never ends; the caller of ``backward()`` waits. No Python frame stands below what is called there,
// so stacks continue with those of the call that the thread works for: a line on such a thread has
// the same callers as on the CPU. Calls may be nested, and several threads may call at once; the
// engine passes the thread-local state of the caller on, so a mark in it tells which call a task
// belongs to. The thread's own nodes run one after the other: when a node starts, all runs above
// those that were open when the innermost call began on this thread have ended.
struct EngineCall {
  int64_t backward_id;
  int64_t thread;  // that called
  bool keep_graph;
  int task;  // the engine's number, NO_ID until its first node runs
  int64_t outer;  // the backward whose node called, NO_ID if none did
  size_t runs_before;  // that are open on the calling thread
  std::shared_ptr<const std::vector<Place>> callers;  // the stack of the call
  std::string mark;  // in the thread-local state of the caller
};

// One run of a node.
struct Run {
  int64_t backward_id;
  int64_t node_id;
  int64_t thread;
  std::shared_ptr<void> record;  // a ``NodeRecord``
  bool has_gradient;
  int64_t ended_ns;  // 0 while it runs
  bool failed = false;  // it ended with an exception
};

// The tensors that an operator's node may have saved, with the fingerprints of their contents.
struct CreatorContents {
  int64_t seq;
  std::vector<std::pair<int64_t, int64_t>> hashes;  // by tensor
};

struct OpContext;

// Where an operator was called; see compile/leave_out_generated_code_ops.py.
enum class Origin : int64_t { eager, compiled, left_out, all_left_out };

// The state of one thread in one recording.
struct ThreadContext {
  uint64_t generation = 0;
  int64_t number = 0;
  int depth = 0;  // of calls inside a recorded operator
  bool in_left_out = false;  // the call at depth 1 is not recorded
  bool suspended = false;  // a compiler traces on this thread
  uint64_t sequence_nr = 0;  // autograd's counter when it was last read
  OpContext* call = nullptr;  // the operator that is running
  int64_t last_op_seq = NO_ID;  // event of the operator that ended last
  int64_t last_op = NO_ID;  // its index
  int64_t step_ops = 0;  // operators of this step, if it is the step of the next member
  int64_t step = -1;
  // The lists of a ``ThreadState``, which only this thread changes, or null.
  PyObject* calls = nullptr;
  PyObject* modules = nullptr;
  PyObject* regions = nullptr;
  std::vector<Run> running;  // protected by ``Recording::mutex``
};

class DeviceSpans;
class Recording;

// NOTE [ End of the process ]
// A recording may be open when the process ends, and daemon threads may compute then. Their operators
// end, and nodes die, while and after static objects are destroyed. So the objects that this needs
// are never destroyed, and no thread asks for the GIL once the interpreter is ending.

// Protects what the death of a node changes. Nothing else is locked while it is held.
inline std::mutex& freed_mutex() {
  static std::mutex& found = *new std::mutex;
  return found;
}

// The recordings that are open; protected by ``freed_mutex``.
inline std::vector<Recording*>& open_recordings() {
  static std::vector<Recording*>& found = *new std::vector<Recording*>;
  return found;
}

class Recording {
 public:
  std::mutex mutex;
  std::atomic<int64_t> next_seq{0};
  std::atomic<int> next_thread{0};
  std::atomic<int64_t> due{INT64_MAX};  // the event from which on Python is to act
  int64_t began_ns = 0;
  bool with_ops = true;
  bool with_stacks = true;
  std::atomic<bool> with_fingerprints{false};  // also set while operators run
  bool with_norms = false;
  bool with_memory = false;  // storages that are freed are recorded
  std::shared_ptr<DeviceSpans> device_spans;  // null unless the time on the device is recorded
  const void* outermost = nullptr;  // the Python frame that opened the recording
  std::vector<PyCodeObject*> subclass_codes;  // functions that make parameters; kept alive by PyTorch
  PyObject* ask_origin = nullptr;  // called once for each code object; protected by the GIL
  PyCodeObject* overload_code = nullptr;  // of the function in Python that calls an operator
  std::unordered_map<const void*, Origin> origins;  // by code object, which Python keeps alive
  PyCodeObject* clone_code = nullptr;  // allow_mutation_on_saved_tensors clones in this function
  uint64_t generation = 0;

  Limits limits;
  EventBuffer events;
  EventBuffer freed;  // events of nodes that died; protected by ``freed_mutex``
  std::vector<int64_t> freed_hooked;  // their saves that went through hooks; likewise
  std::unordered_set<void*> holding;  // records of nodes that hold saved tensors; likewise
  std::vector<PyCodeObject*> retired;  // code objects of stacks that were dropped

  int64_t node_count = 0;  // protected by the GIL, as are the next two
  uint64_t walks = 0;
  int64_t call_count = 0;
  int64_t saved_count = 0;
  std::unordered_set<const void*> unlocated;  // slots of nodes that cannot be read
  std::unordered_set<int64_t> known_leaves;  // that Python has weak references to
  std::vector<EngineCall> engine_calls;  // that are open
  std::vector<std::shared_ptr<ThreadContext>> threads;
  std::vector<std::pair<int64_t, int64_t>> reached_leaves;  // leaf and backward, for Python
  std::vector<int64_t> released_hooked;  // saves through hooks that Python is to forget

  IdMap storage_of;  // by tensor
  IdMap known;  // the highest version seen, by storage
  std::unordered_map<int64_t, std::vector<std::pair<int64_t, int64_t>>> reached;  // seq, version
  std::unordered_map<int64_t, int64_t> custom;  // stacks of custom Functions, by sequence number
  std::unordered_map<int64_t, std::vector<CreatorContents>> created;  // by sequence number
  std::unordered_set<int64_t> contents;  // fingerprints that were searched for NaN
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> recent;  // results, a ring
  size_t recent_next = 0;
  std::vector<PyObject*> lists;  // of thread states

  // The operator that raised last, its thread, and what was alive then; see NOTE [ Memory at a failure ].
  int64_t failed_op = NO_ID;
  int64_t failed_thread = NO_ID;
  std::vector<int64_t> alive_at_failure;  // one tensor of each storage
  int64_t failures_ns = 0;  // the time that this took

  // Of the operators since the last step ended; see autogradviz/recorder/step_digest.py.
  int64_t step = 0;
  int64_t step_ops = 0;
  uint64_t step_digest = 0;

  // Add an operator to the digest of the step. ``hash`` is that of its name and phase.
  void digest(ThreadContext& thread, uint64_t hash) {
    if (thread.step != step) {
      thread.step = step;
      thread.step_ops = 0;
    }
    uint64_t mixed = (hash ^ (static_cast<uint64_t>(thread.step_ops++) * 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    step_digest += mixed ^ (mixed >> 29);
    ++step_ops;
  }

  // Return the place of a process group among the names, and the number of its next collective,
  // which is counted if ``counts``.
  std::pair<int64_t, int64_t> next_in_group(const std::string& group, bool counts) {
    auto [found, is_new] = groups.try_emplace(group, static_cast<int64_t>(names.size()), int64_t{0});
    if (is_new) names.push_back(group);
    auto& [name, number] = found->second;
    return {name, counts ? number++ : NO_ID};
  }

  int64_t seq() {
    return next_seq.fetch_add(1, std::memory_order_relaxed);
  }

  // Begin an event: its header and the fields of every event. ``end_event`` completes it.
  size_t begin_event(Kind kind, int64_t seq, int64_t time_ns, int64_t thread, int64_t stack) {
    size_t start = events.begin_event(static_cast<int>(kind));
    for (int64_t value : {seq, time_ns - began_ns, thread, stack}) events.put(value);
    return start;
  }

  void end_event(size_t start) {
    events.end_event(start);
  }

  void put(int64_t value) {
    events.put(value);
  }

  template <class Values>
  void put_all(const Values& values) {
    events.put(static_cast<int64_t>(values.size()));
    for (int64_t value : values) events.put(value);
  }

  // Record that a saved tensor was released.
  void put_released(int64_t saved_id, int64_t thread, int64_t time_ns) {
    size_t start = begin_event(Kind::tensor_released, seq(), time_ns, thread, NO_ID);
    put(saved_id);
    end_event(start);
  }

  // Record that a saved tensor died with its node. ``freed_mutex`` is held, and not ``mutex``.
  void put_freed(int64_t saved_id, bool is_hooked);

  // Return the engine call whose graph task runs on this thread, null if it is not known.
  EngineCall* call_of(int task, int64_t thread) {
    EngineCall* found = nullptr;
    for (EngineCall& call : engine_calls)
      if (call.task == task) return &call;
    // The first node of a task: the newest call without one, preferably this thread's.
    for (EngineCall& call : engine_calls)
      if (call.task == NO_ID && at::impl::ThreadLocalPythonObjects::contains(call.mark) &&
          (found == nullptr || call.thread == thread || found->thread != thread))
        found = &call;
    if (found != nullptr) found->task = task;
    return found;
  }

  EngineCall* call_with_id(int64_t backward_id) {
    for (EngineCall& call : engine_calls)
      if (call.backward_id == backward_id) return &call;
    return nullptr;
  }

  // Return the stack of the call for which this thread works, null if the thread is the program's.
  std::shared_ptr<const std::vector<Place>> callers_of(int task, int64_t thread) {
    EngineCall* call = call_of(task, thread);
    while (call != nullptr && call->thread == thread) call = call_with_id(call->outer);
    return call == nullptr ? nullptr : call->callers;
  }

  // Return the number of runs on a thread that the innermost call there is nested in.
  size_t runs_before(int64_t thread) const {
    for (auto call = engine_calls.rbegin(); call != engine_calls.rend(); ++call)
      if (call->thread == thread) return call->runs_before;
    return 0;
  }

  int64_t custom_stack(int64_t sequence_nr) const {
    auto found = custom.find(sequence_nr);
    return found == custom.end() ? NO_ID : found->second;
  }

  // --- contents ------------------------------------------------------------------------------

  // Record a content that is not finite, once.
  void put_content(const Fingerprint& content, int64_t thread, int64_t time_ns) {
    if (content.nans + content.infinities == 0 || !contents.insert(content.hash).second) return;
    size_t start = begin_event(Kind::not_finite_seen, seq(), time_ns, thread, NO_ID);
    for (int64_t value : {content.hash, content.nans, content.infinities}) put(value);
    end_event(start);
  }

  // Return a tensor's fingerprint when a node saved it, NO_ID if it is unknown.
  //
  // A square matrix and its transpose are one window on one storage with different contents: if an
  // operator took both, it is unknown which one it saved.
  int64_t hash_saved(int64_t sequence_nr, int64_t tensor) const {
    auto creators = created.find(sequence_nr);
    if (creators == created.end()) return NO_ID;
    for (const CreatorContents& each : creators->second) {
      bool found = false, differs = false;
      int64_t hash = NO_ID;
      for (auto [other, content] : each.hashes) {
        if (other != tensor) continue;
        differs = differs || (found && content != hash);
        hash = content;
        found = true;
      }
      if (found) return differs ? NO_ID : hash;
    }
    return NO_ID;
  }

  // --- tensors and storages ------------------------------------------------------------------

  // Return a tensor's id, and record the tensor if it is new.
  //
  // Of a new tensor that is not the result of an operator, the strides are recorded too.
  int64_t intern(const at::Tensor& tensor, int64_t thread, int64_t time_ns, bool is_result = false) {
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (impl.is_python_dispatch())
      if (const Wrapper* wrapper = find_wrapper(impl)) return intern_wrapper(*wrapper, thread, time_ns);
    if (!is_followed(impl)) return intern_bare(tensor, thread);
    c10::StorageImpl* address = impl.unsafe_storage().unsafeGetStorageImpl();
    auto found = storages_.find(address);
    if (found != storages_.end()) {
      Storage& storage = found->second;
      int64_t device = device_if_meta(impl, *address);
      for (const TensorId& each : storage.tensors)
        if (matches(each.window, impl) && each.device == device) return each.id;
      int64_t id = add_tensor(storage.id);
      storage.tensors.push_back({window_of(impl), id, device});
      describe(id, storage.id, impl, thread, time_ns, is_result);
      return id;
    }
    if (storages_.size() >= sweep_at_) sweep();
    int64_t storage_id = storage_count_++;
    known.set(storage_id, NO_ID);
    int64_t id = add_tensor(storage_id);
    auto strong = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(address);
    Storage storage{c10::weak_intrusive_ptr<c10::StorageImpl>(strong), storage_id, {}};
    storage.tensors.push_back({window_of(impl), id, device_if_meta(impl, *address)});
    storages_.emplace(address, std::move(storage));
    if (with_memory) watched_.push_back({address, storage_id});
    describe(id, storage_id, impl, thread, time_ns, is_result);
    return id;
  }

  // Return one id for all tensors of a shape, dtype and device; for gradients that are not tracked.
  int64_t intern_by_shape(const at::Tensor& tensor, int64_t thread, int64_t time_ns) {
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (impl.is_python_dispatch() || !is_followed(impl)) return intern(tensor, thread, time_ns);
    Window shape{device_word(impl), c10::typeMetaToScalarType(impl.dtype()), Sizes(impl.sizes().begin(), impl.sizes().end())};
    for (const TensorId& each : shapes_)
      if (each.window.offset == shape.offset && each.window.dtype == shape.dtype && each.window.sizes == shape.sizes)
        return each.id;
    int64_t id = add_tensor(NO_ID);
    int64_t nbytes = impl.numel() * static_cast<int64_t>(impl.itemsize());
    put_tensor(id, NO_ID, shape.sizes, static_cast<int64_t>(shape.dtype), shape.offset, nbytes, 0, thread, time_ns);
    constexpr size_t MAX_SHAPES = 512;
    if (shapes_.size() >= MAX_SHAPES) shapes_.clear();
    shapes_.push_back({std::move(shape), id});
    return id;
  }

  static bool has_plain_storage(c10::TensorImpl& impl) {
    return impl.has_storage() && impl.unsafe_storage() && !impl.is_sparse() &&
        impl.layout() == c10::kStrided && !impl.has_symbolic_sizes_strides() &&
        !impl.key_set().has_any(c10::DispatchKeySet({
            c10::DispatchKey::NestedTensor,
            c10::DispatchKey::FuncTorchBatched,
            c10::DispatchKey::FuncTorchGradWrapper,
            c10::DispatchKey::Functionalize,
        }));
  }

  // Return whether a tensor is a window on a storage that can be followed.
  static bool is_followed(c10::TensorImpl& impl) {
    return (!impl.is_python_dispatch() || is_fake(impl)) && has_plain_storage(impl);
  }

  // Record, once for each kind, that something is not read from a tensor's entries. No lock is needed.
  void could_not_read(const char* what, const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    std::string kind = kind_without_entries(impl);
    constexpr c10::DispatchKeySet VIEWS({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
    if (kind.empty() && impl.key_set().has_any(VIEWS) && impl.numel() != 0) kind = "conjugate and negative views";
    if (!kind.empty()) limits.add(what, std::move(kind));
  }

  Fingerprint read_fingerprint(const at::Tensor& tensor) {
    Fingerprint found = fingerprint_of(tensor);
    if (found.hash == UNREADABLE) could_not_read("fingerprints", tensor);
    return found;
  }

  static int64_t version_of(c10::TensorImpl& impl) {
    return impl.is_inference() ? NO_ID : static_cast<int64_t>(impl.version_counter().current_version());
  }

  int64_t storage_id(int64_t tensor) const {
    return storage_of.get(tensor);
  }

  // An entry's weak reference keeps the address from being used by another storage.
  int64_t id_of_storage(c10::StorageImpl* address) const {
    auto found = storages_.find(address);
    return found == storages_.end() ? NO_ID : found->second.id;
  }

  // Remove dead storages, whose headers would leave holes between the user's tensors.
  void sweep() {
    if (with_memory) remove_freed();
    for (auto each = storages_.begin(); each != storages_.end();) {
      if (each->second.reference.expired())
        each = storages_.erase(each);
      else
        ++each;
    }
    sweep_at_ = 2 * storages_.size() + SWEEP;
  }

  // Return the ids of the tensors that may be seen again.
  std::vector<int64_t> live_tensors() const {
    std::vector<int64_t> found;
    for (const auto& each : storages_)
      if (!each.second.reference.expired())
        for (const TensorId& tensor : each.second.tensors) found.push_back(tensor.id);
    std::unordered_set<int64_t> with_memory;
    if (!bare_.empty()) with_memory.insert(found.begin(), found.end());
    for (const auto& each : bare_) {
      auto inner = inner_of_.find(each.second);  // a wrapper lives no longer than what it holds
      if (inner == inner_of_.end() || with_memory.count(inner->second) != 0) found.push_back(each.second);
    }
    for (const TensorId& each : shapes_) found.push_back(each.id);
    return found;
  }

  // Return one tensor of each storage that is alive.
  std::vector<int64_t> live_storages() const {
    std::vector<int64_t> found;
    for (const auto& each : storages_)
      if (!each.second.reference.expired() && !each.second.tensors.empty())
        found.push_back(each.second.tensors[0].id);
    return found;
  }

  // Return the ids and bytes of the storages that are alive. The header of a dead one can be read.
  std::vector<std::pair<int64_t, int64_t>> live_nbytes() const {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const auto& each : storages_)
      if (!each.second.reference.expired())
        found.emplace_back(each.second.id, static_cast<int64_t>(each.first->nbytes()));
    return found;
  }

  // NOTE [ Freed storages ]
  // PyTorch calls nobody when a storage dies, and what it would call, the deleter of the data, is the
  // program's: another one shows in its results. The table has a weak reference to each storage
  // anyway. With ``memory=True`` the counts behind them are read when an operator ends, on any
  // thread: a nanosecond or two for each live storage, as they stand in a row and no read waits for
  // another. A dead storage is removed, and its address free for another one.
  //
  // The storages died after the last operator or while this one ran, so the event comes before that
  // of the operator, whose results are born with it.
  void put_freed_storages(int64_t thread, int64_t time_ns) {
    if (!with_memory) return;
    remove_freed();
    if (freed_storages_.empty()) return;
    size_t start = begin_event(Kind::storages_freed, seq(), time_ns, thread, NO_ID);
    put_all(freed_storages_);
    end_event(start);
    freed_storages_.clear();
  }

  // NOTE [ Memory at a failure ]
  // Whether an operator failed for lack of memory is known when Python has the exception. What the
  // operator's callers held is free by then, in a backward all gradients on their way. So the live
  // storages are noted for every operator that raises; a program in which many do loses a fiftieth of
  // its time at most.
  void note_failure(int64_t op_seq, int64_t thread) {
    int64_t started_ns = now_ns();
    constexpr int64_t LEAST_NS = 100000000, SHARE = 50;
    failed_op = failures_ns < LEAST_NS + (started_ns - began_ns) / SHARE ? op_seq : NO_ID;
    failed_thread = thread;
    if (failed_op == NO_ID) return;
    alive_at_failure = live_storages();
    failures_ns += now_ns() - started_ns;
  }

  // Forget dead storages, and what the tables know of them.
  //
  // ``keeps`` returns whether the id of a tensor is in use although its storage may be dead.
  template <class Keeps>
  void prune(const Keeps& keeps, size_t max_windows) {
    sweep();
    if (live_tensors().size() > max_windows) drop_unused_windows(keeps);
    IdMap::Old tensors, versions;
    for (int64_t id : live_tensors()) tensors[id] = storage_of.get(id);
    storage_of.each([&](int64_t id, int64_t storage) {
      if (keeps(id)) tensors[id] = storage;
    });
    for (const auto& each : storages_) versions[each.second.id] = known.get(each.second.id);
    for (const auto& each : tensors)
      if (each.second != NO_ID) versions[each.second] = known.get(each.second);
    storage_of.replace(std::move(tensors), tensor_count_);
    known.replace(std::move(versions), storage_count_);
  }

  // Forget the tensors that are not in use: another one of the same window gets a new id.
  template <class Keeps>
  void drop_unused_windows(const Keeps& keeps) {
    for (auto& each : storages_) {
      auto& tensors = each.second.tensors;
      auto unused = [&](const TensorId& tensor) { return !keeps(tensor.id); };
      // The first one stays, as long as its storage does.
      if (!tensors.empty()) tensors.erase(std::remove_if(tensors.begin() + 1, tensors.end(), unused), tensors.end());
    }
    for (auto each = bare_.begin(); each != bare_.end();)
      each = keeps(each->second) ? std::next(each) : bare_.erase(each);
  }

  // Forget the versions and contents from before an event.
  void prune_history(int64_t first_seq) {
    for (auto each = reached.begin(); each != reached.end();) {
      if (!known.has(each->first)) {
        each = reached.erase(each);
        continue;
      }
      auto& events = each->second;
      auto place = std::lower_bound(events.begin(), events.end(), std::make_pair(first_seq, int64_t{0}));
      if (place - events.begin() > 1) events.erase(events.begin(), place - 1);
      ++each;
    }
    constexpr size_t MAX_CUSTOM = 20000;
    if (custom.size() > MAX_CUSTOM) custom.clear();
    constexpr size_t MAX_CONTENTS = 1000000;
    if (contents.size() > MAX_CONTENTS) contents.clear();
    for (auto each = created.begin(); each != created.end();)
      each = each->second.back().seq < first_seq ? created.erase(each) : std::next(each);
  }

  // Return a tensor's version at the time of an event, NO_ID if it is unknown.
  int64_t version_at(int64_t tensor, int64_t seq) const {
    int64_t storage = storage_id(tensor);
    if (storage == NO_ID) return NO_ID;
    auto history = reached.find(storage);
    if (history != reached.end() && !history->second.empty()) {
      int64_t found = history->second[0].second;
      for (const auto& each : history->second)
        if (each.first <= seq) found = each.second;
      return found;
    }
    return known.get(storage);
  }

  void clear() {
    storages_.clear();
    watched_.clear();
    freed_storages_.clear();
    bare_.clear();
    inner_of_.clear();
    shapes_.clear();
    recent.clear();
  }

  // --- versions ------------------------------------------------------------------------------

  // Record a counter that exceeds the last known value although no op was seen to write.
  void seen(int64_t tensor, int64_t version, int64_t thread, int64_t time_ns) {
    int64_t storage = storage_id(tensor);
    if (storage == NO_ID) return;
    int64_t before = known.get(storage);
    if (version <= before) return;
    if (before == NO_ID) {
      known.set(storage, version);
      return;
    }
    bumped(tensor, version);
    emit_bumped(tensor, before, version, NO_OP, NO_ID, thread, NO_ID, time_ns);
  }

  void bumped(int64_t tensor, int64_t version) {
    int64_t storage = storage_id(tensor);
    if (storage != NO_ID && version > known.get(storage)) changed(storage, version);
  }

  void changed(int64_t storage, int64_t version) {
    int64_t before = known.get(storage);
    known.set(storage, version);
    auto& events = reached[storage];
    if (events.empty() && before != NO_ID) events.emplace_back(0, before);
    events.emplace_back(next_seq.load(std::memory_order_relaxed), version);
  }

  static constexpr int64_t NO_OP = -1;
  static constexpr int64_t INCREMENT_VERSION = -2;

  void emit_bumped(int64_t tensor, int64_t before, int64_t after, int64_t op, int64_t op_seq,
                   int64_t thread, int64_t stack, int64_t time_ns) {
    size_t start = begin_event(Kind::version_bumped, seq(), time_ns, thread, stack);
    for (int64_t value : {tensor, storage_id(tensor), before, after, op, op_seq}) put(value);
    end_event(start);
  }

  // --- arguments of operators -----------------------------------------------------------------

  static constexpr size_t MAX_ARGUMENTS = 10000;

  // Return the id of an operator's arguments, by a key of their values. ``text`` describes them when
  // they are new. Once there are too many, as when a number is another one in each step, new ones
  // are not recorded.
  template <class Text>
  int64_t intern_arguments(const std::string& key, int64_t thread, int64_t time_ns, const Text& text) {
    auto found = arguments_.find(key);
    if (found != arguments_.end()) return found->second;
    if (arguments_.size() >= MAX_ARGUMENTS) return NO_ID;
    int64_t id = argument_count_++;
    arguments_.emplace(key, id);
    std::string described = text();
    size_t start = begin_event(Kind::arguments_seen, seq(), time_ns, thread, NO_ID);
    put(id);
    put(static_cast<int64_t>(described.size()));
    for (unsigned char each : described) put(each);
    end_event(start);
    return id;
  }

  // Forget the arguments that are not in use; return all that were known. If the same ones come
  // again, they get a new id.
  template <class Keeps>
  std::vector<int64_t> prune_arguments(const Keeps& keeps) {
    std::vector<int64_t> known_before;
    for (auto each = arguments_.begin(); each != arguments_.end();) {
      known_before.push_back(each->second);
      each = keeps(each->second) ? std::next(each) : arguments_.erase(each);
    }
    return known_before;
  }

  // --- stacks --------------------------------------------------------------------------------

  // Return the id of a stack, and record it and its frames if they are new.
  //
  // ``new_codes`` receives the code objects that were never seen: the caller keeps them alive, so
  // that their addresses stay theirs.
  int64_t intern_stack(const Place* places, size_t count, int64_t thread, int64_t time_ns,
                       std::vector<PyCodeObject*>& new_codes) {
    uint64_t hash = 1469598103934665603ull;
    for (size_t i = 0; i < count; ++i) {
      hash = (hash ^ reinterpret_cast<uint64_t>(places[i].code)) * 1099511628211ull;
      hash = (hash ^ static_cast<uint64_t>(places[i].offset)) * 1099511628211ull;
    }
    auto range = stacks_.equal_range(hash);
    for (auto each = range.first; each != range.second; ++each) {
      const std::vector<Place>& known_places = each->second.second;
      if (known_places.size() == count &&
          std::equal(known_places.begin(), known_places.end(), places, same_place))
        return each->second.first;
    }
    int64_t id = stack_count_++;
    stacks_.emplace(hash, std::make_pair(id, std::vector<Place>(places, places + count)));
    std::vector<int64_t> frames;
    for (size_t i = 0; i < count; ++i) {
      if (codes_.emplace(places[i].code, true).second) new_codes.push_back(places[i].code);
      // Of a deep recursion both ends are kept.
      bool kept = count <= MAX_FRAMES || i < MAX_FRAMES / 2 || i >= count - MAX_FRAMES / 2;
      if (kept) frames.push_back(intern_frame(places[i], thread, time_ns));
    }
    size_t start = begin_event(Kind::stack_seen, seq(), time_ns, thread, id);
    put_all(frames);
    end_event(start);
    return id;
  }

  // Return the ids of the stacks that may be captured again.
  std::vector<int64_t> live_stacks() const {
    std::vector<int64_t> found;
    for (const auto& each : stacks_) found.push_back(each.second.first);
    return found;
  }

  // Forget all stacks. Events in the buffer may still refer to their code objects, so ``retired``
  // holds those until the buffer has been described.
  void drop_stacks() {
    for (const auto& each : codes_) retired.push_back(each.first);
    stacks_.clear();
    frames_.clear();
    codes_.clear();
  }

 private:
  static constexpr size_t SWEEP = 256;

  // Remove the storages that have died since the last call, and note their ids.
  void remove_freed() {
    for (size_t place = 0; place < watched_.size();) {
      auto [address, id] = watched_[place];
      if (c10::raw::weak_intrusive_ptr::use_count(address) != 0) {
        ++place;
        continue;
      }
      freed_storages_.push_back(id);
      storages_.erase(address);
      watched_[place] = watched_.back();
      watched_.pop_back();
    }
  }

  static bool same_place(const Place& a, const Place& b) {
    return a.code == b.code && a.offset == b.offset;
  }

  int64_t intern_frame(const Place& place, int64_t thread, int64_t time_ns) {
    auto key = std::make_pair(reinterpret_cast<uint64_t>(place.code), place.offset);
    auto found = frames_.find(key);
    if (found != frames_.end()) return found->second;
    int64_t id = frame_count_++;
    frames_.emplace(key, id);
    size_t start = begin_event(Kind::frame_seen, seq(), time_ns, thread, NO_ID);
    for (int64_t value : {id, reinterpret_cast<int64_t>(place.code), static_cast<int64_t>(place.offset)})
      put(value);
    end_event(start);
    return id;
  }

  static Window window_of(const c10::TensorImpl& impl) {
    c10::IntArrayRef sizes = impl.sizes();
    return {impl.storage_offset(), c10::typeMetaToScalarType(impl.dtype()), Sizes(sizes.begin(), sizes.end())};
  }

  int64_t add_tensor(int64_t storage) {
    int64_t id = tensor_count_++;
    storage_of.set(id, storage);
    return id;
  }

  void describe(int64_t id, int64_t storage, const c10::TensorImpl& impl, int64_t thread, int64_t time_ns,
                bool is_result) {
    int64_t nbytes = impl.numel() * static_cast<int64_t>(impl.itemsize());
    int64_t storage_nbytes = storage == NO_ID ? 0 : static_cast<int64_t>(impl.unsafe_storage().nbytes());
    put_tensor(id, storage, impl.sizes(), static_cast<int64_t>(c10::typeMetaToScalarType(impl.dtype())),
               device_word(impl), nbytes, storage_nbytes, thread, time_ns);
    if (is_result || (impl.is_contiguous() && impl.storage_offset() == 0)) return;
    size_t start = begin_event(Kind::strides_seen, seq(), time_ns, thread, NO_ID);
    put(id);
    put_all(impl.strides());
    put(impl.storage_offset());
    end_event(start);
  }

  static int64_t device_if_meta(const c10::TensorImpl& impl, const c10::StorageImpl& storage) {
    return storage.device().is_meta() ? device_word(impl) : 0;
  }

  static int64_t device_word(const c10::TensorImpl& impl) {
    // The device of a fake tensor is an attribute in Python, but its keys have the type.
    c10::Device device = is_fake(impl) ? c10::Device(type_in_keys(impl)) : impl.device();
    return (static_cast<int64_t>(device.type()) << 8) | static_cast<uint8_t>(device.index());
  }

  static c10::DeviceType type_in_keys(const c10::TensorImpl& impl) {
    c10::DispatchKeySet keys = impl.key_set();
    if (keys.has_backend(c10::BackendComponent::CPUBit)) return c10::kCPU;
    if (keys.has_backend(c10::BackendComponent::CUDABit)) return c10::kCUDA;
    return c10::kMeta;
  }

  template <class Shape>
  void put_tensor(int64_t id, int64_t storage, const Shape& shape, int64_t dtype, int64_t device,
                  int64_t nbytes, int64_t storage_nbytes, int64_t thread, int64_t time_ns) {
    size_t start = begin_event(Kind::tensor_seen, seq(), time_ns, thread, NO_ID);
    put(id);
    put(storage);
    put_all(shape);
    for (int64_t value : {dtype, device, nbytes, storage_nbytes}) put(value);
    end_event(start);
  }

  // Return the id of a tensor that is not followed: all of one class, or of one class and shape.
  int64_t intern_bare(const at::Tensor& tensor, int64_t thread) {
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    bool opaque = impl.is_python_dispatch();
    // Of other tensors, C++ code makes some before they have a Python object.
    const PyTypeObject* type = opaque ? class_of(impl) : nullptr;
    std::string key(reinterpret_cast<const char*>(&type), sizeof(type));
    Sizes sizes;
    if (!opaque) {
      bool no_shape = impl.is_nested() || impl.has_symbolic_sizes_strides();
      if (!no_shape) sizes.append(impl.sizes().begin(), impl.sizes().end());
      auto append = [&](int64_t value) { key.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
      for (int64_t size : sizes) append(size);
      append(static_cast<int64_t>(c10::typeMetaToScalarType(impl.dtype())));
      append(static_cast<int64_t>(impl.layout()));
    }
    auto found = bare_.find(key);
    if (found != bare_.end()) return found->second;
    int64_t id = add_tensor(NO_ID);
    bare_.emplace(key, id);
    limits.add("tensors", kind_without_entries(impl));
    // Of a class with its own dispatch only the name is known: reading its shape may run Python.
    int64_t dtype = opaque ? -2 - add_name(type) : static_cast<int64_t>(c10::typeMetaToScalarType(impl.dtype()));
    put_tensor(id, NO_ID, sizes, dtype, opaque ? NO_DEVICE : device_word(impl), 0, 0, thread, now_ns());
    return id;
  }

  // Return the id of a tensor that holds another one, whose storage it shares in the event. It has
  // a version counter of its own, so it does not count as a tensor of that storage here.
  int64_t intern_wrapper(const Wrapper& wrapper, int64_t thread, int64_t time_ns) {
    at::Tensor inner = wrapper.inner;
    while (const Wrapper* next = find_wrapper(*inner.unsafeGetTensorImpl())) inner = next->inner;
    const auto& sizes = wrapper.sizes;
    c10::ScalarType dtype = c10::typeMetaToScalarType(wrapper.tensor->dtype());
    const PyTypeObject* type = class_of(*wrapper.tensor);
    int64_t inner_id = intern(inner, thread, time_ns);
    std::string key = "wrapper";
    key.append(reinterpret_cast<const char*>(&type), sizeof(type));
    key.append(reinterpret_cast<const char*>(&inner_id), sizeof(inner_id));
    key.append(reinterpret_cast<const char*>(&wrapper.layout), sizeof(wrapper.layout));
    key.append(reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(int64_t));
    auto found = bare_.find(key);
    if (found != bare_.end()) return found->second;
    int64_t id = add_tensor(NO_ID);
    bare_.emplace(key, id);
    c10::TensorImpl& impl = *inner.unsafeGetTensorImpl();
    if (storage_of.get(inner_id) != NO_ID) inner_of_[id] = inner_id;
    bool plain = is_followed(impl);
    int64_t nbytes = plain ? impl.numel() * static_cast<int64_t>(impl.itemsize()) : 0;
    int64_t storage_nbytes = plain ? static_cast<int64_t>(impl.unsafe_storage().nbytes()) : 0;
    put_tensor(id, storage_of.get(inner_id), sizes, static_cast<int64_t>(dtype), device_word(impl), nbytes,
               storage_nbytes, thread, time_ns);
    if (wrapper.layout < 0) return id;
    size_t start = begin_event(Kind::distributed_tensor_seen, seq(), time_ns, thread, NO_ID);
    for (int64_t value : {id, inner_id, wrapper.layout}) put(value);
    end_event(start);
    return id;
  }

  int64_t add_name(const PyTypeObject* type) {
    names.push_back(name_of_class(type));
    return static_cast<int64_t>(names.size()) - 1;
  }

 public:
  static constexpr int64_t NO_DEVICE = -1;
  std::vector<std::string> names;  // of classes with their own dispatch, and of process groups
  std::unordered_map<std::string, std::pair<int64_t, int64_t>> groups;  // name and collectives of each

 private:
  ska::flat_hash_map<c10::StorageImpl*, Storage, AddressHash> storages_;
  std::unordered_map<std::string, int64_t> bare_;
  std::unordered_map<int64_t, int64_t> inner_of_;  // by wrapper, the tensor that it holds
  std::unordered_map<std::string, int64_t> arguments_;
  int64_t argument_count_ = 0;
  std::vector<TensorId> shapes_;  // the offset is the device
  size_t sweep_at_ = SWEEP;
  std::vector<std::pair<c10::StorageImpl*, int64_t>> watched_;  // all of ``storages_`` with their ids
  std::vector<int64_t> freed_storages_;  // that are removed and not recorded
  std::unordered_multimap<uint64_t, std::pair<int64_t, std::vector<Place>>> stacks_;
  struct PlaceHash {
    size_t operator()(const std::pair<uint64_t, int32_t>& key) const {
      return (key.first * 1099511628211ull) ^ static_cast<uint64_t>(key.second);
    }
  };
  std::unordered_map<std::pair<uint64_t, int32_t>, int64_t, PlaceHash> frames_;
  std::unordered_map<PyCodeObject*, bool> codes_;
  int64_t tensor_count_ = 0;
  int64_t storage_count_ = 0;
  int64_t stack_count_ = 0;
  int64_t frame_count_ = 0;
};

// Called by the interpreter on its main thread; defined with the Python objects.
int act_on_events(void*);

// Let Python act soon if enough events were recorded. No lock is held.
inline void check_due(Recording& recording) {
  int64_t due = recording.due.load(std::memory_order_relaxed);
  if (recording.next_seq.load(std::memory_order_relaxed) < due) return;
  if (recording.due.compare_exchange_strong(due, INT64_MAX)) Py_AddPendingCall(act_on_events, nullptr);
}

// --- threads ------------------------------------------------------------------------------------

// Operators are observed for this recording, and nodes that run.
inline std::atomic<Recording*>& active() {
  static std::atomic<Recording*> recording{nullptr};
  return recording;
}

inline std::atomic<Recording*>& observed() {
  static std::atomic<Recording*> recording{nullptr};
  return recording;
}

// Return whether the recording of a generation is open. ``freed_mutex`` is held.
inline bool is_listed(uint64_t generation) {
  for (Recording* recording : open_recordings())
    if (recording->generation == generation) return true;
  return false;
}

inline bool is_open_generation(uint64_t generation) {
  std::lock_guard<std::mutex> lock(freed_mutex());
  return is_listed(generation);
}

// The number of this thread in the recording that asked last. It outlives other thread-local state.
struct ThreadNumber {
  uint64_t generation;
  int64_t number;
};

inline ThreadNumber& last_thread_number() {
  static thread_local ThreadNumber found{0, 0};
  return found;
}

inline ThreadContext& thread_context(Recording& recording) {
  static thread_local ThreadContext* newest = nullptr;
  if (newest != nullptr && newest->generation == recording.generation) return *newest;
  static thread_local std::vector<std::shared_ptr<ThreadContext>> contexts;
  newest = nullptr;
  for (auto& each : contexts)
    if (each->generation == recording.generation) {
      last_thread_number() = {each->generation, each->number};
      return *(newest = each.get());
    }
  auto is_closed = [](const auto& each) { return !is_open_generation(each->generation); };
  contexts.erase(std::remove_if(contexts.begin(), contexts.end(), is_closed), contexts.end());
  auto context = std::make_shared<ThreadContext>();
  context->generation = recording.generation;
  context->number = recording.next_thread.fetch_add(1);
  context->sequence_nr = at::sequence_number::peek();
  begin_program_time();
  last_thread_number() = {context->generation, context->number};
  contexts.push_back(context);
  std::lock_guard<std::mutex> lock(freed_mutex());
  recording.threads.push_back(context);
  return *(newest = context.get());
}

inline void Recording::put_freed(int64_t saved_id, bool is_hooked) {
  int64_t thread = last_thread_number().generation == generation ? last_thread_number().number : 0;
  size_t start = freed.begin_event(static_cast<int>(Kind::tensor_released));
  for (int64_t value : {seq(), now_ns() - began_ns, thread, NO_ID, saved_id}) freed.put(value);
  freed.end_event(start);
  if (is_hooked) freed_hooked.push_back(saved_id);
}

}  // namespace agv
