// Switches observers off while a compiled region runs whose graph says all that they would see.
//
// The dispatcher boxes the arguments and results of each operator for an observer, which costs a
// fifth of a small compiled step even if the observer ignores them. A region runs within the call
// of its custom Function or within its node, both of which the dispatcher reports: the context of
// the report lives until the call ends, whether or not it raises an exception.
#pragma once

#include <ATen/record_function.h>

namespace agv {

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

// Switch the observers of this thread off until the innermost scope ends, unless there are others,
// such as a profiler.
inline void observe_no_more_operators() {
  Quiet& state = quiet();
  if (state.scopes == 0 || at::getStepCallbacks(at::RecordScope::FUNCTION).callbacks_.size() != 1) return;
  at::enableRecordFunction(false);
  state.on = true;
}

}  // namespace agv
