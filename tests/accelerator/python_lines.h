// The Python lines from which the device was called.
#pragma once
#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

namespace sim {
namespace py = pybind11;

struct Line {
  std::string file;
  int number = 0;
  std::string function;
};

// The stack of a call, innermost first, without the frames of PyTorch and of this device.
struct Lines {
  std::vector<Line> lines;
  bool of_device_thread = false;  // then they are those of the main thread, which waits
};

constexpr int kMostLines = 12;
inline std::vector<std::string> hidden_prefixes;  // set once, from Python
inline PyThreadState* main_thread = nullptr;

inline std::string text(PyObject* string) {
  const char* content = string ? PyUnicode_AsUTF8(string) : nullptr;
  if (!content) PyErr_Clear();
  return content ? content : "";
}

inline bool hidden(const std::string& file) {
  if (file.rfind("<frozen", 0) == 0) return true;
  for (const auto& prefix : hidden_prefixes) {
    if (file.compare(0, prefix.size(), prefix) == 0) return true;
  }
  return false;
}

inline void read_frames(PyThreadState* thread, std::vector<Line>& lines) {
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame && lines.size() < kMostLines) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    std::string file = text(code->co_filename);
    if (!hidden(file)) {
      lines.push_back({std::move(file), PyFrame_GetLineNumber(frame), text(code->co_name)});
    }
    Py_DECREF(code);
    PyFrameObject* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
}

// The lines of the calling thread. A thread of the engine for a device has no frame: those of the
// main thread then, which waits in backward().
inline Lines current_lines() {
  Lines found;
  if (!Py_IsInitialized()) return found;
  py::gil_scoped_acquire gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyThreadState* own = PyThreadState_Get();
  read_frames(own, found.lines);
  if (found.lines.empty() && main_thread && own != main_thread) {
    found.of_device_thread = true;
    read_frames(main_thread, found.lines);
  }
  PyErr_Restore(type, value, traceback);
  return found;
}

inline py::object as_python(const Lines& stack) {
  py::list lines;
  for (const auto& line : stack.lines) {
    lines.append(py::make_tuple(line.file, line.number, line.function));
  }
  return std::move(lines);
}
}  // namespace sim
