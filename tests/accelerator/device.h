// The state of the device: clocks, streams, events, waits of the host, order between accesses, and
// memory. The model is described in sim.py.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "python_lines.h"

namespace sim {
constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr int kIndices = 2;
constexpr int kPoison = 0xFF;  // NaN in every floating type, -1 in the signed integers
constexpr size_t kRound = 512;
constexpr size_t kMostCached = size_t{256} << 20;

// The order of work. Number n of a lane is its n-th piece of work; a lane is a stream of an index.
using Order = std::vector<uint64_t>;
inline void join(Order& into, const Order& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}
inline bool covers(const Order& order, int lane, uint64_t number) {
  return static_cast<size_t>(lane) < order.size() && order[lane] >= number;
}

struct Lane {
  int index;
  c10::StreamId stream;
  int64_t clock_ns = 0;
  int64_t busy_ns = 0;
  Order order;  // the work that comes before what is submitted next, its own included
};

struct Kernel {
  std::string name;
  int lane;
  int64_t start_ns, end_ns;
  size_t bytes;
};

struct Event {
  int64_t time_ns = 0;
  Order order;
  bool timing = false;
  int index = 0;
};

struct Access {
  int lane;
  uint64_t number;
  bool write;
  const char *begin, *end;
  std::string op;
  std::shared_ptr<Lines> lines;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outputs;
};

struct Block {
  void* data;
  size_t bytes;    // as requested
  size_t rounded;  // as counted
  int index;
  int lane;
  c10::DataPtr owner;      // of memory that the CPU's allocator gave to a kernel
  bool counted = false;    // in the statistics
  bool from_cache = false;
  std::vector<Access> accesses;
  std::vector<int> recorded;  // lanes of record_stream()
};

struct Arrival {  // a copy to the host that has not arrived
  int lane;
  uint64_t number;
  at::Tensor to, values;
};

struct Wait {
  std::string kind, op;
  Lines lines;
};

struct Race {
  std::string kind, first_op, second_op;
  Lines first, second;
};

struct Memory {
  size_t capacity = size_t{8} << 30;
  c10::CachingDeviceAllocator::DeviceStats stats;
  size_t cached = 0;
  std::map<std::pair<int, size_t>, std::vector<void*>> free_blocks;  // by lane and rounded size
};

struct Costs {
  int64_t launch_ns = 1000;  // of the host's clock
  int64_t kernel_ns = 2000;
  int64_t bytes_per_ns = 16;
};

enum class Mode { kDefault, kWarn, kError };

struct State {
  std::recursive_mutex mutex;
  std::deque<Lane> lanes;
  std::map<std::pair<int, c10::StreamId>, int> lane_of;
  std::array<c10::StreamId, kIndices> last_stream{};
  std::array<int64_t, kIndices> host_ns{};
  Order host;  // the work that the host has waited for
  Costs costs;
  std::thread::id main = std::this_thread::get_id();
  std::vector<Wait> waits;
  int waits_ignored = 0;
  Mode mode = Mode::kDefault;
  bool with_lines = false;  // keep the lines of each access
  std::vector<Race> races;
  bool log_kernels = false;
  std::vector<Kernel> kernels;
  std::vector<Arrival> arrivals;
  std::array<Memory, kIndices> memory;
  std::map<const char*, size_t> pinned;
};
inline State& state() {
  static auto* it = new State;  // never destroyed: memory is freed until the process ends
  return *it;
}
using Lock = std::lock_guard<std::recursive_mutex>;

inline thread_local c10::DeviceIndex current_index = 0;
inline thread_local std::array<c10::StreamId, kIndices> current_stream{};

inline int check_index(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kIndices, "sim error: invalid device ordinal");
  return index;
}

// ---- lanes and clocks ----

inline int lane_of(int index, c10::StreamId stream) {
  auto& s = state();
  Lock lock(s.mutex);
  auto [found, added] = s.lane_of.try_emplace({index, stream}, static_cast<int>(s.lanes.size()));
  if (added) s.lanes.push_back({index, stream});
  return found->second;
}
inline int lane_of(const c10::Stream& stream) {
  return lane_of(check_index(stream.device_index()), stream.id());
}
inline int current_lane(int index) { return lane_of(index, current_stream[index]); }

