// Fingerprints of tensor contents on the host, with the digests of ``ops/hashes_norms_and_draws.py``.
//
// Up to 4096 bytes are hashed in the order of the entries with BLAKE2b (RFC 7693, a digest of eight
// bytes). Larger contents give the sum and the xor of their bits, read as integers, which do not
// depend on the order, so that they are read as they lie in memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace agv {

constexpr int64_t UNREADABLE = -1;

// The fingerprint of a content, and how many of its entries are not finite.
struct Fingerprint {
  int64_t hash = UNREADABLE;
  int64_t nans = 0;
  int64_t infinities = 0;
};

// --- BLAKE2b ------------------------------------------------------------------------------------

class Blake2b {
 public:
  // Return the digest of some bytes, as a little-endian number.
  static uint64_t digest(const uint8_t* bytes, size_t size) {
    Blake2b state;
    constexpr uint64_t PARAMETERS = 0x01010000 | sizeof(uint64_t);  // no key, no tree
    state.hash_[0] ^= PARAMETERS;
    size_t at = 0;
    for (; size - at > BLOCK; at += BLOCK) state.compress(bytes + at, at + BLOCK, false);
    uint8_t last[BLOCK] = {};
    std::memcpy(last, bytes + at, size - at);
    state.compress(last, size, true);
    return state.hash_[0];
  }

