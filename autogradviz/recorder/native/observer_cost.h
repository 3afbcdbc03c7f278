// What PyTorch takes to call an observer of operators: it is part of no operator of the program.
#pragma once

#include "program_time.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <memory>

namespace agv {

// Return the shortest time of some calls of a cheap operator, in nanoseconds per call.
inline int64_t time_of_cheap_operator(const at::Tensor& tensor) {
  static auto call = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("aten::dense_dim", "")
                         .typed<int64_t(const at::Tensor&)>();
  constexpr int ROUNDS = 8, CALLS = 25;
  int64_t shortest = INT64_MAX;
  for (int round = 0; round < ROUNDS; ++round) {
    int64_t began = clock_ns();
    for (int i = 0; i < CALLS; ++i) call.call(tensor);
    shortest = std::min(shortest, clock_ns() - began);
  }
  return shortest / CALLS;
}

inline int64_t measure_observer_call() {
  // An observer or a mode of the user would see the calls.
  if (at::hasCallbacks() || c10::impl::TorchDispatchModeTLS::any_modes_set()) return 0;
  at::Tensor tensor(at::detail::empty_cpu({1}, at::kFloat));
  int64_t alone = time_of_cheap_operator(tensor);
  at::RecordFunctionCallback nothing([](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; },
                                     [](const at::RecordFunction&, at::ObserverContext*) {});
  auto handle = at::addThreadLocalCallback(
      nothing.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  int64_t observed = time_of_cheap_operator(tensor);
  at::removeCallback(handle);
  return std::max<int64_t>(0, observed - alone);
}

// Nanoseconds that a call of the observer takes, by the first measurement in this process.
inline int64_t observer_call_ns() {
  static int64_t measured = measure_observer_call();
  return measured;
}

}  // namespace agv
