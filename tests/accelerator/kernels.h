// Every op runs the CPU's kernel on tensors that share the device's memory.
#pragma once
#include <ATen/DeviceGuard.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <unordered_map>

#include "guard.h"

namespace sim {
using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::jit::Stack;

// ---- tensors of the CPU that share memory with those of the device ----

// What is above a kernel is not called by what the kernel calls.
struct BelowAll {
  static DispatchKeySet keys() {
    static const auto all = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
                            DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                                            DispatchKey::PythonDispatcher, DispatchKey::Functionalize});
    return all;
  }
  c10::impl::ExcludeDispatchKeyGuard guard{keys()};
};

inline void take_geometry(c10::TensorImpl* impl, const at::Tensor& from) {
  impl->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
}
inline at::Tensor tensor_on(c10::Storage storage, DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  take_geometry(impl, like);
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}
inline bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDevice; }

inline std::pair<const char*, const char*> extent(const at::Tensor& tensor) {
  const auto* base = static_cast<const char*>(tensor.storage().data());
  if (!base || tensor.numel() == 0) return {nullptr, nullptr};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  auto size = static_cast<int64_t>(tensor.dtype().itemsize());
  return {base + tensor.storage_offset() * size, base + (tensor.storage_offset() + last + 1) * size};
}

// The tensors of one call.
struct Call {
  struct Argument {
    at::Tensor device, host;
    bool written;
  };
  std::vector<Argument> arguments;
  std::unordered_map<c10::StorageImpl*, c10::Storage> host_of, device_of;
  int index = -1;

  c10::Storage host_storage(const c10::Storage& device) {
    auto& host = host_of[device.unsafeGetStorageImpl()];
    if (!host) {
      // Without an owner: the device's storage outlives the call.
      host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), device.nbytes(),
          c10::DataPtr(const_cast<void*>(device.data()), c10::Device(c10::kCPU)), c10::GetCPUAllocator(), true));
      device_of[host.unsafeGetStorageImpl()] = device;
    }
    return host;
  }
  at::Tensor host(const at::Tensor& tensor, bool written) {
    for (auto& each : arguments) {
      if (each.device.is_same(tensor)) {
        each.written |= written;
        return each.host;
      }
    }
    auto host = tensor_on(host_storage(tensor.storage()), DispatchKey::CPU, tensor);
    if (index < 0) index = tensor.device().index();
    arguments.push_back({tensor, host, written});
    return host;
  }
  // Memory that a kernel has allocated becomes the device's.
  c10::Storage adopt(const c10::Storage& storage) {
    auto& device = device_of[storage.unsafeGetStorageImpl()];
    if (!device) device = c10::Storage(fresh(storage));
    return device;
  }
  c10::intrusive_ptr<c10::StorageImpl> fresh(const c10::Storage& storage) {
    auto* impl = storage.unsafeGetStorageImpl();
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), impl->nbytes(),
                                                 take_memory(impl), &allocator, true);
  }
  c10::DataPtr take_memory(c10::StorageImpl* impl) {
    if (!impl->nbytes()) return allocate_on(index, 0);
    auto* block = new Block{impl->mutable_data(), impl->nbytes(), rounded(impl->nbytes()), index, current_lane(index)};
    auto data = data_of(block);
    commit(*block);
    block->owner = impl->set_data_ptr(c10::DataPtr(block->data, c10::Device(c10::kCPU)));
    return data;
  }
  // What a kernel has changed in the geometry, the storage or its size.
  void give_back() {
    for (auto& [device, host] : host_of) {
      auto* impl = host.unsafeGetStorageImpl();
      if (impl->data() != device->data() || impl->nbytes() != device->nbytes()) {
        auto bytes = impl->nbytes();
        device->set_data_ptr_noswap(take_memory(impl));
        device->set_nbytes(bytes);
      }
    }
    for (auto& each : arguments) {
      if (!each.written) continue;
      auto* impl = each.device.unsafeGetTensorImpl();
      auto host_impl = each.host.storage().unsafeGetStorageImpl();
      if (device_of[host_impl].unsafeGetStorageImpl() != each.device.storage().unsafeGetStorageImpl()) {
        impl->set_storage_keep_dtype(adopt(each.host.storage()));
      }
      if (each.host.sizes() != each.device.sizes() || each.host.strides() != each.device.strides() ||
          each.host.storage_offset() != each.device.storage_offset()) {
        take_geometry(impl, each.host);
      }
    }
  }
  at::Tensor device(const at::Tensor& host) {
    if (!host.defined() || host.device().type() != c10::kCPU || host.layout() != c10::kStrided) return host;
    for (auto& each : arguments) {
      if (each.host.is_same(host)) return each.device;
    }
    return tensor_on(adopt(host.storage()), DispatchKey::PrivateUse1, host);
  }
};

