// Autocast with PyTorch's own lists. The kernels are boxed: PyTorch's templates take a minute to compile.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels.h"

namespace sim {
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{DispatchKey::AutocastPrivateUse1};
};
inline void cast_arguments(const c10::OperatorHandle& op, Stack* stack, at::ScalarType to) {
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    (*stack)[i] = map_tensors((*stack)[i], [&](const at::Tensor& each) {
      return at::autocast::cached_cast(to, each, kDevice);
    });
  }
}
inline void lower_precision(const c10::OperatorHandle& op, Stack* stack) {
  NoAutocast guard;
  cast_arguments(op, stack, at::autocast::get_lower_precision_fp_from_device_type(kDevice));
  op.callBoxed(stack);
}
inline void in_float(const c10::OperatorHandle& op, Stack* stack) {
  NoAutocast guard;
  cast_arguments(op, stack, at::kFloat);
  op.callBoxed(stack);
}
inline bool first_is_eligible(const c10::OperatorHandle& op, const Stack& stack) {
  const auto& value = stack[stack.size() - op.schema().arguments().size()];
  return value.isTensor() && at::autocast::is_eligible(value.toTensor(), kDevice);
}
inline void with_float_result(const c10::OperatorHandle& op, Stack* stack) {
  NoAutocast guard;
  if (first_is_eligible(op, *stack)) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto& value = (*stack)[stack->size() - arguments.size() + i];
      if (arguments[i].name() == "dtype" && value.isNone()) value = static_cast<int64_t>(at::kFloat);
    }
  }
  op.callBoxed(stack);
}
inline void norm(const c10::OperatorHandle& op, Stack* stack) {
  NoAutocast guard;
  if (!first_is_eligible(op, *stack)) return op.callBoxed(stack);
  bool dim = op.schema().overload_name() == "ScalarOpt_dim";
  stack->emplace_back(static_cast<int64_t>(at::kFloat));
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("aten::norm", dim ? "ScalarOpt_dim_dtype" : "ScalarOpt_dtype")
      .callBoxed(stack);
}
inline void promoted(const c10::OperatorHandle& op, Stack* stack) {
  NoAutocast guard;
  auto to = at::autocast::get_lower_precision_fp_from_device_type(kDevice);
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    each_tensor((*stack)[i], [&](const at::Tensor& each) { to = at::autocast::prioritize(to, each, kDevice); });
  }
  cast_arguments(op, stack, to);
  op.callBoxed(stack);
}
inline void banned(const c10::OperatorHandle&, Stack*) {
  TORCH_CHECK(false, "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
                     "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
                     "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
                     "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
                     "safe to autocast.");
}

template <c10::KernelFunction::BoxedKernelFunction* kernel>
void implement(torch::Library& library, const char* name, const char* overload = "") {
  std::string full = *overload ? std::string(name) + "." + overload : name;
  library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<kernel>());
}
}  // namespace sim
