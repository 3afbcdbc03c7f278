// Switches observers off where nothing is recorded that they would see.
//
// The dispatcher boxes the arguments and results of each operator for an observer, which costs up to
// a microsecond even if the observer ignores them: a fifth of a small compiled step, a tenth of an
// eager one. So they are off while a compiled region runs whose graph says all that they would see,
// and inside a kernel that calls other operators. Both run within a call that the dispatcher reports
// (a custom Function, a node, an operator): the context of the report lives until the call ends,
// whether or not it raises an exception.
#pragma once

#include <ATen/record_function.h>

namespace agv {

// Switch the observers of this thread off, unless there are others, such as a profiler. Return
// whether they are off now.
inline bool switch_observers_off() {
  if (at::getStepCallbacks(at::RecordScope::FUNCTION).callbacks_.size() != 1) return false;
  at::enableRecordFunction(false);
  return true;
}

struct Quiet {
  int scopes = 0;  // calls on this thread whose end is reported
  bool on = false;
};

inline Quiet& quiet() {
  static thread_local Quiet found;
  return found;
}

// A call in which observers may be switched off. They are on again when it ends.
class QuietScope {
 public:
  QuietScope() { ++quiet().scopes; }
  ~QuietScope() {
    Quiet& state = quiet();
    --state.scopes;
    if (state.on) at::enableRecordFunction(true);
    state.on = false;
  }
  QuietScope(const QuietScope&) = delete;
  QuietScope& operator=(const QuietScope&) = delete;
};

// Switch the observers of this thread off until the innermost scope ends.
inline void observe_no_more_operators() {
  Quiet& state = quiet();
  if (state.scopes > 0 && switch_observers_off()) state.on = true;
}

// The kernel of an operator, in which observers may be off.
class QuietKernel {
 public:
  QuietKernel() = default;
  ~QuietKernel() { pause(); }
  QuietKernel(const QuietKernel&) = delete;
  QuietKernel& operator=(const QuietKernel&) = delete;

  void begin() { is_quiet_ = was_quiet_ = switch_observers_off(); }

  // Code of the program runs inside the kernel.
  void pause() {
    if (is_quiet_) at::enableRecordFunction(true);
    is_quiet_ = false;
  }

  void resume() {
    if (was_quiet_) is_quiet_ = switch_observers_off();
  }

  // Return whether observers were off.
  bool end() {
    pause();
    return was_quiet_;
  }

 private:
  bool is_quiet_ = false;
  bool was_quiet_ = false;
};

}  // namespace agv