 private:
  static constexpr size_t BLOCK = 128;
  static constexpr int ROUNDS = 12;
  static constexpr uint64_t INITIAL[8] = {
      0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
      0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
  static constexpr uint8_t ORDER[10][16] = {
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
      {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
      {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
      {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
      {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

  static void mix(uint64_t& a, uint64_t& b, uint64_t& c, uint64_t& d, uint64_t x, uint64_t y) {
    a += b + x;
    d = std::rotr(d ^ a, 32);
    c += d;
    b = std::rotr(b ^ c, 24);
    a += b + y;
    d = std::rotr(d ^ a, 16);
    c += d;
    b = std::rotr(b ^ c, 63);
  }

  void compress(const uint8_t* block, uint64_t count, bool last) {
    uint64_t m[16], v[16];
    std::memcpy(m, block, BLOCK);
    std::copy(hash_, hash_ + 8, v);
    std::copy(INITIAL, INITIAL + 8, v + 8);
    v[12] ^= count;
    if (last) v[14] = ~v[14];
    for (int round = 0; round < ROUNDS; ++round) {
      const uint8_t* s = ORDER[round % 10];
      mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
      mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
      mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
      mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
      mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
      mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
      mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
      mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; ++i) hash_[i] ^= v[i] ^ v[i + 8];
  }

  uint64_t hash_[8] = {INITIAL[0], INITIAL[1], INITIAL[2], INITIAL[3], INITIAL[4], INITIAL[5], INITIAL[6], INITIAL[7]};
};

// --- sums of entries ----------------------------------------------------------------------------

// The bits that an entry has if its exponent is that of NaN and infinity, and those of its mantissa.
struct NotFinite {
  uint64_t exponent = 0;  // 0 for integers
  uint64_t mantissa = 0;
};

inline NotFinite not_finite_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kHalf:
      return {0x7C00, 0x03FF};
    case c10::kBFloat16:
      return {0x7F80, 0x007F};
    case c10::kFloat:
    case c10::kComplexFloat:
      return {0x7F800000, 0x007FFFFF};
    case c10::kDouble:
    case c10::kComplexDouble:
      return {0x7FF0000000000000, 0x000FFFFFFFFFFFFF};
    default:
      return {};
  }
}

// Sums over entries of one size. Bytes are unsigned, larger entries are signed.
struct Sums {
  uint64_t total = 0;
  uint64_t parity = 0;
  int64_t nans = 0;
  int64_t infinities = 0;
};

template <class Bits>
void count_not_finite(const Bits* values, int64_t count, int64_t step, NotFinite kind, Sums& sums) {
  auto exponent = static_cast<Bits>(kind.exponent), mantissa = static_cast<Bits>(kind.mantissa);
  for (int64_t i = 0; i < count; ++i) {
    Bits value = values[i * step];
    if ((value & exponent) != exponent) continue;
    ++(value & mantissa ? sums.nans : sums.infinities);
  }
}

// Add entries that lie one after the other. The loop has no branch, so that it is vectorized.
template <class Signed, class Bits>
inline __attribute__((always_inline)) void add_entries(const Bits* values, int64_t count, NotFinite kind, Sums& sums) {
  constexpr int64_t PART = 8192 / sizeof(Bits);  // what the nearest cache holds
  auto exponent = static_cast<Bits>(kind.exponent);
  for (int64_t at = 0; at < count; at += PART) {
    const Bits* part = values + at;
    int64_t size = std::min(PART, count - at);
    uint64_t total = 0;
    Bits parity = 0, found = 0;
    for (int64_t i = 0; i < size; ++i) {
      Bits value = part[i];
      total += static_cast<uint64_t>(static_cast<int64_t>(static_cast<Signed>(value)));
      parity ^= value;
      found |= static_cast<Bits>((value & exponent) == exponent);
    }
    sums.total += total;
    sums.parity ^= static_cast<uint64_t>(static_cast<int64_t>(static_cast<Signed>(parity)));
    if (kind.exponent != 0 && found) count_not_finite(part, size, 1, kind, sums);
  }
}

template <class Signed, class Bits>
__attribute__((optimize("O3"))) void add_row_anywhere(const Bits* values, int64_t count, NotFinite kind, Sums& sums) {
  add_entries<Signed>(values, count, kind, sums);
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class Signed, class Bits>
__attribute__((target("avx2"), optimize("O3"))) void add_row_avx2(
    const Bits* values, int64_t count, NotFinite kind, Sums& sums) {
  add_entries<Signed>(values, count, kind, sums);
}

template <class Signed, class Bits>
void add_row(const Bits* values, int64_t count, NotFinite kind, Sums& sums) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2)
    add_row_avx2<Signed>(values, count, kind, sums);
  else
    add_row_anywhere<Signed>(values, count, kind, sums);
}
#else
template <class Signed, class Bits>
void add_row(const Bits* values, int64_t count, NotFinite kind, Sums& sums) {
  add_row_anywhere<Signed>(values, count, kind, sums);
}
#endif

template <class Signed, class Bits>
void add_strided(const Bits* values, int64_t count, int64_t step, NotFinite kind, Sums& sums) {
  for (int64_t i = 0; i < count; ++i) {
    auto value = static_cast<uint64_t>(static_cast<int64_t>(static_cast<Signed>(values[i * step])));
    sums.total += value;
    sums.parity ^= value;
  }
  if (kind.exponent != 0) count_not_finite(values, count, step, kind, sums);
}

// --- tensors ------------------------------------------------------------------------------------

struct Dim {
  int64_t size;
  int64_t step;
};

using Dims = c10::SmallVector<Dim, 6>;

// Call ``visit`` with the offset of each row of the innermost dimension.
template <class Visit>
void each_row(const Dims& dims, const Visit& visit) {
  c10::SmallVector<int64_t, 6> at(dims.size(), 0);
  int64_t offset = 0;
  while (true) {
    visit(offset);
    int i = static_cast<int>(dims.size()) - 2;
    for (; i >= 0; --i) {
      offset += dims[i].step;
      if (++at[i] < dims[i].size) break;
      offset -= dims[i].step * dims[i].size;
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

// Return whether a tensor's entries are in memory of this process and can be read.
inline bool has_bits(const c10::TensorImpl& impl) {
  if (impl.is_python_dispatch() || !impl.is_cpu() || impl.layout() != c10::kStrided) return false;
  if (impl.has_symbolic_sizes_strides() || !impl.has_storage() || !impl.unsafe_storage()) return false;
  constexpr c10::DispatchKeySet OTHER({
      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor,
      c10::DispatchKey::NestedTensor, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
      c10::DispatchKey::Functionalize, c10::DispatchKey::Quantized});
  if (impl.key_set().has_any(OTHER) || impl.numel() == 0) return false;
  int64_t entries = 1;
  for (int64_t i = 0; i < impl.dim(); ++i) entries += (impl.sizes()[i] - 1) * impl.strides()[i];
  if (impl.unsafe_storage().data() == nullptr) return false;
  auto nbytes = static_cast<int64_t>(impl.unsafe_storage().nbytes());
  // Sharded modules free a parameter's memory and allocate it again before they use it.
  return (impl.storage_offset() + entries) * static_cast<int64_t>(impl.itemsize()) <= nbytes;
}

template <class Signed, class Bits>
Fingerprint fingerprint_of_bits(const Bits* values, Dims dims, NotFinite kind) {
  constexpr size_t SMALL = 4096;
  int64_t entries = 1, times = 1;
  for (const Dim& dim : dims) entries *= dim.size;
  bool is_small = static_cast<size_t>(entries) <= SMALL / sizeof(Bits);
  Fingerprint found;
  if (is_small) {
    Bits packed[SMALL / sizeof(Bits)];
    Bits* next = packed;
    const Dim& row = dims.back();
    each_row(dims, [&](int64_t offset) {
      for (int64_t i = 0; i < row.size; ++i) *next++ = values[offset + i * row.step];
    });
    found.hash = static_cast<int64_t>(Blake2b::digest(reinterpret_cast<uint8_t*>(packed), entries * sizeof(Bits)) & INT64_MAX);
    if (kind.exponent == 0) return found;
    Sums sums;
    count_not_finite(packed, entries, 1, kind, sums);
    found.nans = sums.nans;
    found.infinities = sums.infinities;
    return found;
  }
  // The order has no meaning: read a part that is repeated once, and rows as they lie in memory.
  Dims read;
  for (const Dim& dim : dims) {
    if (dim.step == 0) times *= dim.size;
    if (dim.step != 0 && dim.size != 1) read.push_back(dim);
  }
  std::sort(read.begin(), read.end(), [](const Dim& a, const Dim& b) { return a.step > b.step; });
  Dims merged;
  for (const Dim& dim : read) {
    if (!merged.empty() && merged.back().step == dim.step * dim.size)
      merged.back() = {merged.back().size * dim.size, dim.step};
    else
      merged.push_back(dim);
  }
  if (merged.empty()) merged.push_back({1, 1});
  Sums sums;
  const Dim row = merged.back();
  each_row(merged, [&](int64_t offset) {
    if (row.step == 1)
      add_row<Signed>(values + offset, row.size, kind, sums);
    else
      add_strided<Signed>(values + offset, row.size, row.step, kind, sums);
  });
  constexpr uint64_t MIXER = 0x9E3779B97F4A7C15;
  uint64_t parity = sizeof(Bits) == 4 ? static_cast<uint32_t>(sums.parity) : sums.parity;
  uint64_t mixed = (sums.total * static_cast<uint64_t>(times) * MIXER) ^ (times % 2 ? parity : 0);
  found.hash = static_cast<int64_t>(mixed & INT64_MAX);
  found.nans = sums.nans * times;
  found.infinities = sums.infinities * times;
  return found;
}

// Return the fingerprint of a tensor's content; its hash is -1 if the content cannot be read.
inline Fingerprint fingerprint_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!has_bits(impl)) return {};
  c10::ScalarType dtype = c10::typeMetaToScalarType(impl.dtype());
  bool is_complex = c10::isComplexType(dtype);
  int64_t parts = is_complex ? 2 : 1;  // a complex entry is two real ones
  Dims dims;
  for (int64_t i = 0; i < impl.dim(); ++i) dims.push_back({impl.sizes()[i], impl.strides()[i] * parts});
  if (is_complex || dims.empty()) dims.push_back({parts, 1});
  size_t size = impl.itemsize() / parts;
  const void* data = static_cast<const char*>(impl.unsafe_storage().data()) + impl.storage_offset() * impl.itemsize();
  NotFinite kind = not_finite_of(dtype);
  switch (size) {
    case 1:
      return fingerprint_of_bits<uint8_t>(static_cast<const uint8_t*>(data), std::move(dims), kind);
    case 2:
      return fingerprint_of_bits<int16_t>(static_cast<const uint16_t*>(data), std::move(dims), kind);
    case 4:
      return fingerprint_of_bits<int32_t>(static_cast<const uint32_t*>(data), std::move(dims), kind);
    case 8:
      return fingerprint_of_bits<int64_t>(static_cast<const uint64_t*>(data), std::move(dims), kind);
    default:
      return {};
  }
}

}  // namespace agv