// ---- launches ----

struct Work {
  std::string op;
  std::shared_ptr<Lines> lines;
  std::vector<Launched> launched;

  explicit Work(std::string op) : op(std::move(op)) {
    if (state().with_lines) lines = std::make_shared<Lines>(current_lines());
  }
  void access(const at::Tensor& tensor, bool write) {
    auto* block = block_of(*tensor.storage().unsafeGetStorageImpl());
    auto [begin, end] = extent(tensor);
    if (!block || !begin) return;
    Lock lock(state().mutex);
    for (auto& each : launched) sim::access(*block, each, write, begin, end, op, lines);
  }
  // Written memory is the output of what reads others' memory.
  void outputs(const std::vector<at::Tensor>& read, const std::vector<at::Tensor>& written) {
    Lock lock(state().mutex);
    for (auto& tensor : read) {
      auto* block = block_of(*tensor.storage().unsafeGetStorageImpl());
      if (!block || block->accesses.empty()) continue;
      auto& last = block->accesses.back();
      if (last.lane == block->lane || last.number != launched.front().number || last.write) continue;
      for (auto& each : written) last.outputs.emplace_back(each.storage().getWeakStorageImpl());
    }
  }
};

inline size_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * tensor.dtype().itemsize(); }

// ---- the fallback ----

template <typename F>
void each_tensor(const c10::IValue& value, F apply) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) apply(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) {
      if (each.defined()) apply(each);
    }
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) {
      if (each.isTensor() && each.toTensor().defined()) apply(each.toTensor());
    }
  }
}
template <typename F>
c10::IValue map_tensors(const c10::IValue& value, F apply) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(apply(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    std::vector<at::Tensor> mapped;
    for (const at::Tensor& each : value.toTensorVector()) mapped.push_back(each.defined() ? apply(each) : each);
    return c10::IValue(std::move(mapped));
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (std::optional<at::Tensor> each : value.toOptionalTensorList()) {
      mapped.push_back(each && each->defined() ? std::optional<at::Tensor>(apply(*each)) : each);
    }
    return c10::IValue(std::move(mapped));
  }
  return value;
}

