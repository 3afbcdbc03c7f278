// Observes every operator through ``at::RecordFunction``, the interface that the profiler uses.
//
// NOTE [ Operators that are recorded ]
// The dispatcher reports each call, also those that a kernel makes. An operator that is only a
// composition of others (CompositeImplicitAutograd) is transparent: autograd sees its parts, and so
// does the recording. Calls inside another kernel are an implementation detail. While a functorch
// transform or a dispatch mode of Python is active, the first call is only the way to it, and the
// calls that it makes in turn are those that run. The same holds for calls on a thread that runs
// neither Python nor a backward: it works for a kernel that another thread has called, such as a
// collective, and which of several workers gets a call differs from run to run.
#pragma once

#include "fingerprints.h"
#include "current_streams.h"
#include "device_copies.h"
#include "output_norms.h"
#include "switch_observers_off.h"
#include "op_arguments.h"
#include "recording_state.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <exception>
#include <optional>
#include <string_view>

namespace torch::autograd {
TORCH_API int get_current_graph_task_id();
}

// ``c10d::ProcessGroup::getGroupName``, null in a PyTorch without distributed packages. Its header
// takes as long to compile as all others. This is not the virtual call, which runs Python if the
// group is written in Python: such a group has no name here.
extern "C" const std::string& agv_name_of_group(const void* group) __asm__("_ZNK4c10d12ProcessGroup12getGroupNameB5cxx11Ev")
    __attribute__((weak));

namespace agv {

enum class Phase : int64_t { forward, backward, recompute };

// The parts of an operator's schema that recording needs.
struct OpInfo {
  int64_t index;
  std::string name;  // "aten.add.Tensor"
  c10::SmallVector<std::pair<uint16_t, bool>, 4> tensors;  // positions, and whether it is written
  std::optional<c10::OperatorHandle> handle;
  size_t arguments = 0;  // in the schema
  size_t results = 0;
  bool composite = false;
  bool is_clone = false;
  bool is_detach = false;
  bool draws = false;
  bool bumps_later = false;  // a kernel above dispatch modes bumps the versions of what is written
  int generator = -1;  // position of that argument
  int group = -1;  // the same of the process group
  int async_op = -1;
  bool is_point_to_point = false;
  CopyInfo copy;
  bool repeats = false;  // a run shows no more than its graph; see compile/leave_out_generated_code_ops.py
  uint64_t hashes[3] = {};  // of its name and each phase; zero if it does not count in a step
  c10::SmallVector<uint16_t, 2> needed;  // random numbers are drawn only if none of these is zero
  std::unordered_map<int, bool> transparent_on;  // by backend
  bool may_be_quiet = false;  // its kernels run no Python but pack hooks, and nothing of them runs later
  int nested = 0;  // calls that its kernel made when it was last observed
};

// FNV-1a.
inline uint64_t hash_of(const std::string& text) {
  uint64_t found = 0xCBF29CE484222325u;
  for (unsigned char each : text) found = (found ^ each) * 0x100000001B3u;
  return found;
}

// PyTorch calls some operators for itself, and dispatch modes do not see all of them.
inline bool counts_in_step(const std::string& name) {
  return name != "aten.detach.default" && name != "aten.alias.default" && !name.starts_with("profiler.");
}

// Memory of contexts that were destroyed on this thread.
struct FreeMemory {
  std::vector<void*> blocks;
  bool ended = false;

  ~FreeMemory() {
    ended = true;
    for (void* block : blocks) ::operator delete(block);
    blocks.clear();
  }
};

inline FreeMemory& free_memory() {
  static thread_local FreeMemory found;
  return found;
}

struct Written {
  int64_t id;
  c10::TensorImpl* tensor;
  int64_t before;
};

struct OpContext : at::ObserverContext {
  // Contexts are used again: an operator creates one, and its end destroys it, on one thread.
  static void* operator new(size_t size) {
    std::vector<void*>& free = free_memory().blocks;
    if (free.empty()) return ::operator new(size);
    void* found = free.back();
    free.pop_back();
    return found;
  }

  static void operator delete(void* memory) {
    std::vector<void*>& free = free_memory().blocks;
    constexpr size_t MAX_FREE = 16;
    if (free_memory().ended || free.size() >= MAX_FREE)
      ::operator delete(memory);
    else
      free.push_back(memory);
  }

  explicit OpContext(uint64_t generation) : generation(generation) {}