// The main thread has one clock. A thread of the engine has that of its device: they start together
// and the main thread waits for the later one, so that the clocks do not depend on the scheduler.
inline int64_t& host_clock(int index) {
  auto& s = state();
  if (std::this_thread::get_id() == s.main) {
    s.host_ns.fill(*std::max_element(s.host_ns.begin(), s.host_ns.end()));
  }
  return s.host_ns[index];
}
inline void advance_host(int index, int64_t time_ns) {
  auto& s = state();
  if (std::this_thread::get_id() == s.main) s.host_ns.fill(time_ns);
  else s.host_ns[index] = time_ns;
}

struct Launched {
  int lane;
  uint64_t number;
};

// Submit work to a lane: its clock and order advance.
inline Launched launch(const std::string& name, int lane_id, size_t bytes) {
  auto& s = state();
  Lock lock(s.mutex);
  auto& lane = s.lanes[lane_id];
  advance_host(lane.index, host_clock(lane.index) + s.costs.launch_ns);
  int64_t start = std::max(lane.clock_ns, host_clock(lane.index));
  int64_t duration = s.costs.kernel_ns + static_cast<int64_t>(bytes) / s.costs.bytes_per_ns;
  lane.clock_ns = start + duration;
  lane.busy_ns += duration;
  if (s.log_kernels) s.kernels.push_back({name, lane_id, start, lane.clock_ns, bytes});
  join(lane.order, s.host);  // the host submits it after what it has waited for
  if (lane.order.size() <= static_cast<size_t>(lane_id)) lane.order.resize(lane_id + 1);
  return {lane_id, ++lane.order[lane_id]};
}

// ---- waits of the host ----

void arrive(const std::function<bool(const Arrival&)>& ready);

// Count a wait of the host; raises in the mode "error". Call it without the lock.
inline void count_wait(const char* kind, const std::string& op) {
  auto& s = state();
  if (s.waits_ignored) return;
  Lines lines = current_lines();
  {
    Lock lock(s.mutex);
    s.waits.push_back({kind, op, std::move(lines)});
  }
  TORCH_CHECK(s.mode != Mode::kError, "called a synchronizing sim operation");
  if (s.mode == Mode::kWarn) TORCH_WARN("called a synchronizing sim operation");
}

inline void host_waited(int index, int64_t time_ns, const Order& order) {
  auto& s = state();
  Lock lock(s.mutex);
  advance_host(index, std::max(host_clock(index), time_ns));
  join(s.host, order);
  if (!s.arrivals.empty()) {
    arrive([&](const Arrival& each) { return covers(s.host, each.lane, each.number); });
  }
}
inline void wait_for_lane(int lane_id) {
  auto& s = state();
  Lock lock(s.mutex);
  auto& lane = s.lanes[lane_id];
  host_waited(lane.index, lane.clock_ns, lane.order);
}
inline void wait_for_index(int index) {
  auto& s = state();
  Lock lock(s.mutex);
  for (size_t i = 0; i < s.lanes.size(); ++i) {
    if (s.lanes[i].index == index) wait_for_lane(static_cast<int>(i));
  }
}

// ---- order between accesses ----

inline void poison(const c10::StorageImpl& storage) {
  if (storage.data()) std::memset(const_cast<void*>(storage.data()), kPoison, storage.nbytes());
}

inline void report_race(const char* kind, const Access& first, const std::string& op,
                        const std::shared_ptr<Lines>& lines) {
  auto& s = state();
  s.races.push_back({kind, first.op, op, first.lines ? *first.lines : Lines{}, lines ? *lines : Lines{}});
}

// Note an access to a block, after comparing it with those on other streams.
inline void access(Block& block, const Launched& work, bool write, const char* begin, const char* end,
                   const std::string& op, const std::shared_ptr<Lines>& lines) {
  auto& s = state();
  const auto& order = s.lanes[work.lane].order;
  for (const auto& each : block.accesses) {
    bool conflict = (each.write || write) && each.begin < end && begin < each.end;
    if (conflict && each.lane != work.lane && !covers(order, each.lane, each.number)) {
      report_race(!write ? "read-after-write" : each.write ? "write-after-write" : "write-after-read",
                  each, op, lines);
    }
  }
  // What is ordered before this access and inside its range cannot conflict with later work that
  // is ordered after this one.
  auto superseded = [&](const Access& each) {
    return each.lane == work.lane && begin <= each.begin && each.end <= end && (write || !each.write) &&
           (each.lane == block.lane || each.outputs.empty());
  };
  block.accesses.erase(std::remove_if(block.accesses.begin(), block.accesses.end(), superseded),
                       block.accesses.end());
  block.accesses.push_back({work.lane, work.number, write, begin, end, op, lines, {}});
}