// Ops that take vectors on the CPU beside tensors of the device, as they do with CUDA.
inline bool takes_host_vectors(const std::string& name) {
  static const std::vector<std::string> names = {
      "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
      "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::set_",
      "aten::_ctc_loss_backward", "aten::is_set_to"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

inline bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

// Whether the host reads values of the device in an op: the size of the result depends on them, or
// the result is a number. An index waits only for masks.
inline bool host_reads(const c10::OperatorHandle& op, const std::string& name, const Stack& stack, size_t first) {
  if (name == "aten::index" || name == "aten::_index_put_impl_" || name == "aten::index_put_") {
    int masks = 0;
    each_tensor(stack[first + 1], [&](const at::Tensor& each) { masks += is_mask(each); });
    bool fills = name != "aten::index" && masks == 1 && !stack[first + 3].toBool() &&
                 stack[first + 2].toTensor().numel() == 1;
    return masks > 0 && !fills;
  }
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
}

inline void same_device(const at::Tensor& tensor, std::optional<c10::Device>& common) {
  if (tensor.dim() == 0 && tensor.is_cpu()) return;
  if (!common) common = tensor.device();
  TORCH_CHECK(*common == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
              *common, " and ", tensor.device(), "!");
}

// Draws of ops that take no generator come from the device's, too.
struct SwappedGenerator {
  static std::mutex& mutex() {
    static auto* it = new std::mutex;
    return *it;
  }
  std::lock_guard<std::mutex> lock{mutex()};
  at::Generator cpu = at::detail::getDefaultCPUGenerator(), own;
  c10::intrusive_ptr<c10::TensorImpl> saved;
  explicit SwappedGenerator(int index) : own(default_generator(index)) { saved = swap(own, cpu); }
  ~SwappedGenerator() {
    own.unsafeGetGeneratorImpl()->set_state(*cpu.unsafeGetGeneratorImpl()->get_state());
    cpu.unsafeGetGeneratorImpl()->set_state(*saved);
  }
  static c10::intrusive_ptr<c10::TensorImpl> swap(at::Generator& from, at::Generator& into) {
    auto old = into.unsafeGetGeneratorImpl()->get_state();
    into.unsafeGetGeneratorImpl()->set_state(*from.unsafeGetGeneratorImpl()->get_state());
    return old;
  }
};

// `kernel` runs the CPU's kernel on arguments of the CPU.
template <typename F>
void run_on_host(const c10::OperatorHandle& op, Stack* stack, F kernel) {
  BelowAll below;
  const auto& schema = op.schema();
  const auto& name = schema.name();
  const size_t count = schema.arguments().size(), first = stack->size() - count;

  // 1. What kind of op it is.
  bool writes = false, view = false;
  for (const auto& argument : schema.arguments()) {
    writes |= argument.alias_info() && argument.alias_info()->isWrite();
  }
  for (const auto& result : schema.returns()) view |= result.alias_info() && !result.alias_info()->isWrite();
  bool metadata = (view && !writes) || op.hasTag(at::Tag::inplace_view) || name == "aten::set_" ||
                  name == "aten::is_set_to" || name == "aten::resize_";
  bool vectors = takes_host_vectors(name);
  bool reads = host_reads(op, name, *stack, first);

  // 2. Its arguments, as tensors of the CPU.
  Call call;
  std::optional<c10::Device> common;
  bool seeded = op.hasTag(at::Tag::nondeterministic_seeded);
  std::vector<c10::IValue> mapped;
  for (size_t i = 0; i < count; ++i) {
    const auto& value = (*stack)[first + i];
    const auto& argument = schema.arguments()[i];
    bool written = argument.alias_info() && argument.alias_info()->isWrite();
    if (value.isDevice() && value.toDevice().type() == kDevice) {
      if (call.index < 0) call.index = value.toDevice().has_index() ? value.toDevice().index() : current_index;
      mapped.emplace_back(c10::Device(c10::kCPU));
    } else if (value.isStorage() && value.toStorage().device().type() == kDevice) {
      mapped.emplace_back(call.host_storage(value.toStorage()));
    } else if (value.isGenerator() && value.toGenerator().device().type() == kDevice) {
      mapped.emplace_back(value.toGenerator().get<Generator>()->inner);
      seeded = false;
    } else {
      mapped.push_back(map_tensors(value, [&](const at::Tensor& each) {
        if (!vectors) same_device(each, common);
        return on_device(each) ? call.host(each, written) : each;
      }));
    }
  }
  if (call.index < 0) call.index = current_index;
  const int index = check_index(static_cast<c10::DeviceIndex>(call.index));
  const int lane = current_lane(index);

  // 3. What it costs, what it reads.
  std::optional<Work> work;
  std::vector<at::Tensor> read, written;
  size_t bytes = 0;
  if (!metadata) {
    for (const auto& each : call.arguments) {
      bytes += bytes_of(each.device);
      (each.written ? written : read).push_back(each.device);
    }
    work.emplace(name);
  }
  if (reads) count_wait("host-read", name);

  // 4. The CPU's kernel.
  stack->resize(first);
  stack->insert(stack->end(), mapped.begin(), mapped.end());
  mapped.clear();
  {
    std::optional<SwappedGenerator> generator;
    if (seeded) generator.emplace(index);
    kernel(stack);
  }

  // 5. Its results, as tensors of the device.
  call.give_back();
  std::vector<at::Tensor> fresh;
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    (*stack)[i] = map_tensors((*stack)[i], [&](const at::Tensor& each) {
      auto result = call.device(each);
      if (on_device(result) && !metadata) fresh.push_back(result);
      return result;
    });
  }
  if (!work) return;
  for (const auto& each : fresh) {
    bool argument = std::any_of(written.begin(), written.end(), [&](auto& other) { return other.is_same(each); });
    if (argument) continue;
    bytes += bytes_of(each);
    written.push_back(each);
  }
  work->launched.push_back(launch(name, lane, bytes));
  for (const auto& each : read) work->access(each, false);
  for (const auto& each : written) work->access(each, true);
  work->outputs(read, written);
  if (reads) wait_for_lane(lane);
}

inline void fallback(const c10::OperatorHandle& op, Stack* stack) {
  run_on_host(op, stack, [&](Stack* own) { op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), own); });
}
inline void redispatch(const char* name, Stack* stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
}
inline void convolution(const c10::OperatorHandle& op, Stack* stack) {
  run_on_host(op, stack, [](Stack* own) { redispatch("aten::convolution", own); });
}
inline void convolution_backward(const c10::OperatorHandle& op, Stack* stack) {
  run_on_host(op, stack, [](Stack* own) {
    // It has the sizes of the bias, for its gradient, after gradient, input and weight of ten arguments.
    const size_t first = own->size() - 10;
    auto gradient = (*own)[first].toTensor();
    own->insert(own->end() - 7, c10::IValue(std::vector<int64_t>{gradient.size(1)}));
    redispatch("aten::convolution_backward", own);
  });
}