  const uint64_t generation;  // of the recording; a hook may end it and begin another one
  OpInfo* op;
  c10::SmallVector<int64_t, 6> inputs;
  c10::SmallVector<int64_t, 6> versions;
  c10::SmallVector<Written, 1> written;
  std::vector<int64_t> hashes;  // of the inputs
  int64_t started_ns;
  uint64_t sequence_nr;
  int64_t inside = NO_ID;  // sequence number of the custom Function whose first op this is
  int exceptions;
  bool below_autograd = false;  // a dispatch mode of the user called it
  bool fresh = false;  // its node was created before it was dispatched
  // A pack hook raised: while an input was saved, so that the kernel never ran, or a result.
  bool skipped = false;
  bool hidden = false;  // PyTorch makes an object of a subclass with it
  bool traced = false;  // it only traces, with all that it calls
  int nested = 0;  // calls that its kernel has made
  QuietKernel quiet;
  Origin origin = Origin::eager;
  int64_t result = NO_ID;
  int64_t arguments = NO_ID;
  DeviceCopy copy;
  c10::Device device = c10::kCPU;  // of its first argument on an accelerator
  UsedStream stream;
  int64_t draw = NO_ID;  // 0: from the default generator, 1: from a given one
};

// Counts the operators that were removed: their schemas are freed, and addresses are used again.
class Removals : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}

  void onOperatorDeregistered(const c10::OperatorHandle&) override {
    count().fetch_add(1, std::memory_order_release);
  }

  static std::atomic<uint64_t>& count() {
    static std::atomic<uint64_t> removed{0};
    return removed;
  }
};

// The registry of operators.
class OpRegistry {
 public:
  OpRegistry() {
    // It stays for the whole process, as this library does.
    new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Removals>()));
  }

  // Return the operator of a call, null for a range that is not an operator.
  OpInfo* find(const at::RecordFunction& call) {
    uint64_t removals = Removals::count().load(std::memory_order_acquire);
    if (removals != removals_) {
      by_name_.clear();
      removals_ = removals;
    }
    // The name of an operator is that of its schema, which stays where it is; an overload has a
    // schema of its own. The names of ranges are temporary, and are not remembered.
    const char* name = call.name();
    auto known = by_name_.find(name);
    if (known != by_name_.end()) return known->second;
    std::optional<c10::OperatorName> qualified = call.operator_name();
    if (!qualified) return nullptr;
    OpInfo* info = read(*qualified);
    by_name_.emplace(name, info);
    return info;
  }

  OpInfo& detach() {
    static OpInfo* found = read({"aten::detach", ""});
    return *found;
  }

  const OpInfo& at(int64_t index) const {
    return *all_[index];
  }

 private:
  OpInfo* read(const c10::OperatorName& qualified) {
    all_.push_back(std::make_unique<OpInfo>());
    OpInfo& info = *all_.back();
    info.index = static_cast<int64_t>(all_.size()) - 1;
    std::string name = qualified.name;
    size_t colons = name.find("::");
    std::string space = colons == std::string::npos ? "" : name.substr(0, colons) + ".";
    std::string plain = colons == std::string::npos ? name : name.substr(colons + 2);
    info.name = space + plain + "." + (qualified.overload_name.empty() ? "default" : qualified.overload_name);
    info.handle = c10::Dispatcher::singleton().findSchema(qualified);
    if (!info.handle) return &info;
    const c10::OperatorHandle& handle = *info.handle;
    const c10::FunctionSchema& schema = handle.schema();
    info.arguments = schema.arguments().size();
    info.results = schema.returns().size();
    bool dropout = plain.find("dropout") != std::string::npos;
    for (const char* part : {"send", "recv", "p2p"})
      info.is_point_to_point = info.is_point_to_point || plain.find(part) != std::string::npos;
    if (counts_in_step(info.name))
      for (int phase = 0; phase < 3; ++phase) info.hashes[phase] = hash_of(info.name + "|" + std::to_string(phase));
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      if (argument.type()->str().find("Tensor") != std::string::npos) {
        bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
        info.tensors.emplace_back(static_cast<uint16_t>(i), written);
      }
      const std::string& label = argument.name();
      if (label == "generator") info.generator = static_cast<int>(i);
      if (label == "process_group" || label == "group_name") info.group = static_cast<int>(i);
      if (label == "async_op") info.async_op = static_cast<int>(i);
      if (label == "dropout_p" || label == "dropout" || label == "train" || label == "training" ||
          (dropout && label == "p"))
        info.needed.push_back(static_cast<uint16_t>(i));
    }
    info.composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    info.bumps_later = info.composite || handle.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
    info.copy = copy_info(info.name, schema);
    info.is_clone = qualified.name == "aten::clone";
    info.is_detach = qualified.name == "aten::detach";
    // Tagged, but one only chooses a kernel, and the other raises an exception if it should drop.
    info.draws = handle.hasTag(at::Tag::nondeterministic_seeded) && plain != "_fused_sdp_choice" &&
        plain != "_scaled_dot_product_flash_attention_for_cpu";
    bool writes = qualified.overload_name != "out" &&
        std::any_of(info.tensors.begin(), info.tensors.end(), [](const auto& each) { return each.second; });
    info.may_be_quiet = space == "aten." && info.group < 0;
    info.repeats = (space == "aten." || space == "prims.") && !writes && !info.draws && info.group < 0;
    return &info;
  }

  ska::flat_hash_map<const char*, OpInfo*, AddressHash> by_name_;
  uint64_t removals_ = 0;  // when the names were remembered
  std::vector<std::unique_ptr<OpInfo>> all_;
};

