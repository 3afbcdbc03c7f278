// The sum and the L2 norm of an output of an operator, as ``ops/hashes_norms_and_draws.py`` computes them.
#pragma once

#include "fingerprints.h"
#include "wrapper_tensors.h"

#include <bit>
#include <cmath>

namespace agv {

struct OutputNorm {
  bool is_read = false;
  int64_t sum = 0;  // the bits of doubles, as they lie in an event; NaN if an entry is not finite
  int64_t norm = 0;
};

template <class Number>
OutputNorm norm_of_entries(const void* data, const Dims& dims) {
  const Number* values = static_cast<const Number*>(data);
  const Dim& row = dims.back();
  double total = 0, squares = 0;
  each_row(dims, [&](int64_t offset) {
    double of_row = 0, squares_of_row = 0;
    for (int64_t i = 0; i < row.size; ++i) {
      auto value = static_cast<double>(values[offset + i * row.step]);
      of_row += value;
      squares_of_row += value * value;
    }
    total += of_row;
    squares += squares_of_row;
  });
  double norm = std::sqrt(squares);
  if (!std::isfinite(total) || !std::isfinite(norm)) total = norm = NAN;
  return {true, std::bit_cast<int64_t>(total), std::bit_cast<int64_t>(norm)};
}

// Read a tensor, of a DTensor its local part. A tensor that a collective may still write is not read.
inline OutputNorm norm_of_output(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_python_dispatch()) {
    const Wrapper* wrapper = find_wrapper(*impl);
    if (wrapper == nullptr || wrapper->layout < 0) return {};
    impl = wrapper->inner.unsafeGetTensorImpl();
  }
  if (!has_bits(*impl)) return {};
  c10::ScalarType dtype = c10::typeMetaToScalarType(impl->dtype());
  bool is_complex = c10::isComplexType(dtype);
  int64_t parts = is_complex ? 2 : 1;  // a complex entry is two real ones
  Dims dims;
  for (int64_t i = 0; i < impl->dim(); ++i) dims.push_back({impl->sizes()[i], impl->strides()[i] * parts});
  if (is_complex || dims.empty()) dims.push_back({parts, 1});
  const void* data = static_cast<const char*>(impl->unsafe_storage().data()) + impl->storage_offset() * impl->itemsize();
  switch (dtype) {
    case c10::kHalf:
      return norm_of_entries<c10::Half>(data, dims);
    case c10::kBFloat16:
      return norm_of_entries<c10::BFloat16>(data, dims);
    case c10::kFloat:
    case c10::kComplexFloat:
      return norm_of_entries<float>(data, dims);
    case c10::kDouble:
    case c10::kComplexDouble:
      return norm_of_entries<double>(data, dims);
    default:
      return {};
  }
}

}  // namespace agv
