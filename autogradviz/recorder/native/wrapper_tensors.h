// The tensors that some tensors of PyTorch hold, such as the local part of a DTensor.
//
// They are attributes of Python objects, which can be read with the GIL only, and no lock of a
// recording may be held while it is taken. So they are read first, and looked up with the lock.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstring>
#include <vector>

namespace agv {

struct Wrapper {
  const c10::TensorImpl* tensor;
  at::Tensor inner;
  c10::SmallVector<int64_t, 5> sizes;
  int64_t layout;  // of a DTensor, or -1; torch_internals/wrapper_tensors.py has them by number
};

// Call a function of torch_internals/wrapper_tensors.py; null and no error if that fails. Holds the
// GIL.
inline PyObject* call_wrapper_tensors(const char* function, PyObject* argument) {
  static PyObject* const module = PyImport_ImportModule("autogradviz.recorder.torch_internals.wrapper_tensors");
  PyObject* found = module == nullptr ? nullptr : PyObject_CallMethod(module, function, "O", argument);
  if (found == nullptr) PyErr_Clear();
  return found;
}

inline int64_t layout_number(PyObject* tensor) {
  PyObject* number = call_wrapper_tensors("layout_number", tensor);
  int64_t found = number == nullptr ? -1 : PyLong_AsLongLong(number);
  PyErr_Clear();
  Py_XDECREF(number);
  return found;
}

inline std::vector<Wrapper>& known_wrappers() {
  static thread_local std::vector<Wrapper> found;
  return found;
}

inline const Wrapper* find_wrapper(const c10::TensorImpl& tensor) {
  for (const Wrapper& each : known_wrappers())
    if (each.tensor == &tensor) return &each;
  return nullptr;
}

// The attribute that holds the inner tensor, by class. An attribute of a user's class may run the
// user's code.
struct WrapperClass {
  const char* name;
  const char* module;
  const char* attribute;
};

constexpr WrapperClass WRAPPER_CLASSES[] = {
    {"DTensor", "torch.distributed.tensor", "_local_tensor"},
    {"AsyncCollectiveTensor", "torch.distributed._functional_collectives", "elem"},
};

// Return the attribute of a class that holds a tensor, null for any other class. Holds the GIL.
inline const char* inner_attribute(PyTypeObject* type) {
  for (const WrapperClass& each : WRAPPER_CLASSES) {
    if (std::strcmp(type->tp_name, each.name) != 0) continue;
    PyObject* module = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__");
    const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
    bool matches = name != nullptr && std::strcmp(name, each.module) == 0;
    Py_XDECREF(module);
    if (matches) return each.attribute;
  }
  return nullptr;
}

// Remembers inner tensors until it is destroyed, for the thread that made it.
class WrapperScope {
 public:
  WrapperScope() : begin_(known_wrappers().size()) {}
  WrapperScope(const WrapperScope&) = delete;
  WrapperScope& operator=(const WrapperScope&) = delete;

  ~WrapperScope() {
    known_wrappers().resize(begin_);
  }

  // Read the tensor that another one holds, if its class is known. No lock is held.
  void read(const at::Tensor& tensor) {
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (!impl.is_python_dispatch()) return;
    PyObject* object = impl.pyobj_slot()->load_pyobj();
    if (object == nullptr) return;
    HeldGil gil;
    if (!gil) return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    const char* attribute = inner_attribute(Py_TYPE(object));
    at::Tensor inner = attribute == nullptr ? at::Tensor() : tensor_in(object, attribute);
    if (inner.defined()) {
      c10::IntArrayRef sizes = impl.sizes();
      read(inner);
      known_wrappers().push_back({&impl, std::move(inner), {sizes.begin(), sizes.end()}, layout_number(object)});
    }
    PyErr_Restore(type, error, traceback);
  }

 private:
  static at::Tensor tensor_in(PyObject* object, const char* attribute) {
    PyObject* inner = PyObject_GetAttrString(object, attribute);
    PyObject* address = inner == nullptr ? nullptr : PyObject_GetAttrString(inner, "_cdata");
    void* pointer = address == nullptr ? nullptr : PyLong_AsVoidPtr(address);
    at::Tensor found;
    if (pointer != nullptr)
      found = at::Tensor(c10::intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(
          static_cast<c10::TensorImpl*>(pointer)));
    Py_XDECREF(address);
    Py_XDECREF(inner);
    PyErr_Clear();
    return found;
  }

  size_t begin_;
};

}  // namespace agv
