// The bytes and norms of ordinary gradients: real, contiguous and on the host.
#pragma once

#include "python_frames.h"

#include <ATen/core/Tensor.h>

#include <cmath>

namespace agv {
namespace {

bool is_ordinary(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.is_python_dispatch() || !impl.is_cpu() || impl.layout() != c10::kStrided) return false;
  if (impl.has_symbolic_sizes_strides() || tensor.is_nested() || tensor.is_neg() || tensor._is_zerotensor()) return false;
  c10::ScalarType dtype = tensor.scalar_type();
  if (dtype != c10::kFloat && dtype != c10::kDouble && dtype != c10::kHalf && dtype != c10::kBFloat16) return false;
  size_t needed = (static_cast<size_t>(impl.storage_offset()) + static_cast<size_t>(impl.numel())) * impl.itemsize();
  return impl.is_contiguous() && impl.unsafe_storage().nbytes() >= needed;
}

// Return the first entry of an ordinary tensor.
double first_value(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case c10::kDouble:
      return *static_cast<const double*>(data);
    case c10::kHalf:
      return *static_cast<const c10::Half*>(data);
    case c10::kBFloat16:
      return *static_cast<const c10::BFloat16*>(data);
    default:
      return *static_cast<const float*>(data);
  }
}

template <class Number>
double norm_of(const Number* values, int64_t count) {
  constexpr int LANES = 8;  // independent sums, so that they overlap
  double sums[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int lane = 0; lane < LANES; ++lane) {
      double value = values[i + lane];
      sums[lane] += value * value;
    }
  for (; i < count; ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double total = 0;
  for (double sum : sums) total += sum;
  return std::sqrt(total);
}

}  // namespace
}  // namespace agv