inline OpRegistry& registry() {
  static OpRegistry& found = *new OpRegistry;  // for the whole process; see NOTE [ End of the process ]
  return found;
}

// --- what is read of a call ---------------------------------------------------------------------

// Return the values of a call. The dispatcher shows the whole stack of a boxed call; transforms of
// torch.func keep other values below those of the call.
inline c10::ArrayRef<const c10::IValue> top_of_stack(c10::ArrayRef<const c10::IValue> stack, size_t count) {
  return stack.slice(stack.size() - std::min(stack.size(), count));
}

template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) visit(tensor);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList())
      if (tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef())
      if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
  }
}

inline bool is_zero(const c10::IValue& value) {
  if (value.isBool()) return !value.toBool();
  if (value.isDouble()) return value.toDouble() == 0;
  if (value.isInt()) return value.toInt() == 0;
  return value.isNone();
}

// Return the last number of a list of ints, NO_ID if there is none. The list is the thread's own.
inline int64_t last_number(PyObject* list) {
  Py_ssize_t size = list == nullptr ? 0 : PyList_GET_SIZE(list);
  return size == 0 ? NO_ID : PyLong_AsLongLong(PyList_GET_ITEM(list, size - 1));
}

// Return a field of the last tuple of a list, NO_ID if there is none or it is None.
inline int64_t last_field(PyObject* list, Py_ssize_t field) {
  Py_ssize_t size = list == nullptr ? 0 : PyList_GET_SIZE(list);
  if (size == 0) return NO_ID;
  PyObject* value = PyTuple_GET_ITEM(PyList_GET_ITEM(list, size - 1), field);
  return value == Py_None ? NO_ID : PyLong_AsLongLong(value);
}

// Return whether a tensor stands for a number of Python.
inline bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Return the fingerprints of the tensors among a call's arguments.
inline std::vector<Fingerprint> read_inputs(Recording& recording, const OpInfo& op, c10::ArrayRef<const c10::IValue> arguments) {
  std::vector<Fingerprint> found;
  for (auto [position, written] : op.tensors)
    if (position < arguments.size())
      visit_tensors(arguments[position], [&](const at::Tensor& tensor) {
        if (!is_number(tensor)) found.push_back(recording.read_fingerprint(tensor));
      });
  return found;
}

inline OutputNorm read_norm(Recording& recording, const at::Tensor& tensor) {
  OutputNorm found = norm_of_output(tensor);
  if (!found.is_read) recording.could_not_read("norms", tensor);
  return found;
}

// Return whether a tensor among a call's arguments may hold another one.
inline bool has_wrapper(const OpInfo& op, c10::ArrayRef<const c10::IValue> arguments) {
  bool found = false;
  for (auto [position, written] : op.tensors)
    if (position < arguments.size())
      visit_tensors(arguments[position], [&](const at::Tensor& tensor) {
        found = found || tensor.unsafeGetTensorImpl()->is_python_dispatch();
      });
  return found;
}

// Call ``visit`` with the tensors among a call's results.
template <class Visit>
void visit_results(c10::ArrayRef<const c10::IValue> results, const Visit& visit) {
  for (const c10::IValue& result : results)
    if (result.isTensor() || results.size() == 1) visit_tensors(result, visit);
}

constexpr size_t MAX_DEPTH = 4096;

// Read the stack of this thread from a frame on, and that of the backward for which a thread of a
// device works; see NOTE [ Threads of devices ]. ``Recording::mutex`` is not held.
inline size_t read_stack(Recording& recording, std::vector<Place>& places, Frame* frame) {
  FrameAccess access;
  places.clear();
  for (; frame != nullptr && places.size() < MAX_DEPTH; frame = caller_of(frame)) {
    if (!is_visible(frame)) continue;
    places.push_back(place_of(frame));
    if (is_object(frame, recording.outermost)) return places.size();
  }
  int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) return places.size();
  int64_t thread = thread_context(recording).number;
  std::shared_ptr<const std::vector<Place>> callers;
  {
    std::lock_guard<std::mutex> lock(recording.mutex);
    callers = recording.callers_of(task, thread);
  }
  if (callers != nullptr) places.insert(places.end(), callers->begin(), callers->end());
  return places.size();
}

