// The stream of an accelerator on which an operator or a node runs, if it is not the default one.
#pragma once

#include "recording_state.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace agv {

struct UsedStream {
  c10::Device device = c10::kCPU;  // the CPU: none
  int64_t stream = 0;

  bool is_other() const {
    return !device.is_cpu();
  }
};

// Return whether a tensor is on an accelerator.
inline bool is_on_accelerator(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.is_python_dispatch()) return false;
  c10::DeviceType type = impl.device().type();
  return type != c10::kCPU && type != c10::kMeta;
}

// Return the current stream of a device if it is not the default one. No lock is held: a device may
// take locks of its own.
inline UsedStream current_stream_of(c10::Device device) {
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) return {};
  try {
    c10::impl::VirtualGuardImpl guard(device.type());
    c10::Stream stream = guard.getStream(device);
    if (stream != guard.getDefaultStream(device)) return {stream.device(), stream.id()};
  } catch (const std::exception&) {  // the device has no streams
  }
  return {};
}

// Record it. ``Recording::mutex`` is held.
inline void put_stream(Recording& recording, const UsedStream& used, int64_t op_seq, int64_t backward_id,
                       int64_t node_id, int64_t thread, int64_t stack, int64_t time_ns) {
  if (!used.is_other()) return;
  size_t start = recording.begin_event(Kind::stream_used, recording.seq(), time_ns, thread, stack);
  int64_t word = (static_cast<int64_t>(used.device.type()) << 8) | static_cast<uint8_t>(used.device.index());
  for (int64_t value : {word, used.stream, op_seq, backward_id, node_id}) recording.put(value);
  recording.end_event(start);
}

}  // namespace agv
