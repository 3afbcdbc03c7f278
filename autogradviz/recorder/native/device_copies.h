// Copies of tensors between devices, and numbers of a device that the program reads.
#pragma once

#include "recording_state.h"

#include <ATen/Context.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace agv {

// The arguments of an operator that copies, -1 for none: its source, its target, a tensor or a device,
// and whether it blocks.
struct CopyInfo {
  int source = -1;
  int target = -1;
  int non_blocking = -1;
};

struct DeviceCopy {
  bool is_known = false;
  c10::Device source = c10::kCPU, target = c10::kCPU;
  int64_t nbytes = 0;
  int64_t is_pinned = NO_ID;  // the memory of the host, NO_ID if there is none or it is unknown
  bool is_blocking = false;
};

inline CopyInfo copy_info(const std::string& name, const c10::FunctionSchema& schema) {
  CopyInfo found;
  if (name == "aten.copy_.default") found.source = 1, found.target = 0;
  if (name == "aten._copy_from.default" || name == "aten._copy_from_and_resize.default")
    found.source = 0, found.target = 1;
  if (name == "aten._to_copy.default" || name == "aten._local_scalar_dense.default") found.source = 0;
  for (size_t i = 0; found.source >= 0 && i < schema.arguments().size(); ++i) {
    const std::string& label = schema.arguments()[i].name();
    if (label == "non_blocking") found.non_blocking = static_cast<int>(i);
    if (label == "device") found.target = static_cast<int>(i);
  }
  return found;
}

inline int64_t word_of(c10::Device device) {
  return (static_cast<int64_t>(device.type()) << 8) | static_cast<uint8_t>(device.index());
}

inline bool is_plain(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && !value.toTensor().unsafeGetTensorImpl()->is_python_dispatch();
}

// Return whether memory of the host is pinned. Asking for it waits for nothing.
inline int64_t is_pinned(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!tensor.is_cpu() || !impl.has_storage() || !impl.unsafe_storage()) return NO_ID;
  return at::globalContext().isPinnedPtr(impl.unsafe_storage().data()) ? 1 : 0;
}

// Read a copy that is about to run. No lock is held.
inline DeviceCopy begin_copy(const CopyInfo& info, c10::ArrayRef<const c10::IValue> arguments) {
  DeviceCopy copy;
  if (static_cast<size_t>(info.source) >= arguments.size() || !is_plain(arguments[info.source])) return copy;
  at::Tensor tensor = arguments[info.source].toTensor();
  copy.is_known = true;
  copy.source = tensor.device();
  copy.nbytes = static_cast<int64_t>(tensor.dtype().itemsize());  // of a number
  bool known = info.non_blocking >= 0 && static_cast<size_t>(info.non_blocking) < arguments.size();
  copy.is_blocking = !(known && arguments[info.non_blocking].isBool() && arguments[info.non_blocking].toBool());
  if (info.target >= 0 && static_cast<size_t>(info.target) < arguments.size()) {
    const c10::IValue& target = arguments[info.target];
    if (target.isDevice()) copy.target = target.toDevice();
    if (is_plain(target)) copy.target = target.toTensor().device();
  }
  if (copy.source.is_cpu() && !copy.target.is_cpu()) copy.is_pinned = is_pinned(tensor);
  return copy;
}

// Complete it; it is not known if it stays on one device. No lock is held.
inline void end_copy(DeviceCopy& copy, c10::ArrayRef<const c10::IValue> results, bool failed) {
  copy.is_known = !failed && results.size() == 1;
  if (!copy.is_known) return;
  if (results[0].isTensor()) {
    copy.is_known = is_plain(results[0]);
    if (!copy.is_known) return;
    at::Tensor tensor = results[0].toTensor();
    copy.target = tensor.device();
    copy.nbytes = tensor.numel() * static_cast<int64_t>(tensor.dtype().itemsize());
    if (!copy.source.is_cpu()) copy.is_pinned = is_pinned(tensor);
  }
  copy.is_known = copy.source != copy.target && copy.source.type() != c10::kMeta && copy.target.type() != c10::kMeta;
  if (!copy.is_known) return;
  if (!copy.source.is_cpu() && !copy.target.is_cpu()) copy.is_blocking = false;
}

}  // namespace agv
