// Which tensors have entries that C++ can read, and the kinds of the others;
// torch_internals/unreadable_tensors.py names them in the same way, and says why.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <Python.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace agv {

inline const PyTypeObject* class_of(const c10::TensorImpl& impl) {
  PyObject* object = impl.pyobj_slot()->load_pyobj();
  return object == nullptr ? nullptr : Py_TYPE(object);
}

// PyTorch's class of fake tensors. Reading their sizes and storages runs no Python code.
inline const PyTypeObject*& fake_class() {
  static const PyTypeObject* found = nullptr;
  return found;
}

inline bool is_fake(const c10::TensorImpl& impl) {
  return impl.is_python_dispatch() && fake_class() != nullptr && class_of(impl) == fake_class() &&
      !impl.has_symbolic_sizes_strides();
}

inline std::string name_of_class(const PyTypeObject* type) {
  std::string name = type == nullptr ? "Tensor" : type->tp_name;
  return name.substr(name.rfind('.') + 1);
}

// Return the kind of a tensor without entries of its own; empty for other tensors.
inline std::string kind_without_entries(const c10::TensorImpl& impl) {
  if (impl.is_python_dispatch()) {
    const PyTypeObject* type = class_of(impl);
    if (type != nullptr && type == fake_class()) return "fake tensors";
    return "tensors of the class " + name_of_class(type);
  }
  c10::DispatchKeySet keys = impl.key_set();
  auto has = [&](std::initializer_list<c10::DispatchKey> some) { return keys.has_any(c10::DispatchKeySet(some)); };
  if (has({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Batched}))
    return "tensors inside of transforms of torch.func";
  if (has({c10::DispatchKey::Functionalize})) return "functional tensors";
  if (has({c10::DispatchKey::NestedTensor})) return "nested tensors";
  c10::Layout layout = impl.layout();
  if (layout == c10::kMkldnn) return "tensors with the layout torch._mkldnn";
  if (layout != c10::kStrided) return "sparse tensors";
  if (impl.device().is_meta()) return "tensors on the meta device";
  if (has({c10::DispatchKey::Quantized})) return "quantized tensors";
  if (has({c10::DispatchKey::ZeroTensor})) return "zero tensors";
  return "";
}

// What the recorder does not observe, each once, until Python takes it. Any thread may add to it.
class Limits {
 public:
  void add(const char* hook_point, std::string kind) {
    std::pair<std::string, std::string> found{hook_point, std::move(kind)};
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& each : known_)
      if (each == found) return;
    known_.push_back(found);
    new_.push_back(std::move(found));
  }

  std::vector<std::pair<std::string, std::string>> take() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(new_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> known_;
  std::vector<std::pair<std::string, std::string>> new_;
};

}  // namespace agv