inline size_t read_own_stack(Recording& recording, std::vector<Place>& places) {
  FrameAccess access;
  return read_stack(recording, places, innermost_frame());
}

// Keep code objects alive until the recording is cleared, so that no other gets their address.
inline void keep_codes(const std::vector<PyCodeObject*>& codes) {
  if (codes.empty()) return;
  HeldGil gil;
  if (gil)
    for (PyCodeObject* code : codes) Py_INCREF(code);
}

constexpr size_t CLONE_DEPTH = 12;

inline bool is_called_from(const std::vector<Place>& places, const PyCodeObject* code) {
  size_t count = std::min(places.size(), CLONE_DEPTH);
  for (size_t i = 0; i < count; ++i)
    if (places[i].code == code) return true;
  return false;
}

// Return whether this thread is in a function that makes a parameter of a tensor. PyTorch detaches
// the tensor there, where no dispatch mode sees it.
inline bool makes_subclass(const Recording& recording) {
  FrameAccess access;
  Frame* frame = innermost_frame();
  while (frame != nullptr && !is_visible(frame)) frame = caller_of(frame);
  if (frame == nullptr) return false;
  const auto& codes = recording.subclass_codes;
  return std::find(codes.begin(), codes.end(), place_of(frame).code) != codes.end();
}

// Return the name of the process group that an argument holds, "" if it is unknown.
inline std::string group_name(const c10::IValue& argument) {
  if (argument.isString()) return argument.toStringRef();
  if (!argument.isObject() || &agv_name_of_group == nullptr) return "";
  const c10::ivalue::Object& object = argument.toObjectRef();
  if (object.name() != "__torch__.torch.classes.c10d.ProcessGroup") return "";
  // The only base class of a process group is that of the objects in capsules.
  try {
    return agv_name_of_group(object.getSlot(0).toCapsule().get());
  } catch (const std::exception&) {  // the group has no backend
    return "";
  }
}

// Record a collective that is about to run.
inline void put_collective(Recording& recording, const OpInfo& op, const OpContext& context,
                           c10::ArrayRef<const c10::IValue> arguments, int64_t thread, int64_t stack) {
  std::string group = group_name(arguments[op.group]);
  auto [name, number] = recording.next_in_group(group, !op.is_point_to_point);
  size_t start = recording.begin_event(Kind::collective_called, recording.seq(), context.started_ns, thread, stack);
  recording.put(op.index);
  recording.put(-2 - name);
  recording.put(number);
  recording.put_all(context.inputs);
  bool known = op.async_op >= 0 && static_cast<size_t>(op.async_op) < arguments.size();
  recording.put(known ? arguments[op.async_op].toBool() : NO_ID);
  recording.end_event(start);
}

// --- callbacks ----------------------------------------------------------------------------------

inline bool runs_in_python() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set();
}

inline bool runs_in_transform() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// Return whether operators are traced by a dispatch mode of Python. A mode for fake tensors alone
// does not trace.
inline bool is_traced() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PreDispatch)) return true;
  return Modes::any_modes_set() && (Modes::get_mode(Key::PROXY) || Modes::get_mode(Key::FUNCTIONAL));
}

// Return whether a call takes a tensor of a transform that has ended: PyTorch calls the operator
// again with the tensor inside.
inline bool takes_dead_wrapper(const OpInfo& op, c10::ArrayRef<const c10::IValue> arguments) {
  bool found = false;
  for (auto [position, written] : op.tensors)
    if (position < arguments.size())
      visit_tensors(arguments[position], [&](const at::Tensor& tensor) {
        found = found || tensor.key_set().has(c10::DispatchKey::FuncTorchGradWrapper);
      });
  return found;
}

// Return whether a call only leads to others; see NOTE [ Operators that are recorded ].
inline bool is_transparent(OpInfo& op, c10::ArrayRef<const c10::IValue> arguments) {
  if (runs_in_transform() || runs_in_python() || takes_dead_wrapper(op, arguments)) return true;
  if (!op.composite) return false;
  c10::BackendComponent component = c10::BackendComponent::CPUBit;
  c10::DispatchKey kind = c10::DispatchKey::Dense;
  for (auto [position, written] : op.tensors)
    if (position < arguments.size())
      visit_tensors(arguments[position], [&](const at::Tensor& tensor) {
        c10::DispatchKeySet keys = tensor.key_set();
        if (keys.highestBackendKey() != c10::BackendComponent::InvalidBit) component = keys.highestBackendKey();
        if (tensor.is_sparse()) kind = c10::DispatchKey::Sparse;
      });
  c10::DispatchKey backend = c10::toRuntimePerBackendFunctionalityKey(kind, component);
  auto known = op.transparent_on.find(static_cast<int>(backend));
  if (known != op.transparent_on.end()) return known->second;
  bool own = op.handle->hasKernelForDispatchKey(backend) ||
      op.handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  return op.transparent_on[static_cast<int>(backend)] = !own;
}

