// A device for tests: PyTorch's PrivateUse1 with two indices, whose memory is the host's and whose
// kernels are the CPU's, and which is stricter than a GPU. sim.py describes it.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include <pybind11/stl.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "autocast.h"
#include "kernels.h"
#include "rnn_cells.h"

namespace sim {
c10::impl::DeviceGuardImplRegistrar guard_registrar(kDevice, new Guard);

void install(const std::vector<std::string>& hidden) {
  hidden_prefixes = hidden;
  main_thread = PyThreadState_Get();
  state().main = std::this_thread::get_id();
  c10::SetAllocator(kDevice, &allocator);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  for (int index = 0; index < kIndices; ++index) lane_of(index, 0);
}

py::list waits() {
  Lock lock(state().mutex);
  py::list all;
  for (const auto& each : state().waits) {
    all.append(py::make_tuple(each.kind, each.op, as_python(each.lines), each.lines.of_device_thread));
  }
  return all;
}
py::list races() {
  Lock lock(state().mutex);
  py::list all;
  for (const auto& each : state().races) {
    all.append(py::make_tuple(each.kind, each.first_op, as_python(each.first), each.second_op, as_python(each.second)));
  }
  return all;
}
py::list kernels() {
  Lock lock(state().mutex);
  py::list all;
  for (const auto& each : state().kernels) {
    const auto& lane = state().lanes[each.lane];
    all.append(py::make_tuple(each.name, lane.index, lane.stream, each.start_ns, each.end_ns, each.bytes));
  }
  return all;
}
int64_t stream_clock(int index, int64_t stream, bool busy) {
  Lock lock(state().mutex);
  const auto& lane = state().lanes[lane_of(check_index(static_cast<c10::DeviceIndex>(index)), stream)];
  return busy ? lane.busy_ns : lane.clock_ns;
}

// Wait until the threads of the autograd engine sleep. What they release last may need the
// interpreter, and a thread that asks for it while it ends aborts the process.
void wait_for_engine() {
  py::gil_scoped_release release;
  for (int quiet = 0; quiet < 3;) {
    bool busy = false;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(task.path() / "stat");
      std::string stat((std::istreambuf_iterator<char>(file)), {});
      auto end = stat.rfind(')');
      if (stat.find("pt_autograd") < end && end != std::string::npos) busy |= stat[end + 2] != 'S';
    }
    quiet = busy ? 0 : quiet + 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
}  // namespace sim

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&sim::fallback>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sim::sparse_fallback>());
}
// Kernels that hold for every backend, such as that of clone(), precede a fallback, but the CPU's
// own for sparse tensors do not follow them.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(c10::DispatchKey::SparseCPU)) continue;
    std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&sim::sparse_fallback>());
  }
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", sim::empty);
  m.impl("empty_strided", sim::empty_strided);
  m.impl("_copy_from", sim::copy_from);
  m.impl("_copy_from_and_resize", sim::copy_from_and_resize);
  m.impl("_local_scalar_dense", sim::local_scalar);
  m.impl("record_stream", sim::record_stream);
  m.impl("_thnn_fused_lstm_cell", sim::lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", sim::lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", sim::gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", sim::gru_cell_backward);
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&sim::convolution>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&sim::convolution_backward>());
}
// Copies resolve these bits, as they do on the CPU.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define FIRST(OP, ...) #OP
#define SECOND(OP, ...) #__VA_ARGS__
#define LOWER(...) sim::implement<&sim::lower_precision>(m, FIRST(__VA_ARGS__, ), OVERLOAD(__VA_ARGS__));
#define FLOAT(...) sim::implement<&sim::in_float>(m, FIRST(__VA_ARGS__, ), OVERLOAD(__VA_ARGS__));
#define RESULT(...) sim::implement<&sim::with_float_result>(m, FIRST(__VA_ARGS__, ), OVERLOAD(__VA_ARGS__));
#define PROMOTE(...) sim::implement<&sim::promoted>(m, FIRST(__VA_ARGS__, ), OVERLOAD(__VA_ARGS__));
#define OVERLOAD(...) SECOND(__VA_ARGS__)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT)
  AT_FORALL_FP32_SET_OPT_DTYPE(RESULT)
  AT_FORALL_PROMOTE(PROMOTE)
  sim::implement<&sim::norm>(m, "norm", "Scalar");
  sim::implement<&sim::norm>(m, "norm", "ScalarOpt_dim");
  sim::implement<&sim::banned>(m, "binary_cross_entropy");
}

PYBIND11_MODULE(autogradviz_test_device, m) {
  namespace py = pybind11;
  using namespace sim;
  m.def("install", &install);
  m.def("current_device", [] { return static_cast<int>(current_index); });
  m.def("set_device", [](int index) {
    current_index = static_cast<c10::DeviceIndex>(check_index(static_cast<c10::DeviceIndex>(index)));
  });
  m.def("default_generator", [](int index) {
    return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(index)));
  });
  m.def("waits", &waits);
  m.def("races", &races);
  m.def("kernels", &kernels);
  m.def("clear", [] {
    Lock lock(state().mutex);
    state().waits.clear();
    state().races.clear();
    state().kernels.clear();
  });
  m.def("ignore_waits", [](int more) { state().waits_ignored += more; });
  m.def("get_mode", [] { return static_cast<int>(state().mode); });
  m.def("set_mode", [](int mode) { state().mode = static_cast<Mode>(mode); });
  m.def("keep_lines", [](bool on) { state().with_lines = on; });
  m.def("log_kernels", [](bool on) { state().log_kernels = on; });
  m.def("stream_clock", &stream_clock);
  m.def("host_clock", [](int index) {
    Lock lock(state().mutex);
    return host_clock(index);
  });
  m.def("host_work", [](int index, int64_t ns) {
    Lock lock(state().mutex);
    advance_host(index, host_clock(index) + ns);
  });
  m.def("set_costs", [](int64_t launch_ns, int64_t kernel_ns, int64_t bytes_per_ns) {
    state().costs = {launch_ns, kernel_ns, bytes_per_ns};
  });
  m.def("costs", [] {
    return py::make_tuple(state().costs.launch_ns, state().costs.kernel_ns, state().costs.bytes_per_ns);
  });
  m.def("capacity", [](int index) { return state().memory[check_index(static_cast<c10::DeviceIndex>(index))].capacity; });
  m.def("set_capacity", [](int index, size_t bytes) {
    state().memory[check_index(static_cast<c10::DeviceIndex>(index))].capacity = bytes;
  });
  m.def("submit", [](const std::string& name, const py::list& read, const py::list& written) {
    auto tensors = [](const py::list& list) {
      std::vector<at::Tensor> all;
      for (auto each : list) all.push_back(THPVariable_Unpack(each.ptr()));
      return all;
    };
    py::list views;
    for (auto& each : submit(name, tensors(read), tensors(written))) {
      views.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(each)));
    }
    return views;
  });
  m.def("wait_for_engine", &wait_for_engine);
  m.def("not_arrived", [] { return state().arrivals.size(); });
}