// ---- memory ----

inline size_t rounded(size_t bytes) { return (bytes + kRound - 1) / kRound * kRound; }
inline std::string readable(size_t bytes) {
  char text[64];
  if (bytes <= 1024) std::snprintf(text, sizeof text, "%zu bytes", bytes);
  else if (bytes <= 1 << 20) std::snprintf(text, sizeof text, "%.2f KiB", bytes / 1024.0);
  else if (bytes <= 1 << 30) std::snprintf(text, sizeof text, "%.2f MiB", bytes / 1048576.0);
  else std::snprintf(text, sizeof text, "%.2f GiB", bytes / 1073741824.0);
  return text;
}
inline void more(c10::CachingDeviceAllocator::StatArray& stat, size_t n) { stat[0].increase(n); }
inline void less(c10::CachingDeviceAllocator::StatArray& stat, size_t n) { stat[0].decrease(n); }
using c10::CachingDeviceAllocator::StatArray;

inline void empty_cache(int index) {
  auto& memory = state().memory[index];
  for (auto& [key, blocks] : memory.free_blocks) {
    for (void* data : blocks) std::free(data);
    less(memory.stats.segment, blocks.size());
    memory.stats.num_device_free += static_cast<int64_t>(blocks.size());
  }
  less(memory.stats.reserved_bytes, memory.cached);
  memory.cached = 0;
  memory.free_blocks.clear();
}

[[noreturn]] inline void out_of_memory(int index, size_t bytes) {
  auto& memory = state().memory[index];
  auto& stats = memory.stats;
  ++stats.num_ooms;
  size_t reserved = stats.reserved_bytes[0].current, allocated = stats.allocated_bytes[0].current;
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "sim out of memory. Tried to allocate ", readable(bytes), ". GPU ", index,
      " has a total capacity of ", readable(memory.capacity), " of which ",
      readable(memory.capacity > reserved ? memory.capacity - reserved : 0),
      " is free. Including non-PyTorch memory, this process has ", readable(reserved),
      " memory in use. Of the allocated memory ", readable(allocated), " is allocated by PyTorch, and ",
      readable(reserved - allocated),
      " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
      "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
      "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)");
  std::abort();
}

// Count a block as allocated.
inline void commit(Block& block) {
  auto& s = state();
  Lock lock(s.mutex);
  if (block.counted || !block.rounded) return;
  auto& memory = s.memory[block.index];
  auto& stats = memory.stats;
  if (!block.from_cache) {
    if (stats.reserved_bytes[0].current + block.rounded > memory.capacity) {
      if (memory.cached) {
        ++stats.num_alloc_retries;
        empty_cache(block.index);
      }
      if (stats.reserved_bytes[0].current + block.rounded > memory.capacity) {
        out_of_memory(block.index, block.rounded);
      }
    }
    more(stats.reserved_bytes, block.rounded);
    more(stats.segment, 1);
    ++stats.num_device_alloc;
  }
  block.counted = true;
  more(stats.allocation, 1);
  more(stats.active, 1);
  more(stats.allocated_bytes, block.rounded);
  more(stats.active_bytes, block.rounded);
  more(stats.requested_bytes, block.bytes);
}

inline void poison_outputs_of_late_readers(Block& block) {
  auto& s = state();
  for (auto& each : block.accesses) {
    if (each.lane == block.lane || covers(s.lanes[block.lane].order, each.lane, each.number) ||
        covers(s.host, each.lane, each.number) ||
        std::count(block.recorded.begin(), block.recorded.end(), each.lane)) {
      continue;
    }
    report_race("freed-while-used", each, "free", s.with_lines ? std::make_shared<Lines>(current_lines()) : nullptr);
    for (auto& weak : each.outputs) {
      if (auto storage = weak.lock()) poison(*storage);
    }
  }
}