// Return whether this thread works for a kernel; see NOTE [ Operators that are recorded ].
inline bool is_worker() {
  return !runs_python_code() && torch::autograd::get_current_graph_task_id() == -1;
}

// Return a text of Python if it is ASCII. The GIL is not needed: texts do not change.
inline std::string_view ascii(PyObject* text) {
  if (text == nullptr || !PyUnicode_IS_ASCII(text)) return {};
  return {static_cast<const char*>(PyUnicode_DATA(text)), static_cast<size_t>(PyUnicode_GET_LENGTH(text))};
}

// Return whether code may run a graph of a compiled region. No other code is asked about.
inline bool may_be_compiled(const PyCodeObject* code) {
  std::string_view file = ascii(code->co_filename);
  return file.starts_with("<eval_with_key>") || file.ends_with("runtime_wrappers.py") || ascii(code->co_name) == "call";
}

// Ask Python where operators come from that a code object calls. Their own frame is the innermost one.
inline Origin ask_origin(Recording& recording, ThreadContext& thread, const void* code) {
  HeldGil gil;
  Origin origin = Origin::eager;
  if (!gil) return origin;
  if (PyObject* ask = recording.ask_origin) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    thread.depth = 1;  // operators that Python calls meanwhile are the recorder's own
    Py_INCREF(ask);
    PyObject* found = PyObject_CallNoArgs(ask);
    Py_DECREF(ask);
    thread.depth = 0;
    if (found == nullptr) {
      // A signal arrived meanwhile: its handler runs again where the program can see it.
      if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
      PyErr_Clear();
    } else {
      origin = static_cast<Origin>(PyLong_AsLongLong(found));
      Py_DECREF(found);
      std::lock_guard<std::mutex> lock(recording.mutex);
      recording.origins[code] = origin;
    }
    PyErr_Restore(type, error, traceback);
  }
  return origin;
}

// Return where an operator is called that is about to run.
inline Origin origin_of_call(Recording& recording, ThreadContext& thread) {
  if (recording.ask_origin == nullptr) return Origin::eager;
  FrameAccess access;
  Frame* frame = innermost_frame();
  while (frame != nullptr && (!is_visible(frame) || place_of(frame).code == recording.overload_code))
    frame = caller_of(frame);
  if (frame == nullptr) return Origin::eager;
  const PyCodeObject* code = place_of(frame).code;
  if (!may_be_compiled(code)) return Origin::eager;
  {
    std::lock_guard<std::mutex> lock(recording.mutex);
    auto known = recording.origins.find(code);
    if (known != recording.origins.end()) return known->second;
  }
  return ask_origin(recording, thread, code);
}

// The call of a region's custom Function.
struct FunctionContext : at::ObserverContext {
  QuietScope scope;
};

inline bool is_region(const at::RecordFunction& call) {
  return !call.operator_name().has_value() && std::string_view(call.name()) == "CompiledFunction";
}

