// The time of events: that of the program alone.
//
// NOTE [ Time of the program ]
// The clock of a thread stands still while the recorder works on it, but for a nanosecond each time
// that it is read: events have different times, in their order. So the duration of everything
// that is recorded, from an operator to a step, is that which it has without a recording, but for
// the calls into the recorder themselves. Threads share one origin: a new one starts with what the
// recorder has taken from the others by then, and an engine call makes its threads agree again.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace agv {

inline int64_t clock_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// What the recorder has taken from one thread.
struct ProgramTime {
  int64_t taken_ns = 0;
  int64_t stopped_ns = 0;  // when the recorder began to work
  int64_t read = 0;  // how often the clock was read since then
  int64_t left_ns = 0;  // when it last finished
  int depth = 0;
};

inline ProgramTime& program_time() {
  static thread_local ProgramTime found;
  return found;
}

// The most that was taken from one thread of this recording, and what was taken from all of them.
inline std::atomic<int64_t>& most_taken_ns() {
  static std::atomic<int64_t> found{0};
  return found;
}

inline std::atomic<int64_t>& total_taken_ns() {
  static std::atomic<int64_t> found{0};
  return found;
}

inline int64_t now_ns() {
  ProgramTime& own = program_time();
  return (own.depth > 0 ? own.stopped_ns + ++own.read : clock_ns()) - own.taken_ns;
}

inline void begin_recorder_time() {
  ProgramTime& own = program_time();
  if (own.depth++ > 0) return;
  own.stopped_ns = clock_ns();
  own.read = 0;
}

inline void end_recorder_time() {
  ProgramTime& own = program_time();
  if (--own.depth > 0) return;
  own.left_ns = clock_ns();
  int64_t taken = std::max<int64_t>(0, own.left_ns - own.stopped_ns - own.read);
  own.taken_ns += taken;
  total_taken_ns().fetch_add(taken, std::memory_order_relaxed);
  int64_t most = most_taken_ns().load(std::memory_order_relaxed);
  while (most < own.taken_ns && !most_taken_ns().compare_exchange_weak(most, own.taken_ns, std::memory_order_relaxed)) {
  }
}

// The recorder has taken some time before it was called.
inline void leave_out(int64_t taken_ns) {
  if (program_time().depth > 0) return;
  program_time().taken_ns += taken_ns;
  total_taken_ns().fetch_add(taken_ns, std::memory_order_relaxed);
}

// Work of the recorder, as long as the object exists.
class RecorderTime {
 public:
  RecorderTime() {
    begin_recorder_time();
  }
  ~RecorderTime() {
    end_recorder_time();
  }
  RecorderTime(const RecorderTime&) = delete;
  RecorderTime& operator=(const RecorderTime&) = delete;
};

// This thread has waited for others, or begins: leave out what was taken from them, but not more
// than has passed.
inline void agree_with_other_threads() {
  ProgramTime& own = program_time();
  int64_t now = own.depth > 0 ? own.stopped_ns : clock_ns();
  own.taken_ns = std::max(own.taken_ns, std::min(most_taken_ns().load(std::memory_order_relaxed),
                                                 own.taken_ns + now - own.left_ns));
}

// The first time that this thread is recorded.
inline void begin_program_time() {
  program_time().taken_ns = most_taken_ns().load(std::memory_order_relaxed);
}

}  // namespace agv
