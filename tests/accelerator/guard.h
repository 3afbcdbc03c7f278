// What PyTorch asks of a device: current index and stream, events, generators, pinned memory.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"

namespace sim {
inline c10::Stream stream_of(int lane) {
  auto& s = state();
  Lock lock(s.mutex);
  const auto& it = s.lanes[lane];
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, static_cast<c10::DeviceIndex>(it.index)), it.stream);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  static int index_of(c10::Device device) {
    return check_index(device.has_index() ? device.index() : current_index);
  }
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {kDevice, current_index}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) current_index = static_cast<c10::DeviceIndex>(check_index(device.index()));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_index = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    int index = index_of(device);
    return stream_of(current_lane(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(lane_of(index_of(device), 0)); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    auto& s = state();
    Lock lock(s.mutex);
    int index = index_of(device);
    return stream_of(lane_of(index, ++s.last_stream[index]));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    int index = check_index(stream.device_index());
    auto old = stream_of(current_lane(index));
    current_stream[index] = stream.id();
    return old;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(lane_of(stream)));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kIndices; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    auto& s = state();
    Lock lock(s.mutex);
    if (!*event) *event = new Event;
    auto& it = *static_cast<Event*>(*event);
    auto& lane = s.lanes[lane_of(stream)];
    lane.clock_ns = std::max(lane.clock_ns, host_clock(lane.index));
    it = {lane.clock_ns, lane.order, flag == c10::EventFlag::BACKEND_DEFAULT, lane.index};
    join(it.order, s.host);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    auto& s = state();
    Lock lock(s.mutex);
    auto& it = *static_cast<Event*>(event);
    auto& lane = s.lanes[lane_of(stream)];
    lane.clock_ns = std::max(lane.clock_ns, it.time_ns);
    join(lane.order, it.order);
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    auto& it = *static_cast<Event*>(event);
    return queried(it.index, it.time_ns, it.order);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const c10::Stream& stream) const override {
    auto& s = state();
    Lock lock(s.mutex);
    auto& lane = s.lanes[lane_of(stream)];
    return queried(lane.index, lane.clock_ns, lane.order);
  }
  // A query costs the host as much as a launch, so that a loop of queries ends.
  static bool queried(int index, int64_t time_ns, const Order& order) {
    auto& s = state();
    Lock lock(s.mutex);
    advance_host(index, host_clock(index) + s.costs.launch_ns);
    bool done = time_ns <= host_clock(index);
    if (done) host_waited(index, time_ns, order);
    return done;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_wait("synchronize", "stream");
    wait_for_lane(lane_of(stream));
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    count_wait("synchronize", "event");
    auto& it = *static_cast<Event*>(event);
    host_waited(it.index, it.time_ns, it.order);
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    count_wait("synchronize", "device");
    wait_for_index(check_index(index));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator.recordStream(data, stream);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first && second, "Both events must be recorded before calculating elapsed time.");
    auto &a = *static_cast<Event*>(first), &b = *static_cast<Event*>(second);
    TORCH_CHECK(a.timing && b.timing, "Both events must be created with argument 'enable_timing=True'.");
    auto& s = state();
    Lock lock(s.mutex);
    TORCH_CHECK(a.time_ns <= host_clock(a.index) && b.time_ns <= host_clock(b.index),
                "Both events must be completed before calculating elapsed time.");
    return static_cast<double>(b.time_ns - a.time_ns) / 1e6;
  }
};

// A generator of the device draws the numbers of a generator of the CPU.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(int index, at::Generator inner)
      : c10::GeneratorImpl{c10::Device(kDevice, static_cast<c10::DeviceIndex>(index)),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)},
        inner(std::move(inner)) {}
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { inner.set_offset(offset); }
  uint64_t get_offset() const override { return inner.get_offset(); }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return inner.seed(); }
  void set_state(const c10::TensorImpl& state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override { return new Generator(device_.index(), inner.clone()); }
  at::Generator inner;
};
inline at::Generator new_generator(int index) {
  return at::make_generator<Generator>(index, at::detail::createCPUGenerator());
}
inline const at::Generator& default_generator(int index) {
  static auto* all = new std::array<at::Generator, kIndices>{new_generator(0), new_generator(1)};
  return (*all)[check_index(static_cast<c10::DeviceIndex>(index < 0 ? current_index : index))];
}

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kIndices; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    current_index = static_cast<c10::DeviceIndex>(check_index(index));
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_index; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto old = current_index;
    setCurrentDevice(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_index : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void*) const override { return {kDevice, current_index}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(check_index(index < 0 ? current_index : index));
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* it = storage.unsafeGetStorageImpl();
    auto fresh = allocate_on(check_index(it->device().index()), bytes);
    if (it->nbytes() && bytes) std::memcpy(fresh.get(), it->data(), std::min(bytes, it->nbytes()));
    it->set_data_ptr_noswap(std::move(fresh));
    it->set_nbytes(bytes);
  }
};
inline Hooks hooks;
}  // namespace sim