inline std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call) {
  Recording* recording = active().load(std::memory_order_acquire);
  if (recording == nullptr || is_worker()) return nullptr;
  ThreadContext& thread = thread_context(*recording);
  if (thread.depth > 0) {
    ++thread.depth;
    if (thread.call != nullptr) ++thread.call->nested;
    return nullptr;
  }
  if (thread.suspended) return nullptr;
  RecorderTime recorder_time;
  // Hidden from dispatch modes: the recorder's own reading of contents.
  if (c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python)) return nullptr;
  if (is_traced()) {
    auto context = std::make_unique<OpContext>(recording->generation);
    context->traced = true;
    thread.depth = 1;
    return context;
  }
  Origin origin = origin_of_call(*recording, thread);
  std::unique_lock<std::mutex> lock(recording->mutex);
  OpInfo* op = registry().find(call);
  if (op == nullptr || !op->handle) {
    lock.unlock();
    if (is_region(call)) return std::make_unique<FunctionContext>();
    return nullptr;
  }
  if (origin >= Origin::left_out && op->repeats) {
    if (origin == Origin::all_left_out) observe_no_more_operators();
    thread.sequence_nr = at::sequence_number::peek();
    thread.depth = 1;
    thread.in_left_out = true;
    return nullptr;
  }
  c10::ArrayRef<const c10::IValue> arguments = top_of_stack(call.inputs(), op->arguments);
  if (is_transparent(*op, arguments)) return nullptr;
  std::vector<Fingerprint> contents;
  WrapperScope wrappers;
  bool wrapped = has_wrapper(*op, arguments);
  if (recording->with_fingerprints || wrapped) {
    lock.unlock();
    if (recording->with_fingerprints) contents = read_inputs(*recording, *op, arguments);
    for (auto [position, written] : op->tensors)
      if (position < arguments.size())
        visit_tensors(arguments[position], [&](const at::Tensor& tensor) { wrappers.read(tensor); });
    lock.lock();
  }
  auto context = std::make_unique<OpContext>(recording->generation);
  context->op = op;
  context->origin = origin;
  context->started_ns = now_ns();
  context->exceptions = std::uncaught_exceptions();
  context->sequence_nr = at::sequence_number::peek();
  bool created = context->sequence_nr > thread.sequence_nr;
  if (created && !c10::GradMode::is_enabled())
    context->inside = static_cast<int64_t>(context->sequence_nr) - 1;
  context->below_autograd =
      c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality);
  bool requires_grad = false;
  thread.sequence_nr = context->sequence_nr;
  for (auto [position, written] : op->tensors) {
    if (position >= arguments.size()) continue;
    visit_tensors(arguments[position], [&, writes = written](const at::Tensor& tensor) {
      if (is_number(tensor)) return;
      c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
      int64_t id = recording->intern(tensor, thread.number, context->started_ns);
      int64_t version = Recording::version_of(*impl);
      if (context->device.is_cpu() && is_on_accelerator(tensor)) context->device = tensor.device();
      context->inputs.push_back(id);
      context->versions.push_back(version);
      recording->seen(id, version, thread.number, context->started_ns);
      if (created && context->below_autograd) requires_grad = requires_grad || tensor.requires_grad();
      if (writes) context->written.push_back({id, impl, version});
    });
  }
  std::string& key = argument_key(op->index, arguments);
  context->arguments = recording->intern_arguments(
      key, thread.number, context->started_ns, [&] { return text_of_arguments(op->handle->schema(), arguments); });
  for (const Fingerprint& content : contents) {
    context->hashes.push_back(content.hash);
    recording->put_content(content, thread.number, context->started_ns);
  }
  if (op->draws) {
    bool draws = true;
    for (uint16_t position : op->needed)
      if (position < arguments.size() && is_zero(arguments[position])) draws = false;
    if (draws) {
      bool given = op->generator >= 0 && static_cast<size_t>(op->generator) < arguments.size() &&
          !arguments[op->generator].isNone();
      context->draw = given ? 1 : 0;
    }
  }
  context->fresh = requires_grad && c10::GradMode::is_enabled();
  std::vector<PyCodeObject*> new_codes;
  if (op->group >= 0 && static_cast<size_t>(op->group) < arguments.size()) {
    std::vector<Place> places;
    lock.unlock();
    size_t count = recording->with_stacks ? read_own_stack(*recording, places) : 0;
    lock.lock();
    int64_t stack = recording->with_stacks
        ? recording->intern_stack(places.data(), count, thread.number, context->started_ns, new_codes)
        : NO_ID;
    put_collective(*recording, *op, *context, arguments, thread.number, stack);
  }
  bool nests = op->nested > 0;
  lock.unlock();
  keep_codes(new_codes);
  if (op->copy.source >= 0) context->copy = begin_copy(op->copy, arguments);
  if (nests && op->may_be_quiet && !wrapped) context->quiet.begin();
  thread.depth = 1;
  thread.call = context.get();
  return context;
}

// Remember the contents that an operator's node may have saved: its results, and the inputs that it
// did not write.
template <class Ids>
void remember_hashes(Recording& recording, const OpContext& context, const Ids& outputs, const Ids& hashes,
                     int64_t created, int64_t seq) {
  std::vector<std::pair<int64_t, int64_t>> contents;
  for (size_t i = 0; i < outputs.size(); ++i) contents.emplace_back(outputs[i], hashes[i]);
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    auto is_this = [&](const Written& written) { return written.id == context.inputs[i]; };
    if (std::none_of(context.written.begin(), context.written.end(), is_this))
      contents.emplace_back(context.inputs[i], context.hashes[i]);
  }
  recording.created[created].push_back({seq, std::move(contents)});
}