// ---- copies ----

inline void arrive(const std::function<bool(const Arrival&)>& ready) {
  auto& s = state();
  std::vector<Arrival> later, now;
  for (auto& each : s.arrivals) (ready(each) ? now : later).push_back(std::move(each));
  s.arrivals = std::move(later);
  BelowAll below;
  for (auto& each : now) each.to.copy_(each.values);
}

inline at::Tensor host_view(const at::Tensor& tensor) {  // of a tensor that outlives it
  if (!on_device(tensor)) return tensor_on(tensor.storage(), DispatchKey::CPU, tensor);
  Call call;
  return call.host(tensor, true);
}

inline void fill_with_poison(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte: tensor.fill_(255); break;
    case at::kChar: tensor.fill_(127); break;
    case at::kShort: tensor.fill_(32767); break;
    case at::kInt: tensor.fill_(2147483647); break;
    case at::kLong: tensor.fill_(std::numeric_limits<int64_t>::max()); break;
    case at::kBool: tensor.fill_(true); break;
    default: tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  BelowAll below;
  bool reads = on_device(from), writes = on_device(to);
  if (to.numel() == 0) return to;
  bool blocks = !(reads && writes) && !non_blocking;
  if (blocks) count_wait(reads ? "copy-to-host" : "copy-to-device", "aten::copy_");
  Work work("aten::copy_");
  auto& s = state();
  auto source = host_view(from), target = host_view(to);
  size_t bytes = bytes_of(from) + bytes_of(to);
  // A copy between two indices is work of both, each after what the other has done before.
  int lane = current_lane((reads ? from : to).device().index());
  {
    Lock lock(s.mutex);
    if (reads && writes && from.device() != to.device()) {
      int other = current_lane(to.device().index());
      auto &a = s.lanes[lane], &b = s.lanes[other];
      a.clock_ns = std::max(a.clock_ns, b.clock_ns);
      join(a.order, b.order);
      work.launched.push_back(launch(work.op, lane, bytes));
      b.clock_ns = std::max(b.clock_ns, a.clock_ns);
      join(b.order, a.order);
    } else {
      work.launched.push_back(launch(work.op, lane, bytes));
    }
  }
  if (reads) work.access(from, false);
  if (writes) work.access(to, true);
  if (reads && writes) work.outputs({from}, {to});
  if (!reads) {  // what has not arrived at the host, but is ordered before this copy, has arrived here
    std::vector<at::Tensor> early;
    Lock lock(s.mutex);
    for (auto& each : s.arrivals) {
      if (each.to.storage().is_alias_of(from.storage()) && covers(s.lanes[lane].order, each.lane, each.number)) {
        each.to.copy_(each.values);
        early.push_back(each.to);
      }
    }
    target.copy_(source);
    for (auto& each : early) fill_with_poison(each);
  } else if (!writes && non_blocking) {
    at::Tensor values(at::detail::empty_cpu(target.sizes(), target.scalar_type()));
    values.copy_(source);
    fill_with_poison(target);
    Lock lock(s.mutex);
    s.arrivals.push_back({lane, work.launched.front().number, target, values});
  } else {
    target.copy_(source);
  }
  if (blocks) wait_for_lane(lane);
  return to;
}

inline at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) const_cast<at::Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

inline at::Scalar local_scalar(const at::Tensor& tensor) {
  BelowAll below;
  count_wait("host-read", "aten::item");
  Work work("aten::item");
  int lane = current_lane(tensor.device().index());
  {
    Lock lock(state().mutex);
    work.launched.push_back(launch(work.op, lane, bytes_of(tensor)));
  }
  work.access(tensor, false);
  wait_for_lane(lane);
  return host_view(tensor).item();
}

// ---- memory ----

struct OnDevice {
  c10::DeviceIndex old = current_index;
  explicit OnDevice(std::optional<c10::Device> device) {
    if (device && device->has_index()) current_index = static_cast<c10::DeviceIndex>(check_index(device->index()));
  }
  ~OnDevice() { current_index = old; }
};
inline void check_pin(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

inline at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool> pin,
                        std::optional<at::MemoryFormat> format) {
  check_pin(pin);
  OnDevice on(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, DispatchKeySet(DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}
inline at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                                std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                std::optional<at::Device> device, std::optional<bool> pin) {
  check_pin(pin);
  OnDevice on(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           DispatchKeySet(DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}
inline void record_stream(at::Tensor& tensor, at::Stream stream) {
  allocator.recordStream(tensor.storage().data_ptr(), stream);
}
}  // namespace sim
