// The fused cells of LSTM and GRU, which PyTorch calls on devices only.
#pragma once

#include <ATen/ATen.h>

namespace sim {
using OptionalTensor = std::optional<at::Tensor>;

inline at::Tensor plus(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}
inline at::Tensor or_zeros(const OptionalTensor& gradient, const at::Tensor& like) {
  return gradient && gradient->defined() ? *gradient : at::zeros_like(like);
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cx, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  auto gates = (plus(input, input_bias) + plus(hidden, hidden_bias)).chunk(4, 1);
  auto in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx, const at::Tensor& cy,
    const at::Tensor& workspace, bool has_bias) {
  auto parts = workspace.chunk(4, 1);
  const auto &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  auto tanh = cy.tanh(), hy = or_zeros(grad_hy, cy);
  auto grad = hy * out * (1 - tanh * tanh) + or_zeros(grad_cy, cy);
  auto gates = at::cat({grad * cell * in * (1 - in), grad * cx * forget * (1 - forget), grad * in * (1 - cell * cell),
                        hy * tanh * out * (1 - out)}, 1);
  return {gates, grad * forget, has_bias ? gates.sum(0) : at::Tensor()};
}

inline std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input, const at::Tensor& hidden,
                                                   const at::Tensor& hx, const OptionalTensor& input_bias,
                                                   const OptionalTensor& hidden_bias) {
  auto from_input = plus(input, input_bias).chunk(3, 1), from_hidden = plus(hidden, hidden_bias).chunk(3, 1);
  auto reset = (from_input[0] + from_hidden[0]).sigmoid(), keep = (from_input[1] + from_hidden[1]).sigmoid();
  auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + keep * (hx - fresh), at::cat({reset, keep, fresh, hx, from_hidden[2]}, 1)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  auto parts = workspace.chunk(5, 1);
  const auto &reset = parts[0], &keep = parts[1], &fresh = parts[2], &hx = parts[3], &hidden = parts[4];
  auto of_keep = grad * (hx - fresh) * keep * (1 - keep), of_fresh = grad * (1 - keep) * (1 - fresh * fresh);
  auto of_reset = of_fresh * hidden * reset * (1 - reset);
  auto of_input = at::cat({of_reset, of_keep, of_fresh}, 1), of_hidden = at::cat({of_reset, of_keep, of_fresh * reset}, 1);
  return {of_input, of_hidden, grad * keep, has_bias ? of_input.sum(0) : at::Tensor(),
          has_bias ? of_hidden.sum(0) : at::Tensor()};
}
}  // namespace sim