inline void put_call(Recording& recording, ThreadContext& thread, OpContext& context,
                     c10::ArrayRef<const c10::IValue> results, const std::vector<Fingerprint>& contents,
                     const std::vector<OutputNorm>& norms, int64_t ended_ns, int64_t stack, bool in_clone) {
  const OpInfo& op = *context.op;
  bool failed = std::uncaught_exceptions() > context.exceptions;
  if (context.hidden || (failed && context.skipped)) return;
  c10::SmallVector<int64_t, 4> outputs, versions, hashes;
  int64_t device = NO_ID;
  const at::Tensor* first = nullptr;
  auto visit = [&](const at::Tensor& tensor) {
    outputs.push_back(recording.intern(tensor, thread.number, ended_ns, true));
    versions.push_back(Recording::version_of(*tensor.unsafeGetTensorImpl()));
    if (first == nullptr) first = &tensor;
  };
  if (failed && context.result != NO_ID) {
    outputs.push_back(context.result);
    versions.push_back(recording.version_at(context.result, INT64_MAX));
    if (recording.with_fingerprints) hashes.push_back(UNREADABLE);
    failed = false;
  } else if (!failed) {
    visit_results(results, visit);
    for (const Fingerprint& content : contents) {
      hashes.push_back(content.hash);
      recording.put_content(content, thread.number, ended_ns);
    }
    if (!results.empty() && results[0].isTensor() && results[0].toTensor().defined()) {
      c10::Device where = results[0].toTensor().device();
      device = (static_cast<int64_t>(where.type()) << 8) | static_cast<uint8_t>(where.index());
    }
  }
  int64_t region = last_field(thread.regions, 0), recompute = last_field(thread.regions, 1);
  int64_t node = thread.running.empty() ? NO_ID : thread.running.back().node_id;
  bool backward = node != NO_ID || torch::autograd::get_current_graph_task_id() != -1;
  Phase phase = recompute != NO_ID ? Phase::recompute : backward ? Phase::backward : Phase::forward;
  uint64_t sequence_nr = at::sequence_number::peek();
  bool creates = sequence_nr > context.sequence_nr || context.fresh;
  int64_t created = !creates ? NO_ID : static_cast<int64_t>(context.sequence_nr) - (context.fresh ? 1 : 0);
  thread.sequence_nr = sequence_nr;
  uint64_t hash = op.hashes[static_cast<int>(phase)];
  if (hash != 0 && context.origin == Origin::eager) recording.digest(thread, hash);
  int64_t seq = recording.seq();
  thread.last_op_seq = seq;
  thread.last_op = op.index;
  size_t start = recording.begin_event(Kind::op_called, seq, context.started_ns, thread.number, stack);
  recording.put(op.index);
  recording.put(static_cast<int64_t>(phase));
  recording.put_all(context.inputs);
  recording.put_all(context.versions);
  recording.put_all(outputs);
  recording.put_all(versions);
  recording.put(static_cast<int64_t>(context.written.size()));
  for (const Written& written : context.written) recording.put(written.id);
  recording.put_all(context.hashes);
  recording.put_all(hashes);
  for (int64_t value : {ended_ns - context.started_ns, created, node, last_number(thread.calls), region,
                        recompute, static_cast<int64_t>(failed), context.arguments})
    recording.put(value);
  recording.end_event(start);
  if (failed) recording.note_failure(seq, thread.number);
  for (size_t place = 0; place < norms.size(); ++place) {
    if (!norms[place].is_read) continue;
    size_t read = recording.begin_event(Kind::output_norm_read, recording.seq(), ended_ns, thread.number, NO_ID);
    for (int64_t value : {seq, static_cast<int64_t>(place), norms[place].sum, norms[place].norm}) recording.put(value);
    recording.end_event(read);
  }
  // The contents of an operator that ran while fingerprints were switched on are not all known.
  if (creates && hashes.size() == outputs.size() && context.hashes.size() == context.inputs.size())
    remember_hashes(recording, context, outputs, hashes, created, seq);
  if (creates && first != nullptr) {
    auto strong = c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(first->unsafeGetTensorImpl());
    c10::weak_intrusive_ptr<c10::TensorImpl> weak(strong);
    constexpr size_t REMEMBERED = 64;
    if (recording.recent.size() < REMEMBERED)
      recording.recent.push_back(std::move(weak));
    else
      recording.recent[recording.recent_next++ % REMEMBERED] = std::move(weak);
  }
  if (context.inside != NO_ID) recording.custom.emplace(context.inside, stack);
  if (failed) return;
  if (in_clone && !outputs.empty() && !context.inputs.empty()) {
    size_t clone = recording.begin_event(Kind::mutation_cloned, recording.seq(), ended_ns, thread.number, stack);
    for (int64_t value : {context.inputs[0], recording.storage_id(context.inputs[0]), outputs[0], seq})
      recording.put(value);
    recording.end_event(clone);
  }
  put_stream(recording, context.stream, seq, NO_ID, NO_ID, thread.number, stack, ended_ns);
  if (context.copy.is_known) {
    size_t copied = recording.begin_event(Kind::device_copied, recording.seq(), ended_ns, thread.number, stack);
    const DeviceCopy& copy = context.copy;
    for (int64_t value : {seq, word_of(copy.source), word_of(copy.target), copy.nbytes, copy.is_pinned,
                          static_cast<int64_t>(copy.is_blocking)})
      recording.put(value);
    recording.end_event(copied);
  }
  for (const Written& written : context.written) {
    if (written.before == NO_ID) continue;
    int64_t after = Recording::version_of(*written.tensor);
    if (context.below_autograd && op.bumps_later) after = written.before + 1;
    if (after == written.before) continue;
    recording.bumped(written.id, after);
    recording.emit_bumped(written.id, written.before, after, op.index, seq, thread.number, stack, ended_ns);
  }
  if (context.draw != NO_ID && device != NO_ID) {
    size_t draw = recording.begin_event(Kind::random_drawn, recording.seq(), ended_ns, thread.number, stack);
    for (int64_t value : {op.index, seq, context.draw, device}) recording.put(value);
    recording.end_event(draw);
  }
}

