// A buffer of encoded events: each number takes one byte for each seven bits that it needs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace agv {

// The bytes of events. Each begins with its size (three bytes) and its kind (one byte).
class EventBuffer {
 public:
  EventBuffer() = default;
  EventBuffer(const EventBuffer&) = delete;
  EventBuffer& operator=(const EventBuffer&) = delete;

  ~EventBuffer() {
    std::free(data_);
  }

  void swap(EventBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  size_t size() const {
    return size_;
  }

  const uint8_t* begin() const {
    return data_;
  }

  const uint8_t* end() const {
    return data_ + size_;
  }

  void clear() {
    std::free(data_);
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

  size_t begin_event(int kind) {
    reserve(HEADER);
    size_t start = size_;
    data_[start + HEADER - 1] = static_cast<uint8_t>(kind);
    size_ += HEADER;
    return start;
  }

  // An event whose size does not fit its header, one of millions of tensors, is dropped.
  void end_event(size_t start) {
    size_t size = size_ - start;
    if (size >> (8 * (HEADER - 1))) {
      size_ = start;
      return;
    }
    for (size_t i = 0; i + 1 < HEADER; ++i) data_[start + i] = static_cast<uint8_t>(size >> (8 * i));
  }

  void put(int64_t value) {
    reserve(MOST);
    // Small negative numbers are short too.
    uint64_t bits = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
    for (; bits >= 0x80; bits >>= 7) data_[size_++] = static_cast<uint8_t>(bits | 0x80);
    data_[size_++] = static_cast<uint8_t>(bits);
  }

  void append(const uint8_t* bytes, size_t count) {
    reserve(count);
    if (count > 0) std::memcpy(data_ + size_, bytes, count);
    size_ += count;
  }

  static constexpr size_t HEADER = 4;

 private:
  static constexpr size_t MOST = 10;  // bytes of a number

  void reserve(size_t count) {
    if (capacity_ - size_ >= count) return;
    size_t capacity = 2 * capacity_ + count + 4096;
    void* grown = std::realloc(data_, capacity);
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(grown);
    capacity_ = capacity;
  }

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// Reads the numbers of one event.
class EventReader {
 public:
  explicit EventReader(const uint8_t* event) : at_(event + EventBuffer::HEADER) {}

  int64_t next() {
    uint64_t bits = 0;
    for (int shift = 0;; shift += 7) {
      uint8_t byte = *at_++;
      bits |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return static_cast<int64_t>(bits >> 1) ^ -static_cast<int64_t>(bits & 1);
  }

  static int kind(const uint8_t* event) {
    return event[EventBuffer::HEADER - 1];
  }

  static size_t size(const uint8_t* event) {
    return event[0] | (static_cast<size_t>(event[1]) << 8) | (static_cast<size_t>(event[2]) << 16);
  }

 private:
  const uint8_t* at_;
};

}  // namespace agv
