// Time on the device of module calls and node runs, for record(device_time=True).
//
// NOTE [ Time on the device ]
// An event of the stream is recorded where a module call or a node begins, and one where it ends. The
// time between two events is read once the device has passed both, and never waited for inside the
// recording: when many are waiting, those are read that are done, and at the end the recorder waits
// once for each device. Events give the time since another one, which some backends return in float32
// milliseconds, so the one that times count from moves along.
#pragma once

#include "recording_state.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <deque>
#include <map>
#include <set>

namespace agv {

// What a span belongs to: a module call, or the run of a node. The others are NO_ID.
struct SpanOwner {
  int64_t call_id, backward_id, node_id;
  bool operator==(const SpanOwner&) const = default;
};

struct DeviceSpan {
  SpanOwner owner;
  int64_t thread;
  c10::Stream stream;
  std::shared_ptr<c10::Event> start, end;
  int64_t start_clock_ns, end_clock_ns;  // when the events were submitted, of ``clock_ns``
  int64_t start_time_ns, end_time_ns;  // the same in the time of the program
  int64_t device_start_ns, device_end_ns;  // since the first event of the device
};

class DeviceSpans {
 public:
  DeviceSpans(c10::DeviceType type, int64_t began_ns) : type(type), began_ns_(began_ns) {}

  const c10::DeviceType type;

  // Record the event of a start on the current stream of a device.
  void begin(SpanOwner owner, int64_t thread, c10::DeviceIndex index) {
    guarded([&] {
      c10::impl::VirtualGuardImpl guard(type);
      c10::Stream stream = guard.getStream(c10::Device(type, index));
      if (is_capturing(guard, stream)) return;
      DeviceSpan span{owner, thread, stream, record(stream), nullptr, clock_ns(), 0, now_ns() - began_ns_, 0, 0, 0};
      std::lock_guard<std::mutex> lock(mutex_);
      anchors_.try_emplace(index, Anchor{span.start, 0});
      open_.push_back(std::move(span));
    });
  }

  // Record the events of the ends, on the streams of their starts.
  void end(SpanOwner owner, int64_t thread) {
    std::vector<DeviceSpan> ended;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto is_this = [&](const DeviceSpan& each) { return each.owner == owner && each.thread == thread; };
      for (size_t i = open_.size(); i-- > 0;) {
        if (!is_this(open_[i])) continue;
        ended.push_back(std::move(open_[i]));
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    for (DeviceSpan& span : ended)
      guarded([&] {
        if (is_capturing(c10::impl::VirtualGuardImpl(type), span.stream)) return;
        span.end = record(span.stream);
        span.end_clock_ns = clock_ns();
        span.end_time_ns = now_ns() - began_ns_;
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_.push_back(std::move(span));
      });
  }

  size_t waiting() {
    std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
  }

  // Return the spans that the device has passed; all of them after a wait for each device. The GIL is
  // not held.
  std::vector<DeviceSpan> take(bool wait) {
    std::vector<DeviceSpan> done;
    std::lock_guard<std::mutex> taking(taking_);
    if (wait) {
      std::set<c10::DeviceIndex> used;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        for (const DeviceSpan& span : waiting_) used.insert(span.stream.device_index());
      }
      for (c10::DeviceIndex index : used)
        guarded([&] { c10::impl::VirtualGuardImpl(type).synchronizeDevice(index); });
    }
    while (true) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (waiting_.empty()) break;
      DeviceSpan& span = waiting_.front();
      Anchor& anchor = anchors_.at(span.stream.device_index());
      bool is_done = true;
      bool read = guarded([&] {
        is_done = wait || (anchor.event->query() && span.end->query());
        if (!is_done) return;
        span.device_start_ns = anchor.time_of(*span.start);
        span.device_end_ns = anchor.time_of(*span.end);
        constexpr int64_t FAR_NS = 500'000'000;
        if (span.device_end_ns - anchor.time_ns > FAR_NS) anchor = {span.end, span.device_end_ns};
      });
      if (!is_done) break;
      DeviceSpan taken = std::move(span);
      waiting_.pop_front();
      lock.unlock();
      taken.start = taken.end = nullptr;
      if (read) done.push_back(std::move(taken));
    }
    return done;
  }

  // Return what failed since the last call, "" if nothing did.
  std::string take_problem() {
    std::lock_guard<std::mutex> lock(problem_mutex_);
    return std::exchange(problem_, {});
  }

 private:
  struct Anchor {
    std::shared_ptr<c10::Event> event;
    int64_t time_ns;

    int64_t time_of(const c10::Event& other) const {
      return time_ns + std::llround(event->elapsedTime(other) * 1e6);
    }
  };

  static std::shared_ptr<c10::Event> record(const c10::Stream& stream) {
    auto event = std::make_shared<c10::Event>(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
    event->record(stream);
    return event;
  }

  // Events of a graph that is being captured have no times. Older PyTorch cannot tell.
  template <class Guard>
  static bool is_capturing(const Guard& guard, const c10::Stream& stream) {
    if constexpr (requires { guard.isStreamCapturing(stream); })
      return guard.isStreamCapturing(stream);
    else
      return false;
  }

  template <class Work>
  bool guarded(const Work& work) {
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      std::lock_guard<std::mutex> lock(problem_mutex_);
      problem_ = error.what();
      return false;
    }
  }

  const int64_t began_ns_;
  std::mutex taking_;  // one thread reads
  std::mutex mutex_;  // protects the next three
  std::vector<DeviceSpan> open_;
  std::deque<DeviceSpan> waiting_;  // in the order of their ends
  std::map<c10::DeviceIndex, Anchor> anchors_;
  std::mutex problem_mutex_;
  std::string problem_;
};

}  // namespace agv