inline void release(void* context) {
  std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (!block->data) return;
  auto& s = state();
  Lock lock(s.mutex);
  auto& memory = s.memory[block->index];
  auto& stats = memory.stats;
  std::memset(block->data, kPoison, block->owner ? block->bytes : block->rounded);
  poison_outputs_of_late_readers(*block);
  if (block->counted) {
    less(stats.allocation, 1);
    less(stats.active, 1);
    less(stats.allocated_bytes, block->rounded);
    less(stats.active_bytes, block->rounded);
    less(stats.requested_bytes, block->bytes);
  }
  if (block->owner || (!block->counted && !block->from_cache)) {
    if (!block->owner) std::free(block->data);
    if (block->counted) {
      less(stats.reserved_bytes, block->rounded);
      less(stats.segment, 1);
      ++stats.num_device_free;
    }
    return;
  }
  // Memory of record_stream() is not given out again, as if its stream were still busy.
  memory.free_blocks[{block->recorded.empty() ? block->lane : -1, block->rounded}].push_back(block->data);
  memory.cached += block->rounded;
  if (memory.cached > kMostCached) empty_cache(block->index);
}

// A block of an index and stream, not yet counted.
inline Block* new_block(size_t bytes, int index, int lane) {
  auto& s = state();
  Lock lock(s.mutex);
  auto* block = new Block{nullptr, bytes, rounded(bytes), index, lane};
  if (!bytes) return block;
  auto& memory = s.memory[index];
  auto found = memory.free_blocks.find({lane, block->rounded});
  if (found != memory.free_blocks.end() && !found->second.empty()) {
    block->data = found->second.back();
    found->second.pop_back();
    memory.cached -= block->rounded;
    block->from_cache = true;
  } else {
    // A request beyond any memory is refused before the host is asked for it.
    if (block->rounded > memory.capacity) {
      delete block;
      out_of_memory(index, rounded(bytes));
    }
    block->data = std::aligned_alloc(64, block->rounded);
    if (!block->data) {
      delete block;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the host has no memory for the device");
    }
    std::memset(block->data, kPoison, block->rounded);
  }
  return block;
}
inline c10::DataPtr data_of(Block* block) {
  return {block->data, block, &release, c10::Device(kDevice, static_cast<c10::DeviceIndex>(block->index))};
}
inline c10::DataPtr allocate_on(int index, size_t bytes) {
  auto data = data_of(new_block(bytes, index, current_lane(index)));
  commit(*static_cast<Block*>(data.get_context()));
  return data;
}
inline Block* block_of(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == &release
             ? static_cast<Block*>(storage.data_ptr().get_context())
             : nullptr;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(check_index(current_index), bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    Lock lock(state().mutex);
    for (int index = 0; index < kIndices; ++index) empty_cache(index);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Lock lock(state().mutex);
    if (data.get_deleter() == &release && data.get()) {
      static_cast<Block*>(data.get_context())->recorded.push_back(lane_of(stream));
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    Lock lock(state().mutex);
    return state().memory[check_index(index)].stats;
  }
  template <typename F>
  void each_stat(c10::DeviceIndex index, F apply) {
    Lock lock(state().mutex);
    auto& stats = state().memory[check_index(index)].stats;
    for (auto* each : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
                       &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      apply((*each)[0]);
    }
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    each_stat(index, [](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
    auto& stats = state().memory[check_index(index)].stats;
    stats.num_alloc_retries = stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    each_stat(index, [](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    Lock lock(state().mutex);
    auto& memory = state().memory[check_index(index)];
    size_t reserved = memory.stats.reserved_bytes[0].current;
    return {memory.capacity > reserved ? memory.capacity - reserved : 0, memory.capacity};
  }
};
inline Allocator allocator;

// Pinned memory of the host.
inline void release_pinned(void* data) {
  auto& s = state();
  Lock lock(s.mutex);
  s.pinned.erase(static_cast<const char*>(data));
  std::free(data);
}
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto& s = state();
    Lock lock(s.mutex);
    void* data = std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
    s.pinned[static_cast<const char*>(data)] = std::max<size_t>(bytes, 1);
    return {data, data, &release_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
inline PinnedAllocator pinned_allocator;
inline bool is_pinned(const void* data) {
  auto& s = state();
  Lock lock(s.mutex);
  auto after = s.pinned.upper_bound(static_cast<const char*>(data));
  if (after == s.pinned.begin()) return false;
  --after;
  return static_cast<const char*>(data) < after->first + after->second;
}
}  // namespace sim
