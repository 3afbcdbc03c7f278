// The time of events: that of the program alone.
//
// NOTE [ Time of the program ]
// The clock of a thread stands still while the recorder works on it, but for a nanosecond each time
// that it is read: events have different times, in their order. So the duration of everything
// that is recorded, from an operator to a step, is about that which it has without a recording.
// Threads share one origin: a new one starts with what the recorder has taken from the others by
// then, and an engine call makes its threads agree again.
//
// A call of the recorder costs more than the time in which it works: PyTorch boxes arguments for it,
// and the program finds its caches filled with other things. Nothing can measure that while it
// happens. In models of 1 to 20 us an operator it is as much again (0.8 to 1.2 times), so that the
// clock leaves out the same time once more, from what the program runs next, but never more than
// three quarters of it.
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

constexpr int64_t MOST_OWED_NS = 10'000;  // a long call fills the caches once

// What the recorder has taken from one thread.
struct ProgramTime {
  int64_t taken_ns = 0;
  int64_t stopped_ns = 0;  // when the recorder began to work
  int64_t read = 0;  // how often the clock was read since then
  int64_t left_ns = 0;  // when it last finished, or the clock was read since then
  int64_t owed_ns = 0;  // what its calls have cost the program, as far as it is not taken yet
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

inline void take(ProgramTime& own, int64_t taken_ns) {
  own.taken_ns += taken_ns;
  total_taken_ns().fetch_add(taken_ns, std::memory_order_relaxed);
}

// The program has run until now: leave out what calls of the recorder have cost it meanwhile.
inline void settle(ProgramTime& own, int64_t clock) {
  if (own.owed_ns == 0) return;
  int64_t taken = std::min(own.owed_ns, (clock - own.left_ns) / 4 * 3);
  take(own, taken);
  own.owed_ns -= taken;
  own.left_ns = clock;
}

inline int64_t now_ns() {
  ProgramTime& own = program_time();
  if (own.depth > 0) return own.stopped_ns + ++own.read - own.taken_ns;
  int64_t clock = clock_ns();
  settle(own, clock);
  return clock - own.taken_ns;
}

inline void begin_recorder_time() {
  ProgramTime& own = program_time();
  if (own.depth++ > 0) return;
  own.stopped_ns = clock_ns();
  own.read = 0;
  settle(own, own.stopped_ns);
}

inline void end_recorder_time() {
  ProgramTime& own = program_time();
  if (own.depth == 0) return;  // a recording has begun since
  if (--own.depth > 0) return;
  own.left_ns = clock_ns();
  int64_t taken = std::max<int64_t>(0, own.left_ns - own.stopped_ns - own.read);
  take(own, taken);
  own.owed_ns = std::min(own.owed_ns + taken, MOST_OWED_NS);
  int64_t most = most_taken_ns().load(std::memory_order_relaxed);
  while (most < own.taken_ns && !most_taken_ns().compare_exchange_weak(most, own.taken_ns, std::memory_order_relaxed)) {
  }
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
  program_time().owed_ns = 0;
}

}  // namespace agv