inline void on_end(const at::RecordFunction& call, at::ObserverContext* base) {
  Recording* recording = active().load(std::memory_order_acquire);
  if (recording == nullptr || (base == nullptr && is_worker())) return;
  ThreadContext& thread = thread_context(*recording);
  if (dynamic_cast<FunctionContext*>(base) != nullptr) return;
  if (base == nullptr) {
    if (thread.depth > 1) {
      --thread.depth;
    } else if (thread.in_left_out) {
      thread.depth = 0;
      thread.in_left_out = false;
    }
    return;
  }
  if (static_cast<OpContext*>(base)->generation != recording->generation) return;
  thread.depth = 0;
  thread.call = nullptr;
  if (static_cast<OpContext*>(base)->traced) {
    thread.sequence_nr = at::sequence_number::peek();
    return;
  }
  RecorderTime recorder_time;
  int64_t ended_ns = now_ns();
  static thread_local std::vector<Place> places;
  std::vector<PyCodeObject*> new_codes;
  OpContext& context = *static_cast<OpContext*>(base);
  bool was_quiet = context.quiet.end();
  const std::vector<c10::IValue>& outputs = call.outputs();
  auto results = top_of_stack(c10::ArrayRef<const c10::IValue>(outputs.data(), outputs.size()), context.op->results);
  size_t count = recording->with_stacks ? read_own_stack(*recording, places) : 0;
  if (context.op->is_detach) context.hidden = makes_subclass(*recording);
  std::vector<Fingerprint> contents;
  if (recording->with_fingerprints && std::uncaught_exceptions() == context.exceptions)
    visit_results(results, [&](const at::Tensor& tensor) { contents.push_back(recording->read_fingerprint(tensor)); });
  WrapperScope wrappers;
  if (std::uncaught_exceptions() == context.exceptions)
    visit_results(results, [&](const at::Tensor& tensor) { wrappers.read(tensor); });
  std::vector<OutputNorm> norms;
  if (recording->with_norms && std::uncaught_exceptions() == context.exceptions && context.op->group < 0)
    visit_results(results, [&](const at::Tensor& tensor) { norms.push_back(read_norm(*recording, tensor)); });
  if (context.device.is_cpu() && std::uncaught_exceptions() == context.exceptions)
    visit_results(results, [&](const at::Tensor& tensor) {
      if (is_on_accelerator(tensor)) context.device = tensor.device();
    });
  context.stream = current_stream_of(context.device);
  if (context.copy.is_known) end_copy(context.copy, results, std::uncaught_exceptions() > context.exceptions);
  bool in_clone = context.op->is_clone && recording->clone_code != nullptr &&
      is_called_from(places, recording->clone_code);
  {
    std::lock_guard<std::mutex> lock(recording->mutex);
    int64_t stack = recording->with_stacks
        ? recording->intern_stack(places.data(), count, thread.number, ended_ns, new_codes)
        : NO_ID;
    recording->put_freed_storages(thread.number, ended_ns);
    put_call(*recording, thread, context, results, contents, norms, ended_ns, stack, in_clone);
    if (!was_quiet) context.op->nested = context.nested;
  }
  keep_codes(new_codes);
  check_due(*recording);
}

}  // namespace agv
